"""Grades a folder of other people's notebooks: on all cores, in a fence, none at the cost of another.

The folder holds STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb, as `nbgrader collect` leaves it in grading/submitted. Workers
grade copies, each with a course and a gradebook of its own; this process alone writes the course's gradebook. A
submission is done when its record, grading/records/ASSIGNMENT/STUDENT.json, is there, so that a run that is ended in
any way goes on where it was.
"""

import csv
import hashlib
import json
import os
import re
import shutil
import sqlite3
import statistics
import sys
import tempfile
from concurrent.futures import TimeoutError, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.preprocessors import ClearOutput
from nbgrader.utils import parse_utc
from pebble import ProcessExpired, ProcessPool
from sqlalchemy import event
from sqlalchemy.engine import Engine
from tqdm import tqdm

from . import ROOT, assignments, fence
from .course import autograde, notebook_of, open_course

LARGEST = 100 << 20  # bytes of a notebook, and of all that lies beside it
LONGEST_TEXT = 10 << 20  # bytes of a notebook without its outputs
MOST = 100  # files beside a notebook
LONGEST = 300  # seconds for one submission, with its feedback
GRADED, NOT_GRADED = "graded", "not graded"


class Submission(NamedTuple):
    """A student's work on an assignment, in a folder."""

    student: str
    assignment: str
    folder: Path


class NotGraded(Exception):
    """A submission has no score; the message tells its author why."""


def main(folder, root=ROOT, fenced=True, workers=None):
    """Grade what is new in `folder`; print a table; write gradebook, feedback and grading/scores.csv. An exit code."""
    if not folder.is_dir():
        print(f"There is no folder {folder}. Name one that holds STUDENT/ASSIGNMENT/ASSIGNMENT.ipynb.")
        return 2
    if fenced:
        try:
            fence.check()
        except fence.NoFence as error:
            print(f"These notebooks are other people's code, and here is nothing to fence it in:\n  {error}")
            print("To run them with all your own rights instead, add UNFENCED=1.")
            return 2
    found, strays = find(folder, assignments(root))
    for path in strays:
        print(f"Left out: {_printable(path)} is not STUDENT/ASSIGNMENT for an assignment of this course.")
    with _only_one(root):
        course = open_course(root)
        versions = {name: version(course, name) for name in {each.assignment for each in found}}
        waiting = [each for each in found if not is_done(root, each, versions[each.assignment])]
        grade_all(root, course, waiting, versions, fenced, workers or os.cpu_count())
    report(root, found)
    return 0


def find(folder, known):
    """The submissions in a folder, in order, and the paths in it that are none."""
    found, strays = [], []
    for student in sorted(Path(folder).iterdir()):
        inside = sorted(student.iterdir()) if _is_folder(student) and student.name.isprintable() else []
        for path in inside:
            if path.name in known and _is_folder(path):
                found.append(Submission(student.name, path.name, path))
            else:
                strays.append(path)
        if not inside:
            strays.append(student)
    return found, strays


def grade_all(root, course, submissions, versions, fenced, workers):
    """Grade in `workers` processes, and save each result as it comes."""
    work = root / "grading" / "work"
    shutil.rmtree(work, ignore_errors=True)
    if not submissions:
        return
    kit = Path(tempfile.mkdtemp(dir=_made(work)))
    shutil.copy(root / "nbgrader_config.py", kit)
    for name in versions:
        shutil.copytree(root / "solutions" / name, kit / "solutions" / name)
    (kit / "grading").mkdir()
    _copy_database(root / "grading" / "gradebook.db", kit / "grading" / "gradebook.db")
    try:
        # A worker is renewed now and then, so that nothing it may hold on to grows with the number of submissions.
        with ProcessPool(workers, max_tasks=50, context=get_context("spawn")) as pool:
            again, bar = set(), tqdm(total=len(submissions), unit=" submissions", desc="Grading", smoothing=0.1)
            waiting = submissions
            while waiting:
                jobs = {pool.schedule(grade, args=(each, kit, fenced), timeout=LONGEST): each for each in waiting}
                waiting = []
                for job in as_completed(jobs):
                    submission = jobs.pop(job)
                    result = _result(job)
                    if result is None and submission not in again:  # perhaps another one's doing
                        again.add(submission)
                        waiting.append(submission)
                        continue
                    result = result or _not_graded("it ended the process that graded it, twice")
                    save(root, course, submission, result, versions[submission.assignment])
                    bar.update()
            bar.close()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _result(job):
    """What a worker has sent; None if it died."""
    try:
        return job.result()
    except TimeoutError:
        return _not_graded(f"grading it took more than {LONGEST} s")
    except ProcessExpired:
        return None


