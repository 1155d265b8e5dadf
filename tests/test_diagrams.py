"""The pictures of compiled graphs, and what `%load_ext between_nodes` changes in a shell."""

import re
import socket
from typing import Literal, TypedDict

import pytest
from IPython.core.interactiveshell import InteractiveShell
from langgraph.graph import END, START, StateGraph
from traitlets.config import Config

from between_nodes import diagrams

ODD_NAMES = [
    "end",
    "start",
    "a(b)",
    'quo"te',
    "ha#sh",
    "<b>bold</b>",
    "back`tick",
    "```",
    "[square]",
    "{curly}",
    "节点",
    "two\nlines",
    "1. item",
    "- item",
    "**stars**",
    "a;b",
    "%%{init}%%",
    "$$x$$",
    "&amp;",
    "back\\slash",
    "subgraph",
    "style",
    "x" * 200,
]


class Counter(TypedDict):
    n: int


def chain(*names, then=END):
    """Compile nodes that run one after the other."""
    builder = StateGraph(Counter)
    for name in names:
        builder.add_node(name, lambda state: None)
    for source, target in zip((START, *names), (*names, then), strict=True):
        builder.add_edge(source, target)
    return builder.compile()


def loop(router, path_map=None):
    builder = StateGraph(Counter).add_node("draft", lambda state: None).add_node("review", lambda state: None)
    builder.add_edge(START, "draft").add_edge("draft", "review").add_conditional_edges("review", router, path_map)
    return builder.compile()


def nested():
    inner = chain("draft", "check")
    builder = StateGraph(Counter).add_node("left", inner).add_node("right", inner)
    return builder.add_edge(START, "left").add_edge("left", "right").add_edge("right", END).compile()


def labels(text):
    """The box labels of a mermaid text, as mermaid shows them."""
    found = re.findall(r'n\d+(?:\(\[|\[)"(.*?)"\]', text)
    return [re.sub(r"#(\d+);", lambda match: chr(int(match[1])), label) for label in found]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_node_name_is_drawn_as_it_is_and_as_nothing_else(name):
    graph = chain("before", name)
    text = diagrams.mermaid(graph)

    assert labels(text) == ["START", "before", name.replace("\n", " "), "END"]
    for line in text.splitlines():
        assert re.fullmatch(
            r"graph TD"
            r"|  acc(Title|Descr): [^;#{}<>%\n]+"
            r'|  n\d+(\["[^"`<>&%$*{}\[\]\\]*"\]|\(\["(START|END)"\]\)):::(node|first|last)'
            r"|  n\d+ --> n\d+"
            r"|  classDef \w+ [\w:#,-]+",
            line,
        ), line


def test_a_node_called_end_is_not_the_end():
    assert diagrams.describe(chain("end")) == "START to end. end to END"


def test_labels_of_conditional_edges_are_drawn_and_told():
    graph = loop(lambda state: "done", {"done": END, 'a"gain': "draft"})

    text = diagrams.mermaid(graph)
    assert 'n2 -.->|"done"| n3' in text
    assert 'n2 -.->|"a#34;gain"| n1' in text
    assert set(diagrams.describe(graph).split(". ")[2].removeprefix("review to ").split(", ")) == {
        "END (if done)",
        'draft (if a"gain)',
    }


def test_conditional_edges_without_labels_are_dotted_and_told():
    def router(state) -> Literal["draft", "__end__"]:
        return "__end__"

    graph = loop(router)
    text = diagrams.mermaid(graph)
    assert "n2 -.-> n1" in text and "n2 -.-> n3" in text
    assert diagrams.describe(graph).endswith("review to END (conditional), draft (conditional)")


def test_edges_come_in_the_order_of_the_nodes():
    assert diagrams.describe(chain("zebra", "ant", "moth")) == "START to zebra. zebra to ant. ant to moth. moth to END"


def test_a_subgraph_is_one_box_until_xray_opens_it():
    graph = nested()

    assert labels(diagrams.mermaid(graph)) == ["START", "left", "right", "END"]
    opened = diagrams.mermaid(graph, xray=True)
    assert labels(opened) == ["START", "END", "draft", "check", "draft", "check"]
    assert re.findall(r'subgraph g\d+\["(.*)"\]', opened) == ["left", "right"]
    assert opened.count("\n  end\n") == 2
    assert diagrams.describe(graph, xray=True).startswith("START to left/draft. left/draft to left/check.")


