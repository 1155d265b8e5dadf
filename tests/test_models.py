"""The scripted chat model, through every way a chapter calls it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from between_nodes.models import ScriptedChatModel, ScriptExhausted, reply

CALLS = [("add", {"a": 1, "b": 2}), ("search", {"query": "Überbau, 节点"}, "own-id")]
REPLIES = {
    "text": lambda: reply("Two  spaces,\na line and 节点. ", tokens=(7, 5)),
    "empty": lambda: reply(),
    "one word": lambda: reply("Yes", id="fixed"),
    "calls": lambda: reply("Let me see.", tool_calls=CALLS, tokens=(1, 2)),
    "calls only": lambda: reply(tool_calls=CALLS),
    "cut off": lambda: reply("It is", finish_reason="length"),
}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def content(message):
    """What a message says, without the id LangChain makes up for each run."""
    return {
        "content": message.content,
        "tool_calls": message.tool_calls,
        "finish_reason": message.response_metadata["finish_reason"],
        "usage": message.usage_metadata,
        "id": message.id if message.id == "fixed" else "made up",
    }


def total(chunks):
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


async def collect(stream):
    return [chunk async for chunk in stream]


@pytest.mark.parametrize("kind", REPLIES)
def test_every_way_of_calling_gives_the_same_message(kind):
    model = ScriptedChatModel(script=[REPLIES[kind]() for _ in range(4)])
    expected = content(REPLIES[kind]())

    assert content(model.invoke("hi")) == expected
    assert content(total(list(model.stream("hi")))) == expected
    assert content(asyncio.run(model.ainvoke("hi"))) == expected
    assert content(total(asyncio.run(collect(model.astream("hi"))))) == expected


def test_reply_fills_in_what_is_left_out():
    assert content(reply("hi")) == {
        "content": "hi",
        "tool_calls": [],
        "finish_reason": "stop",
        "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
        "id": "made up",
    }
    calls = reply(tool_calls=CALLS)
    assert [call["id"] for call in calls.tool_calls] == ["call-1", "own-id"]
    assert calls.response_metadata["finish_reason"] == "tool_calls"


def test_streaming_yields_one_chunk_a_word_and_marks_the_last():
    chunks = list(ScriptedChatModel(script=["one two three"]).stream("hi"))
    assert [chunk.content for chunk in chunks] == ["one ", "two ", "three"]
    assert [chunk.chunk_position for chunk in chunks] == [None, None, "last"]
    assert len({chunk.id for chunk in chunks}) == 1


def test_calls_and_bound_tools_are_recorded():
    model = ScriptedChatModel(script=["a", "b"])
    model.invoke([HumanMessage("first")])
    model.bind_tools([add]).invoke([HumanMessage("second"), AIMessage("x")])
    assert [[message.content for message in call] for call in model.calls] == [["first"], ["second", "x"]]
    assert model.tools == [[], ["add"]]


def test_an_agent_runs_its_loop_on_the_script():
    rounds = [reply(tool_calls=[("add", {"a": 1, "b": 2})]), reply(tool_calls=[("add", {"a": 3, "b": 4})]), "7"]
    model = ScriptedChatModel(script=rounds)
    messages = create_agent(model, [add]).invoke({"messages": [("user", "1 + 2 + 4?")]})["messages"]

    assert [message.content for message in messages if isinstance(message, ToolMessage)] == ["3", "7"]
    assert messages[-1].content == "7"
    assert model.tools == [["add"]] * 3
    assert [len(call) for call in model.calls] == [1, 3, 5]


def test_a_graph_streams_the_words_and_keeps_one_message():
    model = ScriptedChatModel(script=["one two three"] * 2)
    builder = StateGraph(MessagesState)
    builder.add_node("say", lambda state: {"messages": model.invoke(state["messages"])}).add_edge(START, "say")
    graph = builder.compile()

    parts = list(graph.stream({"messages": "hi"}, stream_mode=["messages", "values"]))
    assert [part[0].content for mode, part in parts if mode == "messages"] == ["one ", "two ", "three"]
    final = parts[-1][1]["messages"]
    assert [message.content for message in final] == ["hi", "one two three"]
    assert [type(message) for message in final] == [HumanMessage, AIMessage]


def test_the_last_reply_has_a_clear_end():
    model = ScriptedChatModel(script=["only"])
    model.invoke("hi")
    with pytest.raises(ScriptExhausted) as caught:
        model.invoke([HumanMessage("hi"), AIMessage("only"), HumanMessage("and then?")])
    assert str(caught.value) == (
        "call 2 of a model whose script has 1 reply; the last message was: 'and then?'. "
        "Add a reply to the script, or find out why the model was called again."
    )


@pytest.mark.parametrize("call", [lambda model: model.invoke([]), lambda model: list(model.stream("hi"))])
def test_an_empty_script_has_a_clear_end_too(call):
    with pytest.raises(ScriptExhausted, match="call 1 of a model whose script has 0 replies"):
        call(ScriptedChatModel(script=[]))


def test_an_exception_in_the_script_is_raised_and_the_next_call_goes_on():
    model = ScriptedChatModel(script=[TimeoutError("too slow"), "ok"])
    with pytest.raises(TimeoutError, match="too slow"):
        model.invoke("hi")
    assert model.invoke("hi").content == "ok"


def test_one_reply_object_used_twice_gives_two_messages():
    same = reply("again", tool_calls=[("add", {"a": 1, "b": 2})])
    model = ScriptedChatModel(script=[same, same])
    first, second = model.invoke("hi"), model.invoke("hi")
    assert first.id != second.id
    first.tool_calls[0]["args"]["a"] = 99
    assert second.tool_calls[0]["args"] == {"a": 1, "b": 2}
    assert same.id is None and same.tool_calls[0]["args"] == {"a": 1, "b": 2}


def test_threads_share_one_script_without_repeating_or_losing_a_reply():
    texts = [str(number) for number in range(200)]
    model = ScriptedChatModel(script=list(texts))
    with ThreadPoolExecutor(8) as pool:
        said = pool.map(lambda text: model.invoke(text).content, texts)
    assert sorted(said, key=int) == texts
    assert len(model.calls) == len(model.tools) == 200
