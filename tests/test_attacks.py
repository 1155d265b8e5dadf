"""The attack suite: hostile and broken submissions, graded in one batch with honest ones.

Each attack states what must become of its own score. The honest submissions beside it must keep theirs, nothing outside
the scratch folder may change, nothing may be read or reached, and nothing may be left running.

What no test here can show: a submission runs in the same process as the tests that judge it, so code that takes apart
the running test's own source and answers in its stead (messages of the kernel, one assert left alone and the others
removed) can earn points that it does not deserve. Such a notebook shows what it does; a person must look at it. A test
whose last line is its score trusts that value. Nor is there a limit on the memory of all processes of one submission
together, only on that of each.
"""

import ctypes
import hashlib
import json
import os
import re
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Base, Gradebook
from sqlalchemy import create_engine

from classroom import ROOT, fence
from classroom.course import release_of

if not fence.available():
    pytest.skip("there is no bubblewrap here", allow_module_level=True)
pytestmark = [
    pytest.mark.timeout(600),  # for all of them together
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),
]
NAME = "98_small"
FULL, NOTHING = (1, 2, 1, 2), (0, 0, 0, 0)
CELLS = "double_shape", "double_more", "word_right", "share_part"


# The assignment


def cell(name, source, points=0):
    """An answer cell, or with points a test cell."""
    tags = {"schema_version": 3, "cell_type": "code", "task": False, "grade_id": name, "locked": bool(points)}
    tags |= {"grade": True, "points": points, "solution": False} if points else {"grade": False, "solution": True}
    return new_code_cell(source, id=name, metadata={"nbgrader": tags})


def solution(secret):
    def answer(text):
        return f"### BEGIN SOLUTION\n{text}  # {secret}\n### END SOLUTION"

    checked = "from between_nodes import checks as _checks\n_checks.equal(word, 'yes', tried='word', see='9.9')"
    cells = [
        new_markdown_cell("## Exercise 1 (3 points)", id="text"),
        cell("double", answer("double = lambda x: 2 * x")),
        cell("double_shape", "assert double(2) == 4", 1),
        cell("double_more", "assert double(0) == 0\n### BEGIN HIDDEN TESTS\nassert double(-3) == -6\n"
             "### END HIDDEN TESTS", 2),
        new_markdown_cell("## Exercise 2 (1 point)", id="text2"),
        cell("word", answer("word = 'yes'")),
        cell("word_right", checked, 1),
        new_markdown_cell("## Exercise 3 (2 points, in parts)", id="text3"),
        cell("share", answer("share = lambda numbers: 0.5")),
        cell("share_part", "_share = share([2, 3, 4, 5])\n4 * _share", 2),
    ]  # fmt: skip
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


RIGHT = {
    "double": "def double(x):\n    return x + x",
    "word": "word = 'yes'",
    "share": "def share(numbers):\n    return sum(n % 2 == 0 for n in numbers) / len(numbers)",
}
WRONG = {
    "double": "def double(x):\n    return 7",
    "word": "word = 'no'",
    "share": "def share(numbers):\n    return 0.0",
}


# How attacks are told


class Attack(NamedTuple):
    """A submission: answers (right, if not told) between a `first` and a `last` cell, then changed in some way."""

    name: str
    scores: tuple = None  # of the four graded cells; None: it must not be graded
    reason: str = ""  # a pattern that the record's reason must hold
    first: str = ""
    answers: dict = RIGHT
    last: str = ""
    change: Callable = None  # of (cells by id, notebook), before the notebook is written
    place: Callable = None  # of (folder, notebook as bytes), instead of writing the notebook
    student: str = None


def submission(attack, release, facts):
    """The notebook of an attack; `facts` is a cell with what an attacker may know: paths and numbers."""
    notebook = nbformat.reads(release, as_version=4)
    cells = {each.id: each for each in notebook.cells}
    for name, source in attack.answers.items():
        cells[name].source = source
    notebook.cells.insert(0, new_code_cell(facts, id="facts"))
    notebook.cells.insert(1, new_code_cell(attack.first, id="first"))
    notebook.cells.append(new_code_cell(attack.last, id="last"))
    if attack.change:
        attack.change({each.id: each for each in notebook.cells}, notebook)
    return notebook


def each_test(change):
    """A change of every graded cell."""
    return lambda cells, notebook: [change(cells[name]) for name in CELLS]


def tags(**settings):
    return each_test(lambda test: test.metadata.nbgrader.update(settings))


def delete(*names):
    return lambda cells, notebook: [notebook.cells.remove(cells[name]) for name in names]


def copy_cells(*names):
    def change(cells, notebook):
        for name in names:
            twin = nbformat.from_dict(cells[name])
            twin.id += "-2"
            notebook.cells.insert(notebook.cells.index(cells[name]), twin)

    return change


def retype(kind):
    def change(test):
        test.cell_type = kind
        del test["outputs"], test["execution_count"]
        test.attachments = {"a.png": {"image/png": ""}}

    return each_test(change)


def file(content, name=f"{NAME}.ipynb"):
    """A submission that is one file with these bytes."""
    return lambda folder, notebook: (folder / name).write_bytes(content)


