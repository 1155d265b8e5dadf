"""Pictures that need no network: mermaid text of compiled graphs, and plots with alternative text."""

import base64
import html
import io

_UNESCAPED = frozenset(" _-.,()/")
_SPOKEN = str.maketrans({";": ",", "#": "", "{": "(", "}": ")", "%": " percent", "<": "", ">": ""})
_NAMES = {"__start__": "START", "__end__": "END"}
_STYLES = """\
  classDef node fill:#f2f0ff,stroke:#5b4bb5,color:#1b1b1f
  classDef first fill:#ffffff,stroke:#5b4bb5,color:#1b1b1f
  classDef last fill:#d6d0fb,stroke:#5b4bb5,color:#1b1b1f
  classDef hot fill:#ffd54f,stroke:#b26a00,stroke-width:3px,color:#1b1b1f"""


def _escape(text):
    """Text for a quoted label, with everything that mermaid, markdown or an icon font might act on as an entity."""
    line = " ".join(str(text).splitlines())
    return "".join(c if c.isalnum() or c in _UNESCAPED else f"#{ord(c)};" for c in line)


def _spoken(text):
    """Text for accTitle and accDescr, which end at a newline and know no escapes."""
    return " ".join(str(text).translate(_SPOKEN).split())


def _name(key):
    """The node's own name: LangGraph joins the names of opened subgraphs in front of it with colons."""
    name = key.rpartition(":")[2]
    return _NAMES.get(name, name)


def _path(key):
    return "/".join([*key.split(":")[:-1], _name(key)])


def _edges(drawn):
    """The edges in the order of the nodes they leave."""
    order = {key: number for number, key in enumerate(drawn.nodes)}
    return sorted(drawn.edges, key=lambda edge: order[edge.source])


def describe(graph, *, xray=False):
    """Return the edges of a compiled graph in words, for people who hear the picture instead of seeing it.

    A conditional edge names its label, or "conditional" when it has none:
    ``"START to draft. draft to review. review to END (if done), draft (if again)"``.
    Nodes of a subgraph opened by `xray` carry its name: ``"team/draft"``.
    """
    targets = {}
    for edge in _edges(graph.get_graph(xray=xray)):
        label = ""
        if edge.conditional:
            label = " (conditional)" if edge.data is None else f" (if {edge.data})"
        targets.setdefault(_path(edge.source), []).append(_path(edge.target) + label)
    return ". ".join(f"{source} to {', '.join(names)}" for source, names in targets.items())


def mermaid(graph, *, title=None, description=None, current=(), xray=False, direction="TD"):
    """Return mermaid text for a compiled graph that parses whatever its nodes are called.

    `title` and `description` become the picture's accessible title and description; by default the title counts the
    nodes and the description lists the edges. The node or nodes named in `current` are highlighted. `xray` opens
    subgraphs, as in LangGraph's `get_graph`. `direction` is mermaid's: "TD" from the top down, "LR" from left to right.
    Raises ValueError when `current` names a node that the graph does not have.
    """
    drawn = graph.get_graph(xray=xray)
    current = {current} if isinstance(current, str) else set(current)
    if unknown := current - {_name(key) for key in drawn.nodes}:
        raise ValueError(
            f"no node called {', '.join(sorted(unknown))}; the graph has {', '.join(map(_name, drawn.nodes))}"
        )
    ids = {key: f"n{i}" for i, key in enumerate(drawn.nodes)}
    inner = [key for key in drawn.nodes if key.rpartition(":")[2] not in _NAMES]
    title = title or f"Graph with {len(inner)} node{'' if len(inner) == 1 else 's'}"
    lines = [
        f"graph {direction}",
        f"  accTitle: {_spoken(title)}",
        f"  accDescr: {_spoken(description or describe(graph, xray=xray))}",
    ]
    groups = {}
    for key in drawn.nodes:
        groups.setdefault(key.rpartition(":")[0], []).append(key)
    for number, (group, keys) in enumerate(groups.items()):
        boxes = [f"  {_box(ids[key], key, current)}" for key in keys]
        lines += [f'  subgraph g{number}["{_escape(group.replace(":", "/"))}"]', *boxes, "  end"] if group else boxes
    for edge in _edges(drawn):
        label = f'|"{_escape(edge.data)}"|' if edge.data is not None else ""
        lines.append(f"  {ids[edge.source]} {'-.->' if edge.conditional else '-->'}{label} {ids[edge.target]}")
    return "\n".join([*lines, _STYLES])


def _box(node_id, key, current):
    name = key.rpartition(":")[2]
    left, right = ('(["', '"])') if name in _NAMES else ('["', '"]')
    style = "hot" if _name(key) in current else {"__start__": "first", "__end__": "last"}.get(name, "node")
    return f"{node_id}{left}{_escape(_name(key))}{right}:::{style}"


def bundle(graph, **options):
    """Return the display bundle of a compiled graph: a mermaid fence, and its edges in words beside it.

    `options` are those of `mermaid`. Show it with ``display(bundle(graph, ...), raw=True)``; a cell that ends in the
    graph does so by itself after ``%load_ext between_nodes``.
    """
    words = f"Graph: {describe(graph, xray=options.get('xray', False))}"
    return {"text/markdown": f"```mermaid\n{mermaid(graph, **options)}\n```", "text/plain": words}


def picture(figure, alt):
    """Show a matplotlib figure as an image with alternative text, which JupyterLab's own PNG output lacks.

    `figure` is closed afterwards. `alt` says what the picture shows; an empty one raises ValueError.
    """
    import matplotlib.pyplot as plt
    from IPython.display import HTML

    if not alt.strip():
        raise ValueError("alt: say in a sentence what the picture shows")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, bbox_inches="tight", facecolor="white", metadata={"Software": None})
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    return HTML(f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">')
