"""Timelines: every kind of checkpoint is told apart, in the picture, in its words and in the stepper."""

import base64
import html
import operator
import re
import struct
import threading
from contextlib import contextmanager
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from between_nodes import databases
from between_nodes.timelines import steps, timeline

CONFIG = {"configurable": {"thread_id": "t1"}}


class State(TypedDict):
    log: Annotated[list, operator.add]


def ask(state):
    return {"log": [interrupt("Refund 40 euros?")]}


def chain(**nodes):
    builder, before = StateGraph(State), START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder


def refund(saver=None):
    parts = {"draft": lambda state: {"log": ["draft"]}, "ask": ask, "pay": lambda state: {"log": ["paid"]}}
    return chain(**parts).compile(checkpointer=saver or InMemorySaver())


@contextmanager
def savers(kind):
    if kind == "memory":
        yield InMemorySaver()
    elif kind == "sqlite":
        with SqliteSaver.from_conn_string(str(databases.sqlite_file("timelines"))) as saver:
            yield saver
    else:
        with PostgresSaver.from_conn_string(databases.postgres()) as saver:
            saver.setup()
            saver.delete_thread("t1")
            yield saver


def words(picture):
    return html.unescape(re.search('alt="([^"]*)"', picture.data)[1])


def size(picture):
    """Width and height in pixels, from the PNG's header."""
    data = base64.b64decode(re.search('base64,([^"]*)"', picture.data)[1])
    return struct.unpack(">II", data[16:24])


def pages(graph, config=CONFIG):
    return steps(graph, config).pages


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_the_words_tell_source_next_interrupts_branches_and_where_invoke_continues(kind):
    with savers(kind) as saver:
        graph = refund(saver)
        graph.invoke({"log": []}, CONFIG)
        paused = words(timeline(graph, CONFIG))
        graph.invoke(Command(resume="yes"), CONFIG)
        old = list(graph.get_state_history(CONFIG))
        graph.invoke(None, graph.update_state(old[3].config, {"log": ["edit"]}))
        forked = words(timeline(graph, CONFIG))
    assert paused == (
        "Thread t1: 3 checkpoints in 1 branch. Branch 1: step -1 input, next START; step 0 loop, next draft; "
        "step 1 loop, next ask, paused: ask. The next invoke continues from step 1 in branch 1."
    )
    assert forked == (
        "Thread t1: 7 checkpoints in 2 branches. Branch 1: step -1 input, next START; step 0 loop, next draft; "
        "step 1 loop, next ask, answered: ask; step 2 loop, next pay; step 3 loop, next nothing. "
        "Branch 2, from branch 1 after step 0: step 1 update, next draft; step 2 loop, next ask, paused: ask. "
        "The next invoke continues from step 2 in branch 2."
    )


def test_a_replay_is_a_fork_and_a_new_input_leaves_the_question_unanswered():
    graph = refund()
    graph.invoke({"log": []}, CONFIG)
    graph.invoke({"log": ["again"]}, CONFIG)
    assert "step 1 loop, next ask, unanswered: ask; step 2 input, next START" in words(timeline(graph, CONFIG))
    graph.invoke(None, list(graph.get_state_history(CONFIG))[-2].config)
    assert "Branch 2, from branch 1 after step 0: step 1 fork, next draft" in words(timeline(graph, CONFIG))


def test_a_failed_task_and_the_result_kept_beside_it_are_told():
    def bad(state):
        finished.wait(5)
        raise ValueError("no such account")

    finished = threading.Event()

    class Saver(InMemorySaver):
        def put_writes(self, config, writes, *args, **options):
            super().put_writes(config, writes, *args, **options)
            if ("log", ["ok"]) in writes:
                finished.set()  # the sibling fails only when this result is stored

    builder = StateGraph(State)
    builder.add_node("ok", lambda state: {"log": ["ok"]})
    builder.add_node("bad", bad)
    builder.add_edge(START, "ok")
    builder.add_edge(START, "bad")
    graph = builder.compile(checkpointer=Saver())
    with pytest.raises(ValueError):
        graph.invoke({"log": []}, CONFIG)
    assert "step 0 loop, next bad, failed: bad, kept: ok" in words(timeline(graph, CONFIG)).replace(
        "kept: ok, failed: bad", "failed: bad, kept: ok"
    )
    text = html.unescape(pages(graph)[-1][1])
    assert "<code>[]</code>" in text, "the kept result is not in the checkpoint"
    assert "<code>ok</code> wrote <code>{'log': ['ok']}</code>" in text
    assert "<code>bad</code> failed: <code>ValueError('no such account')</code>" in text
    assert text.count(":::hot") == 1 and '["bad"]:::hot' in text