def grade(submission, kit, fenced):
    """In a worker: a submission's result, with the autograded notebook and the feedback page as bytes."""
    try:
        notebook, note = read(submission)
        course = _course(kit, fenced)
        submitted = notebook_of(course, "submitted", "submission", submission.assignment).parent
        autograded = notebook_of(course, "autograded", "submission", submission.assignment)
        _fresh(submitted)
        copy_beside(submission.folder, submitted)
        scores, log = autograde(course, submission.assignment, {"submission": notebook})
        scores = scores["submission"]
        if scores is None:
            raise NotGraded(f"nbgrader failed on it ({_error_in(log)})")
        course.generate_feedback(submission.assignment, "submission")
        page = notebook_of(course, "feedback", "submission", submission.assignment).with_suffix(".html")
        return {
            "status": GRADED,
            "reason": note,
            "score": sum(score.points for score in scores),
            "max_score": sum(score.out_of for score in scores),
            "cells": {score.cell: score.points for score in scores},
            "autograded": autograded.read_bytes(),
            "feedback": page.read_bytes() if page.exists() else b"",
        }
    except NotGraded as error:
        return _not_graded(str(error))
    except Exception as error:  # whatever is the matter with one submission, the others are graded
        return _not_graded(f"grading it failed ({type(error).__name__}: {str(error)[:200]})")


def _not_graded(reason):
    return {"status": NOT_GRADED, "reason": _printable(reason)}


def _printable(text):
    """A text that may hold names of files, which may hold anything, without what ends lines or moves cursors."""
    return "".join(character if character.isprintable() else "?" for character in str(text))


