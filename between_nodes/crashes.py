"""Kills a process in the middle of a graph, for real; reports what is on disk and what a resume runs again."""

import itertools
import json
import os
from collections import Counter
from dataclasses import dataclass, field

from . import children, databases
from .fates import Fate, invoke, is_postgres, read

HOWS = ("SIGKILL", "SIGTERM", "os._exit", "SIGINT", "sys.exit", "exception", "interrupt")
COLUMNS = ("how", "at", "database", "durability", "exit", "on_disk", "ran_before", "resumed", "ran_on_resume")
_numbers = itertools.count(1)


def effect(name):
    """Do something to the world that no crash undoes: write `name`, a text or number, down as a line of a file.

    Call it in a node, in place of the refund or the e-mail. `crash` counts the calls and ends the process at one of
    them. Outside `crash` it does nothing.
    """
    if Fate.current:
        Fate.current.meet(name)


@dataclass(frozen=True)
class Outcome:
    """What a crash left behind, and what a resume in another process made of it; the last line of a cell shows a table.

    `how`, `at`, `durability`: as given to `crash`. `database`: "SQLite" or "PostgreSQL".
    `exit`: the signal, exception or "exit code n" that ended the process; "time limit"; or "paused" or "finished",
    when `invoke` returned. `on_disk`: the steps of the stored checkpoints, oldest first. `next`: the nodes that wait.
    `pending`: which tasks of the newest checkpoint left a trace, as (node, "result" or "error" or "interrupt").
    `state`: the stored values. `ran_before`, `ran_on_resume`: the effects in order. `resumed`: "finished", "paused"
    or the error; "" without a resume. `result`: the state after it. `address`, `thread`: where it is stored.
    """

    how: str | None
    at: int | None
    durability: str
    database: str
    exit: str
    on_disk: list[int]
    next: tuple[str, ...]
    pending: list[tuple[str, str]]
    state: dict
    ran_before: list
    ran_on_resume: list
    resumed: str
    result: dict | None
    address: str = field(repr=False)
    thread: str = field(repr=False)

    @property
    def effects(self):
        """How often each effect happened in all, as a Counter."""
        return Counter(self.ran_before + self.ran_on_resume)

    @property
    def again(self):
        """The effects that happened more than once, in order."""
        return [name for name, times in self.effects.items() if times > 1]

    def _repr_markdown_(self):
        return _markdown([self], COLUMNS)


def crash(
    build,
    input,
    *,
    how="SIGKILL",
    at=1,
    moment="after",
    durability="async",
    address=None,
    saves="free",
    save_seconds=0.0,
    resume=True,
    seconds=20,
):
    """Run a graph in another process, end that process at effect number `at`, resume in a third one, and report.

    `build`: a function of a cell, without arguments, that returns a StateGraph, not compiled.
    `input`: what the graph is invoked with.
    `how`: one of HOWS, or None to let the graph finish.
    `moment`: "before" or "after" the effect is done; the node has started and not returned in both cases.
    `durability`: "sync", "async" or "exit".
    `address`: of a PostgreSQL, or the path of an SQLite file; without it, a new SQLite file.
    `saves`: "free" lets the saves race with the nodes; "held" lets none finish before the process ends; "stored" ends
    the process only when every save handed over so far has finished. Parallel nodes run in the same threads as the
    saves, so "held" can keep them from starting; the time limit ends that.
    `save_seconds`: how much longer each save takes, in seconds.
    `resume`: whether to resume, and delete the thread afterwards; False leaves the thread as the crash left it.
    `seconds`: the time limit of each process.

    Returns an Outcome. Raises ValueError for arguments that do not fit, and RuntimeError when the graph ended before
    the crash was due, or the thread cannot be read afterwards.
    """
    if how not in (*HOWS, None) or moment not in ("before", "after") or saves not in ("free", "held", "stored"):
        raise ValueError(f"how: {', '.join(HOWS)} or None; moment: before, after; saves: free, held, stored")
    if durability not in ("sync", "async", "exit"):
        raise ValueError(f"durability: {durability!r}, but it is sync, async or exit")
    if saves == "held" and durability == "sync":
        raise ValueError("saves: with sync no node would start, because it waits for each save to finish")
    thread = f"crash-{os.getpid()}-{next(_numbers)}"
    given, address = address, str(address or databases.sqlite_file(thread))
    log = databases.folder() / f"{thread}.effects"
    log.touch()
    fate = Fate(str(log), at if how else 0, how, moment, durability, saves, save_seconds)
    died = children.run(invoke, build, input, address, thread, fate, seconds=seconds)
    before = _lines(log)
    if how and None not in before and died.exit != "time limit":
        ending = died.error or died.value or died.exit
        raise RuntimeError(f"{len(before)} effects, then {ending}: the graph ended before the crash at number {at}")
    fate = Fate(str(log), durability=durability)
    then = children.run(read, build, address, thread, fate, resume, seconds=seconds)
    if then.exit != "returned":
        raise RuntimeError(f"the thread could not be read after the crash: {then.error or then.exit}")
    outcome = Outcome(
        how=how,
        at=at if how else None,
        durability=durability,
        database="PostgreSQL" if is_postgres(address) else "SQLite",
        exit=died.value or died.exit,
        ran_before=[name for name in before if name is not None],
        ran_on_resume=_lines(log)[len(before) :],
        address=address,
        thread=thread,
        **then.value,
    )
    log.unlink()
    if resume and not given:
        databases.sqlite_file(thread)  # deletes the one that was there
    return outcome


def _lines(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def table(outcomes, columns=COLUMNS):
    """Show outcomes as a table, a row each; `columns` are attributes of Outcome."""
    from IPython.display import Markdown

    return Markdown(_markdown(outcomes, columns))


def _markdown(outcomes, columns):
    from .stepper import plain

    rows = [[plain(_words(getattr(outcome, column))) for column in columns] for outcome in outcomes]
    head = [[column.replace("_", " ") for column in columns], ["---"] * len(columns)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [*head, *rows])


def _words(value):
    """A value for a cell of a table; three and more whole numbers in a row as "1 to 5"."""
    if isinstance(value, (list, tuple)):
        numbers = len(value) > 2 and all(isinstance(each, int) for each in value)
        if numbers and list(value) == list(range(value[0], value[0] + len(value))):
            return f"{value[0]} to {value[-1]}"
        return ", ".join(map(_words, value)) or "nothing"
    return str(value)
