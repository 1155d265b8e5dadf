"""The whole circle of a course on one machine, with nbgrader's own exchange and commands.

One student works in JupyterLab (its Assignment List and Validate, called on the server's side), the other
under a name of her own. The first resubmits after the instructor has collected: the latest counts.
"""

import csv
import os
import re
import shutil
import subprocess

import nbformat
import pytest
from nbgrader.server_extensions.assignment_list.handlers import AssignmentList
from nbgrader.utils import get_username
from nbgrader.validator import Validator

from classroom import ROOT, assignments, prepare
from classroom.course import open_course, setting

pytestmark = [
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # nbgrader's own queries and calls
    pytest.mark.filterwarnings("ignore:Passing unrecognized arguments:DeprecationWarning"),
    pytest.mark.skipif(os.name == "nt", reason="nbgrader's exchange needs Linux or macOS"),
]
COURSE = "between-the-nodes"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A copy of the course with its smallest assignment; JupyterLab's settings lead to it."""
    assignment = min(assignments(), key=lambda name: os.path.getsize(ROOT / f"solutions/{name}/{name}.ipynb"))
    for path in f"solutions/{assignment}", ".jupyter":
        shutil.copytree(ROOT / path, tmp_path / path)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path / ".jupyter"))
    return tmp_path


def fill_in(path, solution, leave_out=""):
    """Answer all exercises of a fetched notebook as the solution does, but one."""
    answers = {setting(cell, "grade_id"): cell.source for cell in solution.cells if setting(cell, "solution")}
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if setting(cell, "solution") and setting(cell, "grade_id") != leave_out:
            cell.source = answers[setting(cell, "grade_id")]
    nbformat.write(notebook, path)


def done(result):
    """The value of a call of nbgrader's API, which reports failures in a dictionary."""
    assert result["success"], result
    return result.get("value")


def start(action, course):
    """Run one of the exchange's actions."""
    action(coursedir=course.coursedir, authenticator=course.authenticator, parent=course).start()


def nbgrader(root, *command):
    """Run a command as typed in the course's folder."""
    run = subprocess.run(["nbgrader", *command], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_two_students_one_of_whom_resubmits(root, tmp_path_factory):
    [assignment] = assignments(root)
    solution = nbformat.read(root / f"solutions/{assignment}/{assignment}.ipynb", as_version=4)
    last = [setting(cell, "grade_id") for cell in solution.cells if setting(cell, "solution")][-1]
    total = sum(setting(cell, "points") or 0 for cell in solution.cells)
    after_last = [setting(cell, "grade_id") for cell in solution.cells].index(last)
    of_last = sum(setting(cell, "points") or 0 for cell in solution.cells[after_last:])
    prepare.main(root)

    # In JupyterLab: fetch, fill in all but one exercise, submit.
    lab = AssignmentList()
    lab.root_dir = str(root)
    assert [each["status"] for each in done(lab.list_assignments(COURSE))] == ["released"]
    done(lab.fetch_assignment(COURSE, assignment))
    [fetched] = done(lab.list_released_assignments(COURSE))
    assert fetched["status"] == "fetched"
    mine = root / fetched["notebooks"][0]["path"]
    assert mine == root / f"answers/{assignment}/{assignment}.ipynb"
    fill_in(mine, solution, leave_out=last)
    course = open_course(root)
    assert Validator(config=course.config).validate(str(mine))["failed"]
    done(lab.submit_assignment(COURSE, assignment))

    # Under her own name: fetch, fill in, submit at the command line.
    home = tmp_path_factory.mktemp("ada")
    settings = {"assignment_dir": str(home), "cache": str(home / "cache")}
    ada = open_course(root, Exchange=settings, CourseDirectory={"student_id": "ada", "assignment_id": assignment})
    start(ada.exchange.FetchAssignment, ada)
    fill_in(home / assignment / f"{assignment}.ipynb", solution, leave_out=last)
    nbgrader(root, "submit", assignment, "--student=ada", *(f"--Exchange.{k}={v}" for k, v in settings.items()))

    # The instructor collects; then the first student solves the rest and submits again.
    done(course.collect(assignment))
    fill_in(mine, solution)
    assert Validator(config=course.config).validate(str(mine)) == {}
    done(lab.submit_assignment(COURSE, assignment))
    done(course.collect(assignment, update=True))

    done(course.autograde(assignment, "*"))
    done(course.generate_feedback(assignment))
    done(course.release_feedback(assignment))
    nbgrader(root, "export", f"--to={root / 'grades.csv'}")
    with open(root / "grades.csv", newline="") as file:
        grades = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    assert grades == {get_username(): (total, total), "ada": (total - of_last, total)}

    # Both bring home their feedback; there is none for the submission that was replaced.
    done(lab.fetch_feedback(COURSE, assignment))
    first, second = done(lab.list_submitted_assignments(COURSE))[0]["submissions"]
    assert (first["has_local_feedback"], second["has_local_feedback"]) == (False, True)
    [page] = (root / second["local_feedback_path"]).glob("*.html")
    assert re.search(rf"Score: {total:.1f} / {total:.1f}", page.read_text(encoding="utf-8"))
    start(ada.exchange.FetchFeedback, ada)
    [page] = (home / assignment / "feedback").rglob("*.html")
    assert re.search(rf"Score: {total - of_last:.1f} / {total:.1f}", page.read_text(encoding="utf-8"))
