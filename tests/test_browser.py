"""The book as its readers see it: every chapter in a real JupyterLab in a real browser, in light and dark, offline.

Needs Chromium: the machine's own, the one that `make browser` installs, or the one that BROWSER_PATH names. Where there
is none these tests do not run and the closing summary says so; on CI they fail. `pytest tests/test_browser.py
--screenshots DIR` also saves the first screen of every chapter in both themes.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("chapters/*.ipynb"))]
EXERCISES = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("exercises/*/*.ipynb"))]
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Everything is drawn, also below the fold; so that what is measured does not depend on the window.
SETTINGS = {"@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"}}
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
# Rules that the author of a page can break, and where; Lab's own frame is Lab's business.
AXE_RULES = ["color-contrast", "link-name", "list", "listitem", "empty-heading", "summary-name"]
AXE_PARTS = [".jp-MarkdownOutput", ".jp-OutputArea-output"]

CURRENT = "jupyterapp.shell.currentWidget"
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden)"
IS_OPEN = f"""path => {CURRENT}?.context?.path === path && {CURRENT}.context.isReady
    && {CURRENT}.sessionContext.session?.kernel?.status === 'idle'"""
IS_DRAWN = f"""fences => document.querySelectorAll('{PANEL} .jp-RenderedMermaid').length >= fences
    && [...document.querySelectorAll('{PANEL} .jp-Notebook img')].every(image => image.complete)"""


def find_browser(playwright):
    """Path of a Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = [os.environ.get("BROWSER_PATH"), *map(shutil.which, names), playwright.chromium.executable_path]
    return next((path for path in found if path and Path(path).exists()), None)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        if not (path := find_browser(playwright)):
            missing = "browser tests need Chromium: `make browser` installs one, BROWSER_PATH names another"
            pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A copy of what readers open, so that no test can change it."""
    folder = tmp_path_factory.mktemp("book")
    for name in ("chapters", "exercises", "solutions"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".*"))
    for name in ("README.md", "requirements.txt"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def lab(book, tmp_path_factory):
    """Address of a JupyterLab with the book's settings."""
    own = tmp_path_factory.mktemp("lab")
    for name, values in SETTINGS.items():
        path = own / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [
        "--no-browser",
        "--allow-root",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={book}",
        f"--LabApp.user_settings_dir={own / 'settings'}",
        f"--LabApp.workspaces_dir={own / 'workspaces'}",
        "--LabApp.expose_app_in_browser=True",
    ]
    with (own / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            env={**os.environ, "JUPYTER_RUNTIME_DIR": str(own / "runtime")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{address}/api", timeout=2).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < end, (own / "log").read_text()
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()


@pytest.fixture(scope="module")
def page(browser, lab):
    """One JupyterLab for all tests; `page.complaints` collects console errors and requests to other machines."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(f"error: {error}"))
    page.on("console", lambda message: message.type == "error" and page.complaints.append(message.text))

    def stay_here(route):
        if route.request.url.startswith((lab, "data:", "blob:")):
            return route.continue_()
        page.complaints.append(f"request to {route.request.url}")
        return route.abort()

    page.route("**/*", stay_here)
    page.goto(lab)
    page.add_style_tag(content="body { height: 100vh }")  # Lab's is 0 high, and axe takes all in it for invisible
    page.wait_for_function(f"path => window.jupyterapp?.restored && ({IS_OPEN})(path)", arg=CHAPTERS[0])
    return page


def show(page, path, fences=0):
    page.evaluate("path => jupyterapp.commands.execute('docmanager:open', { path }).then(() => {})", path)
    page.wait_for_function(IS_OPEN, arg=path)
    page.wait_for_function(IS_DRAWN, arg=fences)


def read(book, path):
    """Cells of a notebook, and the number of mermaid fences in its texts and outputs."""
    cells = json.loads((book / path).read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    for cell in cells:
        for output in cell.get("outputs", []):
            texts.append("".join(output.get("data", {}).get("text/markdown", "")))
    return cells, sum(len(re.findall(r"^```mermaid$", text, re.MULTILINE)) for text in texts)


def plain(cells):
    """What a reader sees of cells, however their text is stored."""
    return [(cell["cell_type"], cell["id"], "".join(cell["source"]), len(cell.get("outputs", []))) for cell in cells]


def test_the_book_opens_at_its_first_chapter(page):
    page.wait_for_function(IS_OPEN, arg=CHAPTERS[0])  # its kernel may be busy for a moment


def look(page, book, path, screenshots=None):
    """Open a notebook and return what a reader would complain about, in light and dark."""
    cells, fences = read(book, path)
    show(page, path, fences)
    wrong = []
    if (drawn := page.locator(f"{PANEL} .jp-RenderedMermaid img").count()) != fences:
        wrong.append(f"{fences - drawn} of {fences} mermaid pictures were not drawn")
    if plain(page.evaluate(f"() => {CURRENT}.model.toJSON().cells")) != plain(cells):
        wrong.append("JupyterLab changed a cell on opening")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for theme, name in THEMES.items():
        page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme }).then(() => {})", name)
        page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light", arg=str(theme == "light").lower()
        )
        page.wait_for_function(IS_DRAWN, arg=fences)
        found = page.evaluate(
            "([include, rules]) => axe.run({ include }, { runOnly: rules, resultTypes: ['violations'] })",
            [[f"{PANEL} {part}" for part in AXE_PARTS if page.locator(f"{PANEL} {part}").count()], AXE_RULES],
        )["violations"]
        wrong += [f"{theme}: {rule['help']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]]
        if screenshots:
            page.screenshot(path=Path(screenshots) / f"{Path(path).stem}-{theme}.png")
    return wrong


@pytest.mark.parametrize("path", CHAPTERS)
def test_a_chapter_reads_well(page, book, path, request):
    assert look(page, book, path, request.config.getoption("--screenshots")) == []


def test_a_page_that_reads_badly_is_seen(page, book):
    texts = [
        '<p style="color: #999; background: #fff">Pale</p><a href="README.md"></a>',
        "```mermaid\ngraph TD\n  a --\n```",
    ]
    cells = [{"cell_type": "markdown", "id": f"c{n}", "metadata": {}, "source": text} for n, text in enumerate(texts)]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    bad = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (book / "bad.ipynb").write_text(json.dumps(bad), encoding="utf-8")
    wrong = "\n".join(look(page, book, "bad.ipynb"))
    for words in (
        "1 of 1 mermaid",
        "light: Elements must meet",
        "dark: Elements must meet",
        "Links must",
    ):
        assert words in wrong


def test_a_link_opens_the_next_chapter(page):
    show(page, CHAPTERS[0])
    page.locator(f"{PANEL} a[href*='{Path(CHAPTERS[1]).name}']").last.click()
    page.wait_for_function(IS_OPEN, arg=CHAPTERS[1])


def test_validate_says_what_an_untouched_exercise_lacks(page):
    show(page, EXERCISES[0])
    page.locator(f"{PANEL} .jp-Toolbar").get_by_text("Validate").click()
    dialog = page.locator(".jp-Dialog")
    dialog.get_by_text("failed").first.wait_for()
    assert "NotImplementedError" in dialog.inner_text()
    dialog.locator("button").last.click()


def test_nothing_went_wrong_and_nothing_left_this_machine(page):
    """Runs last: neither console errors nor requests to other machines in all of the above."""
    assert page.complaints == []
