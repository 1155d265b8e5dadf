"""What things cost, measured side by side in one run, as medians and ratios."""

import statistics
import time
from dataclasses import dataclass


def duration(seconds):
    """Return `seconds` with three significant digits and the unit that suits: ns, µs, ms or s."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds / 1e-9)} ns"


def _digits(number):
    """Three significant digits, without the exponent that `.3g` writes from 1000 on."""
    return f"{number:,.0f}" if number >= 999.5 else f"{number:.3g}"


@dataclass(frozen=True)
class Comparison:
    """Medians of a side-by-side measurement: `seconds` maps each variant to its median time a call, in seconds."""

    seconds: dict[str, float]

    def ratio(self, slow, fast):
        """Return how many times longer `slow` took than `fast`."""
        return self.seconds[slow] / self.seconds[fast]

    def _repr_markdown_(self):
        fastest = min(self.seconds, key=self.seconds.get)
        rows = [
            f"| {name} | {duration(value)} | {_digits(self.ratio(name, fastest))} × |"
            for name, value in self.seconds.items()
        ]
        return "\n".join(["| variant | median per call | ratio |", "|---|---:|---:|", *rows])


def compare(variants, *, rounds=9, seconds=0.02):
    """Time each of `variants` (name to function without arguments) and return their medians as a Comparison.

    The variants take turns in every one of `rounds` rounds, so that a busy moment of the machine hits all of them;
    a turn repeats the call for about `seconds` seconds, and at least once. Every variant is called twice beforehand,
    so that first-time costs are left out. Raises ValueError without variants or rounds.
    """
    if not variants:
        raise ValueError("variants: give at least one function to time")
    if rounds < 1:
        raise ValueError(f"rounds: {rounds}, but a median needs at least one")
    numbers = {}
    for name, call in variants.items():
        call()
        numbers[name] = max(1, round(seconds / max(_mean(call, 1), 1e-9)))
    times = {name: [] for name in variants}
    for _ in range(rounds):
        for name, call in variants.items():
            times[name].append(_mean(call, numbers[name]))
    return Comparison({name: statistics.median(values) for name, values in times.items()})


def _mean(call, number):
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number
