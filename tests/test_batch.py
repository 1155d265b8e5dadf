"""Grading a folder of submissions: nothing lost, nothing twice, and what people entered by hand stays."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from nbformat.v4 import new_markdown_cell
from nbgrader.api import Base, Gradebook
from nbgrader.apps import ExportApp
from nbgrader.plugins import CsvExportPlugin
from sqlalchemy import create_engine
from test_grading import answer, edit, write_solution

from classroom import ROOT, batch, fence
from classroom.course import open_course, release_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),
    pytest.mark.filterwarnings("ignore:Passing unrecognized arguments:DeprecationWarning"),  # nbgrader's own calls
    pytest.mark.skipif(not fence.available(), reason="there is no bubblewrap here"),
]
SMALL = "98_small"
RIGHT = "def double(x):\n    return x + x"
RUN = "import sys\nfrom pathlib import Path\nfrom classroom import batch\n\nif __name__ == '__main__':\n    sys.exit(batch.main(Path('in'), Path.cwd(), workers=2))\n"  # noqa: E501


@pytest.fixture
def course(tmp_path, monkeypatch):
    """The root of a course with one small assignment, and in its folder `in` six submissions worth 3 of 4 points."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    write_solution(tmp_path)
    (tmp_path / "grading").mkdir()
    Base.metadata.create_all(create_engine(f"sqlite:///{tmp_path}/grading/gradebook.db"))  # nbgrader takes 2 s to do it
    (tmp_path / "run.py").write_text(RUN)
    for number in range(6):
        submit(tmp_path, f"student {number}", RIGHT)
    return tmp_path


def submit(root, student, text):
    path = root / "in" / student / SMALL / f"{SMALL}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(release_of(root, SMALL))
    edit(path, answer(text))


def records(root):
    return {path.stem: path.stat().st_mtime_ns for path in root.glob(f"grading/records/{SMALL}/*.json")}


def in_gradebook(root):
    with Gradebook(open_course(root).coursedir.db_url) as gradebook:
        return {each.student_id: each.score for each in gradebook.assignment_submissions(SMALL)}


def in_table(root):
    with (root / "grading" / "scores.csv").open(encoding="utf-8") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def test_a_killed_run_goes_on_where_it_was(course):
    """Twice killed with the first records there: in the end each is graded, none twice, and no process is left."""
    kept = {}
    for _ in range(2):
        run = subprocess.Popen([sys.executable, "run.py"], cwd=course, stderr=subprocess.PIPE)
        while len(records(course)) <= len(kept) and run.poll() is None:
            time.sleep(0.01)
        family = psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []
        run.send_signal(signal.SIGKILL)
        run.communicate()
        assert psutil.wait_procs(family, timeout=20)[1] == []
        found = records(course)
        assert {name: found[name] for name in kept} == kept
        kept = found
    assert 2 <= len(kept)
    subprocess.run([sys.executable, "run.py"], cwd=course, check=True, capture_output=True, timeout=120)
    found = records(course)
    assert {name: found[name] for name in kept} == kept
    assert in_gradebook(course) == {f"student {number}": 3 for number in range(6)}
    assert {name: row["score"] for name, row in in_table(course).items()} == {name: "3.0" for name in found}
    assert not (course / "grading" / "work").exists()


def test_only_what_changed_is_graded_again_and_manual_scores_stay(course, capsys):
    assert batch.main(course / "in", course, workers=2) == 0
    first = records(course)
    with Gradebook(open_course(course).coursedir.db_url) as gradebook:
        gradebook.find_grade("double_more", SMALL, SMALL, "student 1").manual_score = 0.5
        gradebook.find_comment("double", SMALL, SMALL, "student 1").manual_comment = "See me."
        gradebook.db.commit()
    submit(course, "student 1", "def double(x):\n    return 4")
    submit(course, "student 9", "def double(x):\n    return 2 * x")
    assert batch.main(course / "in", course, workers=2) == 0
    assert {name for name, time in records(course).items() if first.get(name) != time} == {"student 1", "student 9"}
    assert in_table(course)["student 1"]["score"] == "1.0"
    with Gradebook(open_course(course).coursedir.db_url) as gradebook:
        grade = gradebook.find_grade("double_more", SMALL, SMALL, "student 1")
        assert (grade.auto_score, grade.manual_score, grade.needs_manual_grade) == (0, 0.5, True)
        assert gradebook.find_comment("double", SMALL, SMALL, "student 1").comment == "See me."
    assert "7" in capsys.readouterr().out.splitlines()[-2]


