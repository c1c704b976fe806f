"""Harnesses for the three adapters. Each makes its model play a scene, in its own way.

The embedded model is real and cannot be scripted, so it supports only the scenes that any model can play.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingCalls,
    DeltaThinkingPart,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)

from dragoman.models.embedded import EmbeddedModel
from dragoman.models.openai import OpenAIModel
from dragoman.models.providers import ProviderModel
from dragoman.models.registry import ManagedModel
from tests.models.fake_openai_server import DONE, Answer, FakeOpenAIServer, call_delta, chunk, fake_openai_server, usage

Scene = Literal["text", "endless", "calls", "thinking", "broken arguments"]
"""What the model does: write a short text; write until it is stopped; call `add` twice; think before it writes; call
`add` with arguments that are not JSON."""

CALLS = {"c1": {"a": 1, "b": 2}, "c2": {"a": 3, "b": 4}}
BROKEN = '{"a": 1,'


class AdapterHarness(Protocol):
    @property
    def model(self) -> ManagedModel: ...

    def expect(self, scene: Scene) -> None:
        """Let the next call play this scene."""


class OpenAIHarness:
    def __init__(self, model: OpenAIModel, server: FakeOpenAIServer) -> None:
        self.model = model
        self._server = server

    def expect(self, scene: Scene) -> None:
        self._server.answers.append(Answer([*self._parts(scene), usage(9, 5), DONE]))

    def _parts(self, scene: Scene) -> list[bytes | asyncio.Event]:
        match scene:
            case "text":
                return [chunk({"content": "Hello, "}), chunk({"content": "you."}), chunk({}, "stop")]
            case "endless":
                return [chunk({"content": "on and "}), chunk({"content": "on "}), asyncio.Event()]
            case "calls":
                calls = [
                    chunk(call_delta(index, json.dumps(arguments), id=call_id, name="add"))
                    for index, (call_id, arguments) in enumerate(CALLS.items())
                ]
                return [chunk({"content": "I add."}), *calls, chunk({}, "tool_calls")]
            case "thinking":
                return [chunk({"reasoning_content": "Hm."}), chunk({"content": "Yes."}), chunk({}, "stop")]
            case "broken arguments":
                return [chunk(call_delta(0, BROKEN, id="c1", name="add")), chunk({}, "tool_calls")]


class ProviderHarness:
    def __init__(self) -> None:
        self._scenes: list[Scene] = []
        self.model = ProviderModel("test:scripted", {}, model_factory=lambda: FunctionModel(stream_function=self._play))

    def expect(self, scene: Scene) -> None:
        self._scenes.append(scene)

    async def _play(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls | DeltaThinkingCalls]:
        match self._scenes.pop(0):
            case "text":
                yield "Hello, "
                yield "you."
            case "endless":
                yield "on and "
                yield "on "
                await asyncio.Event().wait()
            case "calls":
                yield "I add."
                for index, (call_id, arguments) in enumerate(CALLS.items(), start=1):
                    yield {index: DeltaToolCall("add", json.dumps(arguments), tool_call_id=call_id)}
            case "thinking":
                yield {0: DeltaThinkingPart(content="Hm.")}
                yield "Yes."
            case "broken arguments":
                yield {0: DeltaToolCall("add", BROKEN, tool_call_id="c1")}


class EmbeddedHarness:
    def __init__(self, model: EmbeddedModel) -> None:
        self.model = model

    def expect(self, scene: Scene) -> None:
        assert scene in {"text", "endless"}


@asynccontextmanager
async def openai_harness() -> AsyncIterator[AdapterHarness]:
    async with fake_openai_server() as server:
        yield OpenAIHarness(OpenAIModel("gpt-x", base_url=server.base_url, context_window=1000), server)


@asynccontextmanager
async def provider_harness() -> AsyncIterator[AdapterHarness]:
    yield ProviderHarness()


@asynccontextmanager
async def embedded_harness() -> AsyncIterator[AdapterHarness]:
    yield EmbeddedHarness(EmbeddedModel(max_conversations=2, context_window=512))
