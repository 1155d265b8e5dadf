"""Releases, and grading one's own answers: on the book's assignments, and on small courses made here."""

import os
import re
import shutil
import subprocess

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbgrader.api import Base
from nbgrader.validator import Validator
from sqlalchemy import create_engine

from classroom import ROOT, assignments, grade, prepare, release
from classroom.course import edited_cells, open_course, release_of, setting

pytestmark = [  # nbgrader's own queries, and cells that it adds back
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),
    pytest.mark.filterwarnings("ignore::nbformat.warnings.MissingIDFieldWarning"),
]
exchange = pytest.mark.skipif(os.name == "nt", reason="nbgrader's exchange needs Linux or macOS")
each_assignment = pytest.mark.parametrize("assignment", assignments())


def notebook_in(folder, assignment, root=ROOT):
    return root / folder / assignment / f"{assignment}.ipynb"


def read(path):
    return nbformat.read(path, as_version=4)


# The book's own assignments


@each_assignment
def test_exercises_are_what_solutions_make(assignment):
    """Byte for byte; where a reader has worked in the file, only its exercise cells' recorded checksums count."""
    path, made = notebook_in("exercises", assignment), release_of(ROOT, assignment)
    assert path.exists(), "run `make exercises`"
    if path.read_bytes() == made:
        return
    try:
        notebook = read(path)
    except Exception:
        pytest.skip("exercises/ holds a notebook that a reader broke; `git checkout` brings the original back")
    changed_since_commit = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", path], cwd=ROOT).returncode
    assert edited_cells(notebook) or changed_since_commit, "differs from what solutions make: run `make exercises`"
    now = {setting(cell, "grade_id"): setting(cell, "checksum") for cell in nbformat.reads(made, as_version=4).cells}
    stale = [
        setting(cell, "grade_id")
        for cell in notebook.cells
        if setting(cell, "checksum") and setting(cell, "checksum") != now.get(setting(cell, "grade_id"))
    ]
    assert not stale, f"these cells are not of the newest release: {stale}; run `make exercises`"


@each_assignment
def test_release_shows_no_solution_and_no_hidden_test(assignment):
    made = release_of(ROOT, assignment)
    assert made == release_of(ROOT, assignment)
    notebook = nbformat.reads(made, as_version=4)
    assert set(notebook.metadata) == {"kernelspec"}
    assert all(cell.get("outputs", []) == [] for cell in notebook.cells)
    assert not re.search(r"### (BEGIN|END) ", made.decode())


@each_assignment
def test_solution_passes_validate(assignment):
    config = open_course().config
    assert Validator(config=config).validate(str(notebook_in("solutions", assignment))) == {}


@each_assignment
def test_points_are_those_the_text_states(assignment):
    stated, counted, heading = {}, {}, None
    for cell in read(notebook_in("solutions", assignment)).cells:
        if cell.cell_type == "markdown" and (found := re.search(r"^## (.*)\((\d+) points?\)", cell.source, re.M)):
            heading = found[1]
            stated[heading], counted[heading] = int(found[2]), 0
        counted[heading] = counted.get(heading, 0) + (setting(cell, "points") or 0)
    assert {heading: points for heading, points in counted.items() if heading or points} == stated
    assert sum(stated.values()) == 20


# Small courses


def cell(name, source, points=0):
    """An answer cell, or with points a test cell."""
    tags = {"schema_version": 3, "cell_type": "code", "task": False, "grade_id": name, "locked": bool(points)}
    tags |= {"grade": True, "points": points, "solution": False} if points else {"grade": False, "solution": True}
    return new_code_cell(source, id=name, metadata={"nbgrader": tags})


