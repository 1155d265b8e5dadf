"""The book keeps to the rules of tests/structure.py, and every rule is proven on a notebook that breaks it."""

import copy
import json
import re
from pathlib import Path

import pytest
from structure import EVERYWHERE, RULES, Page, problems

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *sorted(ROOT.glob("chapters/*.ipynb")),
    *sorted(ROOT.glob("solutions/*/*.ipynb")),
    *sorted(ROOT.glob("exercises/*/*.ipynb")),
    *sorted(ROOT.glob("*.md")),
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_page_keeps_to_the_rules(path):
    page = Page(path)
    found = [found for name, (_, kinds) in RULES.items() if page.folder in kinds for found in problems(page, name)]
    assert not found, "\n".join(["", *found])


def test_every_chapter_has_its_assignment_and_its_line_in_the_readme():
    chapters, solutions, exercises = (
        {path.stem for path in ROOT.glob(pattern)}
        for pattern in ("chapters/*.ipynb", "solutions/*/*.ipynb", "exercises/*/*.ipynb")
    )
    assert chapters, "there are no chapters"
    taught = {name for name in chapters if not name.startswith("00")}
    assert solutions == taught, "solutions/NN_topic/NN_topic.ipynb belongs to chapters/NN_topic.ipynb, from 01 on"
    assert exercises == solutions, "run `make exercises`"
    listed = set(re.findall(r"\(chapters/(\w+)\.ipynb\)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert listed == chapters, "the README's map lists every chapter"


# Each rule, on a page that keeps to it and on pages that do not


def markdown(text):
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code(text, *, tags=(), outputs=(), **nbgrader):
    metadata = {"tags": list(tags)} if tags else {}
    if nbgrader:
        metadata["nbgrader"] = {"grade": False, "solution": False, "locked": True, "schema_version": 3, **nbgrader}
    return {"cell_type": "code", "execution_count": None, "metadata": metadata, "outputs": [*outputs], "source": text}


def shown(**data):
    return {"output_type": "display_data", "metadata": {}, "data": {k.replace("_", "/"): v for k, v in data.items()}}


ERROR = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["ValueError: no"]}
MERMAID = "```mermaid\ngraph TD\n  accTitle: Two nodes\n  accDescr: a to b\n  a --> b\n```"
QUESTION = "<details><summary>Why?</summary>\n\nBecause.\n\n</details>"


def chapter():
    """Cells of a chapter that keeps to the rules."""
    end = f"| rule | shown in |\n|---|---|\n| It holds. | 1.1 |\n\n{QUESTION * 5}\n\n"
    return [
        markdown("# 1 · A small loss\n\nIt goes wrong. After this chapter you can\n\n- mend it."),
        code("import between_nodes"),
        markdown(f"## 1.1 Does it fail?\n\nYes; see [below](#1.2-Is-it-slow?).\n\n{MERMAID}"),
        code("raise ValueError('no')", tags=["raises-exception"], outputs=[ERROR]),
        markdown("## 1.2 Is it slow?\n\n`not x != y`"),
        code("print(took)", tags=["timing"], outputs=[shown(text_html='<img alt="Bars" src="data:,">')]),
        code("assert took < 9"),
        markdown(f"{end}[Exercises](../exercises/01_small/01_small.ipynb)"),
    ]


def solution():
    """Cells of an assignment that keeps to the rules."""
    cells = [markdown("# Exercises 1\n\n20 points in six exercises.")]
    for number, points in enumerate([4, 4, 4, 4, 2, 2], 1):
        cells += [
            markdown(f"## Exercise {number} · build ({points} points)\n\nWrite `f`."),
            code("### BEGIN SOLUTION\nf = len\n### END SOLUTION", grade_id=f"f{number}", solution=True, locked=False),
            code('_checks.equal(f("ab"), 2, tried="two", see="1.1")', grade_id=f"t{number}", grade=True, points=points),
        ]
    return cells


GOOD = {"chapters": chapter, "solutions": solution, "exercises": solution}
PLACES = {"chapters": "chapters/01_small.ipynb"} | {
    folder: f"{folder}/01_small/01_small.ipynb" for folder in ("solutions", "exercises")
}


def write(folder, cells, metadata=None, minor=5):
    """Write a small book to `folder` (a mapping from kind to cells) and return the pages by kind."""
    pages = {}
    for kind, place in PLACES.items():
        notebook = {"cells": copy.deepcopy(cells.get(kind) or GOOD[kind]()), "nbformat": 4, "nbformat_minor": minor}
        kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        notebook["metadata"] = kernel | (metadata or {})
        codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, cell in enumerate(notebook["cells"]):
            cell.setdefault("id", f"cell-{number}")
        for count, cell in enumerate(codes, 1):
            cell["execution_count"] = cell["execution_count"] or (count if kind == "chapters" else None)
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1), encoding="utf-8")
        pages[kind] = path
    return pages


def test_a_good_book_has_no_problems(tmp_path):
    for path in write(tmp_path, {}).values():
        test_page_keeps_to_the_rules(path)


def change(kind, number, **fields):
    """Cells of a good page of this kind, with `fields` of cell `number` changed ("source" may be a function)."""
    cells = GOOD[kind]()
    for name, value in fields.items():
        cells[number][name] = value(cells[number][name]) if callable(value) else value
    return {kind: cells}


