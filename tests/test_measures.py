"""Side-by-side timing: order, counts and the words it shows. No test here depends on how fast the machine is."""

import pytest

from between_nodes import measures
from between_nodes.measures import Comparison, compare, duration


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless a variant moves it."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(measures.time, "perf_counter", lambda: Clock.now)
    return Clock


def test_variants_take_turns(clock):
    turns = []

    def variant(name, cost):
        def call():
            turns.append(name)
            clock.now += cost

        return call

    result = compare({"a": variant("a", 0.03), "b": variant("b", 0.05)}, rounds=3, seconds=0.02)
    assert turns == [*"aabb", *"ababab"]
    assert result.seconds == pytest.approx({"a": 0.03, "b": 0.05})


def test_a_turn_repeats_a_short_call_for_about_the_time_given(clock):
    calls = {"short": 0, "long": 0}

    def variant(name, cost):
        def call():
            calls[name] += 1
            clock.now += cost

        return call

    result = compare({"short": variant("short", 0.001), "long": variant("long", 1)}, rounds=2, seconds=0.02)
    assert calls == {"short": 2 + 2 * 20, "long": 2 + 2}
    assert result.ratio("long", "short") == pytest.approx(1000)


def test_the_median_ignores_one_slow_round(clock):
    costs = iter([1, 1, 1, 500, 1])

    def call():
        clock.now += next(costs)

    assert compare({"a": call}, rounds=3).seconds == {"a": 1}


def test_first_time_costs_are_left_out(clock):
    costs = iter([60.0])

    def call():
        clock.now += next(costs, 0.001)

    assert compare({"a": call}, rounds=3).seconds == pytest.approx({"a": 0.001})


@pytest.mark.parametrize(("variants", "rounds", "words"), [({}, 9, "variants"), ({"a": int}, 0, "rounds")])
def test_bad_input_is_refused(variants, rounds, words):
    with pytest.raises(ValueError, match=f"^{words}: "):
        compare(variants, rounds=rounds)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ns"),
        (3.2e-9, "3.2 ns"),
        (1.234e-7, "123 ns"),
        (9.996e-7, "1 µs"),
        (1.3e-4, "130 µs"),
        (0.0123456, "12.3 ms"),
        (0.99999, "1 s"),
        (61.5, "61.5 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_durations_choose_their_unit(seconds, words):
    assert duration(seconds) == words


def test_a_comparison_shows_as_a_table():
    table = Comparison({"while": 1e-7, "graph": 1.3e-4})._repr_markdown_()
    assert table.splitlines() == [
        "| variant | median per call | ratio |",
        "|---|---:|---:|",
        "| while | 100 ns | 1 × |",
        "| graph | 130 µs | 1,300 × |",
    ]
