"""A chat model that says what it was told to say, so that every run of a chapter is the same and needs no key."""

import threading
from collections.abc import Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr


class ScriptExhausted(RuntimeError):
    """The model was called more often than its script has replies."""


def reply(text="", *, tool_calls=(), finish_reason=None, tokens=(0, 0), id=None):
    """Return one scripted reply as an AIMessage.

    `tool_calls` is a list of ``(tool name, arguments)`` pairs; their ids are ``call-1``, ``call-2`` ... within the reply
    unless a third element gives one. `finish_reason` defaults to "tool_calls" where there are any and to "stop"
    otherwise. `tokens` is ``(input, output)``, both in tokens. `id` is the message's id; left out, LangChain makes one.
    """
    calls = [
        {"name": name, "args": args, "id": own[0] if own else f"call-{number}", "type": "tool_call"}
        for number, (name, args, *own) in enumerate(tool_calls, 1)
    ]
    return AIMessage(
        content=text,
        id=id,
        tool_calls=calls,
        response_metadata={"finish_reason": finish_reason or ("tool_calls" if calls else "stop")},
        usage_metadata={"input_tokens": tokens[0], "output_tokens": tokens[1], "total_tokens": sum(tokens)},
    )


class ScriptedChatModel(BaseChatModel):
    """A chat model that answers from `script`, one entry a call: a string, a `reply(...)`, or an exception to raise.

    `calls` lists the messages of every call so far, and `tools` the tool names bound for each. Works with `invoke`,
    `stream` (one chunk a word), their async forms, and `bind_tools`. Raises ScriptExhausted after the last entry.
    """

    script: list[Any]
    calls: list[list[BaseMessage]] = Field(default_factory=list)
    tools: list[list[str]] = Field(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, *, tool_choice=None, **kwargs):
        """Offer `tools` to the model; the script decides whether it calls them."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _next(self, messages, kwargs) -> AIMessage:
        with self._lock:
            number = len(self.calls)
            self.calls.append(list(messages))
            self.tools.append([tool["function"]["name"] for tool in kwargs.get("tools", [])])
        if number >= len(self.script):
            raise ScriptExhausted(
                f"call {number + 1} of a model whose script has {len(self.script)} "
                f"repl{'y' if len(self.script) == 1 else 'ies'}; the last message was: "
                f"{messages[-1].text!r}. Add a reply to the script, or find out why the model was called again."
            )
        entry = self.script[number]
        if isinstance(entry, BaseException):
            raise entry
        return reply(entry) if isinstance(entry, str) else entry.model_copy(deep=True)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages, kwargs))])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs) -> Iterator[ChatGenerationChunk]:
        message = self._next(messages, kwargs)
        words = message.text.split(" ")
        for number, word in enumerate(words):
            chunk = AIMessageChunk(content=word if number == 0 else f" {word}", id=message.id)
            if number == len(words) - 1:
                chunk = chunk.model_copy(update=_ending(message))
            generation = ChatGenerationChunk(message=chunk)
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=generation)
            yield generation


def _ending(message):
    """The fields that only the last chunk of a streamed reply carries."""
    final = AIMessageChunk(
        content="",
        tool_call_chunks=[
            {
                "name": call["name"],
                "args": _json(call["args"]),
                "id": call["id"],
                "index": number,
                "type": "tool_call_chunk",
            }
            for number, call in enumerate(message.tool_calls)
        ],
        chunk_position="last",
    )
    return {
        "tool_calls": final.tool_calls,
        "tool_call_chunks": final.tool_call_chunks,
        "response_metadata": message.response_metadata,
        "usage_metadata": message.usage_metadata,
        "chunk_position": "last",
    }


def _json(value):
    import json

    return json.dumps(value, ensure_ascii=False)
