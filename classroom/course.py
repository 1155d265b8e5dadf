"""The course as nbgrader sees it: the nbgrader_config.py of a folder, nbgrader's API on it, and the scores it gave."""

import re
import warnings
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps.api import NbGraderAPI
from sqlalchemy.exc import SAWarning
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

ROOT = Path(__file__).resolve().parent.parent

warnings.filterwarnings("ignore", category=SAWarning, module="nbgrader")  # its own queries cause them


class Score(NamedTuple):
    """What one graded cell earned, and the text of the error that cost its points ("" if none did)."""

    cell: str
    points: float
    out_of: float
    error: str


def load_config(root=ROOT, **overrides):
    """The Config in `root`/nbgrader_config.py; each override is a dictionary of settings under its class's name."""
    config = PyFileConfigLoader("nbgrader_config.py", path=str(root)).load_config()
    config.merge(Config(overrides))
    return config


def open_course(root=ROOT, **overrides):
    """nbgrader's API on the course in `root`. Its log comes back with each call and is not printed."""
    course = NbGraderAPI(config=load_config(root, **overrides))
    course.log.handlers.clear()
    course.log.propagate = False
    return course


def assignments(root=ROOT):
    """The names of the assignments in `root`/solutions, in order: folders that hold a notebook of the same name."""
    return sorted(path.stem for path in (Path(root) / "solutions").glob("*/*.ipynb") if path.stem == path.parent.name)


def notebook_of(course, step, student, assignment):
    """The path of a student's notebook at a step such as "submitted" ("." is the student of source and release)."""
    folder = getattr(course.coursedir, f"{step}_directory")
    return Path(course.coursedir.format_path(folder, student, assignment)) / f"{assignment}.ipynb"


def scores(course, student, assignment):
    """The Score of every graded cell, in the notebook's order; None if nbgrader could not grade the submission."""
    graded = notebook_of(course, "autograded", student, assignment)
    if not graded.exists():
        return None
    errors = {
        cell.metadata.nbgrader.grade_id: plain_error(cell)
        for cell in nbformat.read(graded, as_version=4).cells
        if cell.metadata.get("nbgrader", {}).get("grade")
    }
    with Gradebook(course.coursedir.db_url, course.coursedir.course_id) as gradebook:
        try:
            notebook = gradebook.find_submission_notebook(assignment, assignment, student)
        except MissingEntry:
            return None
        found = {grade.name: (grade.score, grade.max_score) for grade in notebook.grades}
    return [Score(cell, *found[cell], error) for cell, error in errors.items() if cell in found]


def plain_error(cell):
    """The text of a cell's last error output, without colours, or ""."""
    for output in reversed(cell.get("outputs", [])):
        if output.output_type == "error":
            text = f"{output.ename}: {output.evalue.strip()}" if output.evalue else output.ename
            return re.sub(r"\x1b\[[0-9;]*m", "", text)
    return ""
