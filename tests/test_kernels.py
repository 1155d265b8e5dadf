"""Forked kernels behave as fresh ones do, and fenced ones reach nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest
from jupyter_client.manager import KernelManager

from classroom import ROOT, fence, kernels
from classroom.kernels import ForkServer, WarmKernelManager

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only")
fenced_only = pytest.mark.skipif(not fence.available(), reason="there is no bubblewrap here")


@contextmanager
def kernel(manager_class=WarmKernelManager, start=(), **settings):
    """A kernel as a function from code to what it prints; the manager is its attribute."""
    manager = manager_class(kernel_name="python3", **settings)
    manager.start_kernel(**dict(start))
    client = manager.client()
    client.start_channels()

    def run(code, timeout=30):
        printed = []
        reply = client.execute_interactive(
            code, timeout=timeout, output_hook=lambda message: printed.append(message["content"].get("text", ""))
        )
        return "".join(printed) if reply["content"]["status"] == "ok" else reply["content"]["ename"]

    run.manager, run.client = manager, client
    try:
        client.wait_for_ready(timeout=60)
        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


PROBE = """
import json, os, signal, sys, threading
sockets = sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in os.listdir("/proc/self/fd")
              if os.path.exists(f"/proc/self/fd/{fd}"))
print(json.dumps({
    "name": __name__, "cwd": os.getcwd(), "path": sys.path, "program": os.path.basename(sys.argv[0]),
    "flags": str(sys.flags), "options": sys._xoptions, "executable": sys.executable,
    "environment": {k: v for k, v in os.environ.items() if k not in ("JPY_PARENT_PID", "PYDEVD_USE_FRAME_EVAL")},
    "threads": sorted(thread.name.partition("-")[0] for thread in threading.enumerate()), "sockets": sockets,
    "signals": [str(signal.getsignal(number)).partition(" at ")[0] for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    "streams": [str(type(stream)) for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "leader": os.getsid(0) == os.getpid(), "limit": sys.getrecursionlimit(), "names": sorted(set(globals()) - {"sockets"}),
}))
"""  # noqa: E501


def test_a_forked_kernel_is_as_a_fresh_one(tmp_path):
    start = {"cwd": str(tmp_path), "env": {**os.environ, "PROBED": "yes"}}
    with kernel(start=start) as forked, kernel(KernelManager, start, transport="ipc", ip=f"{tmp_path}/k") as fresh:
        forked, fresh = json.loads(forked(PROBE)), json.loads(fresh(PROBE))
    assert forked["environment"]["PROBED"] == "yes"
    assert {name: (forked[name], fresh[name]) for name in fresh if forked[name] != fresh[name]} == {}


def test_a_forked_kernel_has_the_imports_loaded():
    with kernel() as run:
        assert (
            run("import sys; print('langgraph.graph' in sys.modules, 'matplotlib.pyplot' in sys.modules)")
            == "True True\n"
        )


RANDOM = """
import os, random, secrets, tempfile, uuid, numpy.random, uuid_utils
from langgraph.checkpoint.base.id import uuid6
print(random.random(), secrets.token_hex(), uuid.uuid4(), uuid_utils.uuid7(), numpy.random.random(), uuid6(),
      next(tempfile._get_candidate_names()))
"""


def test_each_has_its_own_random_state_and_variables():
    with kernel() as one, kernel() as other:
        assert not set(one(RANDOM).split()) & set(other(RANDOM).split())
        one("import os, builtins; os.environ['LEFT'] = builtins.left = 'here'")
        assert other("import os, builtins; print('LEFT' in os.environ, hasattr(builtins, 'left'))") == "False False\n"


def test_an_interrupt_ends_the_cell_and_not_the_kernel():
    with kernel() as run, ThreadPoolExecutor() as pool:
        running = pool.submit(run, "print(open('/dev/null').close())\nwhile True: pass")
        while not running.done():
            time.sleep(0.5)  # one that comes before the cell has begun, or while it ends, meets IPython at work
            run.manager.interrupt_kernel()
        assert running.result() == "KeyboardInterrupt"
        assert run("print(1)") == "1\n"


def test_shutdown_is_orderly_and_leaves_no_socket(tmp_path):
    with kernel() as run:
        run(f"import atexit, pathlib; atexit.register(pathlib.Path({str(tmp_path / 'end')!r}).touch)")
        sockets = os.path.dirname(run.manager.ip)
        run.manager.shutdown_kernel()
        assert (tmp_path / "end").exists() and not os.path.exists(sockets)


@pytest.mark.parametrize("code", ["import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"])
def test_a_dead_kernel_is_seen_to_be_dead(code):
    with kernel() as run:
        run.client.execute(code)
        process = run.manager.provisioner.process
        assert process.wait(10) == (3 if "_exit" in code else -signal.SIGKILL)
        assert not run.manager.is_alive()


def test_a_lost_server_is_replaced():
    with kernel() as run:
        lost = run.manager.provisioner.process.server
        lost.process.kill()
        lost.process.wait()
        with kernel() as other:
            assert other("print(1)") == "1\n"
            assert other.manager.provisioner.process.server is not lost


def test_nothing_outlives_the_process_that_started_it(tmp_path):
    code = f"""
import sys, time
from classroom.kernels import WarmKernelManager
manager = WarmKernelManager(kernel_name="python3", fenced={fence.available()})
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready()
print("up", flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout.readline() == b"up\n"
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2
    process.kill()
    process.communicate()
    assert psutil.wait_procs(family, timeout=10)[1] == []


def test_many_start_side_by_side():
    with ThreadPoolExecutor(6) as pool:

        def one(number):
            with kernel() as run:
                return run(f"print({number})")

        assert list(pool.map(one, range(12))) == [f"{number}\n" for number in range(12)]


def test_what_cannot_be_preloaded_is_said_once(monkeypatch, capfd):
    monkeypatch.setattr(ForkServer, "running", {})
    monkeypatch.setattr(kernels, "PRELOAD", ["no_such_module"])
    for _ in range(2):
        with kernel() as run:
            assert run("print(1)") == "1\n"
    assert capfd.readouterr().err.count("Not loaded in advance") == 1
    next(iter(ForkServer.running.values())).close()


def test_without_a_server_the_ordinary_kernel_is_used(monkeypatch, capfd):
    monkeypatch.setattr(ForkServer, "running", {})
    monkeypatch.setattr(ForkServer, "__init__", lambda *_: (_ for _ in ()).throw(OSError("no process left")))
    for _ in range(2):
        with kernel() as run:
            assert run("print(1)") == "1\n"
            assert isinstance(run.manager.provisioner.process, subprocess.Popen)
    assert capfd.readouterr().err == "No fork server (no process left): kernels start the ordinary way.\n"


# The fence


@pytest.fixture(scope="module")
def fenced(tmp_path_factory):
    """A fenced kernel in a folder with a notebook, a file and a link."""
    folder = tmp_path_factory.mktemp("submission")
    (folder / "data.csv").write_text("1,2")
    (folder / "work.ipynb").write_text("hidden tests")
    (folder / "link").symlink_to(folder / "work.ipynb")
    with kernel(fenced=True, visible=[str(ROOT / "between_nodes")], start={"cwd": str(folder)}) as run:
        yield run


INSIDE = {
    "a file beside the notebook": ("print(open('data.csv').read())", "1,2\n"),
    "the notebook itself, which holds the tests": ("open('work.ipynb')", "FileNotFoundError"),
    "links": ("open('link')", "FileNotFoundError"),
    "the book's package": ("import between_nodes.checks; print(1)", "1\n"),
    "its folder": ("import between_nodes, os; print(os.listdir(between_nodes.__path__[0] + '/..'))", None),
    "no right of root": ("import os; print(os.getuid() == 0, os.geteuid() == 0)", "False False\n"),
    "no other process": (
        "import os; print(max(int(name) for name in os.listdir('/proc') if name.isdigit()) < 20)",
        "True\n",
    ),
    "no variable of the grader": ("import os; print('GRADER' in os.environ)", "False\n"),
    "writing to the scratch folder": ("open('mine', 'w').write('1'); print(open('mine').read())", "1\n"),
    "writing to the system": ("open('/usr/mine', 'w')", "OSError"),
    "writing to the root": ("open('/mine', 'w')", "OSError"),
    "writing to the packages": (
        "import pebble\ntry:\n  open(pebble.__file__, 'a')\nexcept OSError:\n  print('no')",
        "no\n",
    ),
    "more memory than there is": ("x = bytearray(8 << 30)", "MemoryError"),
    "more disk than there is": (
        "with open('big', 'wb') as f:\n  for _ in range(600): f.write(bytes(1 << 20))",
        "OSError",
    ),
    "a name": ("import socket; socket.getaddrinfo('localhost.example', 80)", "gaierror"),
    "mounting": ("import ctypes; print(ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, None))", "-1\n"),
    "processes of its own": ("import subprocess; print(subprocess.check_output(['echo', 'ran']).decode())", "ran\n\n"),
}


@fenced_only
@pytest.mark.parametrize("what", INSIDE)
def test_inside_the_fence(fenced, what):
    code, outcome = INSIDE[what]
    result = fenced(code)
    if outcome:
        assert result == outcome
    else:
        assert "solutions" not in result and "grading" not in result


@fenced_only
def test_no_connection_leaves_the_fence(fenced):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0between-the-nodes-test")
        abstract.listen()
        assert (
            fenced(f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))")
            == "ConnectionRefusedError"
        )
        assert fenced("socket.socket(socket.AF_UNIX).connect('\\0between-the-nodes-test')") == "ConnectionRefusedError"


@fenced_only
def test_the_end_of_a_fenced_kernel_is_the_end_of_all_in_it():
    with kernel(fenced=True) as run:
        run("import subprocess\nfor _ in range(3): subprocess.Popen(['sleep', '600'], start_new_session=True)")
        first = psutil.Process(run.manager.provisioner.sandbox.pid)
        uid = fence.user()
        mine = [p for p in psutil.process_iter() if p.uids().real == uid and p.name() == "sleep"]
        assert len(mine) >= 3
    assert psutil.wait_procs([first, *mine], timeout=10)[1] == []


@fenced_only
def test_without_bubblewrap_the_fence_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(fence.NoFence, match="apt install bubblewrap"):
        fence.check()