def test_a_run_with_exit_durability_is_one_checkpoint():
    graph = refund()
    graph.invoke({"log": []}, CONFIG, durability="exit")
    assert words(timeline(graph, CONFIG)).startswith("Thread t1: 1 checkpoint in 1 branch. Branch 1: step 1 loop")


def test_a_subgraph_s_own_checkpoints_are_read_by_its_namespace():
    inner = chain(look=lambda state: {"log": ["look"]}, ask=ask).compile()
    graph = chain(a=lambda state: {}, team=inner).compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, CONFIG)
    config = graph.get_state(CONFIG).tasks[0].state
    assert "paused: team" in words(timeline(graph, CONFIG))
    assert words(timeline(graph, config)).startswith("Thread t1, subgraph team: 3 checkpoints in 1 branch.")
    caption, text = pages(graph, config)[-1]
    assert caption == "step 1 loop, next ask, paused: ask (invoke continues here)"
    assert '["look"]:::node' in text and '["ask"]:::hot' in text


def looping(rounds):
    builder = StateGraph(State)
    builder.add_node("work", lambda state: {"log": ["w"]})
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: "work" if len(state["log"]) < rounds else END, ["work", END])
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, CONFIG)
    return graph


@pytest.mark.parametrize("rounds", [1, 10, 58])
def test_no_picture_is_wider_than_a_page_and_none_is_endless(rounds):
    width, height = size(timeline(looping(rounds), CONFIG))
    assert width <= 1000 and height <= 900


def test_a_long_thread_is_summed_up():
    text = words(timeline(looping(58), CONFIG))
    assert text.startswith("Thread t1: 60 checkpoints in 1 branch. Branch 1, steps -1 to 58 (1 input, 59 loop).")
    assert len(text) < 200


def test_the_same_history_makes_the_same_bytes_and_the_same_pages():
    graphs = [refund(), refund()]
    for graph in graphs:
        graph.invoke({"log": []}, CONFIG)
    assert timeline(graphs[0], CONFIG).data == timeline(graphs[1], CONFIG).data
    assert pages(graphs[0]) == pages(graphs[1])


def test_a_page_tells_what_changed():
    graph = chain(a=lambda state: {"log": ["x|y"]}).compile(checkpointer=InMemorySaver())
    graph.invoke({"log": ["in"]}, CONFIG)
    texts = [text.splitlines()[-1] if "wrote" not in text else text.splitlines()[-3] for _, text in pages(graph)]
    assert html.unescape(texts[1]) == "| <code>log</code> | <code>['in']</code> | added <code>['in']</code> |"
    assert texts[2].endswith("| added <code>&#91;'x&#124;y'&#93;</code> |"), "a bar would begin a new cell"


def test_messages_are_said_without_their_random_ids():
    builder = StateGraph(MessagesState)
    call = {"name": "look", "args": {"x": 1}, "id": "c1"}
    builder.add_node("model", lambda state: {"messages": [AIMessage("", tool_calls=[call])]})
    builder.add_edge(START, "model")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"messages": [("user", "hi")]}, CONFIG)
    text = html.unescape(pages(graph)[-1][1])
    assert "[human: 'hi', ai: look({'x': 1})]" in text
    assert not re.search("[0-9a-f]{8}-[0-9a-f]{4}", text)


def test_odd_node_names_are_drawn():
    graph = chain(**{"cost in $x_$": lambda state: {}, "end": lambda state: {}, "报告": lambda state: {}})
    graph = graph.compile(checkpointer=InMemorySaver(), interrupt_before=["cost in $x_$"])
    graph.invoke({"log": []}, CONFIG)
    assert "next cost in $x_$" in words(timeline(graph, CONFIG)) and pages(graph)


@pytest.mark.parametrize(
    "graph, config, message",
    [
        (chain(a=ask).compile(), CONFIG, "no checkpointer"),
        (refund(), {}, "name the thread"),
        (refund(), {"configurable": {"thread_id": "t9"}}, "thread 't9' has no checkpoints"),
    ],
)
@pytest.mark.parametrize("draw", [timeline, steps])
def test_errors_say_what_to_do(draw, graph, config, message):
    with pytest.raises(ValueError, match=message):
        draw(graph, config)


def test_a_graph_that_is_not_compiled_is_named():
    with pytest.raises(TypeError, match="StateGraph"):
        timeline(chain(a=ask), CONFIG)
