"""`make read`: puts the assignments where JupyterLab's Assignment List finds them; does nothing if they are there.

The exchange, grading/exchange, is nbgrader's own: what is fetched goes to answers/, what is submitted waits in the
exchange for `nbgrader collect`. exercises/ and answers/ are not touched.
"""

import hashlib
import os
import sys

from . import ROOT, assignments


def main(root=ROOT):
    """Release the assignments of `root` to the exchange, unless this very state of them was released before."""
    state = hashlib.sha256((root / "nbgrader_config.py").read_bytes())
    for name in assignments(root):
        state.update(name.encode() + (root / "solutions" / name / f"{name}.ipynb").read_bytes())
    stamp = root / "grading" / "prepared.txt"
    released = all(any(root.glob(f"grading/exchange/*/outbound/{name}")) for name in assignments(root))
    if stamp.exists() and stamp.read_text() == state.hexdigest() and (released or os.name == "nt"):
        return
    if os.name == "nt":
        print("Assignment List needs Linux or macOS, as nbgrader's exchange does. `make grade` works here too.")
    else:
        print("Preparing the exercises for Assignment List.")
        release_all(root)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(state.hexdigest())


def release_all(root):
    """Run nbgrader's generate_assignment and release_assignment for every assignment of `root`."""
    from .course import open_course  # starting nbgrader takes two seconds

    course = open_course(root, ExchangeReleaseAssignment={"force": True})
    without_database = {"GenerateAssignment": {"no_database": True}, "SaveCells": {"enabled": False}}
    for assignment in assignments(root):
        if not course.generate_assignment(assignment)["success"]:
            # nbgrader never changes the cells of an assignment that has submissions.
            print(f"{assignment}: grading/gradebook.db keeps the version that its submissions answer. To grade the new")
            print("version, move that file away and run `python -m classroom.prepare` again.")
            check(open_course(root, **without_database).generate_assignment(assignment))
        check(course.release_assignment(assignment))


def check(result):
    """Raise what an nbgrader call reported as failed."""
    if not result["success"]:
        raise RuntimeError(result.get("log") or result["error"])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:  # the book can be read without Assignment List
        print(f"Assignment List is not ready: {error}", file=sys.stderr)
