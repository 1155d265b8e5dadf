"""The table of a run: super-steps, merge order, what was read and written, and runs that do not end well."""

import html
import operator
import re
import time
from dataclasses import dataclass
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import NodeError
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import CachePolicy, Command, Send, interrupt

from between_nodes.steptables import step_table

THREAD = {"configurable": {"thread_id": "1"}}


class State(TypedDict):
    log: Annotated[list, operator.add]
    note: str


def build(nodes, edges, sends=(), schema=State, **options):
    """Nodes are functions or the update they return; `sends` go out from START."""
    builder = StateGraph(schema)
    for name, node in nodes.items():
        builder.add_node(name, node if callable(node) else lambda state, update=node: update)
    for source, target in edges:
        builder.add_edge(source, target)
    if sends:
        builder.add_conditional_edges(START, lambda state: sends)
    return builder.compile(**options)


def rows(table):
    """The table's cells as text, without its head; lists of values are separated by ;"""
    head, rule, *lines = table._repr_markdown_().splitlines()
    assert (head, rule) == ("| super-step | node | read | wrote |", "| :-- | :-- | :-- | :-- |")
    assert {line.count(" | ") for line in lines} == {3}
    for line in lines:
        text = re.sub("</?code>|[*]", "", line).replace("<br>", "; ")
        cells = re.fullmatch(r"\| (.*) \| (.*) \| (.*) \| (.*) \|", text).groups()
        yield tuple(html.unescape(cell).strip() for cell in cells)


def fail(state):
    raise ValueError("no | gas\nsecond line")


def ask(state):
    return {"log": [interrupt("rare?"), interrupt("salt?")]}


def test_each_node_is_shown_with_what_it_read_and_wrote_in_the_order_of_merging():
    slow = {"z": {"log": ["z"]}, "a": lambda state: time.sleep(0.02) or {"log": ["a"]}, "j": {"note": "done"}}
    table = step_table(build(slow, [(START, "z"), (START, "a"), ("a", "j"), ("z", "j")]), {"log": ["in"]})
    assert list(rows(table)) == [
        ("", "input", "", "log: ['in']"),
        ("1", "a", "log: ['in']", "log: ['a']"),
        ("1", "z", "log: ['in']", "log: ['z']"),
        ("2", "j", "log: ['in', 'a', 'z']", "note: 'done'"),
        ("", "result", "log: ['in', 'a', 'z']; note: 'done'", ""),
    ]
    assert table.steps == [["a", "z"], ["j"]]
    assert repr(table) == "a, z | j"


def test_sends_are_numbered_and_come_after_the_nodes_as_they_merge():
    graph = build({"w": lambda state: {"log": [state]}}, [(START, "w")], [Send("w", 8), Send("w", {"p": 7})])
    table = step_table(graph, {"log": []})
    assert table.steps == [["w", "w #1", "w #2"]]
    assert [row[2:] for row in rows(table)][1:] == [
        ("log: []", "log: [{'log': []}]"),
        ("8", "log: [8]"),
        ("p: 7", "log: [{'p': 7}]"),
        ("log: [{'log': []}, 8, {'p': 7}]", ""),
    ]


def test_of_many_sends_the_first_and_the_last_are_shown():
    graph = build({"w": lambda state: {"log": [state]}}, [], [Send("w", number) for number in range(50)])
    table = step_table(graph, {"log": []})
    assert [row[1] for row in rows(table)][1:-1] == ["w #1", "w #2", "w #3", "w #4", "w #5", "44 more of w", "w #50"]
    assert len(table.steps[0]) == 50
    six = build({"w": lambda state: {"log": [state]}}, [], [Send("w", number) for number in range(6)])
    assert [row[1] for row in rows(step_table(six, {"log": []}))][1:-1] == [f"w #{n}" for n in range(1, 7)]


def test_a_subgraph_is_one_node():
    inner = build({"a": {"log": ["a"]}, "b": {"log": ["b"]}}, [(START, "a"), ("a", "b")])
    table = step_table(build({"inner": inner, "after": {}}, [(START, "inner"), ("inner", "after")]), {"log": []})
    assert table.steps == [["inner"], ["after"]]
    assert list(rows(table))[1][3] == "log: ['a', 'b']"


def test_an_error_is_shown_in_its_row_and_at_the_end():
    graph = build({"a": {"log": ["a"]}, "f": fail}, [(START, "a"), (START, "f")])
    _, kept, failed, last = rows(step_table(graph, {"log": []}))
    assert kept[3] == "log: ['a']"
    assert failed[3] == "ValueError no | gas second line"
    assert last == ("", "stopped", "", "ValueError no | gas second line")


def test_an_error_between_two_super_steps_is_shown_at_the_end():
    clash = build({"a": {"note": "a"}, "b": {"note": "b"}}, [(START, "a"), (START, "b")])
    assert list(rows(step_table(clash, {"log": []})))[-1][3].startswith("InvalidUpdateError At key 'note': Can")
    loop = build({"a": {"log": ["a"]}}, [(START, "a"), ("a", "a")])
    table = step_table(loop, {"log": []}, {"recursion_limit": 3})
    assert table.steps == [["a"]] * 3
    assert list(rows(table))[-1][3].startswith("GraphRecursionError Recursion limit of 3 reached")


