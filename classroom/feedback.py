"""The exporter of feedback pages."""

from functools import lru_cache

import bleach
import jinja2
from nbconvert.exporters import HTMLExporter, TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.widgetsdatatypefilter import WidgetsDataTypeFilter

MARKDOWN = [
    *bleach.ALLOWED_TAGS, *"br code dd del details div dl dt h1 h2 h3 h4 h5 h6 hr p pre span summary".split(),
    *"sub sup table tbody td th thead tr".split(),
]  # fmt: skip


class Highlight(Highlight2HTML):
    """nbconvert's, with a memory: most cells are the same in all submissions of an assignment."""

    def __call__(self, source, language=None, metadata=None):
        """Colour a cell."""
        magic = (metadata or {}).get("magics_language")
        if len(source) > 10_000:
            return super().__call__(source, language, metadata)
        return _highlight(source, language or self.pygments_lexer, magic)


@lru_cache(maxsize=500)
def _highlight(source, language, magic):
    return Highlight2HTML()(source, language, {"magics_language": magic} if magic else None)


@lru_cache(maxsize=500)
def _clean(html):
    return bleach.clean(html, MARKDOWN, {"*": ["class", "id"], "a": ["href"]})


class FeedbackExporter(HTMLExporter):
    """nbconvert's, three times as fast: it compiles templates once, and does not parse the page it has just written.

    The second parse adds what nbgrader's template has no place for, and alternative texts to pictures without one.
    """

    def from_notebook_node(self, nb, resources=None, **kw):
        """Convert a notebook; as HTMLExporter does, up to the page."""
        resources = self._init_resources(resources)
        language = nb.metadata.get("language_info", {})
        lexer = language.get("pygments_lexer", language.get("name"))
        self.register_filter("highlight_code", Highlight(pygments_lexer=lexer, parent=self))
        widgets = WidgetsDataTypeFilter(notebook_metadata=self._nb_metadata, parent=self, resources=resources)
        self.register_filter("filter_data_type", widgets)
        return TemplateExporter.from_notebook_node(self, nb, resources, **kw)

    @jinja2.pass_context
    def markdown2html(self, context, source):
        """Turn Markdown into HTML that runs no script: it may be a stranger's."""
        return _clean(super().markdown2html(context, source))

    def _create_environment(self):
        environment = super()._create_environment()
        environment.bytecode_cache = jinja2.FileSystemBytecodeCache()
        return environment
