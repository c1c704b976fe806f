"""Chat models for tests of graphs: they stream scripted answers, or give them whole."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

Answer = AIMessage | Exception
Script = Callable[[Sequence[BaseMessage]], Answer]


def calls(*made: tuple[str, dict[str, Any]], text: str = "", ids: str = "t") -> AIMessage:
    """An answer with tool calls."""
    return AIMessage(
        text,
        tool_calls=[
            {"name": name, "args": arguments, "id": f"{ids}{place}", "type": "tool_call"}
            for place, (name, arguments) in enumerate(made, 1)
        ],
        usage_metadata={"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
    )


class ScriptedChatModel(BaseChatModel):
    """Answers with what a function of the messages returns; records what it was asked."""

    script: Script
    asked: list[list[BaseMessage]] = []  # noqa: RUF012  # pydantic copies it
    streams: bool = True
    names_messages: bool = False
    """Whether the first chunk of an answer, and no other, has the provider's id, as with OpenAI's Responses."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> "ScriptedChatModel":
        return self

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        self.asked.append(messages)
        answer = self.script(messages)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages).model_copy())])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer = self._answer(messages)
        if not self.streams:
            yield ChatGenerationChunk(message=AIMessageChunk(**answer.model_dump(exclude={"type", "id"})))
            return
        first = ChatGenerationChunk(message=AIMessageChunk(content="", id=f"resp_{len(self.asked)}"))
        for chunk in chain((first,) if self.names_messages else (), chunks_of(answer)):
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def chunks_of(answer: AIMessage) -> Iterator[ChatGenerationChunk]:
    """An answer word by word, then its calls in parts, as providers stream them."""
    if isinstance(answer.content, list):
        for block in answer.content:
            yield ChatGenerationChunk(message=AIMessageChunk(content=[block]))
    else:
        for word in re.findall(r"\S+\s*|\s+", answer.content):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
    for index, call in enumerate(answer.tool_calls):
        arguments = json.dumps(call["args"])
        for part, name in ((arguments[:3], call["name"]), (arguments[3:], None)):
            chunk = tool_call_chunk(name=name, args=part, id=call["id"] if name else None, index=index)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))
    yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=answer.usage_metadata))


def in_turn(*answers: Answer) -> Script:
    """The answers in order of the model's own earlier answers since the newest user message."""

    def script(messages: Sequence[BaseMessage]) -> Answer:
        newest = max(place for place, message in enumerate(messages) if message.type == "human")
        done = sum(message.type == "ai" for message in messages[newest:])
        return answers[min(done, len(answers) - 1)]

    return script
