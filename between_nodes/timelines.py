"""A thread's checkpoints as a picture and as a stepper, read through get_state and get_state_history alone."""

import re
from collections import Counter

from langchain_core.messages import BaseMessage

from .diagrams import mermaid, picture
from .lanes import draw, read
from .stepper import Stepper, plain

_RANDOM = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|(?<=at )0x[0-9a-f]+")


def timeline(graph, config):
    """Draw the checkpoints of a thread; use it as the last line of a cell.

    Columns are the steps, rows the branches: a replay, a fork or an update of an old checkpoint begins a new one.
    Shape, colour and word tell the source (input, loop, update, fork). Under each checkpoint stand the nodes that are
    next, and what their tasks left: "paused" and "failed"; "kept", a result saved though its step is not complete;
    "answered" and "unanswered", a question of before. A disc marks the checkpoint the next `invoke` continues from.

    `graph` is compiled with any saver; `config` names the thread, and with `checkpoint_ns` a subgraph's checkpoints
    within it. Raises ValueError when there is no saver, no thread id, or nothing stored for it.
    """
    points = read(graph, config)
    return picture(draw(points), _words(points, config["configurable"]))


def _words(points, settings):
    """The picture in words: every checkpoint of a short thread, a summary and what is special of a long one."""
    branches = max(point.lane for point in points) + 1
    inside = f", subgraph {_names(settings['checkpoint_ns'])}" if settings.get("checkpoint_ns") else ""
    lines = [
        f"Thread {settings['thread_id']}{inside}: {_many(len(points), 'checkpoint')} in {_many(branches, 'branch')}"
    ]
    for lane in range(branches):
        own = [point for point in points if point.lane == lane]
        start = f"Branch {lane + 1}"
        if own[0].parent:
            start += f", from branch {own[0].parent.lane + 1} after step {own[0].parent.step}"
        if len(points) > 16:
            sources = Counter(point.source for point in own)
            special = [point for point in own if point.words]
            start += f", steps {own[0].step} to {own[-1].step} ({', '.join(f'{n} {s}' for s, n in sources.items())})"
        else:
            special = own
        lines.append(f"{start}: {'; '.join(map(_caption, special))}" if special else start)
    newest = next(point for point in points if point.newest)
    lines.append(f"The next invoke continues from step {newest.step} in branch {newest.lane + 1}")
    return ". ".join(lines) + "."


def _many(number, word):
    plural = word + ("es" if word.endswith("ch") else "s")
    return f"{number} {word if number == 1 else plural}"


def _names(namespace):
    """The subgraph's path without task ids."""
    return "/".join(part.partition(":")[0] for part in namespace.split("|"))


def _caption(point):
    return ", ".join([f"step {point.step} {point.source}", f"next {point.next}", *point.words])


def steps(graph, config):
    """Step through the checkpoints of a thread, oldest first; use it as the last line of a cell.

    Each page shows the graph with the waiting nodes highlighted, the stored values, what changed against the
    checkpoint before it in its branch, and what the tasks left: questions, errors, results. Where no kernel runs the
    pages are folded below each other. Arguments and errors are those of `timeline`. Returns a Stepper.
    """
    points, settings = read(graph, config), config["configurable"]
    if settings.get("checkpoint_ns"):
        path = "|".join(part.partition(":")[0] for part in settings["checkpoint_ns"].split("|"))
        graph = next(graph.get_subgraphs(namespace=path, recurse=True), (path, graph))[1]
    several = any(point.lane for point in points)
    pages = []
    for point in points:
        branch = f"branch {point.lane + 1}, " if several else ""
        last = " (invoke continues here)" if point.newest else ""
        pages.append((f"{branch}{_caption(point)}{last}", _page(graph, point)))
    return Stepper(pages, "checkpoint")


def _page(graph, point):
    waiting = set(point.waiting) & {*graph.get_graph().nodes, "START"}
    title = f"Step {point.step}, next {point.next}"
    parts = [f"```mermaid\n{mermaid(graph, title=title, current=waiting, direction='LR')}\n```"]
    now, before = (_values(each.snapshot) if each else {} for each in (point, point.parent))
    rows = [f"| {_code(key)} | {_code(_say(value))} | {_change(key, before, value)} |" for key, value in now.items()]
    parts.append("\n".join(["| field | value | change |", "|---|---|---|", *rows]) if rows else "No values are stored.")
    for task in point.snapshot.tasks:
        name = _code("START" if task.name == "__start__" else task.name)
        for question in task.interrupts:
            parts.append(f"{name} asks {_code(_say(question.value))}")
        if task.error:
            error = task.error if isinstance(task.error, str) else repr(task.error)
            parts.append(f"{name} failed: {_code(_RANDOM.sub('…', error))}")
        if task.result is not None:
            parts.append(f"{name} wrote {_code(_say(task.result))}")
    return "\n\n".join(parts)


def _values(snapshot):
    return snapshot.values if isinstance(snapshot.values, dict) else {"value": snapshot.values}


def _change(key, before, value):
    """How a value differs from the one before, in a table cell: "", "new", what was added, or what it was."""
    if key not in before:
        return "new"
    old = before[key]
    if _say(old) == _say(value):
        return ""
    if isinstance(value, list) and isinstance(old, list) and list(map(_say, value[: len(old)])) == list(map(_say, old)):
        return f"added {_code(_say(value[len(old) :]))}"
    return f"was {_code(_say(old))}"


def _say(value):
    """A value as text that is the same in every run: messages by type and content, no random ids, no addresses."""
    if isinstance(value, BaseMessage):
        calls = [f"{call['name']}({_say(call['args'])})" for call in getattr(value, "tool_calls", [])]
        return " ".join([f"{value.type}:", *([repr(value.content)] if value.content else []), *calls])
    if isinstance(value, list):
        return f"[{', '.join(map(_say, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_say(each)}' for key, each in value.items())}}}"
    return _RANDOM.sub("…", repr(value))


def _code(text):
    """Text as code in a table cell, cut in the middle where it is long."""
    short = text if len(text) <= 300 else f"{text[:200]} … {text[-80:]}"
    return f"<code>{plain(short)}</code>"
