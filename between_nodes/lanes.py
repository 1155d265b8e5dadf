"""The tree of a thread's checkpoints, and its picture: steps as columns, branches as rows, wrapped to the page."""

import math
import textwrap
from collections import Counter
from dataclasses import dataclass, field

_WIDTH = 9.6  # inches, of all columns of a row together
_LETTER = 0.068  # inches, about, of a letter under a checkpoint
_LOOKS = {  # source of a checkpoint: marker, fill, edge
    "input": ("s", "#d3e5ff", "#1f5fae"),
    "loop": ("o", "#f2f0ff", "#5b4bb5"),
    "update": ("D", "#ffe2c2", "#a65300"),
    "fork": ("^", "#d7f2dc", "#1e7a3a"),
}
_SIGNS = {"paused": "II", "failed": "×", "kept": "+"}


@dataclass
class Point:
    """A checkpoint in the tree.

    `snapshot` as the history has it, the point before it, its branch (0 is the first), how many come after it, what
    `get_state` says if it is the newest, and what its tasks left: "paused", "failed" ... and the nodes.
    `get_state` counts results kept from an incomplete step as if they were in the checkpoint; the history does not.
    """

    snapshot: object
    parent: "Point | None"
    lane: int = 0
    children: int = 0
    newest: object = None
    notes: dict[str, list[str]] = field(default_factory=dict)

    @property
    def step(self):
        return self.snapshot.metadata["step"]

    @property
    def source(self):
        return self.snapshot.metadata["source"]

    @property
    def waiting(self):
        return ["START" if name == "__start__" else name for name in (self.newest or self.snapshot).next]

    @property
    def next(self):
        return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in Counter(self.waiting).items()) or "nothing"

    @property
    def words(self):
        return [f"{kind}: {', '.join(dict.fromkeys(names))}" for kind, names in self.notes.items()]


def read(graph, config):
    """The thread's checkpoints, oldest first, as a tree of Point."""
    if not hasattr(graph, "get_state_history"):
        raise TypeError(f"graph: a {type(graph).__name__}, but it takes a compiled graph: builder.compile(...)")
    if not graph.checkpointer:
        raise ValueError("this graph has no checkpointer, so nothing is stored: compile(checkpointer=...)")
    settings = config.get("configurable", {})
    if "thread_id" not in settings:
        raise ValueError('config: name the thread, as in {"configurable": {"thread_id": "1"}}')
    thread = {"configurable": {k: settings[k] for k in ("thread_id", "checkpoint_ns") if k in settings}}
    snapshots = list(graph.get_state_history(thread))[::-1]
    if not snapshots:
        raise ValueError(
            f"thread {settings['thread_id']!r} has no checkpoints: invoke the graph with this config first, "
            "with the same saver, or look for a typing error in the thread id"
        )
    newest, points, lanes = graph.get_state(thread), {}, 0
    for snapshot in snapshots:
        parent = points.get(_id(snapshot.parent_config))
        point = points[_id(snapshot.config)] = Point(snapshot, parent)
        point.newest = newest if _id(snapshot.config) == _id(newest.config) else None
        if parent and not parent.children:
            point.lane = parent.lane
        else:
            point.lane, lanes = lanes, lanes + 1
        if parent:
            parent.children += 1
    for point in points.values():
        for task in point.snapshot.tasks:
            if kind := _trace(task, point.children == 0):
                point.notes.setdefault(kind, []).append(task.name)
    return list(points.values())


def _id(config):
    return config and config["configurable"]["checkpoint_id"]


def _trace(task, leaf):
    """What to say of a task: results are worth a word only where nothing was stored after them."""
    if task.error:
        return "failed"
    if task.interrupts:
        return "answered" if task.result is not None else "paused" if leaf else "unanswered"
    return "kept" if leaf and task.result is not None else ""


