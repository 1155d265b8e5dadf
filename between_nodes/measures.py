"""What things cost, measured side by side in one run, as medians and ratios."""

import statistics
import time
from dataclasses import dataclass


def duration(seconds):
    """Return `seconds` with three significant digits and the unit that suits: ns, µs, ms or s."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


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
            f"| {name} | {duration(value)} | {self.ratio(name, fastest):,.3g} × |"
            for name, value in self.seconds.items()
        ]
        return "\n".join(["| variant | median per call | ratio |", "|---|---:|---:|", *rows])


def compare(variants, *, rounds=9, seconds=0.02):
    """Time each of `variants` (name to function without arguments) and return their medians as a Comparison.

    The variants take turns in every one of `rounds` rounds, so that a busy moment of the machine hits all of them;
    a turn repeats the call for about `seconds` seconds. Raises ValueError without variants.
    """
    if not variants:
        raise ValueError("variants: give at least one function to time")
    numbers = {name: max(1, round(seconds / max(_once(call, 1), 1e-9))) for name, call in variants.items()}
    times = {name: [] for name in variants}
    for _ in range(rounds):
        for name, call in variants.items():
            times[name].append(_once(call, numbers[name]))
    return Comparison({name: statistics.median(values) for name, values in times.items()})


def _once(call, number):
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number
