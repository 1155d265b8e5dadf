"""What `crashes` does inside the process that dies: which effect ends it and how, and how its saver behaves."""

import json
import os
import signal
import sys
import threading
import time

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.config import get_config
from langgraph.types import Command, interrupt


class Fate:
    """What happens to a process: it ends by `how` at effect number `at`, and its saver saves as `saves` says."""

    current = None

    def __init__(self, log, at=0, how=None, moment="after", durability="", saves="free", save_seconds=0.0):
        self.log, self.at, self.how, self.moment = log, at, how, moment
        self.durability, self.saves, self.save_seconds = durability, saves, save_seconds

    def begin(self):
        """Take effect in this process."""
        Fate.current = self
        self.count, self.stored, self.open, self.last = 0, set(), 0, 0.0
        self.lock, self.released = threading.Lock(), threading.Event()
        if self.saves != "held":
            self.released.set()

    def meet(self, name):
        """Note an effect, and end the process if this is the one; `null` in the log says that it came to that."""
        with self.lock:
            self.count += 1
            due = self.count == self.at
            names = [] if due and self.moment == "before" else [name]
            with open(self.log, "a") as file:
                file.write("".join(json.dumps(each) + "\n" for each in [*names, *([None] if due else [])]))
        if due:
            if self.saves == "stored" and self.durability != "exit":
                self.wait_until_stored()
            self.end()

    def wait_until_stored(self):
        """Wait for the checkpoint this node started from, then for a moment without any save (siblings' writes)."""
        metadata = get_config()["metadata"]
        due = (metadata["langgraph_checkpoint_ns"].rpartition("|")[0], metadata["langgraph_step"] - 1)
        while due not in self.stored or self.open or time.monotonic() - self.last < 0.05:
            time.sleep(0.002)

    def end(self):
        """End the process."""
        if self.how == "os._exit":
            os._exit(1)
        if self.how in ("SIGKILL", "SIGTERM"):
            os.kill(os.getpid(), getattr(signal, self.how))
            time.sleep(60)  # should the signal take a moment, no further line of the node runs
        self.released.set()  # the other ways leave through LangGraph, which saves on its way out
        if self.how == "SIGINT":
            os.kill(os.getpid(), signal.SIGINT)
        elif self.how == "sys.exit":
            sys.exit(1)
        elif self.how == "exception":
            raise RuntimeError("crashed on purpose")
        else:
            interrupt("paused on purpose")

    def save(self, put):
        """Call the saver's `put` as late and as slowly as was asked for."""
        self.released.wait()
        with self.lock:
            self.open += 1
        try:
            time.sleep(self.save_seconds)
            return put()
        finally:
            with self.lock:
                self.open, self.last = self.open - 1, time.monotonic()


class _Watched:
    """Mixed into a saver: what it saves goes through the fate of the process."""

    def put(self, config, checkpoint, metadata, new_versions):
        saved = Fate.current.save(lambda: super(_Watched, self).put(config, checkpoint, metadata, new_versions))
        Fate.current.stored.add((config["configurable"].get("checkpoint_ns", ""), metadata["step"]))
        return saved

    def put_writes(self, *args, **options):
        Fate.current.save(lambda: super(_Watched, self).put_writes(*args, **options))


def is_postgres(address):
    """Tell a PostgreSQL address from the path of an SQLite file."""
    return address.startswith("postgres")


def _open(address):
    parent = PostgresSaver if is_postgres(address) else SqliteSaver
    return type(parent.__name__, (_Watched, parent), {}).from_conn_string(address)


def _ended(result):
    return "paused" if "__interrupt__" in result else "finished"


def invoke(build, input, address, thread, fate):
    """In the first process: run the graph until the end, whichever it is, and return "paused" or "finished"."""
    fate.begin()
    with _open(address) as saver:
        saver.setup()
        graph = build().compile(checkpointer=saver)
        return _ended(graph.invoke(input, {"configurable": {"thread_id": thread}}, durability=fate.durability))


def read(build, address, thread, fate, resume):
    """In the second process: report what is stored, then resume and delete the thread."""
    fate.begin()
    config = {"configurable": {"thread_id": thread}}
    with _open(address) as saver:
        graph = build().compile(checkpointer=saver)
        now = graph.get_state(config)
        report = {
            "on_disk": [snapshot.metadata["step"] for snapshot in graph.get_state_history(config)][::-1],
            "next": now.next,
            "pending": [(task.name, _trace(task)) for task in now.tasks if _trace(task)],
            "state": now.values,
            "resumed": "",
            "result": None,
        }
        if resume:
            try:
                answer = Command(resume=True) if now.interrupts else None
                report["result"] = graph.invoke(answer, config, durability=fate.durability)
                report["resumed"] = _ended(report["result"])
            except Exception as error:
                report["resumed"] = f"{type(error).__name__}: {error}".partition("\n")[0]
            saver.delete_thread(thread)
        return report


def _trace(task):
    """What a task left in the database, if anything."""
    kinds = {"error": task.error, "interrupt": task.interrupts, "result": task.result}
    return next((kind for kind, left in kinds.items() if left), "")