def add(kind, *cells):
    """Cells of a good page of this kind with `cells` behind them."""
    return {kind: [*GOOD[kind](), *cells]}


BROKEN = [
    ("executed_in_order", change("chapters", 3, execution_count=7), {}),
    ("errors_are_expected", change("chapters", 3, metadata={}), {}),
    ("errors_are_expected", change("chapters", 3, outputs=[]), {}),
    ("errors_are_expected", change("chapters", 3, outputs=[ERROR, shown(text_plain="x")]), {}),
    ("outputs_are_compared", add("chapters", code("x", tags=["nbval-skip"])), {}),
    ("outputs_are_compared", add("solutions", code("# NBVAL_IGNORE_OUTPUT\nx")), {}),
    ("timings_are_asserted", change("chapters", 6, source="took"), {}),
    ("timings_are_asserted", add("chapters", code("x", tags=["timing"])), {}),
    ("file_is_minimal", {}, {"metadata": {"language_info": {"name": "python"}}}),
    ("file_is_minimal", {}, {"metadata": {"widgets": {}}}),
    ("file_is_minimal", {}, {"minor": 4}),
    ("file_is_minimal", change("chapters", 1, metadata={"execution": {"iopub.status.busy": "2026-01-01"}}), {}),
    (
        "file_is_minimal",
        change("chapters", 1, outputs=[shown(**{"application_vnd.jupyter.widget-view+json": {}})]),
        {},
    ),
    ("cell_ids_are_unique", change("chapters", 1, id="cell-0"), {}),
    ("cell_ids_are_unique", change("solutions", 1, id=""), {}),
    ("no_machine_paths", change("chapters", 1, source="open('/home/ada/notes')"), {}),
    ("no_machine_paths", change("chapters", 1, outputs=[shown(text_plain="PosixPath('/tmp/x')")]), {}),
    ("no_machine_paths", change("exercises", 1, source=r"See C:\Users"), {}),
    ("size_is_bounded", add("chapters", *[markdown("More.")] * 38), {}),
    ("size_is_bounded", add("chapters", markdown("More. " * 70_000)), {}),
    ("cells_are_short", change("chapters", 1, source="x = 1\n" * 26), {}),
    ("cells_are_short", change("chapters", 1, source="x = '" + "x" * 90 + "'"), {}),
    ("prose_is_plain", add("chapters", markdown("It works!")), {}),
    ("prose_is_plain", add("exercises", markdown("It works \N{PARTY POPPER}")), {}),
    ("links_lead_somewhere", add("chapters", markdown("[next](02_gone.ipynb)")), {}),
    ("links_lead_somewhere", add("chapters", markdown('<a href="../gone.md">x</a>')), {}),
    ("links_lead_somewhere", add("chapters", markdown("[above](#1.3-Gone)")), {}),
    ("pictures_have_words", add("chapters", markdown("![](../README.md)")), {}),
    ("pictures_have_words", add("chapters", markdown("```mermaid\ngraph TD\n  a --> b\n```")), {}),
    ("pictures_have_words", change("chapters", 1, outputs=[shown(image_png="iVBO")]), {}),
    ("pictures_have_words", change("chapters", 1, outputs=[shown(text_html='<img alt="" src="x">')]), {}),
    ("sections_are_numbered", change("chapters", 4, source=lambda text: text.replace("1.2", "1.3")), {}),
    ("sections_are_numbered", change("chapters", 0, source=lambda text: text.replace("1 ·", "2 ·")), {}),
    ("sections_are_numbered", {"chapters": [markdown("# 1 · Nothing")]}, {}),
    ("chapter_is_complete", change("chapters", 0, source="# 1 · A small loss"), {}),
    ("chapter_is_complete", change("chapters", 7, source=lambda text: text.replace("| rule", "| row")), {}),
    ("chapter_is_complete", change("chapters", 7, source=lambda text: text.replace(QUESTION, "", 1)), {}),
    ("chapter_is_complete", change("chapters", 7, source=lambda text: text.replace("</summary>\n", "</summary>")), {}),
    ("chapter_is_complete", change("chapters", 7, source=lambda text: text.replace("../exercises", "..")), {}),
    ("sections_referred_to_exist", change("solutions", 3, source='equal(1, 1, tried="x", see="1.9")'), {}),
    ("points_add_up", change("solutions", 1, source="## Exercise 1 · build (5 points)"), {}),
    ("points_add_up", {"solutions": solution()[:-3]}, {}),
    ("points_add_up", {"solutions": solution()[2:]}, {}),
    ("tests_are_silent", change("solutions", 3, source="f('ab') == 2"), {}),
    ("tests_are_silent", change("solutions", 3, source="print(f('ab'))\nassert f"), {}),
    (
        "tests_are_silent",
        change("solutions", 3, source="f\n### BEGIN HIDDEN TESTS\nassert f\n### END HIDDEN TESTS"),
        {},
    ),
]


@pytest.mark.parametrize(("name", "cells", "options"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_a_broken_page_is_named(name, cells, options, tmp_path):
    kind = next(iter(cells), "chapters")
    path = write(tmp_path, cells, **options)[kind]
    found = problems(Page(path), name)
    assert found, "the rule saw nothing"
    assert all(line.startswith(path.name) for line in found)


def test_every_rule_has_a_broken_page():
    assert {name for name, *_ in BROKEN} == set(RULES)
    assert all(set(kinds) <= set(EVERYWHERE) for _, kinds in RULES.values())
