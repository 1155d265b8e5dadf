"""Crashes: every way to die, in every durability mode, leaves what the book says it leaves, and nothing else behind."""

import contextlib
import json
import operator
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, TypedDict

import nbformat
import psutil
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from nbclient import NotebookClient

from between_nodes import children, databases
from between_nodes.crashes import HOWS, crash, effect, table

REPEATS = int(os.environ.get("BOOK_REPEATS", "1"))
HARD = ("SIGKILL", "SIGTERM", "os._exit")  # the process has no time to save
LOST = "EmptyInputError: Received no input for __start__"
EXITS = {"os._exit": "exit code 1", "SIGINT": "KeyboardInterrupt", "sys.exit": "SystemExit"}
EXITS |= {"exception": "RuntimeError", "interrupt": "paused"}
ROUNDS = 5


class State(TypedDict):
    done: Annotated[list[int], operator.add]


def work(state):
    number = len(state["done"]) + 1
    effect(number)
    return {"done": [number]}


def more(state):
    return "work" if len(state["done"]) < ROUNDS else END


def loop():
    builder = StateGraph(State)
    builder.add_node(work)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", more, ["work", END])
    return builder


def expected(how, durability, saves):
    """Checkpoints on disk after a death in the third round."""
    if how in HARD and (durability == "exit" or saves == "held"):
        return []
    return [2] if durability == "exit" else [-1, 0, 1, 2]


def check(how, durability, saves, address=None):
    outcome = crash(loop, {"done": []}, how=how, at=3, durability=durability, saves=saves, address=address)
    tried = (how, durability, saves, outcome)
    on_disk = expected(how, durability, saves)
    assert outcome.exit == EXITS.get(how, how), tried
    assert outcome.on_disk == on_disk, tried
    assert outcome.ran_before == [1, 2, 3], tried
    assert outcome.ran_on_resume == ([3, 4, 5] if on_disk else []), tried
    assert outcome.resumed == ("finished" if on_disk else LOST), tried
    assert outcome.again == ([3] if on_disk else []), tried
    assert outcome.next == (("work",) if on_disk else ()), tried
    trace = {"exception": [("work", "error")], "interrupt": [("work", "interrupt")]}
    assert outcome.pending == trace.get(how, []), tried
    assert outcome.state == ({"done": [1, 2]} if on_disk else {}), tried
    assert outcome.result == ({"done": [1, 2, 3, 4, 5]} if on_disk else None), tried


MODES = [("sync", "free"), ("async", "stored"), ("async", "held"), ("exit", "free")]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("durability, saves", MODES)
def test_what_is_on_disk_and_what_runs_again(how, durability, saves):
    for _ in range(REPEATS):
        check(how, durability, saves)


@pytest.mark.parametrize("how", ["SIGKILL", "exception"])
@pytest.mark.parametrize(
    "durability, saves", [("sync", "free"), ("async", "stored"), ("async", "held"), ("exit", "free")]
)
def test_postgresql_agrees(how, durability, saves):
    for _ in range(REPEATS):
        check(how, durability, saves, databases.postgres())


def test_a_free_race_of_async_stays_within_its_range():
    for _ in range(REPEATS):
        outcome = crash(loop, {"done": []}, at=3, durability="async")
        assert outcome.on_disk == [-1, 0, 1, 2][: len(outcome.on_disk)]
        assert set(outcome.ran_on_resume) <= {1, 2, 3, 4, 5}
        assert (outcome.resumed == LOST) == (not outcome.on_disk)


def test_async_falls_behind_a_slow_saver():
    assert crash(loop, {"done": []}, at=3, durability="async", save_seconds=0.5).on_disk == []


def test_before_the_effect_and_without_a_crash():
    outcome = crash(loop, {"done": []}, at=3, moment="before", durability="sync")
    assert (outcome.ran_before, outcome.ran_on_resume, outcome.again) == ([1, 2], [3, 4, 5], [])
    outcome = crash(loop, {"done": []}, how=None, durability="sync")
    assert (outcome.exit, outcome.resumed, outcome.at) == ("finished", "finished", None)
    assert outcome.effects == Counter([1, 2, 3, 4, 5])


def quick(state):
    effect("quick")
    return {"done": [1]}


def slow(state):
    time.sleep(0.2)
    effect("slow")
    return {"done": [2]}


def fan():
    builder = StateGraph(State)
    for node in (quick, slow):
        builder.add_node(node)
        builder.add_edge(START, node.__name__)
    return builder


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_finished_sibling_is_kept_and_not_run_again(durability):
    outcome = crash(fan, {"done": []}, at=2, durability=durability, saves="stored")
    assert outcome.pending == [("quick", "result")] and outcome.next == ("slow",)
    assert outcome.effects == {"quick": 1, "slow": 2}


def test_without_a_resume_the_thread_stays_as_the_crash_left_it():
    path = databases.sqlite_file("left")
    outcome = crash(loop, {"done": []}, at=3, durability="sync", address=path, resume=False)
    assert (outcome.resumed, outcome.result, outcome.ran_on_resume) == ("", None, [])
    with SqliteSaver.from_conn_string(outcome.address) as saver:
        graph = loop().compile(checkpointer=saver)
        assert graph.invoke(None, {"configurable": {"thread_id": outcome.thread}})["done"] == [1, 2, 3, 4, 5]


def hang(state):
    effect("hang")
    while True:
        time.sleep(0.01)


def stuck():
    return StateGraph(State).add_node(hang).add_edge(START, "hang")


