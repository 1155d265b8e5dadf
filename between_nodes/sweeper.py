"""Tidies up after a process that was killed: run as a script by `databases`, it must import nothing but the basics.

Waits until its standard input closes, which happens when the process that started it ends, however it ends. Then stops
the PostgreSQL server whose data lie in the folder given, if one still runs, and deletes the folder.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path


def sweep(folder):
    """Stop the server in `folder` and delete the folder; both may be gone already."""
    try:
        server = int((folder / "postgres" / "postmaster.pid").read_text().split()[0])
        os.kill(server, signal.SIGINT)  # PostgreSQL's fast shutdown
        for _ in range(100):
            os.kill(server, 0)
            time.sleep(0.1)
    except (OSError, ValueError, IndexError):
        pass  # no server, or it has ended
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.buffer.read()
    sweep(Path(sys.argv[1]))
