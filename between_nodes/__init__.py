"""What the chapters import beside LangGraph itself: it draws, measures and scripts the model.

Nothing here wraps LangGraph's own API, so every cell that builds or runs a graph works without the book.
`%load_ext between_nodes` makes a cell that ends in a compiled graph draw it, offline, and shortens tracebacks
to the line that names the error.
"""

from langgraph.pregel import Pregel

from .diagrams import bundle

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell):
    """Draw compiled graphs in this IPython shell and shorten tracebacks (called by `%load_ext between_nodes`)."""
    shell.display_formatter.mimebundle_formatter.for_type(
        Pregel, lambda graph, include=None, exclude=None: bundle(graph)
    )
    shell.InteractiveTB.set_mode("Minimal")


def unload_ipython_extension(shell):
    """Restore LangGraph's own display and the shell's tracebacks (called by `%unload_ext between_nodes`)."""
    shell.display_formatter.mimebundle_formatter.pop(Pregel, None)
    shell.InteractiveTB.set_mode(shell.xmode)
