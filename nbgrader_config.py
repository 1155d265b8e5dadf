"""How nbgrader's steps lie in this repository's folders. Read by every nbgrader command and by JupyterLab."""

import warnings
from pathlib import Path

from nbconvert.preprocessors import ClearMetadataPreprocessor
from nbformat.warnings import MissingIDFieldWarning
from nbgrader import preprocessors as stock
from sqlalchemy.exc import SAWarning

from classroom import ROOT
from classroom.feedback import FeedbackExporter
from classroom.preprocessors import PatientExecute, RestoreMetadata, SafeDeduplicateIds, SafeOverwriteCells

# Caused by nbgrader's own queries, and by the tests it puts back where a submission lacks them.
warnings.filterwarnings("ignore", category=SAWarning, module="nbgrader")
warnings.filterwarnings("ignore", category=MissingIDFieldWarning)

c = get_config()  # noqa: F821
root = Path(__file__).resolve().parent
grading = root / "grading"  # submissions, scores, feedback; ignored by git
answers = root / "answers"  # where Assignment List puts what a reader fetches; ignored by git
for folder in grading / "exchange", answers:
    folder.mkdir(parents=True, exist_ok=True)

c.CourseDirectory.course_id = "between-the-nodes"
c.CourseDirectory.root = str(root)
c.CourseDirectory.source_directory = "solutions"
# Not exercises/: there `nbgrader generate_assignment --force` would delete a reader's answers, and
# `nbgrader release_assignment` would hand them out. `make exercises` carries releases over with care.
c.CourseDirectory.release_directory = "grading/release"
c.CourseDirectory.submitted_directory = "grading/submitted"
c.CourseDirectory.autograded_directory = "grading/autograded"
c.CourseDirectory.feedback_directory = "grading/feedback"
c.CourseDirectory.source_with_tests_directory = "grading/source_with_tests"
c.CourseDirectory.solution_directory = "grading/solution"
c.CourseDirectory.db_url = f"sqlite:///{(grading / 'gradebook.db').as_posix()}"

c.Exchange.root = str(grading / "exchange")
c.Exchange.cache = str(grading / "cache")
c.Exchange.assignment_dir = str(answers)

# A release carries no notebook metadata but the kernel's name, whatever the solution was saved with.
c.GenerateAssignment.preprocessors.append(ClearMetadataPreprocessor)
c.ClearMetadataPreprocessor.enabled = True
c.ClearMetadataPreprocessor.clear_cell_metadata = False
c.ClearMetadataPreprocessor.preserve_nb_metadata_mask = {"kernelspec"}

c.Autograde.sanitize_preprocessors = [
    stock.ClearOutput,
    RestoreMetadata,
    SafeDeduplicateIds,
    stock.OverwriteKernelspec,
    SafeOverwriteCells,
    stock.CheckCellMetadata,
]
c.Autograde.autograde_preprocessors = [
    PatientExecute,
    stock.IgnorePattern,
    stock.LimitOutput,
    stock.SaveAutoGrades,
    stock.AssignLatePenalties,
]
c.GenerateFeedback.exporter_class = FeedbackExporter
c.FeedbackExporter.sanitize_html = True  # a page with a stranger's output runs no script of theirs
c.OverwriteCells.add_missing_cells = True  # a deleted test scores 0 and keeps its place

# A warning is not a wrong answer, though nbgrader takes any text on stderr for one. The kernel writes warnings to
# stdout (this holds for Validate too); what still reaches stderr, from below Python, is dropped before grading.
c.Execute.extra_arguments = [
    "--IPKernelApp.exec_lines=import sys; sys.stderr = sys.stdout",
    "--IPKernelApp.log_level=ERROR",
]
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = r"\A"  # any text

# Tests use these functions; a notebook that has put others in their place passes no test.
c.PatientExecute.canaries = [
    f"from between_nodes import checks\nchecks.{call}"
    for call in (
        "equal(0, 1, tried='TOKEN')",
        "true(False, tried='TOKEN', came_out='', expected='')",
        "raises(ValueError, int, tried='TOKEN')",
        "run(lambda: 1 / 0, tried='TOKEN')",
        "unchanged(a := [], lambda: a.append(1), tried='TOKEN')",
    )
]
c.PatientExecute.visible = [str(ROOT / "between_nodes")]

c.Execute.timeout = 20  # seconds for one cell
c.Execute.error_on_timeout = {
    "ename": "TimeoutError",
    "evalue": "the cell was stopped because it ran for too long",
    "traceback": ["TimeoutError: the cell was stopped because it ran for too long"],
}
c.Execute.shutdown_kernel = "immediate"