def test_results_are_where_nbgrader_looks_for_them(course):
    (course / "in").rename(course / "grading" / "submitted")
    (course / "in").symlink_to(course / "grading" / "submitted")
    for folder in course.glob(f"in/*/{SMALL}"):  # as the exchange has them
        (folder / "timestamp.txt").write_text("2026-01-01 12:00:00.000000 UTC")
        (folder / "submission_secret.txt").write_text(folder.parent.name)
    assert batch.main(course / "in", course, workers=2) == 0
    for student in "student 0", "student 5":
        assert "double" in (course / f"grading/feedback/{student}/{SMALL}/{SMALL}.html").read_text(encoding="utf-8")
        nbformat.read(course / f"grading/autograded/{student}/{SMALL}/{SMALL}.ipynb", as_version=4)
    released = open_course(course).release_feedback(SMALL)
    assert released["success"], released
    assert len(list(course.glob("grading/exchange/*/feedback/*.html"))) == 6
    CsvExportPlugin(parent=ExportApp(config=open_course(course).config), to=str(course / "grades.csv")).export(
        Gradebook(open_course(course).coursedir.db_url)
    )
    with (course / "grades.csv").open() as file:
        exported = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert exported == {name: float(row["score"]) for name, row in in_table(course).items()}


def test_feedback_pages_run_no_script_of_a_stranger(course):
    for number in range(1, 6):
        shutil.rmtree(course / "in" / f"student {number}")
    script = "<script>alert(1)</script><b onclick='alert(1)'>bold</b>"
    submit(course, "student 0", f"{RIGHT}\n\nfrom IPython.display import HTML, Markdown, display\n"
           f"display(HTML({script!r}), Markdown({script!r}))")  # fmt: skip
    path = course / "in" / "student 0" / SMALL / f"{SMALL}.ipynb"
    edit(path, lambda cells, notebook: notebook.cells.append(new_markdown_cell(script)))
    assert batch.main(course / "in", course, workers=1) == 0
    page = (course / f"grading/feedback/student 0/{SMALL}/{SMALL}.html").read_text(encoding="utf-8")
    assert page.count("<b>bold</b>") == 3
    assert "<script>alert" not in page and "<b onclick" not in page


def test_two_runs_do_not_share_a_gradebook(course):
    with batch._only_one(course), pytest.raises(SystemExit, match=r"Another .make grade. is writing"):
        batch.main(course / "in", course)


def test_strangers_work_waits_for_a_fence(course, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        assert batch.main(course / "in", course) == 2
    said = capsys.readouterr().out
    assert "apt install bubblewrap" in said and "UNFENCED=1" in said
    assert records(course) == {}
    for number in range(1, 6):
        shutil.rmtree(course / "in" / f"student {number}")
    assert batch.main(course / "in", course, fenced=False, workers=1) == 0
    assert in_gradebook(course) == {"student 0": 3}


def test_what_lies_in_the_folder_by_mistake_is_named(course, capsys):
    shutil.rmtree(course / "in")
    (course / "in" / "anna" / "97_other").mkdir(parents=True)
    (course / "in" / "bob.ipynb").write_text("")
    (course / "in" / "eve" / SMALL).mkdir(parents=True)
    assert batch.main(course / "in", course) == 0
    said = capsys.readouterr().out
    assert "anna/97_other is not" in said and "bob.ipynb is not" in said
    assert in_table(course)["eve"]["status"] == "not graded"
    assert f"Submit {SMALL}.ipynb" in in_table(course)["eve"]["reason"]
    assert in_gradebook(course) == {}
    assert batch.main(course / "nowhere", course) == 2


def test_a_record_tells_all(course):
    for number in range(1, 6):
        shutil.rmtree(course / "in" / f"student {number}")
    batch.main(course / "in", course, workers=1)
    record = json.loads((course / f"grading/records/{SMALL}/student 0.json").read_text())
    assert record["cells"] == {"double_shape": 1, "double_more": 2, "word_right": 0}
    assert (record["score"], record["max_score"], record["status"]) == (3, 4, "graded")