def draw(points):
    """Return a matplotlib figure of `points`, the checkpoints of a thread from oldest to newest (see read)."""
    import matplotlib.pyplot as plt

    column = {step: number for number, step in enumerate(sorted({point.step for point in points}))}
    longest = max(len(line) for point in points for line in (f"next: {point.next}", *point.words)) * _LETTER + 0.15
    width = min(1.6, max(0.8, min(longest, _WIDTH / math.ceil(len(column) / 5))))
    if len(column) * width < 1.25 * _WIDTH:
        width = min(width, _WIDTH / len(column))  # a little narrower, and all in one row
    per_row = math.ceil(len(column) / math.ceil(len(column) * width / _WIDTH - 1e-9))
    rows = {}
    for point in points:
        rows.setdefault(column[point.step] // per_row, {}).setdefault(point.lane, []).append(point)
    place, labels, heads, top = {}, {}, [], 0.0
    for number, row in sorted(rows.items()):
        top += 0.2 if heads else 0
        heads.append((number, top + 0.12))
        top += 0.3
        for lane in sorted(row):
            for point in row[lane]:
                place[id(point)] = ((column[point.step] % per_row + 0.5) * width, top + 0.32)
                labels[id(point)] = _label(point, int(width / _LETTER))
            top += 0.62 + 0.15 * max(len(labels[id(point)]) for point in row[lane])
    figure, axes = plt.subplots(figsize=(per_row * width, top))
    axes.set_position((0, 0, 1, 1))
    axes.set(xlim=(0, per_row * width), ylim=(top, 0))
    axes.axis("off")
    for number, y in heads:
        if number != heads[0][0]:
            axes.axhline(y - 0.25, color="#dddddd", linewidth=0.8)
        for step, at in column.items():
            if at // per_row == number:
                axes.text((at % per_row + 0.5) * width, y, f"step {step}", ha="center", fontsize=7.5, color="#555555")
    for point in points:
        _connect(axes, point, place, per_row * width, width)
    for point in points:
        _mark(axes, point, *place[id(point)], labels[id(point)])
    return figure


def _label(point, letters):
    """The lines under a checkpoint, as (text, weight, colour)."""
    parts = [(f"next: {point.next}", "normal", "#1b1b1f"), *((words, "bold", "#1b1b1f") for words in point.words)]
    parts += [("invoke continues here", "bold", "#8a5200")] if point.newest else []
    return [(line, *look) for text, *look in parts for line in textwrap.wrap(text, letters)[:3]]


def _connect(axes, point, place, right, width):
    """The line from a checkpoint's parent; across a row's end it leaves to the right and comes back from the left."""
    if not point.parent:
        return
    (x0, y0), (x, y) = place[id(point.parent)], place[id(point)]
    style = {"color": "#8a86a8", "linewidth": 1.4, "zorder": 1}
    if x0 < x and point.lane == point.parent.lane:
        axes.plot([x0, x], [y0, y], **style)
    elif x0 < x and y0 < y:
        turn = x0 + width / 2
        axes.plot([x0, turn, turn, x], [y0, y0, y, y], linestyle="--", **style)
    else:
        axes.plot([x0, right], [y0, y0], linestyle=":", **style)
        axes.plot([0, x], [y, y], linestyle=":", **style)


def _mark(axes, point, x, y, lines):
    marker, fill, edge = _LOOKS.get(point.source, ("h", "#eeeeee", "#444444"))
    axes.text(x, y - 0.19, point.source, ha="center", fontsize=7.5, color=edge, zorder=3)
    if point.newest:
        axes.plot([x], [y], "o", markersize=23, markerfacecolor="#ffd54f", markeredgecolor="#b26a00", zorder=2)
    axes.plot(
        [x], [y], marker, markersize=13, markerfacecolor=fill, markeredgecolor=edge, markeredgewidth=1.5, zorder=3
    )
    sign = next((_SIGNS[kind] for kind in _SIGNS if kind in point.notes), "")
    axes.text(x, y, sign, ha="center", va="center", fontsize=9, weight="bold", color="#a3000b", zorder=4)
    for number, (text, weight, colour) in enumerate(lines):
        axes.text(
            x,
            y + 0.33 + 0.15 * number,
            text,
            ha="center",
            fontsize=8,
            weight=weight,
            color=colour,
            zorder=3,
            parse_math=False,
        )
