"""`make exercises`: makes exercises/ from solutions/ with nbgrader; leaves every notebook that a reader has touched.

A notebook is replaced only if its cells are exactly those of a release: one that this clone has made before (a list of
fingerprints in grading/ remembers them) or the one committed. Outputs do not count, any other change does.
"""

import hashlib
import json
import subprocess
import sys

import nbformat

from . import ROOT, assignments
from .course import edited_cells, release_of


def main(root=ROOT):
    """Write the releases of all assignments of `root`, and say of each what was done."""
    seen = root / "grading" / "releases.txt"
    known = set(seen.read_text().split()) if seen.exists() else set()
    for assignment in assignments(root):
        release = release_of(root, assignment)
        path = root / "exercises" / assignment / f"{assignment}.ipynb"
        name = path.relative_to(root).as_posix()
        known.add(fingerprint(release))
        if not path.exists():
            print(f"{name}: made")
        elif path.read_bytes() == release:
            print(f"{name}: up to date")
            continue
        elif is_untouched(path.read_bytes(), {*known, fingerprint(committed(root, name))}):
            print(f"{name}: made anew")
        else:
            print(f"{name}: holds work of yours and is left as it was. Rename it to get the newest version.")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(release)
    seen.parent.mkdir(exist_ok=True)
    seen.write_text("\n".join(sorted(known)) + "\n")


def is_untouched(content, known):
    """Whether the notebook with these bytes has the cells of a known release and no edited exercise cell."""
    if not fingerprint(content) or fingerprint(content) not in known:
        return False
    return not edited_cells(nbformat.reads(content.decode(), as_version=4))


def fingerprint(content):
    """A name for the cells of a notebook, given as bytes, without their outputs; "" if it is no notebook."""
    try:
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(content)["cells"]]
    except (ValueError, KeyError, TypeError):
        return ""
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def committed(root, name):
    """The bytes of a file as last committed; empty where there is no git or no such file."""
    try:
        return subprocess.run(["git", "show", f"HEAD:./{name}"], cwd=root, capture_output=True).stdout
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main())
