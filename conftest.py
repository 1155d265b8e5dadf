"""How pytest runs the book's notebooks: nbval's strict comparison, with the few settings nbval has no option for.

Chapters must give the outputs they were saved with; solutions, which may be saved without outputs, must run without an
error. Notebooks elsewhere (exercises, a reader's answers) are not run. `tests/sanitize.cfg` lists what is masked.
"""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import time
from collections import Counter
from queue import Empty

import pytest
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager, RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile
from xdist.scheduler import LoadScopeScheduling

from classroom.kernels import WarmKernelManager

ROOT = pathlib.Path(__file__).parent
TESTS = ROOT / "tests"

# Tests and kernels find the book's Jupyter settings, and the tools installed beside this Python.
os.environ["JUPYTER_CONFIG_PATH"] = str(ROOT / ".jupyter")
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])


class Kernel(RunningKernel):
    """A forked kernel of this Python that cannot reach the network."""

    def __init__(self, cwd, startup_timeout):
        self.km = WarmKernelManager(kernel_name=CURRENT_ENV_KERNEL_NAME, kernel_spec_manager=NbvalKernelspecManager())
        paths = os.pathsep.join(filter(None, [str(TESTS / "offline"), os.environ.get("PYTHONPATH")]))
        self.km.start_kernel(cwd=cwd, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.DEVNULL)
        self.kc = self.km.client()
        self.kc.start_channels()
        self.kc.wait_for_ready(timeout=startup_timeout)
        self._ensure_iopub_up()

    def execute_cell_input(self, cell_input, allow_stdin=None):
        """Run a cell as Jupyter does; nbval keeps no history, which changes what a trailing `;` and `_` do."""
        return self.kc.execute(cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)

    def await_reply(self, msg_id, timeout=None):
        """Wait for a cell to finish, and stop waiting at once when its kernel has died."""
        end = time.monotonic() + (timeout or float("inf"))
        while True:
            try:
                return super().await_reply(msg_id, timeout=min(1, max(0.01, end - time.monotonic())))
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("the kernel died while it ran this cell") from None
                if time.monotonic() > end:
                    raise


class Cell(IPyNbCell):
    """A cell called by its execution count and id; in a cell tagged `timing`, numbers and plots may differ."""

    def sanitize(self, s):
        """Mask what tests/sanitize.cfg lists and, in a cell tagged `timing`, every number with its unit."""
        text = super().sanitize(s)
        if not isinstance(text, str) or "timing" not in self.cell.metadata.get("tags", []):
            return text
        text = re.sub(r'(?<=src="data:image/png;base64,)[^"]*', "PLOT", text)
        return re.sub(r"\s*\d[\d,.]*(e[+-]?\d+)?\s*(ns|µs|ms|s)?\b", " NUMBER", text)

    def runtest(self):
        """Run the cell as nbval does; a passing test of an exercise must show nothing, or it spoils its own score."""
        super().runtest()
        if self.cell.metadata.get("nbgrader", {}).get("grade") and self.test_outputs:
            self.raise_cell_error("a test cell that passes must be silent", str(self.test_outputs))


class Notebook(IPyNbFile):
    """A notebook whose cells are tests: compared with their saved outputs in a chapter, run in a solution."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compare_outputs = self.compare_outputs and self.path.is_relative_to(ROOT / "chapters")

    def collect(self):
        """Yield the notebook's code cells as tests."""
        for cell in super().collect():
            number = cell.cell_num + 1
            name = f"Cell {number} {cell.cell.get('id', '')}"
            yield Cell.from_parent(self, name=name, cell_num=number, cell=cell.cell, options=cell.options)

    def setup(self):
        """Start the notebook's kernel in the notebook's folder."""
        self.kernel = Kernel(str(self.path.parent), self.config.option.nbval_kernel_startup_timeout)
        self.setup_sanitize_files()

    def get_sanitize_files(self):
        """Find the list of masks from wherever pytest was started."""
        return [str(TESTS / "sanitize.cfg")]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    """Put the classes above in the place of nbval's, and leave out notebooks that are no chapter and no solution."""
    run = any(file_path.is_relative_to(ROOT / folder) for folder in ("chapters", "solutions"))
    found = []
    for collector in (yield):
        if not isinstance(collector, IPyNbFile):
            found.append(collector)
        elif run and not any(part.startswith(".") for part in file_path.relative_to(ROOT).parts):
            found.append(Notebook.from_parent(parent, path=file_path))
    return found


class ByNotebook(LoadScopeScheduling):
    """Keeps the tests of a file on one worker, in order; answers are kept by assignment instead.

    (pytest-xdist's own `xdist_group` marks are lost on pytest 9.2.)
    """

    def _split_scope(self, nodeid):
        path = nodeid.partition("::")[0]
        assignment = re.search(r"answer_bank.*\[(\d\d_\w+)", nodeid)
        return f"{path}[{assignment[1]}]" if assignment else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One worker more than there are cores, as chapters wait more than they compute."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Share the tests out by notebook, by assignment and by file."""
    return ByNotebook(config, log)


def pytest_terminal_summary(terminalreporter):
    """Say in one line what was run, counted from the reports themselves."""
    stats = terminalreporter.stats
    done = itertools.chain.from_iterable(stats.get(outcome, []) for outcome in ("passed", "failed", "error", "xfailed"))
    kinds = Counter(_kind(nodeid) for nodeid in {report.nodeid for report in done})
    line = ", ".join(f"{kinds[kind]} {kind}" for kind in ("notebook cells", "bank answers", "other tests"))
    not_run = len(stats.get("skipped", []))
    terminalreporter.write_sep("-", f"{line}{f'; {not_run} not run' if not_run else ''}")


def _kind(nodeid):
    if ".ipynb::" in nodeid:
        return "notebook cells"
    return "bank answers" if "test_answer_earns" in nodeid else "other tests"


def pytest_addoption(parser):
    """Options of single test files, which pytest wants to know early."""
    parser.addoption("--screenshots", metavar="DIR", help="save a picture of every chapter, light and dark, to DIR")
