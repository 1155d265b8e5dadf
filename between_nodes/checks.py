"""Assertions for exercise tests whose failure tells a learner what was tried, what came out and where to look."""

import copy


def _short(value):
    """The value's repr, cut in the middle where it would fill the page."""
    text = repr(value)
    return text if len(text) <= 600 else f"{text[:400]} ... {text[-150:]}"


def _words(error):
    """An error's type and the first line of its text; LangGraph's further lines are links."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _fail(tried, came_out, expected, see):
    lines = [f"Tried:     {tried}", f"Came out:  {came_out}", f"Expected:  {expected}"]
    raise AssertionError("\n".join(["", *lines, *([f"Look at:   {see}"] if see else [])])) from None


def run(action, *, tried, see="", expected="a result, no error"):
    """Return what `action` (a function without arguments) returns; an error in it fails the test in plain words."""
    try:
        return action()
    except Exception as error:
        _fail(tried, _words(error), expected, see)


def equal(got, expected, *, tried, see=""):
    """Fail unless `got == expected`.

    `got` may be a function without arguments: then an error in it fails in plain words, too. `tried` says what the
    test did, `see` which section of which chapter explains it.
    """
    value = run(got, tried=tried, see=see, expected=_short(expected)) if callable(got) else got
    if not value == expected:
        _fail(tried, _short(value), _short(expected), see)


def true(condition, *, tried, came_out, expected, see=""):
    """Fail unless `condition` holds; the other arguments are the words of the failure."""
    if not condition:
        _fail(tried, came_out, expected, see)


def raises(error, action, *, tried, see=""):
    """Fail unless `action` (a function without arguments) raises `error`; return the error raised."""
    try:
        value = action()
    except error as raised:
        return raised
    except Exception as other:
        _fail(tried, _words(other), error.__name__, see)
    _fail(tried, f"no error, but {_short(value)}", error.__name__, see)


def unchanged(value, action, *, tried, see=""):
    """Run `action` and fail if it changed `value` in place; return what `action` returned."""
    before = copy.deepcopy(value)
    result = run(action, tried=tried, see=see)
    if value != before:
        _fail(
            tried,
            f"an argument changed in place from {_short(before)} to {_short(value)}",
            "the argument as it was",
            see,
        )
    return result
