"""The slider, and the folded pages that stand in for it where no kernel runs."""

import nbformat
import pytest
from nbconvert.preprocessors import ExecutePreprocessor

from between_nodes.stepper import Stepper

PAGES = [("Step 0: <b>&", "one `a < b`"), ("Step 1", "```mermaid\ngraph TD\n```")]


@pytest.fixture
def bundle():
    return Stepper(PAGES, label="checkpoint")._repr_mimebundle_()


def test_a_widget_a_static_twin_and_plain_text_are_in_one_output(bundle):
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "text/markdown", "text/plain"}
    assert bundle["text/plain"] == "Step 0: <b>&\nStep 1"
    assert bundle["text/markdown"] == (
        "<details><summary>Step 0: &lt;b&gt;&amp;</summary>\n\none `a < b`\n\n</details>\n\n"
        "<details><summary>Step 1</summary>\n\n```mermaid\ngraph TD\n```\n\n</details>\n\n"
    )


def test_the_slider_says_what_it_steps_through():
    slider, _ = Stepper(PAGES, label="checkpoint").widget().children
    assert (slider.min, slider.max, slider.value, slider.description) == (0, 1, 0, "checkpoint")
    assert slider.tooltip == "checkpoint 0 to 1"


def test_moving_the_slider_shows_that_page():
    slider, page = Stepper(PAGES).widget().children
    shown = []
    for slider.value in (0, 1, 0):
        (output,) = page.outputs
        shown.append(output["data"]["text/markdown"])
    assert shown[0] == shown[2] == "<b>Step 0: &lt;b&gt;&amp;</b>\n\none `a < b`"
    assert shown[1] == "<b>Step 1</b>\n\n```mermaid\ngraph TD\n```"


def test_nbconvert_runs_it_without_saving_widget_state():
    code = "from between_nodes.stepper import Stepper\nStepper([('a', 'b'), ('c', 'd')])"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    ExecutePreprocessor(store_widget_state=False, record_timing=False, timeout=30).preprocess(notebook)
    (output,) = notebook.cells[0].outputs
    assert "<summary>c</summary>" in output.data["text/markdown"]


def test_one_page_is_enough_and_none_is_refused():
    assert "text/markdown" in Stepper([("only", "page")])._repr_mimebundle_()
    with pytest.raises(ValueError, match=r"give at least one \(caption, text\) pair"):
        Stepper([])


def test_the_static_twin_is_the_same_every_time(bundle):
    again = Stepper(PAGES, label="checkpoint")._repr_mimebundle_()
    assert again["text/markdown"] == bundle["text/markdown"]
