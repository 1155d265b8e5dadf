"""`make bench`: grading, and running the chapters, measured against the stock tools on the same machine in one run.

    python tests/bench.py [grading] [otter] [regression] [kernels]

Whole commands are measured by the clock, each in a process of its own. Without a name, everything is measured, and
tests/bench.json (the figures) and tests/bench.png (a picture of them) are written. Nothing else should be running.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from matplotlib.figure import Figure
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook
from test_answer_bank import fill_in, read_bank, read_solution
from test_grading import cell as nbgrader_cell

from classroom import ROOT, fence
from classroom.course import release_of, setting
from classroom.kernels import AsyncWarmKernelManager

SMALL = "98_small"
ANSWER = """### BEGIN SOLUTION
from typing import TypedDict
from langgraph.graph import StateGraph

builder = StateGraph(TypedDict("State", {"n": int})).add_node("add", lambda state: {"n": state["n"] + 1})
graph = builder.set_entry_point("add").compile()
### END SOLUTION"""
PARTS = "grading", "otter", "regression", "kernels"
RESULTS = Path(__file__).with_suffix(".json")
# Stock tools find no setting of the book's.
PLAIN = {name: value for name, value in os.environ.items() if name != "JUPYTER_CONFIG_PATH"}

OURS = """
import sys
from pathlib import Path
from classroom import batch
folder, root, fenced, workers = sys.argv[1:]
sys.exit(batch.main(Path(folder), Path(root), fenced == "fenced", int(workers)))
"""

OTTER = """
import json, multiprocessing, os, sys
from otter.api import grade_submission

def grade(name):
    results = grade_submission(f"submissions/{name}", "autograder.zip", quiet=True)
    return name.removesuffix(".ipynb"), {test: results.get_score(test) for test in results.test_files}

with multiprocessing.get_context("fork").Pool(int(sys.argv[1])) as pool:
    scores = dict(pool.imap_unordered(grade, os.listdir("submissions")))
with open("scores.json", "w") as file:
    json.dump(scores, file)
"""

OTTER_TEST = """
from otter.test_files import test_case

OK_FORMAT, name, points = False, {name!r}, {points!r}

@test_case(points=points)
def test(env):
    exec({source!r}, env)
"""

# Without a history, cells that look at their own source fail at once under stock nbval and leave out seconds of work.
HISTORY = """
from nbval.kernel import RunningKernel

def execute(self, source, allow_stdin=None):
    return self.kc.execute(source, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)

RunningKernel.execute_cell_input = execute
"""


def main():
    """Measure what the command line names, print it, and after a run of everything write it down."""
    parser = argparse.ArgumentParser(description="Measure grading and running against the stock tools.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; else all")
    parser.add_argument("--assignment", default="02_reducers")
    parser.add_argument("--submissions", type=int, default=30, help="how many to grade")
    parser.add_argument("--rounds", type=int, default=3, help="how often to repeat what is quick")
    parser.add_argument("--otter", type=Path, help="a Python that has Otter-Grader and the book's packages")
    asked = parser.parse_args()
    parts = asked.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(unknown)}")
    results = {"setting": {"cores": os.cpu_count(), "python": "{}.{}".format(*sys.version_info)}}
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        if {"grading", "otter"} & set(parts):
            results["grading"] = measure_grading(Path(work) / "real", ROOT, asked.assignment, parts, asked)
        if "grading" in parts:  # Otter is compared once, on real submissions
            root = small_course(Path(work) / "small course")
            results["grading, little work"] = measure_grading(Path(work) / "small", root, SMALL, ["grading"], asked)
        if "regression" in parts:
            results["regression"] = measure_regression(Path(work), asked.rounds)
        if "kernels" in parts:
            results["kernels"] = measure_kernels()
    results["setting"] |= {name: version(name) for name in ("nbgrader", "nbval", "ipykernel", "langgraph")}
    print_table(results)
    if set(parts) == set(PARTS):
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        draw(results, RESULTS.with_suffix(".png"))


