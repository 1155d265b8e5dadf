"""nbgrader steps that go on where the stock ones stop, so that one bad submission costs nobody else a grade."""

import ast
import secrets
import time

from IPython.core.inputtransformer2 import TransformerManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.preprocessors import DeduplicateIds, Execute, NbGraderPreprocessor, OverwriteCells
from nbgrader.utils import is_grade
from traitlets import Bool, Integer, List, Unicode

from .kernels import AsyncWarmKernelManager


class RestoreMetadata(NbGraderPreprocessor):
    """Gives every test and answer the nbgrader metadata of the release it came in, and takes away all other.

    nbgrader 0.9.6 ends on metadata that were changed by hand, and leaves the submission without a score.
    """

    def preprocess(self, nb, resources):
        names = resources["nbgrader"]
        with Gradebook(names["db_url"]) as gradebook:
            notebook = gradebook.find_notebook(names["notebook"], names["assignment"])
            known = {cell.name: self._metadata(notebook, cell) for cell in notebook.source_cells}
        for cell in nb.cells:
            claimed = cell.metadata.pop("nbgrader", None)
            name = claimed.get("grade_id") if isinstance(claimed, dict) else None
            if isinstance(name, str) and name in known:
                cell.metadata = NotebookNode(nbgrader=NotebookNode(known[name]))
                if known[name]["cell_type"] == "code":
                    cell.pop("attachments", None)
        return nb, resources

    def _metadata(self, notebook, cell):
        points = {each.name: each.max_score for each in (*notebook.grade_cells, *notebook.task_cells)}
        return {
            "schema_version": MetadataValidator.schema_version,
            "grade_id": cell.name,
            "cell_type": cell.cell_type,
            "checksum": cell.checksum,
            "locked": cell.locked,
            "solution": cell.name in {each.name for each in notebook.solution_cells},
            "grade": cell.name in {each.name for each in notebook.grade_cells},
            "task": cell.name in {each.name for each in notebook.task_cells},
        } | ({"points": points[cell.name]} if cell.name in points else {})


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
        """Run all cells."""
        self._stopped = None
        self._deadline = time.monotonic() + self.budget
        self._room_for_all = 10 * self.output_limit
        return super().preprocess(nb, resources, km)

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code" or not cell.source.strip():
            return cell, resources
        if not self._stopped and time.monotonic() > self._deadline:
            self._stopped = "TimeoutError", f"all cells together ran for more than {self.budget} s"
        if not self._stopped:
            room = self._room = min(self.output_limit, self._room_for_all)
            self.raise_on_iopub_timeout = False  # so much output that some is lost
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
            except Exception as error:  # a message of no known form: the code has laid hands on the kernel
                self._stopped = type(error).__name__, "this cell or an earlier one disturbed the kernel"
            finally:
                self._room_for_all -= room - self._room
        cell.outputs = []
        _fail(cell, *self._stopped)
        return cell, resources

    def _run_test(self, cell, resources, index):
        """Run a test with an assert statement behind it that must fail: the sign that it ran to its end.

        What the statement says shows that the canaries, run by it, have failed, too. Behind a test that ends in an
        expression, whose value may be a score, it runs as a cell of its own.
        """
        source, tokens = cell.source, [secrets.token_hex(8) for _ in range(1 + len(self.canaries))]
        with_score, sign = _ends_in_expression(source), _sign(self.canaries, tokens)
        self.raise_on_iopub_timeout = with_score
        try:
            if with_score:
                super().preprocess_cell(cell, resources, index)
                outputs, cell.source = cell.outputs, sign
            else:
                outputs, cell.source = [], f"{source}\n{sign}"
            super().preprocess_cell(cell, resources, index)
        finally:
            cell.source = source
        said = "".join(output.evalue for output in cell.outputs if output.output_type == "error")
        cell.outputs = [*outputs, *(output for output in cell.outputs if not _holds(tokens[0], output))]
        errors = [output for output in cell.outputs if output.output_type == "error"]
        for error in errors:  # which may show the line after the one that failed
            lines = "\n".join(error.traceback).split("\n")
            error.traceback = [line for line in lines if tokens[0] not in line]
        results = [output for output in cell.outputs if output.output_type == "execute_result"]
        if not errors and tokens[0] not in said:
            _fail(cell, "TestNotFinished", "the test did not run to its end, or assert statements are switched off")
        elif not errors and not all(token in said for token in tokens):
            _fail(cell, "TestsSwitchedOff", "this notebook changes the functions that the tests use")
        elif not errors and len(results) > 1 and with_score:
            _fail(cell, "TwoScores", "this test has one value, and the notebook sent another")
        elif not errors and with_score:
            _clamp(cell)
            return
        cell.outputs = [output for output in cell.outputs if output not in results]  # no score beside an error

    async def _async_handle_timeout(self, timeout, cell=None):
        self.raise_on_iopub_timeout = True  # the cell does not stop
        return await super()._async_handle_timeout(timeout, cell)

    async def _async_check_alive(self):
        if not self.kc:  # asked by what a stopped cell has left
            raise DeadKernelError("Kernel died")
        await super()._async_check_alive()

    def on_cell_executed(self, **kwargs):
        """Take the error that a kernel's reply tells of, if it has told no other way."""
        content = kwargs["execute_reply"]["content"]
        if content["status"] == "error":
            _shorten(content)
        super().on_cell_executed(**kwargs)

    def process_message(self, msg, cell, cell_index):
        """Take a message of the kernel, as long as the cell has not said too much.

        Widgets are not kept, and no cell changes the output of another.
        """
        kind, content = msg["msg_type"], msg["content"]
        if kind.startswith("comm_") or (kind == "clear_output" and _is_test(cell)):
            return None
        content.pop("transient", None)
        if kind == "error":
            _shorten(content)
        if kind in ("stream", "display_data", "execute_result", "error"):
            size, room = len(str(content)), self._room
            self._room -= size
            if size > room and kind in ("execute_result", "error"):  # perhaps a score, or the loss of one
                if sum(output.output_type == kind for output in cell.outputs) > 1:
                    return None
                shorter = {"traceback": []} if kind == "error" else {"data": {"text/plain": _plain(content)[:100]}}
                msg = {**msg, "content": content | shorter}
            elif size > room:
                if room <= 0:
                    return None
                text = content.get("text", "")[:room] + "\n[the rest of this cell's output was left out]\n"
                header = {**msg["header"], "msg_type": "stream"}
                msg = {**msg, "msg_type": "stream", "header": header, "content": {"name": "stdout", "text": text}}
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