def _course(kit, fenced):
    """This worker's own copy of the course."""
    key = kit, fenced
    if key not in _courses:
        if not _courses:
            event.listen(Engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
        folder = Path(tempfile.mkdtemp(dir=kit.parent))
        shutil.copytree(kit, folder, dirs_exist_ok=True)
        _courses[key] = open_course(folder, PatientExecute={"fenced": fenced})
    return _courses[key]


_courses = {}


def read(submission):
    """The notebook of a submission, without outputs, and a remark if it was found under another name."""
    right, files = f"{submission.assignment}.ipynb", sorted(os.listdir(submission.folder))
    notebooks = [name for name in files if name.endswith(".ipynb")]
    if right in notebooks:
        name, note = right, ""
    elif len(notebooks) == 1:
        name, note = notebooks[0], f"graded {_printable(notebooks[0])!r}, as there is no {right}"
    elif notebooks:
        raise NotGraded(f"which of {', '.join(notebooks)} is meant? Keep one and call it {right}.")
    else:
        there = f"only {', '.join(files[:5])}" if files else "nothing"
        raise NotGraded(f"there is no notebook (a file that ends in .ipynb), {there}. Submit {right}.")
    path = submission.folder / name
    if path.is_symlink() or not path.is_file():
        raise NotGraded(f"{name} is a link or a folder. Submit the notebook itself.")
    if path.stat().st_size > LARGEST:
        raise NotGraded(f"{name} has more than {LARGEST >> 20} MB. Clear its outputs, save it and submit it again.")
    try:
        notebook = nbformat.reads(path.read_text("utf-8"), as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # anything at all may be in a file
        what = next((line for line in str(error).splitlines() if line.strip()), "")
        raise NotGraded(f"{name} cannot be read as a notebook ({type(error).__name__}: {what[:200]}). "
                        "Open it in JupyterLab, save it and submit it again.") from None  # fmt: skip
    notebook, _ = ClearOutput().preprocess(notebook, {})
    notebook.metadata.pop("widgets", None)
    if len(nbformat.writes(notebook)) > LONGEST_TEXT:
        raise NotGraded(f"{name} has more than {LONGEST_TEXT >> 20} MB without its outputs. Make its pictures smaller.")
    return notebook, note


def copy_beside(folder, destination):
    """Copy what a notebook may need: files, not links, that lie beside it."""
    files = [path for path in sorted(folder.iterdir()) if _is_file(path) and path.suffix != ".ipynb"]
    if len(files) > MOST:
        raise NotGraded(f"there are more than {MOST} files beside the notebook")
    if sum(path.stat().st_size for path in files) > LARGEST:
        raise NotGraded(f"the files beside the notebook have more than {LARGEST >> 20} MB")
    for path in files:
        if path.name != "timestamp.txt" or timestamp(folder):
            shutil.copy(path, destination)


def timestamp(folder):
    """The time in a submission's timestamp.txt; None where it has none that can be read as one."""
    path = folder / "timestamp.txt"
    try:
        return parse_utc(path.read_text().strip()) if _is_file(path) and path.stat().st_size < 100 else None
    except Exception:  # anything at all may be in it
        return None


def _is_file(path):
    return path.is_file() and not path.is_symlink()


def _is_folder(path):
    return path.is_dir() and not path.is_symlink() and os.access(path, os.R_OK | os.X_OK)


def save(root, course, submission, result, its_version):
    """Write a result's files, then the gradebook, then the record that says it is done."""
    student, assignment = submission.student, submission.assignment
    for kind, suffix in ("autograded", ".ipynb"), ("feedback", ".html"):
        content = result.pop(kind, b"")
        folder = root / "grading" / kind / student / assignment
        shutil.rmtree(folder, ignore_errors=True)
        if content:
            _write(folder / f"{assignment}{suffix}", content)
            copy_beside(submission.folder, folder)  # with what nbgrader needs to release feedback
    if result["status"] == GRADED:
        enter(course.coursedir, submission, result["cells"])
    record = {"student": student, "assignment": assignment, **result, "state": state(submission, its_version)}
    _write(_record(root, submission), json.dumps(record, indent=1).encode())


def enter(course, submission, points):
    """Enter scores into the gradebook; what a person has entered there, scores or comments, stays."""
    with Gradebook(course.db_url, course.course_id) as gradebook:
        gradebook.update_or_create_student(submission.student)
        when = {"timestamp": time} if (time := timestamp(submission.folder)) else {}
        gradebook.update_or_create_submission(submission.assignment, submission.student, **when)
        names = submission.assignment, submission.assignment, submission.student
        for grade in gradebook.find_submission_notebook(*names).grades:
            if grade.name in points:
                grade.auto_score = points[grade.name]
                grade.needs_manual_grade = grade.manual_score is not None
        gradebook.db.commit()


def version(course, assignment):
    """A name for the assignment as the gradebook has it; it is entered there if it is not."""
    for attempt in "found", "made":
        with Gradebook(course.coursedir.db_url, course.coursedir.course_id) as gradebook:
            try:
                cells = gradebook.find_notebook(assignment, assignment).source_cells
                text = json.dumps(sorted((cell.name, cell.source) for cell in cells))
                return hashlib.sha256(text.encode()).hexdigest()
            except MissingEntry:
                if attempt == "made":
                    raise
        done = course.generate_assignment(assignment)
        if not done["success"]:
            raise RuntimeError(f"nbgrader could not read the solution of {assignment}:\n{done['log']}")


def state(submission, its_version):
    """A name for a submission's files and the version it is graded by."""
    found = hashlib.sha256(its_version.encode())
    for path in sorted(submission.folder.iterdir()):
        status = path.lstat()
        found.update(f"{path.name}\0{status.st_mode}\0{status.st_size}".encode(errors="replace"))
        if path.is_symlink():
            found.update(os.fsencode(os.readlink(path)))
        elif path.is_file() and status.st_size <= LARGEST and os.access(path, os.R_OK):
            with path.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def is_done(root, submission, its_version):
    """Whether the record, and the gradebook's entry, are those of these very files and this version."""
    path = _record(root, submission)
    if not path.exists():
        return False
    record = json.loads(path.read_text("utf-8"))
    if record["state"] != state(submission, its_version):
        return False
    if record["status"] == NOT_GRADED:
        return True
    with sqlite3.connect(root / "grading" / "gradebook.db") as database:
        query = "SELECT 1 FROM submitted_assignment s JOIN assignment a ON a.id = s.assignment_id"
        return bool(database.execute(f"{query} WHERE a.name = ? AND s.student_id = ?", submission[1::-1]).fetchone())


def report(root, submissions):
    """Print what became of the submissions, and write it to grading/scores.csv."""
    records = [json.loads(_record(root, each).read_text("utf-8")) for each in submissions]
    path = root / "grading" / "scores.csv"
    with (path.with_suffix(".new")).open("w", encoding="utf-8", newline="") as file:
        columns = ["assignment", "student", "status", "score", "max_score", "reason"]
        table = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        table.writeheader()
        table.writerows(sorted(records, key=lambda record: (record["assignment"], record["student"])))
    os.replace(path.with_suffix(".new"), path)
    width = max([len(record["assignment"]) for record in records], default=10)
    print(f"\n{'':{width}}  {'graded':>8}{'not graded':>12}{'median':>8}{'of':>4}")
    for name in sorted({record["assignment"] for record in records}):
        those = [record for record in records if record["assignment"] == name]
        graded = [record for record in those if record["status"] == GRADED]
        line = f"{name:{width}}  {len(graded):8}{len(those) - len(graded):12}"
        if graded:
            middle = statistics.median(record["score"] for record in graded)
            line += f"{middle:8g}{graded[0]['max_score']:4g}"
        print(line)
    for record in records:
        if record["reason"]:
            print(f"{record['status'].capitalize()}: {record['student']}, {record['assignment']}: {record['reason']}")
    print(f"Scores: {path}")


def _record(root, submission):
    return root / "grading" / "records" / submission.assignment / f"{submission.student}.json"


def _write(path, content):
    """Write a file so that it is there as a whole or not at all."""
    _made(path.parent)
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    os.replace(new, path)


def _made(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _copy_database(source, destination):
    with sqlite3.connect(source) as old, sqlite3.connect(destination) as new:
        old.backup(new)
    new.close()


def _error_in(log):
    """The last error that nbgrader's log shows, but for its own summary."""
    errors = re.findall(r"^ {4,}((?:\w+\.)*\w+(?:Error|Exception|Fence)\b.*)", log, re.MULTILINE)
    return errors[-1][:300] if errors else "it does not say why"


@contextmanager
def _only_one(root):
    """Hold grading/lock, so that two runs do not write to one gradebook; the second is told so."""
    with open(_made(root / "grading") / "lock", "w") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has no fence to grade in, and no such lock
            pass
        except OSError:
            sys.exit("Another `make grade` is writing to this gradebook. Wait until it has ended.")
        yield
