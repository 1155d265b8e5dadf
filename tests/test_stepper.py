"""The slider, and the folded pages that stand in for it where no kernel runs."""

import pytest

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


def test_the_slider_says_what_it_steps_through(monkeypatch):
    import ipywidgets

    made = []
    original = ipywidgets.IntSlider
    monkeypatch.setattr(ipywidgets, "IntSlider", lambda **options: made.append(original(**options)) or made[-1])
    Stepper(PAGES, label="checkpoint")._repr_mimebundle_()
    assert [(slider.min, slider.max, slider.value, slider.description) for slider in made] == [(0, 1, 0, "checkpoint")]
    assert made[0].tooltip == "checkpoint 0 to 1"


def test_moving_the_slider_shows_that_page(monkeypatch):
    from between_nodes import stepper

    shown = []
    monkeypatch.setattr(stepper, "display", lambda page: shown.append(page.data))
    for number in range(len(PAGES)):
        Stepper(PAGES)._show(number)
    assert shown == ["<b>Step 0: &lt;b&gt;&amp;</b>\n\none `a < b`", "<b>Step 1</b>\n\n```mermaid\ngraph TD\n```"]


def test_one_page_is_enough_and_none_is_refused():
    assert "text/markdown" in Stepper([("only", "page")])._repr_mimebundle_()
    with pytest.raises(ValueError, match=r"give at least one \(caption, text\) pair"):
        Stepper([])


def test_the_static_twin_is_the_same_every_time(bundle):
    again = Stepper(PAGES, label="checkpoint")._repr_mimebundle_()
    assert again["text/markdown"] == bundle["text/markdown"]
