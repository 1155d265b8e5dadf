"""A slider where a kernel runs; the same pages folded open one by one where none does."""

import html
from dataclasses import dataclass

import ipywidgets
from IPython.display import Markdown, display


@dataclass(frozen=True)
class Stepper:
    """Pages to step through: `pages` is a list of ``(caption, Markdown text)``, `label` names what a step is.

    Captions are plain text. Raises ValueError without pages.
    """

    pages: list[tuple[str, str]]
    label: str = "step"

    def __post_init__(self):
        if not self.pages:
            raise ValueError("pages: give at least one (caption, text) pair")

    def _show(self, number):
        caption, text = self.pages[number]
        display(Markdown(f"<b>{html.escape(caption)}</b>\n\n{text}"))

    def _repr_mimebundle_(self, include=None, exclude=None):
        last = len(self.pages) - 1
        slider = ipywidgets.IntSlider(value=0, min=0, max=last, description=self.label, continuous_update=False)
        slider.tooltip = f"{self.label} 0 to {last}"
        widget = ipywidgets.interactive(self._show, number=slider)
        folded = "".join(
            f"<details><summary>{html.escape(caption)}</summary>\n\n{text}\n\n</details>\n\n"
            for caption, text in self.pages
        )
        plain = "\n".join(caption for caption, _ in self.pages)
        return {**widget._repr_mimebundle_(), "text/markdown": folded, "text/plain": plain}