def solution(text="Write `double`."):
    answer = "def double(x):\n    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"
    other = "### BEGIN SOLUTION\nword = 'yes'\n### END SOLUTION"
    cells = [
        new_markdown_cell(f"## Exercise 1 · build (3 points)\n{text}", id="text"),
        cell("double", answer),
        cell("double_shape", "assert double(2) == 4", 1),
        cell("double_more", "assert double(0) == 0, 'Tried:  0\\nLook at: 9.9'\n### BEGIN HIDDEN TESTS\n"
             "assert double(-3) == -6, '\\nTried:     double(-3)\\nLook at:   9.9'\n### END HIDDEN TESTS", 2),
        new_markdown_cell("## Exercise 2 · choose (1 point)", id="text2"),
        cell("word", other),
        cell("word_right", "assert word == 'yes'", 1),
    ]  # fmt: skip
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def write_solution(root, name="98_small", **changes):
    path = notebook_in("solutions", name, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(solution(**changes), path)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """The root of a course with the book's configuration and one small assignment."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    config = (ROOT / "nbgrader_config.py").read_text(encoding="utf-8")
    (tmp_path / "nbgrader_config.py").write_text(config.replace("timeout = 20 ", "timeout = 2 "), encoding="utf-8")
    write_solution(tmp_path)
    (tmp_path / "grading").mkdir()
    Base.metadata.create_all(create_engine(f"sqlite:///{tmp_path}/grading/gradebook.db"))  # nbgrader takes 2 s to do it
    return tmp_path


def edit(path, change):
    """Let `change` edit the cells (by id) of a notebook on disk."""
    notebook = read(path)
    change({each.id: each for each in notebook.cells}, notebook)
    nbformat.write(notebook, path)


def answer(source, name="double"):
    return lambda cells, notebook: cells[name].update(source=source)


def run_only(cells, notebook):
    """What running and saving a notebook in JupyterLab leaves in it."""
    cells["double_shape"].update(execution_count=3, outputs=[new_output("stream", name="stdout", text="ran")])
    notebook.metadata["language_info"] = {"name": "python", "version": "3.12.1"}


def delete_exercise(cells, notebook):
    notebook.cells.remove(cells["word"])
    notebook.cells.remove(cells["word_right"])


WORK = {
    "an answer": answer("def double(x):\n    return x + x"),
    "a cell of one's own": lambda cells, notebook: notebook.cells.append(new_code_cell("1 + 1")),
    "a test edited": answer("assert True", "double_shape"),
    "a note in the text": answer("## Exercise 1\nMy note.", "text"),
    "an answer cell deleted": lambda cells, notebook: notebook.cells.remove(cells["double"]),
}


def test_make_exercises_follows_solutions_until_a_reader_writes(course, capsys):
    path = notebook_in("exercises", "98_small", course)
    release.main(course)
    first = path.read_bytes()
    edit(path, run_only)
    release.main(course)
    assert path.read_bytes() == first
    write_solution(course, text="Write `double`, please.")
    release.main(course)
    second = path.read_bytes()
    assert b"please" in second
    for change in WORK.values():
        path.write_bytes(second)
        edit(path, change)
        mine = path.read_bytes()
        release.main(course)
        assert path.read_bytes() == mine
        assert "left as it was" in capsys.readouterr().out.splitlines()[-1]
    path.write_bytes(b'{"cells": [')
    release.main(course)
    assert path.read_bytes() == b'{"cells": ['


def test_make_exercises_knows_the_committed_release(course):
    """A fresh clone remembers no release, but git does."""
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(course)]
    release.main(course)
    for command in ["init", "-q"], ["add", "exercises"], ["commit", "-qm", "x"]:
        subprocess.run([*git, *command], check=True)
    shutil.rmtree(course / "grading")
    write_solution(course, text="New words.")
    release.main(course)
    assert b"New words" in notebook_in("exercises", "98_small", course).read_bytes()


def test_make_grade_scores_what_is_filled_in(course, capsys):
    for name in "95_loop", "96_broken", "97_syntax", "99_untouched":
        write_solution(course, name)
    release.main(course)
    shutil.copytree(course / "exercises" / "98_small", course / "answers" / "98_small")
    edit(notebook_in("exercises", "98_small", course), answer("def double(x):\n    return abs(2 * x)"))
    warns = "import sys\ndef double(x):\n    print('beware', file=sys.stderr)\n    return 2 * x"
    edit(notebook_in("answers", "98_small", course), answer(warns))
    edit(notebook_in("exercises", "95_loop", course), answer("def double(x):\n    while x < 0: pass\n    return 2 * x"))
    edit(notebook_in("exercises", "97_syntax", course), answer("def double(x)\n    return 2 * x"))
    edit(notebook_in("exercises", "97_syntax", course), WORK["a test edited"])
    edit(notebook_in("exercises", "97_syntax", course), lambda cells, nb: nb.cells.remove(cells["double_more"]))
    edit(notebook_in("exercises", "97_syntax", course), delete_exercise)
    notebook_in("exercises", "96_broken", course).write_text("{]")
    before = files(course, "exercises", "answers", "grading")
    capsys.readouterr()

    grade.main(course)
    *blocks, last = capsys.readouterr().out.strip().split("\n\n")
    assert "with all your own rights" in last
    said = {re.match(r"\w+/\w+", block)[0]: block for block in blocks}
    assert list(said) == ["exercises/95_loop", "exercises/96_broken", "exercises/97_syntax", "exercises/98_small",
                          "answers/98_small"]  # fmt: skip
    assert re.search(r"Total +1 of 4", said["exercises/95_loop"])
    assert "ran for too long" in said["exercises/95_loop"]
    assert "cannot be read as a notebook" in said["exercises/96_broken"]
    assert re.search(r"Total +0 of 4", said["exercises/97_syntax"])
    assert re.search(r"build +1 of 3\n +Tried: +double\(-3\)\n +Look at: +9.9", said["exercises/98_small"])
    assert re.search(r"choose +0 of 1\n +not answered yet", said["exercises/98_small"])
    assert re.search(r"build +3 of 3\n", said["answers/98_small"])
    page = course / "grading" / "own" / "98_small-exercises.html"
    assert page.as_uri() in said["exercises/98_small"]
    assert "double(-3)" in page.read_text(encoding="utf-8")

    edit(notebook_in("exercises", "98_small", course), answer("def double(x):\n    return x + x"))
    before |= files(course, "exercises")
    for name in "95_loop", "97_syntax":  # once is enough
        shutil.rmtree(course / "solutions" / name)
    grade.main(course)
    assert re.search(r"build +3 of 3", capsys.readouterr().out)
    after = files(course, "exercises", "answers", "grading")
    assert {name: after[name] for name in before} == before


def test_make_grade_says_how_to_start(course, capsys):
    release.main(course)
    edit(notebook_in("exercises", "98_small", course), run_only)
    capsys.readouterr()
    grade.main(course)
    assert "Open a notebook in exercises/" in capsys.readouterr().out


@exchange
def test_preparing_again_costs_nothing_until_a_solution_changes(course, monkeypatch):
    outbound = notebook_in("grading/exchange/between-the-nodes/outbound", "98_small", course)
    prepare.main(course)
    first = outbound.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "release_all", None)
        prepare.main(course)
    write_solution(course, text="New words.")
    prepare.main(course)
    assert outbound.read_bytes() != first
    assert not (course / "exercises").exists()


@exchange
def test_a_changed_assignment_with_submissions_is_released_all_the_same(course, capsys):
    prepare.main(course)
    with open_course(course).gradebook as gradebook:
        gradebook.add_student("anna")
        gradebook.add_submission("98_small", "anna")
    path = notebook_in("solutions", "98_small", course)
    edit(path, lambda cells, notebook: notebook.cells.append(cell("late", "assert True", 1)))
    prepare.main(course)
    outbound = notebook_in("grading/exchange/between-the-nodes/outbound", "98_small", course)
    assert "late" in outbound.read_text(encoding="utf-8")
    assert "gradebook.db keeps the version" in capsys.readouterr().out
    with open_course(course).gradebook as gradebook:
        assert gradebook.find_submission("98_small", "anna")


def test_make_clean_keeps_answers_and_grades(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in "exercises", "answers", "grading", ".venv", "classroom/__pycache__":
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text("mine")
    kept = files(tmp_path, "exercises", "answers", "grading")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(["make", "clean"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert files(tmp_path, "exercises", "answers", "grading") == kept
    assert not (tmp_path / ".venv").exists()


def files(root, *folders):
    """The contents of all files in some folders of `root`, by path."""
    paths = [path for folder in folders for path in (root / folder).rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in paths}
