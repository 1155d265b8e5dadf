"""Runs the answer bank, tests/answers/*.yml, through nbgrader's own autograding, in the fence where there is one.

Each entry of a bank is one answer to one exercise, with the graded cells that must lose their points over it (all
others must earn theirs in full):

    - exercise: keep_every_note            # grade id of the solution cell that the answer replaces
      name: a lambda as reducer            # short, unique within the exercise
      lost: []                             # [] is a right answer; else the grade ids that must score 0
      answer: |
        ...

The k-th answers of all exercises make up one submission, so that an assignment is graded in one batch; exercises
without a k-th answer hold the solution. Only the answers selected (for example by `-k keep_every_note`) are graded.
"""

import collections
import functools
from pathlib import Path

import nbformat
import pytest
import yaml

from classroom import ROOT, assignments, fence
from classroom.course import autograde, notebook_of, setting, throwaway_course

ANSWERS = Path(__file__).parent / "answers"
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own queries
RIGHT, WRONG = 2, 4  # answers that every graded cell needs at least


def read_bank(assignment):
    path = ANSWERS / f"{assignment}.yml"
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or []) if path.exists() else []


def read_solution(assignment):
    return nbformat.read(ROOT / "solutions" / assignment / f"{assignment}.ipynb", as_version=4)


@functools.cache
def graded_cells(assignment):
    """Grade ids of the graded cells by the exercise (grade id of the solution cell) that they follow."""
    cells, exercise = collections.defaultdict(list), None
    for cell in read_solution(assignment).cells:
        if setting(cell, "solution"):
            exercise = setting(cell, "grade_id")
            cells[exercise]  # an exercise without tests is listed too
        if setting(cell, "grade"):
            cells[exercise].append(setting(cell, "grade_id"))
    return dict(cells)


def one_worker(assignment):
    """Marks that keep an assignment on one worker, which then needs the time of a whole batch for its first test."""
    return [pytest.mark.xdist_group(f"bank-{assignment}"), pytest.mark.timeout(600)]


ASSIGNMENTS = sorted({*assignments(), *(path.stem for path in ANSWERS.glob("*.yml"))})
by_assignment = pytest.mark.parametrize(
    "assignment", [pytest.param(name, marks=one_worker(name)) for name in ASSIGNMENTS]
)
by_answer = pytest.mark.parametrize(
    ("assignment", "entry"),
    [
        pytest.param(
            name,
            entry,
            id=f"{name}-{entry.get('exercise')}-{entry.get('name')}",
            marks=one_worker(name),
        )
        for name in ASSIGNMENTS
        for entry in read_bank(name)
    ],
)


def fill_in(release, solution, answers):
    """A submission: the release with `answers` (by exercise) in its solution cells, and the solution in the others."""
    reference = {setting(cell, "grade_id"): cell.source for cell in solution.cells if setting(cell, "solution")}
    submission = nbformat.from_dict(release)
    for cell in submission.cells:
        if setting(cell, "solution"):
            cell.source = answers.get(setting(cell, "grade_id"), reference[setting(cell, "grade_id")])
    return submission


def grade_bank(assignment, entries):
    """Grade all `entries` in one batch; a function from (exercise, name) to the scores of that submission by cell."""
    answers, student_of = collections.defaultdict(dict), {("untouched", ""): "untouched", ("solution", ""): "solution"}
    for entry in entries:
        exercise = entry["exercise"]
        student = f"answer-{sum(exercise == other for other, _ in student_of):02}"
        answers[student][exercise] = entry["answer"]
        student_of[exercise, entry["name"]] = student

    solution = read_solution(assignment)
    with throwaway_course(ROOT, assignment, PatientExecute={"fenced": fence.available()}) as course:
        release = nbformat.read(notebook_of(course, "release", ".", assignment), as_version=4)
        submissions = {student: fill_in(release, solution, given) for student, given in answers.items()}
        submissions |= {"untouched": release, "solution": fill_in(release, solution, {})}
        scores, log = autograde(course, assignment, submissions)
    lost = [student for student, found in scores.items() if found is None]
    assert not lost, f"nbgrader could not grade {lost}\n{log}"
    return lambda exercise, name="": {score.cell: score for score in scores[student_of[exercise, name]]}


@pytest.fixture(scope="session")
def graded(request):
    """From an assignment to the scores of its selected answers; each assignment is graded once, when first asked."""

    done = {}

    def grade(assignment):
        if assignment not in done:
            chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
            entries = [each["entry"] for each in chosen if "entry" in each and each["assignment"] == assignment]
            try:
                done[assignment] = grade_bank(assignment, entries)
            except Exception as error:
                done[assignment] = error
        if isinstance(done[assignment], Exception):
            raise done[assignment]
        return done[assignment]

    return grade


@by_answer
def test_answer_earns_exactly_what_it_must(assignment, entry, graded):
    scores = graded(assignment)(entry["exercise"], entry["name"])
    wrong = []
    for cell in graded_cells(assignment)[entry["exercise"]]:
        score, expected = scores[cell], 0 if cell in entry["lost"] else scores[cell].out_of
        if score.points != expected:
            wrong.append(f"{cell}: {score.points:g} of {score.out_of:g} points, expected {expected:g}. {score.error}")
    if wrong:
        pytest.fail("\n".join([*wrong, "", "The answer:", entry["answer"]]), pytrace=False)


@by_assignment
def test_untouched_release_earns_nothing(assignment, graded):
    scores = graded(assignment)("untouched")
    assert {cell: score.points for cell, score in scores.items() if score.points} == {}
    assert scores


@by_assignment
def test_solution_earns_everything(assignment, graded):
    scores = graded(assignment)("solution").values()
    assert [f"{score.cell}: {score.error}" for score in scores if score.points != score.out_of] == []


@by_assignment
def test_every_graded_cell_has_right_and_wrong_answers(assignment):
    missing = []
    for exercise, cells in graded_cells(assignment).items():
        entries = [entry for entry in read_bank(assignment) if entry["exercise"] == exercise]
        right = sum(not entry["lost"] for entry in entries)
        for cell in cells:
            wrong = sum(cell in entry["lost"] for entry in entries)
            if right < RIGHT or wrong < WRONG:
                missing.append(f"{cell}: {right} right and {wrong} wrong answers; needs {RIGHT} and {WRONG}")
    assert not missing, "\n".join(missing)


@by_assignment
def test_bank_names_what_exists(assignment):
    names = collections.Counter()
    for entry in read_bank(assignment):
        assert set(entry) == {"exercise", "name", "lost", "answer"}, entry
        cells = graded_cells(assignment).get(entry["exercise"])
        assert cells, f"no exercise {entry['exercise']!r} with tests in {assignment}"
        assert set(entry["lost"]) <= set(cells), f"{entry['name']!r}: {entry['exercise']} is tested by {cells} only"
        names[entry["exercise"], entry["name"]] += 1
    assert [name for name, count in names.items() if count > 1] == []
