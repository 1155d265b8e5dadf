"""Runs a notebook's own functions in another process, which may be killed for real without hurting the kernel.

A child is forked from a helper process that has imported LangGraph and done nothing else, which takes some 10 ms
instead of a second of imports. It is not forked from the kernel: it would carry the kernel's open SQLite files and
connections along, and their locks do not survive that. Where Python has no fork server, a child starts from nothing.
"""

import io
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import types
from dataclasses import dataclass, replace

from .sources import Text

_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_PRELOAD = [
    "between_nodes.crashes",
    "langgraph.graph",
    *(f"langchain_core.tracers.{m}" for m in ("context", "run_collector", "stdout")),
]


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    `exit` is "returned", the name of the exception that left the function, the name of the signal that killed the
    process, "exit code n", or "time limit". `value` is what the function returned, `error` the exception's type and
    the first line of its text, `printed` all that was printed, also by a process that was killed later.
    """

    exit: str
    value: object = None
    error: str = ""
    printed: str = ""


class Child:
    """A function that runs in another process; `pid` is the number of that process. `start` makes them."""

    def __init__(self, process, messages, seconds):
        self.pid, self._process, self._messages = process.pid, process, messages
        self._end = time.monotonic() + seconds

    def kill(self):
        """Kill the process from outside: with SIGKILL, or what the system has instead."""
        self._process.kill()

    def wait(self):
        """Wait until the process has ended, by itself or at its time limit, and return how, as Ended."""
        printed, ended = [], None
        try:
            while self._messages.poll(max(0, self._end - time.monotonic())):
                message = self._messages.recv()
                if isinstance(message, Ended):
                    ended = message
                else:
                    printed.append(message)
        except EOFError:  # the process has closed its end: it is over
            self._process.join(2)
        finally:
            self._process.kill()
            self._process.join()
            self._messages.close()
        return replace(ended or Ended(self._status()), printed="".join(printed))

    def _status(self):
        code = self._process.exitcode
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        late = time.monotonic() >= self._end and name == "SIGKILL"
        return "time limit" if late or name == "SIGALRM" else name


def start(function, *args, seconds=20):
    """Start ``function(*args)`` in another process and return it as a Child, without waiting for it.

    `function`, and functions among `args`, stand at the top level of a cell, and travel as text with what they refer
    to; other arguments, and the value returned, are pickled. After `seconds` the process is killed, even when nobody
    waits for it. Raises ValueError when the text of a function cannot be found.
    """
    context = multiprocessing.get_context(_METHOD)
    if _METHOD == "forkserver":
        context.set_forkserver_preload(_PRELOAD)
    job = [_packed(each) for each in (function, *args)]
    messages, writer = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(writer, job, seconds, dict(os.environ)), daemon=True)
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")  # or multiprocessing would run a script's file once more
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
        writer.close()
    return Child(process, messages, seconds)


def run(function, *args, seconds=20):
    """Run ``function(*args)`` in another process and return how it ended, as Ended; see `start`."""
    return start(function, *args, seconds=seconds).wait()


def _packed(value):
    """Functions as text; those of this package are there already."""
    own = isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] != __package__
    return Text.of(value) if own else value


class _Printed(io.TextIOBase):
    """The child's standard output and error: sent at once, so that it survives a kill."""

    def __init__(self, send):
        self._send = send

    def write(self, text):
        self._send(text)
        return len(text)


def _child(writer, job, seconds, environment):
    """In the other process: run the job, say what came of it, and end without further ado."""
    lock = threading.Lock()

    def send(message):
        data = pickle.dumps(message)
        with lock:
            writer.send_bytes(data)

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "alarm"):  # ends the process at the limit even if nobody waits and its code is stuck
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(math.ceil(seconds) + 1)
    os.environ.update(environment)
    sys.stdout = sys.stderr = _Printed(send)
    try:
        function, *args = [each.load() if isinstance(each, Text) else each for each in job]
        send(Ended("returned", function(*args)))
    except BaseException as error:
        words = "".join(traceback.format_exception_only(error)).strip().partition("\n")[0]
        send(Ended(type(error).__name__, error=words))
    os._exit(0)
