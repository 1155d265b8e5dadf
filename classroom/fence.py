"""The fence around strangers' code: a bubblewrap sandbox with nothing in it, which a forked kernel enters.

Inside there is no network, no process but its own, and no file but the system's, this Python's and those named, all of
them read-only. What is written goes to memory, up to a limit, and is gone with the sandbox.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

SCRATCH = "/scratch"  # the working directory inside
MEMORY = 4 << 30  # bytes of address space for one process
DISK = 256 << 20  # bytes of scratch, and of shared memory
LIMITS = {"AS": MEMORY, "FSIZE": DISK // 2, "NPROC": 256, "NOFILE": 1024, "CPU": 600, "CORE": 0}  # of a process
SYSTEM = "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl"
DEVICES = "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
NO_NEW_PRIVILEGES, DUMPABLE = 38, 4  # numbers of prctl(2)


class NoFence(RuntimeError):
    """There is no sandbox here; the message says what to install."""


class Sandbox:
    """A running sandbox: `visible` paths read-only at their own places, `files` (name to path) in its scratch folder.

    `pid` is its first process as seen from outside; `path` is where a file inside is found from outside.
    """

    def __init__(self, visible=(), files=None):
        told, tell = os.pipe()
        try:
            self.process = subprocess.Popen(
                _command(tell, visible, files or {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, pass_fds=[tell], env={},
            )  # fmt: skip
            os.close(tell)
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
            if not self.process.stdout.readline():  # `cat` answers once all is mounted
                raise NoFence(f"bubblewrap cannot start a sandbox here: {self.process.stderr.read().decode().strip()}")
            self.pid = json.loads(os.read(told, 4096))["child-pid"]
        except OSError as error:
            raise NoFence(f"bubblewrap cannot start a sandbox here: {error}") from error
        finally:
            os.close(told)
        self._first = os.pidfd_open(self.pid)

    def path(self, inside):
        """Where the path `inside` the sandbox is found from outside."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def close(self):
        """End every process in the sandbox, whatever it does."""
        try:
            signal.pidfd_send_signal(self._first, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(self._first)
        self.process.communicate()


def _command(tell, visible, files):
    command = [_bubblewrap(), "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    command += ["--new-session", "--info-fd", str(tell), "--cap-drop", "ALL", "--clearenv"]
    if os.geteuid():
        command += ["--unshare-user"]
    paths = dict.fromkeys([*SYSTEM, sys.base_prefix, sys.prefix, *map(str, visible)])
    for folder in sorted({folder for path in paths for folder in Path(path).parents}):
        command += ["--dir", str(folder)]  # bubblewrap makes them too, but for root's eyes only
    for path in paths:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind-try", path, path]
    command += ["--proc", "/proc", "--dir", "/dev"]
    for path in DEVICES:
        command += ["--dev-bind", path, path]
    for path in "/dev/shm", "/tmp", SCRATCH:
        command += ["--perms", "1777", "--size", str(DISK), "--tmpfs", path]
    for name, path in files.items():
        command += ["--ro-bind", str(path), f"{SCRATCH}/{name}"]
    return [*command, "--remount-ro", "/", "--chdir", SCRATCH, "--", "/bin/cat"]


def _bubblewrap():
    found = shutil.which("bwrap")
    if not found:
        raise NoFence("grading other people's work needs bubblewrap (Linux only): `apt install bubblewrap`")
    return found


def check():
    """Raise NoFence, with what to do about it, unless a sandbox can be started and entered here."""
    sandbox = Sandbox()
    try:
        child = os.fork()
        if not child:
            try:
                enter(sandbox.pid, user())
                os._exit(0)
            except OSError:
                os._exit(1)
        if os.waitpid(child, 0)[1]:
            raise NoFence("a process cannot enter a sandbox here; a container needs the right to make namespaces")
    finally:
        sandbox.close()


def available():
    """Whether code can be fenced in here."""
    try:
        check()
    except NoFence:
        return False
    return True


def environment():
    """The environment inside: nothing of the grader's own."""
    binaries = dict.fromkeys([os.path.dirname(sys.executable), "/usr/bin", "/bin"])
    inside = {"PATH": ":".join(binaries), "LANG": "C.UTF-8", "HOME": SCRATCH, "TMPDIR": SCRATCH}
    return inside | {name: os.environ[name] for name in ["NBGRADER_EXECUTION"] if name in os.environ}


def user():
    """The user id that code inside has: one's own, or if that is root's, one that nobody else has."""
    return os.geteuid() or 2_000_000 + os.getpid() % 1_000_000


def enter(pid, uid):
    """Move this process, which must have one thread, for good into the sandbox whose first process is `pid`.

    Returns in a child of it: only children of a process can be in another space of process ids. The process itself
    waits, and ends as the child ends.
    """
    import resource  # which Windows does not have

    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where memory runs out, the kernel ends this process first
    libc, root = ctypes.CDLL(None, use_errno=True), not os.geteuid()
    space = os.pidfd_open(pid)
    _call(libc.setns, space, NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET | (0 if root else NEWUSER))
    os.close(space)
    child = os.fork()
    if child:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    os.chdir(SCRATCH)
    for name, value in LIMITS.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    if root:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _call(libc.capset, header, nothing)
    _call(libc.prctl, NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _call(libc.prctl, DUMPABLE, 1, 0, 0, 0)


def _call(function, *arguments):
    if function(*arguments) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function.__name__}: {os.strerror(error)}")