def test_a_hung_graph_is_ended_at_its_time_limit():
    outcome = crash(stuck, {"done": []}, how=None, durability="sync", resume=False, seconds=1)
    assert (outcome.exit, outcome.on_disk, outcome.ran_before) == ("time limit", [-1, 0], ["hang"])
    with pytest.raises(RuntimeError, match="could not be read after the crash: time limit"):
        crash(stuck, {"done": []}, how="exception", durability="sync", seconds=1)


def test_a_graph_that_ends_too_early_is_named():
    with pytest.raises(RuntimeError, match="5 effects, then finished: the graph ended before the crash at number 9"):
        crash(loop, {"done": []}, at=9)


@pytest.mark.parametrize(
    "wrong", [{"how": "SIGSTOP"}, {"durability": "bogus"}, {"moment": "now"}, {"saves": "held", "durability": "sync"}]
)
def test_arguments_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ValueError):
        crash(loop, {"done": []}, **wrong)


def test_a_table_has_no_path_and_no_number_that_changes():
    outcome = crash(loop, {"done": []}, at=3, durability="sync")
    assert table([outcome]).data == outcome._repr_markdown_()
    assert outcome._repr_markdown_().splitlines()[-1] == (
        "| SIGKILL | 3 | SQLite | sync | SIGKILL | -1 to 2 | 1 to 3 | finished | 3 to 5 |"
    )
    assert str(databases.folder()) not in repr(outcome)


def test_an_effect_outside_a_crash_does_nothing():
    assert work({"done": []}) == {"done": [1]}


# Children: the mechanism below.


def talk(number):
    print("hello", number)
    return number * 2


def burn():
    while True:
        pass


def fail():
    raise KeyError("x")


def test_children_run_side_by_side_and_return_values_and_prints():
    pair = [children.start(talk, number) for number in (1, 2)]
    assert [child.wait() for child in pair] == [
        children.Ended("returned", 2, printed="hello 1\n"),
        children.Ended("returned", 4, printed="hello 2\n"),
    ]
    assert len({child.pid for child in pair} | {os.getpid()}) == 3


def test_a_child_that_fails_hangs_or_is_killed_is_told_apart():
    assert children.run(fail) == children.Ended("KeyError", error="KeyError: 'x'")
    assert children.run(burn, seconds=0.5).exit == "time limit"
    child = children.start(burn)
    child.kill()
    assert child.wait().exit == "SIGKILL"


def test_a_child_nobody_waits_for_ends_by_itself():
    process = psutil.Process(children.start(burn, seconds=0.1).pid)
    process.wait(5)


def test_no_process_is_left_but_the_helper():
    crash(loop, {"done": []}, at=3)
    left = [process.cmdline() for process in psutil.Process().children(recursive=True)]
    left = [" ".join(words) for words in left]
    left = [words for words in left if "postgres" not in words and "classroom" not in words]  # other tests
    helpers = ("multiprocessing.forkserver", "resource_tracker", "sweeper.py")
    assert len(left) <= 3 and all(any(name in words for name in helpers) for words in left), left


def test_a_kernel_that_is_killed_leaves_no_server_and_no_folder():
    code = "from between_nodes.databases import folder, postgres; postgres(); print(folder(), flush=True); input()"
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes) as process:
        path = Path(process.stdout.readline().strip())
        server = psutil.Process(int((path / "postgres" / "postmaster.pid").read_text().split()[0]))
        process.kill()
    server.wait(10)
    for _ in range(50):
        if not path.exists():
            break
        time.sleep(0.1)
    assert not path.exists()


def test_functions_that_cannot_travel_are_named():
    def inner():
        pass

    for function in (inner, lambda: 1):
        with pytest.raises(ValueError, match="top level of a cell"):
            children.start(function)


SCRIPT = """
import operator
from typing import Annotated, TypedDict
import langgraph.graph as lg
from between_nodes.crashes import crash, effect

LIMIT, names = 4, {"node": "work"}

def add(old, new):
    return old + new

class State(TypedDict):
    done: Annotated[list[int], add]

def work(state):
    effect(len(state["done"]))
    return {"done": [0]}

route = lambda state: "work" if len(state["done"]) < LIMIT else lg.END

def build():
    builder = lg.StateGraph(State)
    builder.add_node(names["node"], work)
    builder.add_edge(lg.START, "work")
    builder.add_conditional_edges("work", route, ["work", lg.END])
    return builder

"""
CALL = 'print(crash(build, {"done": []}, at=3, durability="sync").on_disk)'


def test_a_script_without_a_guard_leaves_no_process_and_no_file(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + CALL + "\nfrom between_nodes.databases import folder\nprint(folder())")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    *printed, folder = done.stdout.split("\n")[:-1]
    assert (printed, done.stderr) == (["[-1, 0, 1, 2]"], "")
    assert not Path(folder).exists()


def test_cells_of_a_notebook_travel_and_the_latest_definition_counts():
    stale = SCRIPT.replace("work(state):", "work(state):\n    1 / 0")
    processes = "import psutil\n[p.pid for p in [psutil.Process(), *psutil.Process().children(recursive=True)]]"
    cells = ["%load_ext between_nodes", stale, "syntax error", SCRIPT, CALL, processes]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    notebook.cells[2].metadata["tags"] = ["raises-exception"]
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    assert notebook.cells[4].outputs[0].text == "[-1, 0, 1, 2]\n"
    numbers = json.loads(notebook.cells[5].outputs[0].data["text/plain"])
    assert len(numbers) >= 2
    for number in numbers:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(number).wait(5)