def beside(**files):
    """The notebook, and beside it files or, given as functions of their path, other things."""

    def place(folder, notebook):
        (folder / f"{NAME}.ipynb").write_bytes(notebook)
        for name, content in files.items():
            path = folder / name.replace("__", ".")
            content(path) if callable(content) else path.write_bytes(content)

    return place


def link(*parts):
    """Makes a link to a path in the course, from a submission's folder."""
    return lambda path: path.symlink_to(path.parents[4].joinpath(*parts))


def version_3(folder, notebook):
    old = nbformat.convert(nbformat.reads(notebook.decode(), as_version=4), 3)
    (folder / f"{NAME}.ipynb").write_text(nbformat.writes(old, version=3))


def says_double(code):
    """An answer that does something when the second test calls it, and is right otherwise."""
    return RIGHT | {"double": f"def double(x):\n    if x == -3:\n        {code}\n    return 2 * x"}


def shares(value):
    return RIGHT | {"share": f"def share(numbers):\n    return {value}"}


PUBLISH = """
def publish(kind, parent=None, **content):
    kernel = get_ipython().kernel
    parent = parent or kernel.get_parent("shell")
    kernel.session.send(kernel.iopub_socket, kind, content=content, parent=parent, ident=b"x")
"""
RESULT = "publish('execute_result', data={'text/plain': '2.0'}, metadata={}, execution_count=1)"
NO_ASSERTS = """
import ast
class NoAsserts(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.Pass()
get_ipython().ast_transformers.append(NoAsserts())
"""
SNOOP = r"""
import glob, os, re
roots = ["", *glob.glob("/proc/[0-9]*/root"), *glob.glob("/proc/[0-9]*/cwd"), *glob.glob("/proc/[0-9]*/fd/*")]
places = [course + "/**", os.path.dirname(course) + "/**", home + "/.ssh/**", home + "/**", "/tmp/**", "/dev/shm/**",
          "/home/**", "/var/**", "/run/**", "/mnt/**", "/root/*", "/proc/*/environ", "/proc/*/cmdline"]
for root in roots:
    for place in places:
        for path in [root, root + place, *glob.glob(root + place, recursive=True, include_hidden=True)]:
            try:
                if os.path.isfile(path) and not path.endswith(".py"):
                    found = re.findall(b"ses" + b"ame-[0-9a-f]+", open(path, "rb").read(10_000_000))
                    if found:
                        print(path, found)
            except OSError:
                pass
print({name: value for name, value in os.environ.items()})
with open("/proc/self/mem", "rb", 0) as memory:
    for line in open("/proc/self/maps"):
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        try:
            memory.seek(start)
            print(line.split()[-1], set(re.findall(b"ses" + b"ame-[0-9a-f]{8,}", memory.read(end - start)))) \
                if line.split()[1][0] == "r" else None
        except (OSError, OverflowError, ValueError):
            pass
"""
WRITE = """
import glob, os, site, sys
for folder in [course, course + "/grading", home, "/usr/local/bin", "/usr", "/etc", "/bin", "/", "/dev", "/proc",
               "/proc/sys/kernel", sys.prefix, sys.base_prefix, *site.getsitepackages(), os.path.dirname(os.__file__),
               *sys.path, *(root + path for root in glob.glob("/proc/[0-9]*/root") for path in ("/usr", course, home))]:
    for do in (lambda p: open(p, "w"), os.mkdir, lambda p: os.symlink("/etc/passwd", p), os.mkfifo):
        try:
            do(os.path.join(folder or "/", "planted-by-an-attack"))
            if os.path.realpath(folder or "/") != os.getcwd():
                print("ESC" + "APED to", folder)
        except OSError:
            pass
for path in [course + "/grading/gradebook.db", course + "/nbgrader_config.py", sys.executable, os.__file__]:
    for do in (lambda p: open(p, "ab"), os.remove, lambda p: os.chmod(p, 0o777), lambda p: os.rename(p, p + "-")):
        try:
            do(path)
            print("ESC" + "APED with", path)
        except OSError:
            pass
for name in os.listdir("/proc/self/fd"):
    for path in [int(name), "/proc/self/fd/" + name]:
        try:
            out = path if isinstance(path, int) else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
            if int(name) > 2 and os.readlink("/proc/self/fd/" + name).startswith(("/", "pipe")):
                os.write(out, b"LEAKED through " + name.encode())
        except OSError:
            pass
"""
NETWORK = """
import socket, urllib.request
def attempt(action, *arguments):
    try:
        action(*arguments)
        print("ESC" + "APED to", arguments)
    except OSError:
        pass
for address in ("127.0.0.1", "localhost", "10.0.0.1", "1.1.1.1", socket.gethostname()):
    attempt(socket.create_connection, (address, port), 0.2)
attempt(socket.create_connection, ("::1", port), 0.2)
attempt(socket.gethostbyname, "example.com")
attempt(urllib.request.urlopen, f"http://127.0.0.1:{port}/", None, 0.2)
for path in ("\\0" + abstract, course + "/../socket", "/proc/1/root" + course + "/../socket", "/var/run/docker.sock"):
    attempt(socket.socket(socket.AF_UNIX).connect, path)
datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagram.sendto(b"hello", ("127.0.0.1", port))
"""
DAEMON = """
import os, subprocess, sys
for attempt in range(3):
    if not os.fork():
        os.setsid()
        if not os.fork():
            for number in range(256):
                try:
                    os.close(number)
                except OSError:
                    pass
            while True:
                __import__("time").sleep(1)
        os._exit(0)
subprocess.Popen(["/bin/sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"], start_new_session=True)
"""
FILLER = """
import os
block, written = b"x" * (1 << 24), 0
for folder in (".", "/tmp", "/dev/shm"):
    try:
        for number in range(2000):
            open(f"{folder}/full-{number}", "wb").write(block)
            written += 16
    except OSError as error:
        print(error.strerror)
assert written < 1000, f"ESC" "APED: {written} MB"
"""
OWN_FILES = """
import glob, os, shutil
for path in glob.glob("/scratch/.*") + glob.glob("/scratch/*"):
    try:
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    except OSError:
        pass
os.mkdir("/tmp/elsewhere")
os.chdir("/tmp/elsewhere")
os.rmdir("/tmp/elsewhere")
"""
THREAD = """
import os, sys, threading, time
def talk():
    while True:
        print("out"); print("err", file=sys.stderr); print("under", file=sys.__stderr__); os.write(2, b"below\\n")
        time.sleep(0.002)
threading.Thread(target=talk, daemon=True).start()
"""
MALFORMED = """
def malformed():
    publish("stream", name=5)
    publish("display_data", data="text", metadata=None, transient={"display_id": [1]})
    publish("execute_result", data=None, metadata={}, execution_count="x")
    publish("error", ename=5)
    publish("update_display_data", transient={"display_id": "none"})
    publish("no_such_type", x=1)
    publish("comm_open", comm_id=4)
    publish("status")
"""