def _sign(canaries, tokens):
    """A statement that fails with all the tokens, if assert statements and canaries do as they must; leaves no name."""
    codes = [code.replace("TOKEN", token) for code, token in zip(canaries, tokens[1:], strict=True)]
    run = f"""
said = []
for code in {codes!r}:
    try:
        exec(code, {{}})
    except Exception as error:
        said.append(str(error))
"""
    said = f"(lambda names: __import__('builtins').exec({run!r}, names) or names)({{}})['said']"
    return f"assert False, [{tokens[0]!r}, *{said}]"


def _clamp(cell):
    """Bring a score that is given as a cell's value between nothing and everything; what is no number is nothing."""
    for output in cell.outputs:
        if output.output_type == "execute_result":
            try:
                score = float(_plain(output))
            except ValueError:
                score = 0.0
            highest = float(cell.metadata.nbgrader.points)
            output.data = {"text/plain": str(min(max(score, 0.0), highest) if score == score else 0.0)}


def _shorten(error):
    error["ename"], error["evalue"] = error["ename"][:100], error["evalue"][:5000]
    error["traceback"] = [line[:5000] for line in error["traceback"][-50:]]


def _plain(output):
    """The plain text of an output, or of what was sent as one."""
    return str(output["data"].get("text/plain", ""))


def _holds(token, output):
    return output.output_type == "error" and token in output.evalue


def _fail(cell, name, value):
    cell.outputs.append(new_output("error", ename=name, evalue=value, traceback=[f"{name}: {value}"]))
