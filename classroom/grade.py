"""`make grade`: scores your own answers, in exercises/ and answers/, with nbgrader; writes a feedback page for each.

Copies are graded, in a folder of their own; your notebooks are only read. Feedback pages go to grading/own/. With
SUBMISSIONS=folder it grades the notebooks of others instead: see classroom/batch.py.
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat

from . import ROOT, assignments
from .course import autograde, edited_cells, notebook_of, setting, throwaway_course

FOLDERS = "exercises", "answers"


def main(root=ROOT):
    """Grade every notebook with answers in it and print a table for each."""
    found = False
    for assignment in assignments(root):
        answered = {}
        for folder in FOLDERS:
            path = root / folder / assignment / f"{assignment}.ipynb"
            if path.exists():
                try:
                    notebook = nbformat.read(path, as_version=4)
                    nbformat.validate(notebook)
                    if has_answers(notebook, root, assignment):
                        answered[folder] = notebook
                except Exception as error:  # anything at all may be in a reader's file
                    found = True
                    print(f"\n{path.relative_to(root)} cannot be read as a notebook, so it was not graded.")
                    print(f"  {first_line(error)}")
        if answered:
            found = True
            grade(root, assignment, answered)
    if found:
        print("\nYour notebooks ran with all your own rights, as they do in JupyterLab.")
    else:
        print("No answers yet. Open a notebook in exercises/, fill in a cell that says YOUR CODE HERE,")
        print("save it, and run `make grade` again.")


def has_answers(notebook, root, assignment):
    """Whether any cell meant for an answer is filled in, or gone."""
    solution = nbformat.read(root / "solutions" / assignment / f"{assignment}.ipynb", as_version=4)
    there = {setting(cell, "grade_id") for cell in notebook.cells} - set(edited_cells(notebook))
    return any(setting(cell, "solution") and setting(cell, "grade_id") not in there for cell in solution.cells)


def grade(root, assignment, notebooks):
    """Grade notebooks of one assignment, given by the folder they are in; print tables and save feedback pages."""
    pages = root / "grading" / "own"
    print(f"Grading {assignment} ...", file=sys.stderr, flush=True)
    with throwaway_course(root, assignment, PatientExecute={"fenced": False}) as course:
        scores, log = autograde(course, assignment, notebooks)
        for folder, notebook in notebooks.items():
            print(f"\n{folder}/{assignment}/{assignment}.ipynb")
            if scores[folder] is None:
                print("  nbgrader could not grade it. Its log ends:", *log.strip().splitlines()[-4:], sep="\n    ")
                continue
            print_table(notebook, scores[folder])
            made = course.generate_feedback(assignment, folder)
            if made["success"]:
                pages.mkdir(parents=True, exist_ok=True)
                page = pages / f"{assignment}-{folder}.html"
                page.write_bytes(notebook_of(course, "feedback", folder, assignment).with_suffix(".html").read_bytes())
                print(f"  Feedback: {page.as_uri()}")


def print_table(notebook, scores):
    """Print each exercise's points, and for those that lost some what was tried and where to look."""
    score_of = {score.cell: score for score in scores}
    edited, rows, title = edited_cells(notebook), [], ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (heading := re.search(r"^#+ (.*?)(?: \(.*)?$", cell.source, re.M)):
            title = heading[1]
        if setting(cell, "solution"):
            rows.append((title, setting(cell, "grade_id") in edited, []))
        if rows and (score := score_of.pop(setting(cell, "grade_id"), None)):
            rows[-1][2].append(score)
    if score_of:
        rows.append(("tests missing in your notebook", True, list(score_of.values())))
    rows = [row for row in rows if row[2]]
    width = max(len(title) for title, _, _ in rows)
    for title, answered, tests in rows:
        print(f"  {title:{width}}  {points(tests)}")
        failed = next((test for test in tests if test.points < test.out_of), None)
        for line in advice(failed.error) if failed and answered else ["not answered yet"] if failed else []:
            print(f"      {line if len(line) < 110 else line[:106] + ' ...'}")
    print(f"  {'Total':{width}}  {points(scores)}")


def points(scores):
    """Points earned of points possible, as a column."""
    return f"{sum(score.points for score in scores):4g} of {sum(score.out_of for score in scores):g}"


def advice(error):
    """The lines of a test's failure that say what was tried and where to look; of other errors, the first line."""
    lines = [line for line in error.splitlines() if line.startswith(("Tried:", "Look at:"))]
    return lines or [first_line(error)]


def first_line(error):
    """The first line of an error's text."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def command_line():
    """Run what the command line asks for; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m classroom.grade", description="Grade notebooks.")
    parser.add_argument("submissions", nargs="?", type=Path, help="a folder that holds STUDENT/ASSIGNMENT/*.ipynb")
    parser.add_argument("--unfenced", action="store_true", help="run other people's code with all your rights")
    asked = parser.parse_args()
    if not asked.submissions:
        return main()
    from . import batch

    return batch.main(asked.submissions, fenced=not asked.unfenced)


if __name__ == "__main__":
    sys.exit(command_line())
