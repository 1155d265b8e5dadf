"""What every notebook of the book must keep to: one function a rule, each yielding (cell, what is wrong, what to do).

Rules take a Page, so they can be tried on any notebook; where it lies (chapters/, solutions/, exercises/) decides which
of them apply. `problems` words what they find.
"""

import ast
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

RULES = {}  # name of a rule: (its function, the kinds of pages it applies to)
EVERYWHERE = ("chapters", "solutions", "exercises", "texts")
NOTEBOOKS = EVERYWHERE[:3]

KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
CELL_METADATA = {"tags", "nbgrader", "jupyter", "deletable", "editable"}
TAGS = {"raises-exception", "timing"}
MACHINE_PATH = re.compile(r"/(?:home|root|tmp|Users|var/folders|private)/|\b[A-Z]:\\{1,2}\w|site-packages")
EMOJI = re.compile("[\U0001f000-\U0001faff\u2600-\u26ff\u2705\u2728\u274c\u274e\u2753-\u2757\u2795-\u2797\u2b50\ufe0f]")
UNSEEN = re.compile(r"^[ \t]*### BEGIN (HIDDEN TESTS|SOLUTION).*?### END \1[^\n]*\n?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """A cell with its place in the notebook (from 1) and its text joined."""

    number: int
    raw: dict

    @property
    def kind(self):
        return self.raw["cell_type"]

    @property
    def id(self):
        return self.raw.get("id")

    @property
    def place(self):
        return f", cell {self.number} ({self.id})" if "id" in self.raw else ""

    @property
    def source(self):
        return _text(self.raw["source"])

    @property
    def tags(self):
        return self.raw["metadata"].get("tags", [])

    @property
    def nbgrader(self):
        return self.raw["metadata"].get("nbgrader", {})

    @property
    def outputs(self):
        return self.raw.get("outputs", [])

    @property
    def is_test(self):
        return self.kind == "code" and bool(self.nbgrader.get("grade")) and not self.nbgrader.get("solution")

    @property
    def seen(self):
        """The source as a learner gets it: nbgrader's two-line stub for a solution, no hidden tests."""
        return UNSEEN.sub(lambda found: "...\n...\n" if found[1] == "SOLUTION" else "", self.source)

    @property
    def prose(self):
        """What a Markdown cell says, without code."""
        return re.sub(r"^(`{3,}|~{3,}).*?^\1|`+[^`\n]+`+|<code>.*?</code>", "", self.source, flags=re.S | re.M)


class Page:
    """A notebook, or a Markdown file taken as one Markdown cell."""

    def __init__(self, path):
        self.path = Path(path)
        text = self.path.read_text(encoding="utf-8")
        if self.path.suffix == ".ipynb":
            self.raw = json.loads(text)
        else:
            self.raw = {"cells": [{"cell_type": "markdown", "metadata": {}, "source": text}], "metadata": {}}
        self.cells = [Cell(number, raw) for number, raw in enumerate(self.raw["cells"], 1)]

    @cached_property
    def folder(self):
        """Which kind of page this is: the nearest folder that tells, else "texts"."""
        return next((part for part in reversed(self.path.parts) if part in NOTEBOOKS), "texts")

    @property
    def number(self):
        """The chapter's number, from the file's name."""
        return int(self.path.name[:2])

    @property
    def code(self):
        return [cell for cell in self.cells if cell.kind == "code"]

    @property
    def texts(self):
        return [cell for cell in self.cells if cell.kind == "markdown"]


def rule(*kinds):
    """Register a rule for pages of these `kinds`."""

    def register(function):
        RULES[function.__name__] = (function, kinds)
        return function

    return register


def problems(page, name):
    """Return what the rule called `name` finds: "notebook, cell 7 (its-id): what is wrong. What to do."."""
    return [
        f"{page.path.name}{cell.place if cell else ''}: {wrong}. {remedy}."
        for cell, wrong, remedy in RULES[name][0](page)
    ]


# Running


@rule("chapters")
def executed_in_order(page):
    """Every code cell has run, once, from top to bottom, on a fresh kernel."""
    for count, cell in enumerate((cell for cell in page.code if cell.source.strip()), 1):
        if (found := cell.raw.get("execution_count")) != count:
            yield cell, f"has execution count {found}, expected {count}", "Run `make chapters`"
            return


@rule(*NOTEBOOKS)
def errors_are_expected(page):
    """An error is the last output of a cell tagged raises-exception, and such a cell has one."""
    for cell in page.code:
        errors = [n for n, output in enumerate(cell.outputs, 1) if output["output_type"] == "error"]
        tagged = "raises-exception" in cell.tags
        if errors and not tagged:
            yield cell, f"ends in {cell.outputs[errors[0] - 1]['ename']}", "Mend it, or tag it raises-exception"
        elif errors and errors != [len(cell.outputs)]:
            yield cell, "shows something after its error", "Make the error the last thing that happens"
        elif tagged and not errors and cell.raw.get("execution_count"):
            yield cell, "is tagged raises-exception and raised nothing", "Remove the tag, or the sentence it proves"


@rule(*NOTEBOOKS)
def outputs_are_compared(page):
    """No cell opts out of the comparison with its saved output, and no tag is misspelt."""
    for cell in page.cells:
        if unknown := set(cell.tags) - TAGS:
            yield cell, f"carries the tags {sorted(unknown)}", f"Known tags are {sorted(TAGS)}"
        if re.search(r"^\s*#\s*NBVAL_", cell.source, re.MULTILINE):
            yield cell, "tells nbval to look away", "Remove the comment; make the output the same at every run"


@rule("chapters")
def timings_are_asserted(page):
    """Behind a cell whose numbers may differ comes one that asserts what they must show."""
    for cell, following in zip(page.code, [*page.code[1:], None], strict=True):
        if "timing" in cell.tags and not (following and re.search(r"\bassert\b|\bchecks\.", following.source)):
            yield (
                cell,
                "is tagged timing, and the next code cell asserts nothing",
                "Assert the claim, with a wide bound",
            )


# Files


@rule(*NOTEBOOKS)
def file_is_minimal(page):
    """The file holds nothing that differs from machine to machine: kernel details, recorded times, widget state."""
    if page.raw["metadata"] != KERNEL:
        yield (
            None,
            f"has metadata {sorted(page.raw['metadata'])}",
            f"It should be {KERNEL}, as `make chapters` leaves it",
        )
    if (page.raw["nbformat"], page.raw["nbformat_minor"]) != (4, 5):
        yield None, "is not in format 4.5", "Convert it with nbformat"
    for cell in page.cells:
        if extra := set(cell.raw["metadata"]) - CELL_METADATA:
            yield cell, f"has metadata {sorted(extra)}", "Remove it; recorded times and view states differ at every run"
        for output in cell.outputs:
            data = output.get("data", {})
            if "application/vnd.jupyter.widget-view+json" in data and "text/markdown" not in data:
                yield cell, "shows a widget that is dead without a kernel", "Show a between_nodes Stepper"


@rule(*NOTEBOOKS)
def cell_ids_are_unique(page):
    """Every cell has an id of its own, so that changes can be followed."""
    seen = set()
    for cell in page.cells:
        if not cell.id or cell.id in seen:
            yield cell, "has no id" if not cell.id else "has the id of another cell", "Give it one of its own"
        seen.add(cell.id)


@rule(*NOTEBOOKS)
def no_machine_paths(page):
    """Neither code nor outputs name a folder of the machine they were written on."""
    for cell in page.cells:
        text = cell.source + json.dumps(cell.outputs, ensure_ascii=False)
        if found := MACHINE_PATH.search(re.sub(r"base64,[^\"'\\]*", "", text)):
            yield cell, f"names a path of one machine ({found[0]})", "Print names instead of paths; see between_nodes"


@rule("chapters")
def size_is_bounded(page):
    """A chapter is at most 45 cells and 400 KB."""
    if len(page.cells) > 45:
        yield None, f"has {len(page.cells)} cells", "At most 45; cut, or move a section to another chapter"
    if (size := page.path.stat().st_size) > 400_000:
        yield None, f"has {size:,} bytes", "At most 400,000; make pictures smaller"


# Reading


@rule(*NOTEBOOKS)
def cells_are_short(page):
    """A cell has at most 25 lines that a reader sees; in chapters a line has at most 88 characters."""
    for cell in page.code:
        lines = cell.seen.splitlines()
        if len(lines) > 25:
            yield cell, f"has {len(lines)} lines", "At most 25; split it"
        if page.folder == "chapters" and (longest := max(map(len, lines), default=0)) > 88:
            yield cell, f"has a line of {longest} characters", "At most 88; break it"


@rule(*EVERYWHERE)
def prose_is_plain(page):
    """No emoji, no exclamation marks."""
    for cell in page.texts:
        prose = re.sub(r"!\[|<!--", "", cell.prose)
        if found := EMOJI.search(prose):
            yield cell, f"holds an emoji ({found[0]})", "Say it in words"
        if found := re.search(r".{,30}!", prose):
            yield cell, f"holds an exclamation mark ({found[0]})", "Say it calmly"


@rule(*EVERYWHERE)
def links_lead_somewhere(page):
    """A relative link names a file that exists, or a heading of its own page."""
    anchors = {form(heading) for cell in page.texts for heading in _headings(cell) for form in (_slug, _lab_slug)}
    for cell in page.texts:
        markdown = re.findall(r"\]\(<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", cell.prose, re.MULTILINE)
        html = re.findall(r"<(?:a|img)\b[^>]*?(?:href|src)=[\"']([^\"']+)", cell.prose)
        for target in [*(a or b for a, b in markdown), *html]:
            file, _, anchor = unquote(target).partition("#")
            if re.match(r"[a-z][a-z+.-]*:", target):
                continue
            if file and not (page.path.parent / file).exists():
                yield cell, f"links to {target}, which does not exist", "Mend the link, relative to this file"
            if not file and anchor not in anchors:
                yield cell, f"links to #{anchor}, and no heading has that name", "Mend the link"


@rule(*EVERYWHERE)
def pictures_have_words(page):
    """Every picture says in words what it shows."""
    for cell in page.cells:
        shown = [cell.source] if cell.kind == "markdown" else []
        for output in cell.outputs:
            data = output.get("data", {})
            shown += [_text(data[kind]) for kind in ("text/markdown", "text/html") if kind in data]
            if images := [kind for kind in data if kind.startswith("image/")]:
                yield cell, f"shows {images[0]}, which has no words", "Show it with between_nodes.diagrams.picture"
        for text in shown:
            for image in re.findall(r"<img\b[^>]*>", text):
                if not re.search(r"\balt=(\"[^\"]*\w[^\"]*\"|'[^']*\w[^']*')", image):
                    yield cell, "shows an <img> without alt", "Say in alt what it shows"
            if re.search(r"!\[\s*\]", text):
                yield cell, "shows a picture without words", "Write ![what it shows](...)"
            for fence in re.findall(r"^```\s*mermaid\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
                if not all(re.search(rf"{word}\s*:\s*\w", fence) for word in ("accTitle", "accDescr")):
                    yield cell, "draws a mermaid picture without words", "Give it accTitle: and accDescr:"


@rule("chapters")
def sections_are_numbered(page):
    """One title "N · ..."; sections "N.1 ...", "N.2 ..." without a gap, because exercises refer to them by number."""
    headings = [(cell, heading) for cell in page.texts for heading in _headings(cell)]
    titles = [heading for _, heading in headings if heading.startswith("# ")]
    if len(titles) != 1 or not titles[0].startswith(f"# {page.number} · "):
        yield None, f"has the titles {titles}", f"It should have one: # {page.number} · ..."
    numbered = [(cell, found[1]) for cell, text in headings if (found := re.match(r"## (\d+\.\d+) ", text))]
    for count, (cell, number) in enumerate(numbered, 1):
        if number != f"{page.number}.{count}":
            yield cell, f"has section {number}, expected {page.number}.{count}", "Number sections without a gap"
            return
    if not numbered:
        yield None, "has no numbered sections", f"Write ## {page.number}.1 ..."


@rule("chapters")
def chapter_is_complete(page):
    """A chapter opens with what the reader will be able to do and ends with rules, questions and where to go on."""
    prose = "\n".join(cell.source for cell in page.texts)
    if "After this chapter you can" not in page.cells[0].source:
        yield page.cells[0], "does not say what the reader will be able to do", "Write: After this chapter you can ..."
    if page.number == 0:
        return
    if not re.search(r"^\|\s*rule\s*\|.*\n\|[\s:|-]+\n\|", prose, re.MULTILINE | re.IGNORECASE):
        yield None, "has no table of rules", "End with | rule | shown in |"
    questions = re.findall(r"<details>\s*<summary>.*?</summary>[ \t]*(\n[ \t]*\n)?", prose, re.DOTALL)
    if len(questions) < 5:
        yield None, f"has {len(questions)} questions to check oneself", "Write five, answers in <details>"
    if not all(questions):
        yield None, "has an answer that JupyterLab shows as raw text", "Leave a blank line behind </summary>"
    if f"../exercises/{page.path.stem}/{page.path.stem}.ipynb" not in prose:
        yield None, "does not link to its exercises", f"Link ../exercises/{page.path.stem}/{page.path.stem}.ipynb"


# Exercises


@rule(*NOTEBOOKS)
def sections_referred_to_exist(page):
    """A failing test sends the reader to a section that exists."""
    chapters = next((folder for folder in page.path.parents if (folder / "chapters").is_dir()), page.path) / "chapters"
    for cell in page.code:
        for number in sorted(set(re.findall(r"\bsee=[\"'](\d+\.\d+)", cell.source))):
            found = chapters.glob(f"{int(number.partition('.')[0]):02}_*.ipynb")
            if not any(re.search(rf'"## {re.escape(number)} ', path.read_text(encoding="utf-8")) for path in found):
                yield cell, f"sends the reader to section {number}, which does not exist", "Name one that does"


@rule("solutions")
def points_add_up(page):
    """The points in an exercise's heading are those of its tests, and all of them make 20."""
    stated = {}  # heading's cell: [points it states, points of the tests below it]
    for cell in page.cells:
        found = re.search(r"^#+ .*\((\d+) points?\)", cell.source, re.MULTILINE) if cell.kind == "markdown" else None
        if found:
            stated[cell.number] = [cell, int(found[1]), 0]
        if cell.nbgrader.get("grade"):
            if not stated:
                yield cell, "gives points before any heading states them", 'Write "## Exercise 1 · build (4 points)"'
                return
            stated[max(stated)][2] += cell.nbgrader["points"]
    for cell, says, has in stated.values():
        if says != has:
            yield cell, f"states {says} points, and its tests give {has:g}", "Make them agree"
    if (total := sum(has for *_, has in stated.values())) != 20:
        yield None, f"gives {total:g} points", "An assignment gives 20"
    if len(stated) < 6:
        yield None, f"has {len(stated)} exercises", "An assignment has at least six"


@rule("solutions", "exercises")
def tests_are_silent(page):
    """A test shows nothing: nbgrader takes the value of a last line for a partial score, and a reader reads it.

    (What a call in the last line returns is seen when the solutions run, see conftest.py.)
    """
    for cell in page.code:
        for source in {cell.source, cell.seen} if cell.is_test else ():
            body = ast.parse(source).body
            calls = {ast.unparse(node.func) for node in ast.walk(ast.Module(body, [])) if isinstance(node, ast.Call)}
            if calls & {"print", "display"}:
                yield cell, "prints or displays something", "A test that passes is silent"
            if body and isinstance(body[-1], ast.Expr) and not isinstance(body[-1].value, ast.Call):
                yield cell, f"ends in the expression {ast.unparse(body[-1])[:40]}", "Assign it to a name, or assert it"


def _text(value):
    return value if isinstance(value, str) else "".join(value)


def _headings(cell):
    return re.findall(r"^#{1,6} .+", re.sub(r"^```.*?^```", "", cell.source, flags=re.S | re.M), re.MULTILINE)


def _slug(heading):
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"[*`]|\[([^\]]*)\]\([^)]*\)", r"\1", heading.lstrip("#").strip())
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def _lab_slug(heading):
    """The anchor that JupyterLab makes of a heading."""
    return heading.lstrip("#").strip().replace(" ", "-")
