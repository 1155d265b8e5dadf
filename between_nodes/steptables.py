"""A run as a table, super-step by node: who ran when, what it read and what it wrote."""

import re
import reprlib
import textwrap
from dataclasses import dataclass, is_dataclass

from .stepper import plain

_SENT = "__pregel_push"  # what the stream gives as the trigger of a task that a Send started
_MOST = 6  # rows for the tasks of one node in one super-step


@dataclass
class Task:
    """One run of a node, its number if a Send started it (else 0), and Markdown of what it read and wrote."""

    step: int
    name: str
    number: int
    read: str
    wrote: str = "*unfinished*"

    @property
    def label(self):
        return f"{self.name} #{self.number}" if self.number else self.name


@dataclass(frozen=True, repr=False)
class StepTable:
    """A run: its tasks as their writes merge (nodes by name, then Sends as sent), and a row before and after them."""

    tasks: list[Task]
    first: tuple[str, ...]
    last: tuple[str, ...]

    @property
    def steps(self):
        """The labels of the tasks, a list for each super-step: ``[["fry", "grill"], ["plate"]]``."""
        numbers = sorted({task.step for task in self.tasks})
        return [[task.label for task in self.tasks if task.step == number] for number in numbers]

    def __repr__(self):
        return " | ".join(map(", ".join, self.steps)) or "no super-step"

    def _repr_markdown_(self):
        rows = [("super-step", "node", "read", "wrote"), (":--",) * 4, self.first]
        for task in self.tasks:
            same = [other for other in self.tasks if (other.step, other.name) == (task.step, task.name)]
            if task in (*same[: _MOST - 1], same[-1]):
                rows.append((f"**{task.step}**", plain(task.label), task.read, task.wrote))
            elif task is same[_MOST - 1]:
                rows.append((f"**{task.step}**", f"*{len(same) - _MOST} more of {plain(task.name)}*", "…", "…"))
        return "\n".join(f"| {' | '.join(row)} |" for row in [*rows, self.last])


def step_table(graph, input, config=None, **options):
    """Run a compiled graph and return the run as a StepTable; `config` and `options` go to the graph's `stream`.

    A subgraph is one node. An error that ends the run is shown, and raised only if no node had started.
    """
    tasks, first, last = {}, ("", "*input*", "", _values(input)), ("", "*result*", "", "")
    try:
        for mode, part in graph.stream(input, config, stream_mode=["debug", "updates", "values"], **options):
            if mode == "values":
                last = ("", last[1], _values(part), "")
            elif mode == "updates" and "__interrupt__" in part:
                last = ("", "*paused*", *last[2:])
            elif mode == "updates" and "__metadata__" in part:  # kept from before a pause, or cached: has no result
                kept = next(t for t in tasks.values() if t.name in part and t.wrote == Task.wrote)
                kept.wrote = f"*kept* {_values(part[kept.name])}"
            elif mode == "debug" and part["type"] != "checkpoint":
                _note(tasks, part["step"], part["payload"])
    except Exception as error:
        if not tasks:
            raise
        last = ("", "*stopped*", "", _error(error))
    order = sorted(tasks.values(), key=lambda task: (task.step, task.number > 0, "" if task.number else task.name))
    return StepTable(order, first, last)


def _note(tasks, step, seen):
    """Note what the stream says of a task: that it starts, or how it ended (of an error handler only the latter)."""
    before = sum((task.step, task.name) == (step, seen["name"]) and task.number > 0 for task in tasks.values())
    number = before + 1 if _SENT in seen.get("triggers", ()) else 0
    task = tasks.setdefault(seen["id"], Task(step, seen["name"], number, _values(seen.get("input"))))
    if "result" in seen:
        paused = "<br>".join(f"**interrupt** {_code(pause['value'])}" for pause in seen["interrupts"])
        task.wrote = _error(seen["error"]) if seen["error"] else paused or _values(seen["result"])


def _values(values):
    """A state, an update or a payload, key by key; what a task wrote to one key in several goes is under `$writes`."""
    if is_dataclass(values) or hasattr(values, "model_fields_set"):
        values = getattr(values, "__dict__", None) or values
    if not isinstance(values, dict):
        return "nothing" if values is None else _code(values)
    writes = {k: v["$writes"] if isinstance(v, dict) and set(v) == {"$writes"} else [v] for k, v in values.items()}
    return "<br>".join(f"{plain(str(k))}: {' then '.join(map(_code, v))}" for k, v in writes.items()) or "nothing"


def _error(error):
    return f"**{type(error).__name__}** {plain(textwrap.shorten(str(error), 70, placeholder=' …'))}"


def _code(value):
    return f"<code>{plain(_SHORT.repr(value))}</code>"


def _instance(value, level):
    """Of a message its role and text; of anything else no memory address."""
    if hasattr(value, "type") and hasattr(value, "content"):
        return f"{value.type}({_SHORT.repr1(value.content, level)})"
    return textwrap.shorten(re.sub(r" at 0x[0-9a-f]+", "", repr(value)), 60, placeholder=" …")


_SHORT = reprlib.Repr()
_SHORT.maxlist, _SHORT.maxstring, _SHORT.fillvalue, _SHORT.repr_instance = 8, 40, "…", _instance
