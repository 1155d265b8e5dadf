"""Three nbgrader steps that go on where the stock ones stop, so that one bad submission costs nobody else a grade."""

import time

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.v4 import new_output
from nbgrader.preprocessors import DeduplicateIds, Execute, OverwriteCells
from traitlets import Integer


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
    """Keeps the points earned before a kernel dies or hangs, and gives the whole notebook one budget of seconds."""

    budget = Integer(120, help="Seconds for all cells of one notebook together.").tag(config=True)

    def preprocess(self, nb, resources, km=None):
        self._stopped = None
        self._deadline = time.monotonic() + self.budget
        return super().preprocess(nb, resources, km)

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code" or not cell.source.strip():
            return cell, resources
        if not self._stopped and time.monotonic() > self._deadline:
            self._stopped = "TimeoutError", f"all cells together ran for more than {self.budget} s"
        if not self._stopped:
            try:
                return super().preprocess_cell(cell, resources, index)
            except DeadKernelError:
                self._stopped = "DeadKernelError", "this cell or an earlier one ended the Python process"
            except CellTimeoutError:
                self._stopped = "TimeoutError", f"a cell ran for over {self.timeout} s and would not stop"
        name, value = self._stopped
        cell.outputs = [new_output("error", ename=name, evalue=value, traceback=[f"{name}: {value}"])]
        return cell, resources