def test_subgraphs_in_subgraphs_are_told_apart():
    builder = StateGraph(Counter).add_node("team", nested()).add_edge(START, "team").add_edge("team", END)
    opened = diagrams.mermaid(builder.compile(), xray=True)
    assert re.findall(r'subgraph g\d+\["(.*)"\]', opened) == ["team/left", "team/right"]


@pytest.mark.parametrize("current", ["draft", ["draft"], ("draft",), {"draft"}])
def test_current_highlights_one_node(current):
    text = diagrams.mermaid(loop(lambda state: END, [END, "draft"]), current=current)
    assert re.findall(r'"(\w+)"\]:::hot', text) == ["draft"]


@pytest.mark.parametrize("current", [(), [], set(), ""])
def test_nothing_current_highlights_nothing(current):
    assert ":::hot" not in diagrams.mermaid(chain("draft"), current=current or ())


def test_an_unknown_current_node_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match="no node called drafd; the graph has START, draft, END"):
        diagrams.mermaid(chain("draft"), current=["drafd"])


def test_title_and_description_are_one_line_each_and_harmless():
    text = diagrams.mermaid(chain("a"), title="Two\nlines; 50% #1 {x} <b>", description="First.\n\nSecond.")
    assert "  accTitle: Two lines, 50 percent 1 (x) b\n  accDescr: First. Second.\n" in text


def test_title_counts_nodes_by_default():
    assert "accTitle: Graph with 1 node\n" in diagrams.mermaid(chain("a"))
    assert "accTitle: Graph with 2 nodes\n" in diagrams.mermaid(chain("a", "b"))


def test_direction_and_options_reach_the_bundle():
    bundle = diagrams.bundle(chain("a"), direction="LR", title="A walk", current=["a"])
    assert bundle["text/markdown"].startswith("```mermaid\ngraph LR\n  accTitle: A walk\n")
    assert bundle["text/markdown"].endswith("\n```")
    assert bundle["text/plain"] == "Graph: START to a. a to END"


def test_a_node_name_of_backticks_does_not_close_the_fence():
    assert diagrams.bundle(chain("```"))["text/markdown"].count("\n```") == 1


def test_the_picture_of_a_graph_is_the_same_every_time():
    def build():
        return loop(lambda state: "done", {"done": END, "again": "draft"})

    assert diagrams.bundle(build()) == diagrams.bundle(build())


@pytest.fixture
def shell():
    config = Config()
    config.HistoryManager.enabled = False  # the reader's own history stays as it was
    return InteractiveShell(config=config)


@pytest.fixture
def offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("drawing opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_the_extension_draws_a_compiled_graph_offline(shell, offline):
    shell.run_line_magic("load_ext", "between_nodes")
    data, metadata = shell.display_formatter.format(chain("draft"))
    assert data == diagrams.bundle(chain("draft"))
    assert metadata == {}


def test_the_extension_leaves_other_objects_alone_and_unloading_restores(shell):
    formatter = shell.display_formatter.mimebundle_formatter
    before = dict(formatter.type_printers), shell.InteractiveTB.mode
    shell.run_line_magic("load_ext", "between_nodes")
    assert shell.InteractiveTB.mode == "Minimal"
    assert shell.display_formatter.format([1])[0] == {"text/plain": "[1]"}
    shell.run_line_magic("reload_ext", "between_nodes")
    shell.run_line_magic("unload_ext", "between_nodes")
    assert (dict(formatter.type_printers), shell.InteractiveTB.mode) == before


def test_a_traceback_is_one_line(shell, capsys):
    shell.run_line_magic("load_ext", "between_nodes")
    shell.run_cell("def f():\n    raise KeyError('notes')\nf()")
    assert re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).strip() == "KeyError: 'notes'"


def test_a_plot_carries_its_alternative_text_and_is_closed():
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    def plot():
        figure, axes = plt.subplots(figsize=(2, 1))
        axes.plot([1, 2])
        return diagrams.picture(figure, 'A "rising" line, 1 < 2')

    image = plot()
    assert image.data.startswith('<img alt="A &quot;rising&quot; line, 1 &lt; 2" src="data:image/png;base64,')
    assert plt.get_fignums() == []
    assert plot().data == image.data, "the same plot gives the same bytes"


@pytest.mark.parametrize("alt", ["", "  "])
def test_a_plot_without_alternative_text_is_refused(alt):
    with pytest.raises(ValueError, match="say in a sentence what the picture shows"):
        diagrams.picture(None, alt)
