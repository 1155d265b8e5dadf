"""The words a learner reads when an exercise test fails."""

import pytest

from between_nodes import checks


def failing():
    raise KeyError("notes")


def unfinished():
    raise NotImplementedError


def linked():
    raise ValueError("Can receive only one value per step.\nFor troubleshooting, visit: https://example.org")


def words(check, *args, **kwargs):
    """The lines of the failure that `check` raises."""
    with pytest.raises(AssertionError) as caught:
        check(*args, **kwargs)
    assert caught.value.__suppress_context__, "the error behind a failure stays out of the traceback"
    lines = str(caught.value).splitlines()
    assert lines[0] == "", "the words start below the exception's name"
    return lines[1:]


def test_equal():
    checks.equal([1], [1], tried="a")
    checks.equal(lambda: [1], [1], tried="a")
    assert words(checks.equal, [2], [1], tried="two notes", see="2.3") == [
        "Tried:     two notes",
        "Came out:  [2]",
        "Expected:  [1]",
        "Look at:   2.3",
    ]
    assert words(checks.equal, failing, [1], tried="two notes") == [
        "Tried:     two notes",
        "Came out:  KeyError: 'notes'",
        "Expected:  [1]",
    ]


def test_true():
    checks.true(True, tried="a", came_out="b", expected="c")
    assert words(checks.true, 0, tried="200 rounds", came_out="no end", expected="an end", see="1.3") == [
        "Tried:     200 rounds",
        "Came out:  no end",
        "Expected:  an end",
        "Look at:   1.3",
    ]


def test_raises():
    assert checks.raises(KeyError, failing, tried="a").args == ("notes",)
    assert checks.raises(LookupError, failing, tried="a").args == ("notes",)
    assert words(checks.raises, ValueError, failing, tried="no notes", see="2.6") == [
        "Tried:     no notes",
        "Came out:  KeyError: 'notes'",
        "Expected:  ValueError",
        "Look at:   2.6",
    ]
    assert words(checks.raises, ValueError, lambda: 5, tried="no notes") == [
        "Tried:     no notes",
        "Came out:  no error, but 5",
        "Expected:  ValueError",
    ]


def test_run():
    assert checks.run(lambda: 5, tried="a") == 5
    assert words(checks.run, failing, tried="one run", see="2.1") == [
        "Tried:     one run",
        "Came out:  KeyError: 'notes'",
        "Expected:  a result, no error",
        "Look at:   2.1",
    ]
    assert words(checks.run, unfinished, tried="one run")[1] == "Came out:  NotImplementedError"
    assert (
        words(checks.run, linked, tried="one run")[1] == "Came out:  ValueError: Can receive only one value per step."
    )


def test_unchanged():
    notes = ["a"]
    assert checks.unchanged(notes, lambda: [*notes, "b"], tried="a") == ["a", "b"]
    assert words(checks.unchanged, notes, lambda: notes.append("b"), tried="two merges", see="2.3") == [
        "Tried:     two merges",
        "Came out:  an argument changed in place from ['a'] to ['a', 'b']",
        "Expected:  the argument as it was",
        "Look at:   2.3",
    ]
    assert words(checks.unchanged, notes, failing, tried="two merges")[1] == "Came out:  KeyError: 'notes'"


def test_a_value_that_would_fill_the_page_is_cut_in_the_middle():
    line = words(checks.equal, list(range(10_000)), [], tried="a loop")[1]
    assert line.startswith("Came out:  [0, 1, 2,") and line.endswith("9998, 9999]") and " ... " in line
    assert len(line) < 700
