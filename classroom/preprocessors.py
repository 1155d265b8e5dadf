"""Three nbgrader steps that go on where the stock ones stop, so that one bad submission costs nobody else a grade."""

import ast
import secrets
import time

from IPython.core.inputtransformer2 import TransformerManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.v4 import new_code_cell, new_output
from nbgrader.preprocessors import DeduplicateIds, Execute, OverwriteCells
from nbgrader.utils import has_failed, is_grade
from traitlets import Bool, Integer, List, Unicode

from .kernels import AsyncWarmKernelManager


class SafeDeduplicateIds(DeduplicateIds):
    """Takes a copied cell's nbgrader metadata away altogether.

    nbgrader 0.9.6 leaves `nbgrader: {}`, which its own schema check then reads as a notebook of version 0, and ends
    the whole batch.
    """

    def preprocess_cell(self, cell, resources, cell_index):
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if cell.metadata.get("nbgrader") == {}:
            del cell.metadata["nbgrader"]
        return cell, resources


class SafeOverwriteCells(OverwriteCells):
    """Adds a deleted test back even if the answer cell before it was deleted, too, at the notebook's end.

    nbgrader 0.9.6 looks for that answer cell, fails, and leaves the submission without a score.
    """

    def add_missing_grade_cells(self, nb, resources):
        try:
            return super().add_missing_grade_cells(nb, resources)
        except KeyError:
            there = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in nb.cells}
            for test in self.gradebook.find_notebook(self.notebook_id, self.assignment_id).grade_cells:
                if test.name not in there:
                    source = self.gradebook.find_source_cell(test.name, self.notebook_id, self.assignment_id)
                    nb.cells.append(self.missing_cell_transform(source, test.max_score))
            return nb, resources


class PatientExecute(Execute):
    """Runs a submission so that its score is neither more nor less than what it earned.

    Points earned before a kernel dies or hangs stay; a test earns its points only by running to its end with assert
    statements at work; partial credit stays between nothing and everything; the whole notebook has one budget of
    seconds, and a cell's output one of characters. The kernel is forked, and in a fence (classroom.fence).
    """

    fenced = Bool(True, help="Run notebooks in a sandbox, as they may be anybody's.").tag(config=True)
    visible = List(Unicode(), help="Paths that fenced notebooks may read.").tag(config=True)
    budget = Integer(120, help="Seconds for all cells of one notebook together.").tag(config=True)
    output_limit = Integer(200_000, help="Characters that one cell may print or display.").tag(config=True)
    canaries = List(Unicode(), help="Code that must fail with an error that holds the word TOKEN.").tag(config=True)

    def __init__(self, **kwargs):
        super().__init__(**{"kernel_manager_class": AsyncWarmKernelManager, "store_widget_state": False, **kwargs})

    def create_kernel_manager(self):
        """The manager that this notebook's kernel is started by."""
        manager = super().create_kernel_manager()
        manager.fenced, manager.visible = self.fenced, self.visible
        return manager

    def preprocess(self, nb, resources, km=None):
        """Run all cells, and then the canaries."""
        self._stopped = None
        self._deadline = time.monotonic() + self.budget
        own, token = list(nb.cells), secrets.token_hex(8)
        canaries = [new_code_cell(code.replace("TOKEN", token)) for code in self.canaries]
        nb.cells.extend(canaries)
        nb, resources = super().preprocess(nb, resources, km)
        nb.cells = own
        alive = all(any(_holds(token, output) for output in cell.outputs) for cell in canaries)
        if not alive and not self._stopped:
            for cell in own:
                if _is_test(cell):
                    _fail(cell, "TestsSwitchedOff", "this notebook changes the functions that the tests use")
        return nb, resources

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code" or not cell.source.strip():
            return cell, resources
        if not self._stopped and time.monotonic() > self._deadline:
            self._stopped = "TimeoutError", f"all cells together ran for more than {self.budget} s"
        if not self._stopped:
            self._room = self.output_limit
            try:
                if _is_test(cell):
                    self._run_test(cell, resources, index)
                else:
                    super().preprocess_cell(cell, resources, index)
                return cell, resources
            except DeadKernelError:
                self._stopped = "DeadKernelError", "this cell or an earlier one ended the Python process"
            except CellTimeoutError:
                self._stopped = "TimeoutError", f"a cell ran for over {self.timeout} s and would not stop"
        cell.outputs = []
        _fail(cell, *self._stopped)
        return cell, resources

    def _run_test(self, cell, resources, index):
        """Run a test with an assert statement behind it that must fail: the sign that it ran to its end.

        Behind a test that ends in an expression, whose value may be a score, the statement runs as a cell of its own.
        """
        source, token = cell.source, secrets.token_hex(8)
        with_score, sign = _ends_in_expression(source), f"assert False, {token!r}"
        try:
            if with_score:
                super().preprocess_cell(cell, resources, index)
                outputs, cell.source = cell.outputs, sign
            else:
                outputs, cell.source = [], f"{source}\n{sign}"
            super().preprocess_cell(cell, resources, index)
        finally:
            cell.source = source
        finished = any(_holds(token, output) for output in cell.outputs)
        cell.outputs = [*outputs, *(output for output in cell.outputs if not _holds(token, output))]
        if with_score:
            _clamp(cell)
        else:
            cell.outputs = [output for output in cell.outputs if output.output_type != "execute_result"]
        if not finished and not has_failed(cell):
            _fail(cell, "TestNotFinished", "the test did not run to its end, or assert statements are switched off")

    def process_message(self, msg, cell, cell_index):
        """Take a message of the kernel, as long as the cell has not said too much; widgets are not kept."""
        kind, content = msg["msg_type"], msg["content"]
        if kind.startswith("comm_"):
            return None
        if kind in ("stream", "display_data", "execute_result", "update_display_data"):
            size, room = len(str(content)), self._room
            self._room -= size
            if size > room:
                if room <= 0:
                    return None
                text = content.get("text", "")[:room] + "\n[the rest of this cell's output was left out]\n"
                header = {**msg["header"], "msg_type": "stream"}
                msg = {**msg, "msg_type": "stream", "header": header, "content": {"name": "stdout", "text": text}}
        elif kind == "error":
            content["evalue"] = content["evalue"][:5000]
            content["traceback"] = [line[:5000] for line in content["traceback"][-50:]]
        return super().process_message(msg, cell, cell_index)


def _is_test(cell):
    return cell.cell_type == "code" and is_grade(cell)


def _ends_in_expression(source):
    """Whether a cell's value is its score."""
    try:
        lines = ast.parse(TransformerManager().transform_cell(source)).body
    except SyntaxError:
        return False
    return bool(lines) and isinstance(lines[-1], ast.Expr)


def _clamp(cell):
    """Bring a score that is given as a cell's value between nothing and everything; what is no number is nothing."""
    for output in cell.outputs:
        if output.output_type == "execute_result":
            try:
                score = float(output.data.get("text/plain", ""))
            except ValueError:
                score = 0.0
            highest = float(cell.metadata.nbgrader.points)
            output.data = {"text/plain": str(min(max(score, 0.0), highest) if score == score else 0.0)}


def _holds(token, output):
    return output.output_type == "error" and token in output.evalue


def _fail(cell, name, value):
    cell.outputs.append(new_output("error", ename=name, evalue=value, traceback=[f"{name}: {value}"]))