def seconds(command, codes=(0,), **options):
    """How long a command takes, and what it prints; RuntimeError unless it ends with one of `codes`."""
    begin = time.perf_counter()
    done = subprocess.run(
        list(map(str, command)), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        **{"env": PLAIN, "timeout": 1800, **options},
    )  # fmt: skip
    taken = time.perf_counter() - begin
    if done.returncode not in codes:
        raise RuntimeError(f"{command[:5]} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return taken, done.stdout


# Grading


def measure_grading(work, course, name, parts, asked):
    """Grade the same submissions with every tool; submissions a minute, and the scores that differ."""
    notebooks = made_up(course, name, asked.submissions)
    ours = our_course(work, course, name, notebooks)
    taken, scores = {}, {}
    if "grading" in parts:
        for workers, fenced in (1, True), (2, True), (2, False):
            title = f"this book, {workers} worker{'s'[: workers > 1]}{'' if fenced else ', no fence'}"
            times = []
            for _ in range(asked.rounds):
                once, scores[title] = grade_here(ours, name, workers, fenced)
                times.append(once)
            taken[title] = statistics.median(times)
        stock = grade_by_stock(work / "stock", course, name, notebooks)
        taken["nbgrader"], taken["nbgrader, with feedback"], scores["nbgrader"] = stock
    found = {"assignment": name, "submissions": len(notebooks)}
    if "otter" in parts:
        if not scores:
            _, scores["this book, 2 workers"] = grade_here(ours, name, 2, True)
        try:
            python = asked.otter or install_otter(work / "otter-environment")
        except RuntimeError as error:
            print(f"Otter-Grader is left out, as it could not be installed:\n{error}")
        else:
            found["otter-grader"] = seconds([python, "-c", "import otter; print(otter.__version__)"])[1].split()[-1]
            otter_course(work / "otter", name, notebooks)
            for processes in 1, 2:
                title = f"Otter-Grader, {processes} process{'es' * (processes > 1)}"
                taken[title], scores[title] = grade_by_otter(work / "otter", python, processes)
    found["submissions a minute"] = {tool: round(60 * len(notebooks) / time, 1) for tool, time in taken.items()}
    found |= ratios(taken)
    found["cells whose scores were compared"] = sum(map(len, next(iter(scores.values())).values()))
    found["scores that differ"] = differences(scores)
    return found


def ratios(taken):
    """How many times as fast as stock nbgrader every tool is; ours makes feedback pages, so it is given both ways."""
    found = {}
    for stock in "nbgrader", "nbgrader, with feedback":
        if stock in taken:
            others = {tool: time for tool, time in taken.items() if not tool.startswith("nbgrader")}
            found[f"times as fast as {stock}"] = {tool: round(taken[stock] / time, 2) for tool, time in others.items()}
    return found


def small_course(root):
    """A course with one assignment that imports LangGraph and does next to nothing: what is left is the tools' own."""
    cells = [
        nbgrader_cell("graph", ANSWER),
        nbgrader_cell("graph_runs", "assert graph.invoke({'n': 1}) == {'n': 2}", 1),
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    path = root / "solutions" / SMALL / f"{SMALL}.ipynb"
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return root


def made_up(course, assignment, number):
    """Notebooks by student: answers of the bank, put together anew each time, the solution, and the empty release."""
    release = nbformat.reads(release_of(course, assignment).decode(), as_version=4)
    solution = nbformat.read(course / "solutions" / assignment / f"{assignment}.ipynb", as_version=4)
    bank, found = defaultdict(list), {}
    for entry in read_bank(assignment):
        bank[entry["exercise"]].append(entry["answer"])
    for count in range(number - 2):
        answers = {exercise: given[count % len(given)] for exercise, given in bank.items()}
        found[f"answers-{count:03}"] = fill_in(release, solution, answers)
    return found | {"solution": fill_in(release, solution, {}), "untouched": release}


def differences(scores):
    """The cells that two tools score differently, by pair of tools; the first one is compared with all others."""
    (first, expected), *others = scores.items()
    found = {}
    for tool, given in others:
        cells = [
            f"{student}: {cell} {given.get(student, {}).get(cell)}, not {points}"
            for student, earned in expected.items()
            for cell, points in earned.items()
            if given.get(student, {}).get(cell) != points
        ]
        if cells or set(given) != set(expected):
            found[f"{tool} and {first}"] = cells
    return found


def write_all(folder, name, notebooks):
    """Write notebooks as STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb."""
    for student, notebook in notebooks.items():
        path = folder / student / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)


def scores_in(database, name):
    """The scores in a gradebook: points by cell, by student."""
    with Gradebook(f"sqlite:///{database}") as gradebook:
        return {
            submission.student_id: {grade.name: grade.score for grade in submission.notebooks[0].grades}
            for submission in gradebook.assignment_submissions(name)
        }


def grade_by_stock(root, course, name, notebooks):
    """With nbgrader as it comes: seconds for the grades, seconds for grades and feedback pages, and the scores."""
    nbgrader = [sys.executable, "-m", "nbgrader"]
    shutil.copytree(course / "solutions" / name, root / "source" / name)
    write_all(root / "submitted", name, notebooks)
    seconds([*nbgrader, "generate_assignment", name], cwd=root)
    grades, _ = seconds([*nbgrader, "autograde", name], cwd=root)
    pages, _ = seconds([*nbgrader, "generate_feedback", name], cwd=root)
    return grades, grades + pages, scores_in(root / "gradebook.db", name)


def our_course(work, course, name, notebooks):
    """A folder with `submissions` and a course, in which the assignment is released."""
    write_all(work / "ours" / "submissions", name, notebooks)
    root = work / "ours" / "course"
    shutil.copytree(course / "solutions" / name, root / "solutions" / name)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    seconds([sys.executable, "-m", "nbgrader", "generate_assignment", name], cwd=root)
    return work / "ours"


def grade_here(folder, name, workers, fenced):
    """As `make grade` does, with feedback pages, in a fresh course: seconds and scores."""
    root = folder / "graded"
    shutil.copytree(folder / "course", root)
    arguments = [folder / "submissions", root, "fenced" if fenced else "unfenced", workers]
    taken, _ = seconds([sys.executable, "-c", OURS, *arguments])
    scores = scores_in(root / "grading" / "gradebook.db", name)
    shutil.rmtree(root)
    return taken, scores


# Otter-Grader


def install_otter(folder):
    """Make an environment with the book's packages and Otter-Grader; its Python."""
    print("Installing Otter-Grader, for this run only.")
    python = folder / "bin" / "python"
    seconds([sys.executable, "-m", "venv", folder])
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    seconds([*pip, "--require-hashes", "-r", ROOT / "requirements.txt"])
    seconds([*pip, "otter-grader==7.*"])
    return python


def otter_course(root, name, notebooks):
    """The same tests and submissions as Otter has them: a test file for each graded cell, run where the cell was."""
    (root / "submissions").mkdir(parents=True)
    locked = {setting(cell, "grade_id"): cell for cell in read_solution(name).cells if setting(cell, "locked")}
    with zipfile.ZipFile(root / "autograder.zip", "w") as file:
        file.writestr("otter_config.json", "{}")
        for test, cell in locked.items():
            if setting(cell, "grade"):
                text = OTTER_TEST.format(name=test, points=setting(cell, "points"), source=cell.source)
                file.writestr(f"tests/{test}.py", text)
    for student, notebook in notebooks.items():
        cells = [for_otter(cell, locked) for cell in notebook.cells]
        nbformat.write(new_notebook(cells=cells, metadata=notebook.metadata), root / "submissions" / f"{student}.ipynb")


def for_otter(cell, locked):
    """A cell of a submission; in the place of a test, the sign for Otter to run it."""
    if setting(cell, "grade"):
        return new_markdown_cell("A test.", metadata={"otter": {"tests": [setting(cell, "grade_id")]}})
    source = locked.get(setting(cell, "grade_id"), cell).source
    return new_code_cell(source) if cell.cell_type == "code" else new_markdown_cell(source)


def grade_by_otter(root, python, processes):
    """Without containers, by Otter's own function for that: seconds and scores."""
    # Its kernels meet over TCP, where two that start at once may wait for each other for ever.
    taken, _ = seconds([python, "-c", OTTER, processes], cwd=root, env={**PLAIN, "PYTHONPATH": str(ROOT)})
    return taken, json.loads((root / "scores.json").read_text())


# Running the chapters


def measure_regression(work, rounds):
    """Compare the chapters with their outputs: by nbval as it comes, by nbval with a history, and as the book does."""
    (work / "history.py").write_text(HISTORY)
    pytest = [sys.executable, "-m", "pytest", "chapters"]
    alone = ["--nbval", "--noconftest", "-c", os.devnull, "--rootdir", ROOT, "-p", "no:xdist", "-p", "no:cacheprovider"]
    commands = {
        "nbval": [*pytest, *alone],
        "nbval, with history": [*pytest, *alone, "-p", "history"],
        "this book, 1 process": [*pytest, "-n0"],
        "this book": pytest,
    }
    times, cells = defaultdict(list), {}
    for _ in range(rounds):
        for tool, command in commands.items():
            path = {"PYTHONPATH": str(work)} if "history" in command else {}
            taken, text = seconds(command, codes=(0, 1), cwd=ROOT, env={**PLAIN, **path})
            times[tool].append(taken)
            cells[tool] = {outcome: int(number) for number, outcome in re.findall(r"(\d+) (passed|failed)", text)}
    middle = {tool: statistics.median(those) for tool, those in times.items()}
    found = {"notebooks": len(list(ROOT.glob("chapters/*.ipynb"))), "cells": cells}
    found["seconds"] = {tool: round(time, 1) for tool, time in middle.items()}
    for stock in "nbval", "nbval, with history":
        ours = {tool: time for tool, time in middle.items() if not tool.startswith("nbval")}
        found[f"share of the time of {stock}"] = {tool: round(time / middle[stock], 3) for tool, time in ours.items()}
    return found


# Kernels


class Fenced(AsyncWarmKernelManager):
    """A kernel in the fence, as grading has it."""

    def __init__(self, **options):
        super().__init__(**options)
        self.fenced, self.visible = True, [str(ROOT / "between_nodes")]


KERNELS = {"ordinary": AsyncKernelManager, "forked": AsyncWarmKernelManager, "forked, in the fence": Fenced}


def measure_kernels(rounds=7):
    """The seconds from a kernel's start to the result of `import langgraph.graph`, one kernel at a time, and two."""
    kinds = [kind for kind in KERNELS if kind != "forked, in the fence" or fence.available()]
    found = {}
    for processes, title in (1, "one at a time"), (2, "two at a time"):
        times = defaultdict(list)
        context = get_context("spawn")
        with ProcessPoolExecutor(processes, context, initializer=warm_up) as pool:
            for _ in range(rounds):
                for kind in kinds:
                    times[kind] += pool.map(first_result, [kind] * processes)
        found[title] = {kind: round(statistics.median(those), 3) for kind, those in times.items()}
        if "forked, in the fence" in kinds:
            dearer = found[title]["forked, in the fence"] - found[title]["forked"]
            found[title]["the fence alone"] = round(dearer, 3)
    return found


def warm_up():
    """Let this process start what it forks kernels from."""
    first_result("forked")


def first_result(kind):
    """Start a kernel of a kind; the seconds until it has answered."""
    return asyncio.run(_first_result(KERNELS[kind]))


async def _first_result(manager):
    notebook = new_notebook(cells=[new_code_cell("import langgraph.graph")])
    client = NotebookClient(notebook, kernel_manager_class=manager)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        async with client.async_setup_kernel(cwd=folder, stderr=subprocess.DEVNULL):
            await client.async_execute_cell(notebook.cells[0], 0)
            return time.perf_counter() - begin


# Reporting


def print_table(results):
    """Print the figures, one a line."""
    for part, found in results.items():
        print(f"\n{part}")
        for name, value in found.items():
            if isinstance(value, dict) and value:
                print(f"  {name}")
                for tool, figure in value.items():
                    print(f"    {tool:32} {json.dumps(figure)}")
            else:
                print(f"  {name}: {value or 'none'}")


def draw(results, path):
    """Draw the figures as bars."""
    grading, regression, kernels = (results[part] for part in ("grading", "regression", "kernels"))
    kernels = {kind: time for kind, time in kernels["one at a time"].items() if kind in KERNELS}
    speed = grading["submissions a minute"]
    panels = [
        ("Submissions graded in a minute (here with feedback pages): longer is better", speed, "{:.0f}"),
        (f"Seconds to run and compare {regression['notebooks']} chapters: shorter is better",
         regression["seconds"], "{:.0f} s"),
        ("Seconds from a kernel's start to its first result: shorter is better", kernels, "{:.2f} s"),
    ]  # fmt: skip
    figure = Figure(figsize=(8, 1.8 + 0.36 * sum(len(bars) for _, bars, _ in panels)), layout="constrained")
    rows = figure.subplots(3, 1, height_ratios=[len(bars) + 0.5 for _, bars, _ in panels])
    for axes, (title, bars, form) in zip(rows, panels, strict=True):
        colors = ["#1d6fa5" if re.match("this book|forked", name) else "#9aa0a6" for name in bars]
        drawn = axes.barh(list(bars), list(bars.values()), color=colors)
        axes.bar_label(drawn, [form.format(value) for value in bars.values()], padding=4)
        axes.set_title(title, loc="left", fontsize=11)
        axes.margins(x=0.1)
        axes.invert_yaxis()
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.tick_params(left=False, bottom=False, labelbottom=False)
    figure.savefig(path, dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    main()
