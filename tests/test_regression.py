"""A changed claim turns the run red: notebooks altered on purpose, run by pytest with the book's settings."""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ["pyproject.toml", "requirements.txt", "conftest.py", "tests/sanitize.cfg", "tests/offline/sitecustomize.py"]


def said(text):
    return [new_output("stream", name="stdout", text=f"{text}\n")]


def shown(**data):
    return [new_output("display_data", {name.replace("_", "/"): text for name, text in data.items()})]


def raised(name, message):
    return [new_output("error", ename=name, evalue=message, traceback=[])]


IMG = '<img alt="x" src="data:image/png;base64,{}">'
PLOT = f"""from IPython.display import HTML, display\ndisplay(HTML('{IMG.format("AAAA")}'))"""
OBJECT = {"text_plain": "<IPython.core.display.HTML object>"}
LATER = ["raises-exception"]

# What may differ from the saved output: (what, source, saved outputs, tags).
PASSES = [
    ("uuid", "import uuid\nprint(uuid.uuid4())", said("6a1f0d1e-0000-4000-8000-00000000abcd"), []),
    ("interrupt-id", "print(uuid.uuid4().hex)", said("0" * 32), []),
    ("time", "import datetime\nprint(datetime.datetime.now().isoformat())", said("2026-01-02T03:04:05.678901"), []),
    ("address", "print(object())", said("<object object at 0x7f0000000000>"), []),
    ("timing", "print(7, 'ms, or', 1.5e-3, 's')", said("812.4 µs, or 8e-4 s"), ["timing"]),
    ("timing-plot", PLOT, shown(text_html=IMG.format("BBBB"), **OBJECT), ["timing"]),
    ("error", "raise ValueError('no')", raised("ValueError", "no"), LATER),
    ("semicolon", "7;", [], []),
    ("this-machine", "import socket\nsocket.create_server(('127.0.0.1', 0)).close()", [], []),
]
# What may not.
FAILS = [
    ("stream", "print('kept')", said("lost"), []),
    ("number", "print(7, 'ms')", said("8 ms"), []),
    ("value", "{'notes': 2}", [new_output("execute_result", {"text/plain": "{'notes': 1}"}, execution_count=1)], []),
    ("plot", PLOT, shown(text_html=IMG.format("BBBB"), **OBJECT), []),
    ("timing-words", "print(7, 'ms')", said("8 hours"), ["timing"]),
    ("new-output", "print('more')", [], []),
    ("lost-output", "pass", said("more"), []),
    ("other-message", "raise ValueError('no')", raised("ValueError", "yes"), LATER),
    ("other-error", "raise ValueError('no')", raised("KeyError", "no"), LATER),
    ("no-error", "pass", raised("ValueError", "no"), LATER),
    ("untagged-error", "raise ValueError('no')", raised("ValueError", "no"), []),
    ("network", "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=1)", [], []),
    (
        "name-lookup",
        "socket.gethostbyname_ex('langgraph.invalid'), socket.getaddrinfo('langgraph.invalid', 80)",
        [],
        [],
    ),
    ("dead-kernel", "import os\nos._exit(1)", [], []),
]
# In a solution outputs may differ, but nothing may fail, and a test that passes shows nothing.
GRADED = {"nbgrader": {"grade": True, "points": 1}}


def notebook(cells):
    """A notebook whose cells have been run, from (id, source, outputs, tags)."""
    made = [
        new_code_cell(text, id=name, outputs=copy.deepcopy(outputs), execution_count=count, metadata={"tags": tags})
        for count, (name, text, outputs, tags) in enumerate(cells, 1)
    ]
    return new_notebook(cells=made)


def altered(source):
    """A copy of a notebook with one saved output of each kind altered, and the ids of those cells."""
    page, done = copy.deepcopy(source), {}
    for cell in page.cells:
        if cell.cell_type != "code" or cell.id in done.values() or "timing" in cell.metadata.get("tags", []):
            continue
        for output in cell.outputs:
            holder = output.get("data", output)
            for kind in ("text", "evalue", "text/markdown", "text/html", "text/plain"):
                if kind in holder and kind not in done and cell.id not in done.values():
                    holder[kind] = "not " + holder[kind]
                    done[kind] = cell.id
    return page, set(done.values())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The output of pytest over a small book of altered copies, and the ids of altered cells."""
    book = tmp_path_factory.mktemp("book")
    for name in SETTINGS:
        (book / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, book / name)
    chapter = nbformat.read(min(ROOT.glob("chapters/*.ipynb"), key=lambda path: path.stat().st_size), as_version=4)
    changed, ids = altered(chapter)
    solution = notebook([(name, source, outputs, []) for name, source, outputs, _ in FAILS[:1] + FAILS[10:11]])
    solution.cells += [new_code_cell(text, id=name, metadata=GRADED) for name, text in (("quiet", "1;"), ("loud", "1"))]
    pages = {
        "chapters/real": chapter,
        "chapters/changed": changed,
        "chapters/passes": notebook(PASSES),
        "chapters/fails": notebook(FAILS),
        "solutions/solution": solution,
        "exercises/exercise": notebook(FAILS),
    }
    for name, page in pages.items():
        (book / name).parent.mkdir(exist_ok=True)
        (book / f"{name}.ipynb").write_text(json.dumps(page), encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-p",
            "no:cacheprovider",
            "--color=no",
            "--numprocesses=0",
            ".",
        ],
        cwd=book,
        capture_output=True,
        text=True,
        timeout=150,
    )
    return done, ids


def cells(run, notebook, outcome):
    """Ids of the cells of `notebook` that ended in `outcome`."""
    return set(re.findall(rf"{notebook}\.ipynb::Cell \d+ (\S+) {outcome}", run[0].stdout))


def test_a_chapter_passes_as_it_was_saved(run):
    assert cells(run, "real", "PASSED") and not cells(run, "real", "FAILED"), run[0].stdout


def test_an_altered_output_turns_the_run_red_and_names_its_cell(run):
    assert run[0].returncode == 1
    assert run[1] and cells(run, "changed", "FAILED") == run[1]


def test_only_what_differs_by_nature_is_masked(run):
    assert cells(run, "passes", "PASSED") == {name for name, *_ in PASSES}


@pytest.mark.parametrize("name", [name for name, *_ in FAILS])
def test_nothing_else_is(run, name):
    assert name in cells(run, "fails", "FAILED")


def test_solutions_run_without_errors_and_their_tests_are_silent(run):
    assert cells(run, "solution", "PASSED") == {"stream", "quiet"}
    assert cells(run, "solution", "FAILED") == {"untagged-error", "loud"}


def test_exercises_and_answers_are_not_run(run):
    assert "exercise.ipynb" not in run[0].stdout


def test_the_summary_counts_cells(run):
    count = len(re.findall(r"::Cell \d+ \S+ (?:PASSED|FAILED)", run[0].stdout))
    assert f"{count} notebook cells, 0 bank answers, 0 other tests" in run[0].stdout
