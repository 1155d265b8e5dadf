"""A slider where a kernel runs; the same pages folded open one by one where none does."""

import html
import re
from dataclasses import dataclass

import ipywidgets


def plain(text):
    """Return `text` so that Markdown shows it letter by letter, also in a table, in HTML, and with dollar signs."""
    return re.sub(r"[^\w ,.:'()-]|_", lambda sign: f"&#{ord(sign[0])};", text)


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

    def widget(self):
        """Return the slider with the page it shows below it."""
        last = len(self.pages) - 1
        slider = ipywidgets.IntSlider(max=last, description=self.label, continuous_update=False)
        slider.tooltip = f"{self.label} 0 to {last}"
        page = ipywidgets.Output()

        def show(change=None):
            caption, text = self.pages[slider.value]
            data = {"text/markdown": f"<b>{html.escape(caption)}</b>\n\n{text}", "text/plain": caption}
            # Set instead of captured by a `with page:` block, which nbconvert cannot run without saving widget state.
            page.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

        slider.observe(show, "value")
        show()
        return ipywidgets.VBox([slider, page])

    def _repr_mimebundle_(self, include=None, exclude=None):
        folded = "".join(
            f"<details><summary>{html.escape(caption)}</summary>\n\n{text}\n\n</details>\n\n"
            for caption, text in self.pages
        )
        plain = "\n".join(caption for caption, _ in self.pages)
        return {**self.widget()._repr_mimebundle_(), "text/markdown": folded, "text/plain": plain}
