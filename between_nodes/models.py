"""A chat model that says what it was told to say, so that every run of a chapter is the same and needs no key."""

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr


class ScriptExhausted(RuntimeError):
    """The model was called more often than its script has replies."""


def reply(text="", *, tool_calls=(), finish_reason=None, tokens=(0, 0), id=None):
    """Return one scripted reply as an AIMessage.

    `tool_calls` is a list of ``(tool name, arguments)`` pairs; their ids are ``call-1``, ``call-2`` ... within the
    reply unless a third element gives one. `finish_reason` defaults to "tool_calls" where there are any and to "stop"
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

    langchain-core's own GenericFakeChatModel has no `bind_tools`, so no agent accepts it. Here `calls` lists
    the messages of every call so far, and `tools` the tool names bound for each. Works with `invoke`, `stream` (one
    chunk a word), their async forms, and `bind_tools`. Raises ScriptExhausted after the last entry.
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
            replies = "1 reply" if len(self.script) == 1 else f"{len(self.script)} replies"
            raise ScriptExhausted(
                f"call {number + 1} of a model whose script has {replies}; the last message was: "
                f"{messages[-1].text if messages else ''!r}. Add a reply to the script, or find out why the model was "
                "called again."
            )
        entry = self.script[number]
        if isinstance(entry, BaseException):
            raise entry
        return reply(entry) if isinstance(entry, str) else entry.model_copy(deep=True)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages, kwargs))])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs) -> Iterator[ChatGenerationChunk]:
        message = self._next(messages, kwargs)
        *words, last = re.findall(r"\S*\s*", message.text)[:-1] or [""]
        for word in words:
            yield ChatGenerationChunk(message=AIMessageChunk(content=word, id=message.id))
        yield ChatGenerationChunk(message=_last_chunk(last, message))


def _last_chunk(text, message):
    """The end of a streamed reply, which alone carries its tool calls, finish reason and token usage."""
    return AIMessageChunk(
        content=text,
        id=message.id,
        tool_call_chunks=[
            tool_call_chunk(
                name=call["name"], args=json.dumps(call["args"], ensure_ascii=False), id=call["id"], index=number
            )
            for number, call in enumerate(message.tool_calls)
        ],
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        chunk_position="last",
    )
