"""Kernels that start in a tenth of a second: forked from a process that has the book's imports loaded.

A setting of Jupyter's tools is enough to use them, `kernel_manager_class`; where there is no fork server (macOS,
Windows) or it fails, the ordinary kernel is started, and one line on stderr says so.
"""

import asyncio
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty

import zmq
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_client.provisioning import LocalProvisioner
from jupyter_core.utils import run_sync
from traitlets import Bool, List, Type, Unicode

from . import fence

# What the chapters and exercises import, and a kernel that imports none of it does not suffer by.
PRELOAD = [
    "between_nodes.checks",
    "langchain.agents.middleware",
    "langchain_core.tracers.context",
    "langchain_core.tracers.run_collector",
    "langchain_core.tracers.stdout",
    "langgraph.checkpoint.memory",
    "langgraph.checkpoint.sqlite.aio",
    "langgraph.func",
    "langgraph.prebuilt",
    "langgraph.types",
    "matplotlib.pyplot",
]


KNOWN_INSIDE = "PATH", "HOME", "LANG", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR"  # to a fenced kernel
SOCKETS = "/scratch/.kernel"  # where a fenced kernel has them, in its own view


class ForkServer:
    """The process kernels are forked from; one for each way to start a Python. Ends with the process that made it."""

    running = {}  # noqa: RUF012
    lock = threading.Lock()

    @classmethod
    def get(cls, python, environment, fenced=False):
        """This process's server for a command that starts Python, and its PYTHONPATH; None where there can be none."""
        key = os.getpid(), *python, environment.get("PYTHONPATH"), fenced
        with cls.lock:
            if key not in cls.running or (cls.running[key] and cls.running[key].process.poll() is not None):
                cls.running[key] = cls._start(python, environment)
            return cls.running[key]

    @classmethod
    def _start(cls, python, environment):
        if sys.platform != "linux":
            return None
        try:
            return cls(python, environment)
        except (OSError, ValueError) as error:
            print(f"No fork server ({error or 'it ended'}): kernels start the ordinary way.", file=sys.stderr)
            return None

    def __init__(self, python, environment):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*python, "-m", "classroom.forkserver", str(theirs.fileno()), *PRELOAD]
        self.process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env={**environment, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        for failed in json.loads(self.socket.recv(1 << 20)):
            print(f"Not loaded in advance, {failed}", file=sys.stderr)
        self.owner = os.getpid()
        atexit.register(self.close)

    def ask(self, request, files=()):
        """The server's answer to a request; OSError if it is gone."""
        with self.lock:
            socket.send_fds(self.socket, [json.dumps(request).encode()], files)
            answer = self.socket.recv(1 << 20)
        if not answer:
            raise ConnectionResetError("the process that kernels are forked from has ended")
        return json.loads(answer)

    def close(self):
        """End the server and its kernels."""
        if self.owner == os.getpid():
            self.socket.close()
            self.process.wait(10)


class Forked:
    """A forked kernel with the methods of subprocess.Popen that a provisioner uses."""

    stdin = stdout = stderr = None

    def __init__(self, server, pid):
        self.server, self.pid, self.returncode = server, pid, None

    def poll(self):
        """The exit code, or None while it runs."""
        if self.returncode is None:
            try:
                self.returncode = self.server.ask({"poll": self.pid})
            except OSError:  # with the server gone, its kernels end too
                self.returncode = -signal.SIGKILL
        return self.returncode

    def wait(self, timeout=None):
        """Wait for the end; subprocess.TimeoutExpired after `timeout` seconds."""
        end = time.monotonic() + (timeout or float("inf"))
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("kernel", timeout)
            time.sleep(0.002)
        return self.returncode

    def send_signal(self, number):
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


class ForkProvisioner(LocalProvisioner):
    """Starts a kernel by forking it, and in a fence if `fenced`; without a fence, by the ordinary way if it must."""

    fenced = Bool(False, help="Run the kernel in a sandbox (classroom.fence).")
    visible = List(Unicode(), help="Paths that a fenced kernel may read besides the system's and this Python's.")
    sandbox = folder = None

    async def pre_launch(self, **kwargs):
        """Give the kernel sockets in a folder of its own.

        Over TCP, kernels started side by side may be handed the same port and wait for each other for ever.
        """
        if self.fenced:
            folder = Path(kwargs.get("cwd") or os.getcwd())
            beside = {path.name: path for path in folder.iterdir() if _may_be_read(path)}
            self.sandbox = fence.Sandbox(self.visible, beside)
            self.parent.transport, self.parent.ip = "ipc", str(self.sandbox.path(SOCKETS))
        elif os.name != "nt" and not self.folder:
            self.folder = tempfile.mkdtemp(prefix="kernel-")
            self.parent.transport, self.parent.ip = "ipc", os.path.join(self.folder, "kernel")
        return await super().pre_launch(**kwargs)

    async def launch_kernel(self, cmd, **kwargs):
        """Start the kernel that the command `cmd` would start."""
        environment, cwd = dict(kwargs.get("env") or os.environ), str(kwargs.get("cwd") or os.getcwd())
        if self.fenced:  # what is in the server's memory, a kernel can read
            environment = {name: environment[name] for name in KNOWN_INSIDE if name in environment}
        server = ForkServer.get(cmd[: cmd.index("-m")], environment, self.fenced)
        if not server:
            if self.fenced:
                raise RuntimeError("A fenced kernel needs the process that kernels are forked from, and it fails.")
            return await super().launch_kernel(cmd, **kwargs)
        request = {"arguments": cmd[cmd.index("-f") :], "env": environment, "cwd": cwd, "fence": None}
        if self.fenced:
            self._fence(request)
        with open(os.devnull, "r+b") as null:
            out, err = _number(kwargs.get("stdout"), null, 1), _number(kwargs.get("stderr"), null, 2)
            if self.fenced:  # a file, opened outside, can be opened again
                out = err = null.fileno()
            pid = server.ask(request, [null.fileno(), out, err])
        self.process, self.pid, self.pgid, self.cwd = Forked(server, pid), pid, pid, cwd
        return self.connection_info

    def _fence(self, request):
        """Put into the sandbox what the kernel needs, and into the request where that is and how to enter."""
        inside, uid = "/scratch/.kernel.json", fence.user()
        info = json.loads(Path(self.parent.connection_file).read_text())
        self.sandbox.path(inside).write_text(json.dumps(info | {"ip": SOCKETS}))
        os.chown(self.sandbox.path(inside), uid, -1)
        request["arguments"][1] = inside
        request |= {"env": fence.environment(), "fence": [self.sandbox.pid, uid]}

    async def kill(self, restart=False):
        """Kill it and wait for its end; the manager would look again after 0.1 s only."""
        self._end_sandbox()  # this first: its processes, orphaned, would take a second to go
        await super().kill(restart)
        if self.process:
            self.process.wait(5)

    async def wait(self):
        """Wait for its end."""
        while self.process and self.process.poll() is None:
            await asyncio.sleep(0.005)
        return await super().wait()

    async def cleanup(self, restart=False):
        """Remove the sandbox and the sockets."""
        self._end_sandbox()
        if self.folder and not restart:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None
        await super().cleanup(restart)

    def _end_sandbox(self):
        if self.sandbox:
            self.sandbox.close()
            self.sandbox = None


def _may_be_read(path):
    hidden = path.name.startswith(".")  # such as the kernel's own
    return path.suffix != ".ipynb" and path.is_file() and not path.is_symlink() and not hidden


def _number(stream, null, inherited):
    """The file number of what subprocess.Popen takes as a stream."""
    if stream is None:
        return inherited
    if stream == subprocess.DEVNULL:
        return null.fileno()
    return stream if isinstance(stream, int) else stream.fileno()


class Prompt:
    """Ready as soon as the kernel has answered on both channels; the stock clients then wait 0.2 s more."""

    async def _async_wait_for_ready(self, timeout=None):
        end = time.monotonic() + (timeout or float("inf"))
        while time.monotonic() < end:
            self.kernel_info()
            try:
                reply = await self._async_get_shell_msg(timeout=1)
                await self._async_get_iopub_msg(timeout=0.05)  # nothing: it spoke before it was heard, so ask again
            except Empty:
                if not await self._async_is_alive():
                    raise RuntimeError("Kernel died before replying to kernel_info") from None
            else:
                self._handle_kernel_info_reply(reply)
                return
        raise RuntimeError(f"Kernel didn't respond in {timeout} seconds")


class Client(Prompt, AsyncKernelClient):
    """jupyter_client's, ready at once.

    A kernel that sends a message of more than `LARGEST` bytes is not heard any more, as if it had ended.
    """

    LARGEST = 100 << 20
    wait_for_ready = Prompt._async_wait_for_ready

    def _create_connected_socket(self, channel, identity=None):
        self.context.setsockopt(zmq.MAXMSGSIZE, self.LARGEST)  # of the sockets made from now on
        return super()._create_connected_socket(channel, identity)


class BlockingClient(Prompt, BlockingKernelClient):
    """The same for those who call and wait."""

    wait_for_ready = run_sync(Prompt._async_wait_for_ready)


class WarmKernelManager(KernelManager):
    """jupyter_client's manager, with forked kernels."""

    client_factory = Type(BlockingClient)
    fenced = Bool(False, help="Run kernels in a sandbox.").tag(config=True)
    visible = List(Unicode(), help="Paths that fenced kernels may read.").tag(config=True)

    @property
    def kernel_spec(self):
        spec = super().kernel_spec
        settings = {"fenced": self.fenced, "visible": self.visible}
        spec.metadata = {**spec.metadata, "kernel_provisioner": {"provisioner_name": "fork", "config": settings}}
        return spec


class AsyncWarmKernelManager(WarmKernelManager, AsyncKernelManager):
    """nbclient's manager, with forked kernels."""

    client_factory = Type(Client)