ATTACKS = [
    # the notebook's cells
    Attack("copied tests", FULL, change=copy_cells(*CELLS)),
    Attack("copied answers", FULL, change=copy_cells("double", "word", "share")),
    Attack("deleted tests, wrong answers", NOTHING, answers=WRONG, change=delete(*CELLS)),
    Attack("deleted tests, right answers", FULL, change=delete(*CELLS)),
    Attack("everything deleted", NOTHING, change=lambda cells, notebook: notebook.cells.clear()),
    Attack("edited tests", NOTHING, answers=WRONG, change=each_test(lambda test: test.update(source="assert True\n2"))),
    Attack("tests stripped of metadata", NOTHING, answers=WRONG, change=each_test(lambda test: test.metadata.clear())),
    Attack("answers stripped of metadata", FULL,
           change=lambda cells, notebook: [cells[name].metadata.clear() for name in RIGHT]),
    Attack("tests made Markdown, wrong answers", NOTHING, answers=WRONG, change=retype("markdown")),
    Attack("tests made Markdown, right answers", FULL, change=retype("markdown")),
    Attack("tests made raw", FULL, change=retype("raw")),
    Attack("answers made Markdown", FULL, change=lambda cells, notebook: [
           (cells[name].update(cell_type="markdown"), cells[name].pop("outputs"), cells[name].pop("execution_count"))
           for name in RIGHT]),
    Attack("cells in reverse order", NOTHING, change=lambda cells, notebook: notebook.cells.reverse()),
    Attack("cells with the same id", FULL, change=each_test(lambda test: test.update(id="same"))),
    Attack("tests worth 100 points", FULL, change=tags(points=100)),
    Attack("tests worth minus NaN points", NOTHING, answers=WRONG, change=tags(points=float("nan"))),
    Attack("tests marked as answers", NOTHING, answers=WRONG, change=tags(solution=True, locked=False)),
    Attack("tests marked as not graded", FULL, change=tags(grade=False)),
    Attack("tests marked as tasks", FULL, change=tags(task=True)),
    Attack("tests marked to be skipped", NOTHING, answers=WRONG,
           change=each_test(lambda test: test.metadata.update(tags=["skip-execution", "raises-exception"]))),
    Attack("answers marked as graded", FULL, change=lambda cells, notebook: [
           cells[name].metadata.nbgrader.update(grade=True, points=50) for name in RIGHT]),
    Attack("a graded cell of its own", FULL,
           change=lambda cells, notebook: notebook.cells.append(cell("bonus", "assert True", 10))),
    Attack("metadata of another version", FULL, change=tags(schema_version=99)),
    Attack("metadata of other types", NOTHING, answers=WRONG,
           change=each_test(lambda test: test.metadata.update(nbgrader=[5]))),
    Attack("a cell with odd metadata", FULL, change=lambda cells, notebook: notebook.cells.append(
           new_code_cell("1", metadata={"nbgrader": {"grade_id": ["x"], "grade": "yes", "locked": True}}))),
    Attack("a kernel for another language", FULL,
           change=lambda cells, notebook: notebook.metadata.update(kernelspec={"name": "bash", "display_name": "x"})),
    Attack("magics", FULL, first="%autosave 10\n%matplotlib inline\n!echo hello\nwhere = !pwd",
           last="%%bash\necho world >&2\nexit 3"),
    Attack("await and input", (1, 2, 0, 2), first="import asyncio\nawait asyncio.sleep(0.01)",
           answers=RIGHT | {"word": "word = input('Word? ')"}),

    # ends and hangs
    Attack("os._exit before all", NOTHING, first="import os\nos._exit(0)"),
    Attack("os._exit in a test", (1, 0, 0, 0), answers=says_double("__import__('os')._exit(0)")),
    Attack("os._exit after all", FULL, last="import os\nos._exit(1)"),
    Attack("sys.exit in a test", (1, 0, 1, 2), answers=says_double("raise SystemExit(0)")),
    Attack("exit after all", FULL, last="exit()"),
    Attack("kill -9 -1", NOTHING, first="import os\nos.kill(-1, 9)\nos.killpg(0, 9)\nos.kill(os.getpid(), 9)"),
    Attack("signals to all", NOTHING, answers=WRONG, first="import os, signal\nfor number in range(1, 32):\n"
           "    for pid in (-1, 0, 1, os.getppid(), 2, 3):\n        if number not in (9, 19):\n"
           "            signal.signal(number, signal.SIG_IGN)\n            os.kill(pid, number)"),
    Attack("a crash in C", NOTHING, first="import ctypes\nctypes.string_at(0)"),
    Attack("an endless loop", (0, 0, 1, 2), answers=RIGHT | {"double": "while True:\n    pass"}),
    Attack("an endless loop in a test", (1, 0, 1, 2), answers=says_double("while True: pass")),
    Attack("a loop that catches KeyboardInterrupt", (1, 0, 0, 0), answers=says_double(
           "\n        while True:\n            try:\n                while True: sum(range(9))\n"
           "            except BaseException: pass")),
    Attack("a deaf handler of SIGINT", (1, 0, 0, 0), answers=says_double(
           "import signal; signal.signal(2, lambda *_: None)\n        while True: pass")),
    Attack("a process that stops itself", (1, 0, 0, 0), answers=says_double(
           "import os; os.killpg(0, 19) if os.getuid() < 0 else os.kill(os.getpid(), 19)")),
    Attack("many slow cells", (1, 2, 0, 0), change=lambda cells, notebook: [notebook.cells.insert(
           notebook.cells.index(cells["text2"]), new_code_cell("__import__('time').sleep(1.2)")) for _ in range(10)]),

    # memory, processes, disk, output
    Attack("a fork bomb", NOTHING, first="import os\nwhile True:\n    try:\n        os.fork()\n"
           "    except OSError:\n        pass"),
    Attack("daemons", FULL, first=DAEMON),
    Attack("a memory hog", FULL, first="hog = []\nwhile True:\n    hog.append(bytearray(1 << 28))",
           answers=RIGHT | {"double": "hog = None\n" + RIGHT["double"]}),
    Attack("a full disk", FULL, first=FILLER),
    Attack("100 MB printed", FULL, first="print('x' * 100_000_000)"),
    Attack("empty lines", FULL, answers=RIGHT | {
           "double": "for _ in range(20): print('y' * 99 + '\\n' * 500_000)\n" + RIGHT["double"]}),
    Attack("a flood of small prints", FULL, first="for _ in range(9_000): print('x', flush=True)"),
    Attack("a flood in a test", FULL, answers=RIGHT | {
           "double": "def double(x):\n    print('x' * 10_000_000)\n    return 2 * x"}),
    Attack("a huge picture", FULL, first="display({'image/png': 'A' * 60_000_000}, raw=True)"),
    Attack("a message of 400 MB", (1, 2, 1, 0), answers=shares("display({'text/plain': 'A' * 400_000_000}, raw=True)")),
    Attack("a flood of widgets", FULL, first="import ipywidgets\nfor number in range(300):\n"
           "    display(ipywidgets.IntSlider(number, description='x' * 10_000))\n"
           "from comm import create_comm\ncreate_comm('x', data={'state': {'y': 'z' * 10_000_000}})"),
    Attack("a flood of errors", FULL, first=PUBLISH + "for number in range(1000):\n"
           "    publish('error', ename='E' * 9_999, evalue='x' * 9_999, traceback=['t' * 99] * 99)"),
    Attack("talks on stderr", FULL, answers=RIGHT | {"double": "import os, sys, warnings\ndef double(x):\n"
           "    warnings.warn('old'); print('!', file=sys.stderr); os.write(2, b'!\\n')\n    return 2 * x"}),
    Attack("a thread that talks into later tests", FULL, first=THREAD),
    Attack("a thread that talks into later tests, wrong answers", NOTHING, answers=WRONG, first=THREAD),

    # tests switched off
    Attack("asserts removed", NOTHING, answers=WRONG, first=NO_ASSERTS),
    Attack("asserts removed, with words on stderr", NOTHING, answers=WRONG, first=NO_ASSERTS.replace(
           "        return", "        import os, time; os.write(2, b'x\\n'); time.sleep(0.05)\n        return")),
    Attack("asserts removed from the text", NOTHING, answers=WRONG, first="get_ipython()."
           "input_transformers_post.append(\n"
           "    lambda lines: ['pass\\n' if line.startswith('assert') else line for line in lines])"),
    Attack("asserts compiled away", NOTHING, answers=WRONG, first="import builtins, functools\n"
           "get_ipython().compile.__class__.__call__ = lambda self, source, name, mode: compile(\n"
           "    source, name, mode, optimize=2)\nbuiltins.compile = functools.partial(compile, optimize=2)"),
    Attack("another AssertionError", NOTHING, answers=WRONG,
           first="import builtins\nclass Kind(BaseException): pass\nbuiltins.AssertionError = AssertionError = Kind"),
    Attack("checks replaced", (0, 0, 0, 0), answers=WRONG, first="from between_nodes import checks\n"
           "for name in dir(checks):\n    setattr(checks, name, lambda *a, **k: None)"),
    Attack("checks replaced, then an end", (0, 0, 0, 0), answers=WRONG, last="import os\nos._exit(0)",
           first="from between_nodes import checks\nchecks.equal = checks._fail = lambda *a, **k: None"),
    Attack("another module of checks", (0, 0, 0, 0), answers=WRONG, first="import sys, types, between_nodes\n"
           "fake = types.ModuleType('checks')\nfake.__getattr__ = lambda name: lambda *a, **k: None\n"
           "sys.modules['between_nodes.checks'] = between_nodes.checks = fake"),
    Attack("a between_nodes.py beside it", (0, 0, 0, 0), answers=WRONG, place=beside(
           between_nodes__py=b"class checks:\n    equal = staticmethod(lambda *a, **k: None)",
           sitecustomize__py=b"raise SystemExit", usercustomize__py=b"raise SystemExit")),
    Attack("builtins replaced", NOTHING, answers=WRONG, first="import builtins\n"
           "for name in ('isinstance', 'print', 'len', '__import__', 'repr', 'callable', 'str', 'float'):\n"
           "    setattr(builtins, name, lambda *a, **k: True)"),
    Attack("cells that are not run", NOTHING, answers=WRONG, first="shell = get_ipython()\n"
           "class Done:\n    success, result, error_in_exec, error_before_exec = True, 2, None, None\n"
           "    execution_count = 1\n"
           "async def run_cell_async(*a, **k): return Done()\n"
           "shell.run_cell_async = run_cell_async\nshell.run_cell = lambda *a, **k: Done()\n"
           "shell.should_run_async = lambda *a, **k: False"),
    Attack("errors that are not shown", NOTHING, answers=WRONG, first="shell = get_ipython()\n"
           "shell.showtraceback = shell.showsyntaxerror = shell._showtraceback = lambda *a, **k: None\n"
           "shell.set_custom_exc((BaseException,), lambda *a, **k: None)"),
    Attack("In and Out rewritten", NOTHING, answers=WRONG, first="for n in range(99):\n"
           "    In.insert(0, '1'); Out[n] = 2",
           last="In[:] = ['2'] * 30\nOut.update({n: 2.0 for n in range(30)})\n_ = __ = 2"),

    # messages and scores forged
    Attack("a forged score beside the real one", (1, 2, 1, 0),
           first=PUBLISH, answers=shares(f"({RESULT}, 0.0)[1]")),
    Attack("a score forged for a silent test", (0, 0, 0, 2), first=PUBLISH, answers=RIGHT | {
           "word": "word = 'no'", "double": f"def double(x):\n    {RESULT}\n    return 7"}),
    Attack("a score changed later", (1, 2, 1, 0), answers=shares("(display(1, display_id='x'), 0.0)[1]"),
           last=PUBLISH + "from IPython.display import display, update_display\n"
           "for score in (2.0, 999, -1):\n    update_display(score, display_id='x')"),
    Attack("messages of success", NOTHING, answers=WRONG, first=PUBLISH + "shell = get_ipython()\n"
           "shell.showtraceback = lambda *a, **k: publish('status', execution_state='idle')\n"),
    Attack("messages of no known form", (1, 2, 1, 0), first=PUBLISH + MALFORMED, answers=shares("malformed()")),
    Attack("a wrong signature", (1, 2, 1, 0), answers=shares("setattr(get_ipython().kernel.session, 'key', b'x')")),
    Attack("part scores: more than all", FULL, answers=shares("1e9")),
    Attack("part scores: a part", (1, 2, 1, 1), answers=shares("0.25")),
    Attack("part scores: negative", (1, 2, 1, 0), answers=shares("-1.0")),
    Attack("part scores: NaN", (1, 2, 1, 0), answers=shares("float('nan')")),
    Attack("part scores: infinity", FULL, answers=shares("float('inf')")),
    Attack("part scores: text", (1, 2, 1, 0), answers=shares("'full marks '")),
    Attack("part scores: nothing, after a flood", (1, 2, 1, 0), answers=shares("(print('x' * 300_000), 0.0)[1]")),

    # reading, writing, reaching out
    Attack("reads all it can", FULL, first=SNOOP),
    Attack("writes where it can", FULL, first=WRITE),
    Attack("reaches for the network", FULL, first=NETWORK),
    Attack("deletes its own files", FULL, first=OWN_FILES),
    Attack("plays with the environment", NOTHING, answers=WRONG, first="import os, sys\nos.environ.clear()\n"
           "os.environ.update(NBGRADER_EXECUTION='validate', NBGRADER_VALIDATING='1', PYTHONOPTIMIZE='2', PATH='')\n"
           "sys.path[:] = []\nsys.modules.pop('between_nodes.checks', None)"),

    # files and folders
    Attack("a link to a peer's notebook", reason="link", place=lambda folder, notebook: (
           folder / f"{NAME}.ipynb").symlink_to(folder.parents[1] / "a honest" / NAME / f"{NAME}.ipynb")),
    Attack("a link to the solution beside it", FULL, first="print(open('notes.txt').read())", place=beside(
           notes__txt=link("solutions", NAME, f"{NAME}.ipynb"), folder=link("solutions"))),
    Attack("a timestamp that is a link", FULL, place=beside(timestamp__txt=link("solutions", NAME, f"{NAME}.ipynb"))),
    Attack("a timestamp that is none", FULL, place=beside(timestamp__txt=b"the day before yesterday")),
    Attack("a timestamp that never comes", FULL, place=beside(timestamp__txt=os.mkfifo)),
    Attack("a file of a terabyte beside it", reason="more than 100 MB", place=beside(
           data__bin=lambda path: (path.touch(), os.truncate(path, 1 << 40)))),
    Attack("files named as the kernel's", FULL, place=beside(
           **{"__kernel__json": b"{}", "__kernel-1": b"", "__kernel-5": b"", "__ipython": b""})),
    Attack("thousands of files beside it", reason="files", place=beside(**{f"f{n}": b"" for n in range(5000)})),
    Attack("a data file of its own", FULL, first="assert open('data.csv').read() == 'a,b'",
           place=beside(data__csv=b"a,b")),
    Attack("50 MB of outputs", FULL, change=lambda cells, notebook: cells["last"].outputs.append(
           nbformat.v4.new_output("stream", text="x" * 50_000_000))),
    Attack("50 MB of source", reason="MB",
           change=lambda cells, notebook: cells["text"].update(source="*a " * 17_000_000)),
    Attack("millions of empty lists", reason="cannot be read", place=file(b"[" + b"[]," * 3_000_000 + b"[]]")),
    Attack("120 MB", reason="more than 100 MB", place=file(b" " * 120_000_000)),
    Attack("deep JSON", reason="cannot be read", place=file(b'{"cells":' * 100_000)),
    Attack("deep metadata", reason="cannot be read", place=lambda folder, notebook: (
           folder / f"{NAME}.ipynb").write_bytes(b'{"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": '
                                                 + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}")),
    Attack("NUL bytes", reason="cannot be read", place=file(b"\0" * 1000)),
    Attack("not JSON", reason="cannot be read", place=file(b"print('hello')")),
    Attack("not text", reason="cannot be read", place=file(bytes(range(256)))),
    Attack("an empty file", reason="cannot be read", place=file(b"")),
    Attack("a JSON list", reason="cannot be read", place=file(b"[1, 2]")),
    Attack("JSON that is no notebook", reason="cannot be read", place=file(b'{"cells": 5, "nbformat": "x"}')),
    Attack("a notebook of the future", reason="cannot be read", place=file(b'{"nbformat": 99, "cells": []}')),
    Attack("a notebook of version 3", FULL, place=version_3),
    Attack("a wrong extension", reason="no notebook", place=file(b"x = 1", "98_small.py")),
    Attack("an empty folder", reason="nothing", place=lambda folder, notebook: None),
    Attack("a folder of the notebook's name", reason="link or a folder",
           place=lambda folder, notebook: (folder / f"{NAME}.ipynb").mkdir()),
    Attack("a name with spaces and Unicode", FULL, reason=r"graded 'Übung 98 \(1\).ipynb'",
           place=lambda folder, notebook: (folder / "Übung 98 (1).ipynb").write_bytes(notebook)),
    Attack("two notebooks, one of the right name", FULL, place=lambda folder, notebook: [
           (folder / name).write_bytes(content)
           for name, content in (("a.ipynb", b"{}"), (f"{NAME}.ipynb", notebook))]),
    Attack("two notebooks, none of the right name", reason=r"which of a.ipynb, b.ipynb is meant",
           place=lambda folder, notebook: [(folder / name).write_bytes(notebook) for name in ("a.ipynb", "b.ipynb")]),
    Attack("a name that is not text", reason="no notebook", place=lambda folder, notebook: Path(
           os.fsdecode(os.fsencode(folder) + b"/\xff\x1b[31m\n.txt")).write_bytes(notebook)),
    Attack("a file that nobody may read", FULL if not os.geteuid() else None,
           reason="" if not os.geteuid() else "cannot be read",
           place=lambda folder, notebook: [
               (path.write_bytes(notebook), path.chmod(0)) for path in [folder / f"{NAME}.ipynb"]]),
    Attack("a student with a space and Unicode", FULL, student="Zoë  Ångström 李"),
    Attack("a student with glob characters", FULL, student="[x]*?{a,b}"),
    Attack("a student with quotes", FULL, student="O'Brien; DROP TABLE \"grade\" --%s{0}\\"),
    Attack("a student who is a flag", FULL, student="--help"),
    Attack("a student called as the worker's own", FULL, student="submission"),
]  # fmt: skip
HONEST = ["a honest", "b honest", "attack 20 honest", "attack 45 honest", "attack 80 honest", "z honest"]


def student_of(attack):
    return attack.student or f"attack {ATTACKS.index(attack):02}"


# The batch


class Run(NamedTuple):
    """What the batch did."""

    course: Path
    printed: str
    exit_code: int
    secrets: dict
    changed: list  # files that should be as they were
    left: list  # processes
    temp: list  # files
    visitors: list  # of the listener
    memory: dict  # most memory of a process outside the fence, in bytes, by what it is


BATCH = """
import sys
from pathlib import Path
from classroom import batch
batch.LONGEST = 60
sys.exit(batch.main(Path(sys.argv[1]), Path(sys.argv[2]), workers=2))
"""
CACHES = "temp", "printed", "course/answers", "home/.cache", "home/.config", "home/.ipython", "home/.local"
# In grading/, by grading:
WRITTEN = "gradebook.db", "records", "autograded", "feedback", "scores.csv", "lock", "release", "exchange"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacks")
    course, home, temp = folder / "course", folder / "home", folder / "temp"
    hidden = {place: f"sesame-{secrets.token_hex(8)}" for place in
              ("solution", "peer", "gradebook", "environment", "home", "temp", "memory")}  # fmt: skip
    for path in course, home / ".ssh", temp:
        path.mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text(hidden["home"])
    canary = Path("/tmp") / f"canary-{secrets.token_hex(8)}"
    canary.write_text(hidden["temp"])
    make_course(course, hidden)
    with Listener(folder / "socket") as listener:
        facts = {"course": str(course), "home": str(home), "port": listener.port, "abstract": listener.abstract}
        submit_all(course, "\n".join(f"{name} = {value!r}" for name, value in facts.items()), hidden)
        before = fingerprints(folder, canary)
        environment = {**os.environ, "HOME": str(home), "TMPDIR": str(temp), "GRADER_TOKEN": hidden["environment"]}
        with Watch() as watch, (folder / "printed").open("w+") as printed:
            process = subprocess.Popen([sys.executable, "-c", BATCH, course / "grading" / "submitted", course],
                                       stdout=printed, stderr=printed, env=environment, cwd=folder)  # fmt: skip
            try:
                exit_code = process.wait(500)
            finally:
                process.kill()
    after = fingerprints(folder, canary)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    canary.unlink()
    return Run(course, (folder / "printed").read_text(errors="replace"), exit_code, hidden, changed, watch.left,
               list(temp.iterdir()), listener.visitors, watch.memory)  # fmt: skip


def make_course(course, hidden):
    config = (ROOT / "nbgrader_config.py").read_text(encoding="utf-8").replace("timeout = 20 ", "timeout = 2 ")
    config += "c.Execute.iopub_timeout = 2\nc.PatientExecute.budget = 10\n"
    (course / "nbgrader_config.py").write_text(config, encoding="utf-8")
    path = course / "solutions" / NAME / f"{NAME}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(solution(hidden["solution"]), path)
    (course / "grading").mkdir()
    database = f"sqlite:///{course}/grading/gradebook.db"
    Base.metadata.create_all(create_engine(database))
    with Gradebook(database, "between-the-nodes") as gradebook:
        gradebook.add_student("earlier", last_name=hidden["gradebook"])


def submit_all(course, facts, hidden):
    release = release_of(course, NAME).decode()
    peer = Attack("honest", first=f"# {hidden['peer']}")
    for student in HONEST:
        folder = course / "grading" / "submitted" / student / NAME
        folder.mkdir(parents=True)
        nbformat.write(submission(peer, release, facts), folder / f"{NAME}.ipynb")
    for attack in ATTACKS:
        folder = course / "grading" / "submitted" / student_of(attack) / NAME
        folder.mkdir(parents=True)
        notebook = json.dumps(submission(attack, release, facts)).encode()
        (attack.place or file(notebook))(folder, notebook)


def fingerprints(folder, *more):
    """A name for the content of every file of a tree that grading does not write."""
    found = {}
    for path in [*folder.rglob("*"), *more]:
        parts = path.relative_to(folder / "course" / "grading").parts if path.is_relative_to(
            folder / "course" / "grading") else ()  # fmt: skip
        if (parts[:1] and parts[0] in WRITTEN) or any(path.is_relative_to(folder / name) for name in CACHES):
            continue
        status = path.lstat()
        small = path.is_file() and not path.is_symlink() and status.st_size < 1 << 30 and os.access(path, os.R_OK)
        content = hashlib.sha256(path.read_bytes()).hexdigest() if small else status.st_size
        found[str(path)] = status.st_mode, content
    return found


class Listener:
    """Takes note of every connection to a TCP port, an abstract socket and a socket in the file system."""

    def __init__(self, path):
        self.abstract, self.visitors, self.open = f"attacks-{secrets.token_hex(8)}", [], True
        self.sockets = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
        self.port = self.sockets[0].getsockname()[1]
        self.sockets[1].bind(("127.0.0.1", self.port))
        for address in "\0" + self.abstract, str(path):
            self.sockets.append(socket.socket(socket.AF_UNIX))
            self.sockets[-1].bind(address)
            self.sockets[-1].listen()

    def __enter__(self):
        for each in self.sockets:
            threading.Thread(target=self.listen, args=(each,), daemon=True).start()
        return self

    def listen(self, each):
        each.settimeout(0.2)
        while self.open:
            try:
                self.visitors.append(each.recvfrom(10) if each.type == socket.SOCK_DGRAM else each.accept()[1])
            except TimeoutError:
                pass
        each.close()

    def __exit__(self, *_):
        self.open = False


class Watch:
    """Sees how much memory the processes started meanwhile take, and which of them are there at the end.

    Orphans become children of this process for as long.
    """

    SUBREAPER = 36  # a number of prctl(2)

    def __enter__(self):
        self.memory, self.left, self.running = {}, [], True
        ctypes.CDLL(None).prctl(self.SUBREAPER, 1, 0, 0, 0)
        self.before = set(psutil.Process().children(recursive=True))
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while self.running:
            for process in set(psutil.Process().children(recursive=True)) - self.before:
                try:
                    command = " ".join(process.cmdline())
                    if "forkserver" not in command:
                        memory = process.memory_info().rss
                        self.memory[command] = max(memory, self.memory.get(command, 0))
                except psutil.Error:
                    pass
            time.sleep(0.5)

    def __exit__(self, *_):
        self.running = False
        self.thread.join()
        deadline = time.monotonic() + 3
        while (left := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.left = [process.as_dict(["pid", "name", "status", "cmdline"]) for process in left]
        ctypes.CDLL(None).prctl(self.SUBREAPER, 0, 0, 0, 0)

    def alive(self):
        alive = []
        for process in set(psutil.Process().children(recursive=True)) - self.before:
            try:
                if process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
                elif process.ppid() == os.getpid():
                    os.waitpid(process.pid, os.WNOHANG)
            except psutil.Error:
                pass
        return alive


def record(run, student):
    path = run.course / "grading" / "records" / NAME / f"{student}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def outputs(run, student):
    """All outputs of a graded notebook, as text."""
    path = run.course / "grading" / "autograded" / student / NAME / f"{NAME}.ipynb"
    return json.dumps([each.get("outputs") for each in json.loads(path.read_text())["cells"]]) if path.exists() else ""


# What must hold


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_gets_what_it_deserves(attack, run):
    found = record(run, student_of(attack))
    said = outputs(run, student_of(attack))
    if attack.scores is None:
        assert found["status"] == "not graded", found
        assert "score" not in found
    else:
        assert found["status"] == "graded", found["reason"]
        assert tuple(found["cells"].get(name) for name in CELLS) == attack.scores, said[-3000:]
        assert list(found["cells"]) and set(found["cells"]) == set(CELLS)
        assert found["max_score"] == sum(FULL)
    if attack.reason:
        assert re.search(attack.reason, found["reason"]), found["reason"]
    assert "ESCAPED" not in said
    assert len(said) < 3_000_000


@pytest.mark.parametrize("student", HONEST)
def test_honest_submission_keeps_its_points(student, run):
    found = record(run, student)
    assert (found["status"], tuple(found["cells"].values())) == ("graded", FULL)


def test_batch_ends_well(run):
    assert run.exit_code == 0, run.printed[-3000:]
    assert "Traceback" not in run.printed
    assert "ESCAPED" not in run.printed
    assert "LEAKED" not in run.printed


def test_nothing_else_changed(run):
    assert run.changed == []


def test_nothing_is_left(run):
    assert run.left == []
    assert [path.name for path in run.temp if not path.name.startswith("_jinja2-cache")] == []


def test_nobody_was_reached(run):
    assert run.visitors == []


def test_no_secret_is_found(run):
    folder = run.course / "grading"
    for kind in "autograded", "feedback":
        for path in (folder / kind).rglob("*"):
            if path.is_file() and path.relative_to(folder / kind).parts[0] not in HONEST:
                content = path.read_text(encoding="utf-8", errors="replace")
                assert [place for place, word in run.secrets.items() if word in content] == [], path


def test_memory_stays_within_bounds(run):
    assert max(run.memory.values()) < 2 << 30, {name[-60:]: size >> 20 for name, size in run.memory.items()}


def test_gradebook_holds_these_scores_and_no_others(run):
    with sqlite3.connect(run.course / "grading" / "gradebook.db") as database:
        rows = database.execute(
            "SELECT a.student_id, c.name, g.auto_score FROM grade g JOIN submitted_notebook n ON g.notebook_id = n.id "
            "JOIN submitted_assignment a ON n.assignment_id = a.id JOIN base_cell c ON c.id = g.cell_id"
        ).fetchall()
        students = database.execute("SELECT id, last_name FROM student ORDER BY id").fetchall()
    expected = {(student, cell): points for student in HONEST for cell, points in zip(CELLS, FULL, strict=True)}
    expected |= {(student_of(attack), cell): points for attack in ATTACKS if attack.scores
                 for cell, points in zip(CELLS, attack.scores, strict=True)}  # fmt: skip
    assert {(student, cell): points for student, cell, points in rows} == expected
    assert {student for student, _ in students} == {"earlier", *(student for student, _ in expected)}
    assert ("earlier", run.secrets["gradebook"]) in students
