"""The README speaks of the chapters that are there."""

from classroom import ROOT
from classroom.chapter_map import with_map


def test_the_map_is_the_chapters():
    text = (ROOT / "README.md").read_text("utf-8")
    assert with_map(text) == text, "the README's map of chapters is out of date: run `make chapters`"
