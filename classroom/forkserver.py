"""A process that imports once what kernels import, and forks a kernel whenever it is asked to (Linux).

`multiprocessing`'s fork server would run the parent's main script, say pytest's or nbgrader's, in every kernel.
Its children must not differ from fresh kernels: it starts no thread and opens no socket but the one it is asked on.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys

from ipykernel.kernelapp import IPKernelApp

from .fence import enter

KERNEL = ["ipykernel.ipkernel", "ipykernel.zmqshell", "ipykernel.debugger",
          "ipykernel.displayhook", "matplotlib_inline.backend_inline", "IPython.core.completerlib"]  # fmt: skip
SIZE = 1 << 20  # bytes of a request at most


def main():
    asked = socket.socket(fileno=int(sys.argv[1]))
    asked.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as a kernel has it
    failed = [error for name in [*KERNEL, *sys.argv[2:]] if (error := _import(name))]
    gc.collect()
    gc.freeze()  # the children share this memory, as long as nobody writes to it
    asked.send(json.dumps(failed).encode())
    children = {}
    while True:
        request, files, _, _ = socket.recv_fds(asked, SIZE, 3)
        if not request:  # the process that asks is gone
            break
        request = json.loads(request)
        if "poll" in request:
            answer = _exit_code(children, request["poll"])
        else:
            answer = os.fork()
            if not answer:
                asked.close()
                return be_kernel(request, files)
            children[answer] = None
            for file in files:
                os.close(file)
        asked.send(json.dumps(answer).encode())
    for pid in children:
        if _exit_code(children, pid) is None:
            os.killpg(pid, signal.SIGKILL)


def _import(name):
    try:
        importlib.import_module(name)
    except Exception as error:  # the kernel's own import will show it where it can be seen
        return f"{name}: {type(error).__name__}: {error}"


def _exit_code(children, pid):
    if children[pid] is None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children[pid] = os.waitstatus_to_exitcode(status)
    return children[pid]


def be_kernel(request, files):
    """Become the kernel that `request` describes, with `files` as standard input, output and error."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    parent = os.getppid()
    if request["fence"]:
        enter(*request["fence"])
        parent = 1  # it ends with its sandbox
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # Python's own generator and uuid_utils see to that themselves
    sys.argv[:] = ["ipykernel_launcher.py", *request["arguments"], f"--IPKernelApp.parent_handle={parent}"]
    IPKernelApp.launch_instance()


if __name__ == "__main__":
    sys.exit(main())
