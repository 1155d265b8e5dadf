"""Writes the README's map of chapters from the chapters themselves (part of `make chapters`)."""

import re
from pathlib import Path

import nbformat

from . import ROOT

START, END = "<!-- map: written by make chapters -->", "<!-- end of map -->"


def chapter_map(root=ROOT):
    """The map as Markdown: each chapter's title, what its reader can do afterwards, and its exercises."""
    return "\n".join(_entry(path) for path in sorted(Path(root, "chapters").glob("*.ipynb")))


def _entry(path):
    text = nbformat.read(path, as_version=4).cells[0].source
    title = re.search(r"^# (.*)", text)[1]
    goals = [goal.rstrip(" ;.") for goal in re.findall(r"^- (.*(?:\n  .*)*)", text, re.M)]
    entry = f"- **[{title}](chapters/{path.name})**: {'; '.join(goals)}."
    exercise = Path("exercises", path.stem, path.name)
    if (path.parent.parent / exercise).exists():
        entry += f" [Exercises]({exercise.as_posix()})"
    return entry


def with_map(text, root=ROOT):
    """The README's `text` with its map renewed."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{chapter_map(root)}\n\n{END}{after}"


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(with_map(readme.read_text("utf-8")), "utf-8")