def test_an_error_before_any_node_is_raised():
    with pytest.raises(ValueError, match="thread_id"):
        step_table(build({"a": {}}, [(START, "a")], checkpointer=InMemorySaver()), {"log": []})


def test_a_pause_is_marked_and_what_was_done_before_it_is_kept():
    nodes = {"a": {"log": ["a"]}, "q": ask, "w": lambda state: {"log": [state]}}
    edges = [(START, "a"), (START, "q")]
    graph = build(nodes, edges, [Send("w", 1), Send("w", 2)], checkpointer=InMemorySaver())
    first = list(rows(step_table(graph, {"log": []}, THREAD)))
    assert first[2] == ("1", "q", "log: []", "interrupt 'rare?'")
    assert first[-1][1] == "paused"
    second = list(rows(step_table(graph, Command(resume="yes"), THREAD)))
    assert second[0] == ("", "input", "", "Command(resume='yes')")
    assert [row[3] for row in second[1:-1]] == [
        "kept log: ['a']",
        "interrupt 'salt?'",
        "kept log: [1]",
        "kept log: [2]",
    ]
    third = list(rows(step_table(graph, Command(resume="no"), THREAD)))
    assert third[-1][1:3] == ("result", "log: ['a', 'yes', 'no', 1, 2]")


def test_a_static_breakpoint_is_a_pause_and_later_steps_keep_their_numbers():
    graph = build({"a": {"log": ["a"]}}, [(START, "a")], checkpointer=InMemorySaver(), interrupt_before=["a"])
    paused = step_table(graph, {"log": []}, THREAD)
    assert (repr(paused), list(rows(paused))[-1][1]) == ("no super-step", "paused")
    assert list(rows(step_table(graph, None, THREAD)))[1][:2] == ("1", "a")
    step_table(graph, {"log": []}, THREAD)
    assert list(rows(step_table(graph, None, THREAD)))[1][:2] == ("4", "a")


def test_a_cached_result_is_kept():
    builder = StateGraph(State).add_node("a", lambda state: {"log": ["a"]}, cache_policy=CachePolicy())
    graph = builder.add_edge(START, "a").compile(cache=InMemoryCache())
    assert [list(rows(step_table(graph, {"log": []})))[1][3] for _ in range(2)] == ["log: ['a']", "kept log: ['a']"]


def test_several_writes_to_one_key_are_told_apart():
    graph = build({"a": lambda state: [{"log": [1]}, Command(update={"log": [2]})]}, [(START, "a")])
    assert list(rows(step_table(graph, {"log": []})))[1][3] == "log: [1] then [2]"


def test_an_error_handler_and_tasks_of_the_functional_api_have_rows():
    def handle(state, error: NodeError):
        return {"log": ["handled"]}

    builder = StateGraph(State).add_node("f", fail, error_handler=handle).add_edge(START, "f")
    table = list(rows(step_table(builder.compile(), {"log": []})))
    assert [row[3] for row in table[1:-1]] == ["log: ['handled']", "ValueError no | gas second line"]

    @task
    def double(number):
        return 2 * number

    @entrypoint()
    def flow(number):
        return double(number).result()

    assert [row[3] for row in rows(step_table(flow, 4))][1:-1] == ["__end__: 8", "__return__: 8"]


def test_values_are_shortened_and_safe_in_markdown():
    long = build({"a": lambda state: {"log": [*range(30)], "note": "x" * 500}, "<b>": {}}, [(START, "a"), ("a", "<b>")])
    markdown = step_table(long, {"log": []})._repr_markdown_()
    assert len(markdown) < 1200
    assert "<b>" not in markdown
    assert list(rows(step_table(long, {"log": []})))[1][3].startswith("log: [0, 1, 2, 3, 4, 5, 6, 7, …]; note: 'xxxx")


def test_messages_show_role_and_text_and_objects_no_address():
    graph = build({"a": {"messages": [AIMessage("hello", id="7")]}}, [(START, "a")], schema=MessagesState)
    assert list(rows(step_table(graph, {"messages": [("user", "hi")]})))[-1][2] == (
        "messages: [human('hi'), ai('hello')]"
    )
    plain = build({"a": {"note": object()}}, [(START, "a")])
    assert list(rows(step_table(plain, {"log": []})))[1][3] == "note: <object object>"


def test_a_state_that_is_an_object_is_read_field_by_field():
    @dataclass
    class Ticket:
        log: Annotated[list, operator.add]
        note: str = "none"

    graph = build({"a": {"log": ["a"]}}, [(START, "a")], schema=Ticket)
    assert list(rows(step_table(graph, Ticket(["in"]))))[1][2] == "log: ['in']; note: 'none'"


def test_a_change_in_place_does_not_reach_back_into_the_row_that_read():
    def leak(state):
        state["log"].append("leak")

    graph = build({"a": leak, "b": {}}, [(START, "a"), ("a", "b")])
    assert [row[2] for row in rows(step_table(graph, {"log": ["in"]}))][1:3] == ["log: ['in']", "log: ['in', 'leak']"]
