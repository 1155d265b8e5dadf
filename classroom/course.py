"""The course as nbgrader sees it: the nbgrader_config.py of a folder, releases made by it, and batches graded by it."""

import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbgrader.api import Base
from nbgrader.apps.api import NbGraderAPI
from nbgrader.utils import compute_checksum, determine_grade
from sqlalchemy import create_engine
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from . import ROOT


class Score(NamedTuple):
    """What one graded cell earned, and the text of the error that cost its points ("" if none did)."""

    cell: str
    points: float
    out_of: float
    error: str


def open_course(root=ROOT, **settings):
    """nbgrader's API on the course in `root`: its nbgrader_config.py, and dictionaries of `settings` by class name.

    The API's log comes back with each call and is not printed.
    """
    config = PyFileConfigLoader("nbgrader_config.py", path=str(root)).load_config()
    config.merge(Config(settings))
    course = NbGraderAPI(config=config)
    course.log.handlers.clear()
    course.log.propagate = False
    return course


def notebook_of(course, step, student, assignment):
    """The path of a student's notebook at a step such as "submitted" ("." is the student of source and release)."""
    folder = getattr(course.coursedir, f"{step}_directory")
    return Path(course.coursedir.format_path(folder, student, assignment)) / f"{assignment}.ipynb"


@contextmanager
def throwaway_course(root, assignment, **settings):
    """A course of one assignment of `root` in a folder of its own, released there; the folder goes at the end."""
    folder = Path(tempfile.mkdtemp(prefix="course-"))
    try:
        shutil.copy(root / "nbgrader_config.py", folder)
        shutil.copytree(root / "solutions" / assignment, folder / "solutions" / assignment)
        course = open_course(folder, **settings)
        # With its tables there, nbgrader need not ask the alembic command for their version, which takes two seconds.
        Base.metadata.create_all(create_engine(course.coursedir.db_url))
        done = course.generate_assignment(assignment)
        if not done["success"]:
            raise RuntimeError(f"nbgrader could not make a release of {assignment}:\n{done['log']}")
        yield course
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def release_of(root, assignment):
    """The student's notebook that nbgrader makes of an assignment, as bytes; the same at every run."""
    with throwaway_course(root, assignment) as course:
        return notebook_of(course, "release", ".", assignment).read_bytes()


def autograde(course, assignment, submissions):
    """Grade notebooks, given by student, one after the other. The scores by student, and nbgrader's log.

    A student's scores are None where nbgrader could not grade the notebook.
    """
    found, log = {}, ""
    for student, notebook in submissions.items():
        path = notebook_of(course, "submitted", student, assignment)
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, path)
        done = course.autograde(assignment, student)
        found[student] = scores(course, student, assignment) if done["success"] else None
        log += done.get("log", "") + done.get("error", "")
    return found, log


def scores(course, student, assignment):
    """The Score of every graded cell, in the notebook's order; None if nbgrader could not grade the submission."""
    graded = notebook_of(course, "autograded", student, assignment)
    if not graded.exists():
        return None
    cells = [cell for cell in nbformat.read(graded, as_version=4).cells if setting(cell, "grade")]
    return [
        Score(setting(cell, "grade_id"), earned or 0, out_of, error_in(cell))  # None: a person must grade it
        for cell in cells
        for earned, out_of in [determine_grade(cell)]
    ]


def setting(cell, name):
    """One of a cell's nbgrader settings, such as "solution" or "grade_id"; None where it has none."""
    return cell.metadata.get("nbgrader", {}).get(name)


def error_in(cell):
    """The text of a cell's last error, without colours, or ""."""
    for output in reversed(cell.get("outputs", [])):
        if output.output_type == "error":
            text = f"{output.ename}: {output.evalue}" if output.evalue else output.ename
            return re.sub(r"\x1b\[[0-9;]*m", "", text)
    return ""


def edited_cells(notebook):
    """Grade ids of the cells that differ from the release they came in, by the checksum recorded there."""
    return [
        setting(cell, "grade_id")
        for cell in notebook.cells
        if setting(cell, "checksum") and setting(cell, "checksum") != compute_checksum(cell)
    ]
