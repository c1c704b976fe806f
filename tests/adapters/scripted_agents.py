"""The agents of the scenes, one per framework: the same tools and scripts, each written as its framework's users write.

Their tools count how often they begin, and can be made to wait. Nothing else is kept between two model calls.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

from dragoman.core.answers import compact_json
from tests.adapters.scenes import SCRIPTS, STRUCTURED, CallOf, Framework, Pause, Reason, Script, script_for
from tests.engine.world import PauseGate

QUESTION = {"question": "Which?", "options": ["red", "blue"]}


class Effects:
    """What the tools of a scene did, and where it pauses."""

    def __init__(self, scripts: Mapping[str, Script] = SCRIPTS) -> None:
        self.ran: Counter[str] = Counter()
        self.pause = PauseGate()
        """Where models wait at a `Pause`."""
        self.calls_wait_at: dict[str, PauseGate] = {}
        self.scripts = scripts

    def script_for(self, prompts: Sequence[str]) -> Script:
        return self.scripts.get(prompts[-1]) or script_for(prompts)

    async def begin(self, tool: str, *arguments: object) -> None:
        """Count a tool's start, and let it wait if it has to."""
        call = " ".join(map(str, (tool, *arguments)))
        self.ran[call] += 1
        await asyncio.sleep(0)
        if call in self.calls_wait_at:
            await self.calls_wait_at[call]()


class NoSuchAccount(Exception):
    """What `boom` raises, in words that each framework gives to the model."""


def build(framework: Framework, effects: Effects, *, name: str = "player", **options: Any) -> Any:
    """The agent of a framework, in its wrapper. Skips the test where the framework is not installed."""
    return BUILDERS[framework](effects, name=name, **options)


# --- Pydantic AI ------------------------------------------------------------------------------------------------------


def pydantic_ai_agent(  # noqa: C901  # its tools are functions in it
    effects: Effects, *, structured: bool = False, **options: Any
) -> Any:
    pytest.importorskip("pydantic_ai", reason="the extra pydantic-ai is not installed")
    from pydantic_ai import Agent, CallDeferred
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.messages import ModelMessage, ModelResponse, UserPromptPart
    from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

    from dragoman.adapters.pydantic_ai import PydanticAIAgent

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        prompts: list[str] = []
        step = 0
        for message in messages:
            found = [str(part.content) for part in message.parts if isinstance(part, UserPromptPart)]
            prompts += found
            step = 0 if found else step + isinstance(message, ModelResponse)
        if structured:
            yield {0: DeltaToolCall(info.output_tools[0].name, STRUCTURED, tool_call_id="out")}
            return
        for place, part in enumerate(effects.script_for(prompts)[step]):
            match part:
                case str():
                    yield part
                case Reason(text):
                    yield {place: DeltaThinkingPart(content=text)}
                case CallOf(tool, arguments):
                    yield {
                        place: DeltaToolCall(tool, compact_json(dict(arguments)), tool_call_id=f"call_{step}_{place}")
                    }
                case Pause():
                    await effects.pause()
            await asyncio.sleep(0)

    agent: Any = Agent(
        FunctionModel(stream_function=answer), output_type=weather_type() if structured else str, retries=2
    )

    async def add(a: int, b: int) -> int:
        await effects.begin("add", a, b)
        return a + b

    async def boom() -> str:
        await effects.begin("boom")
        raise ToolFailed("no such account")

    async def pay(amount: int) -> str:
        await effects.begin("pay", amount)
        return f"paid {amount}"

    async def choose() -> str:
        """Ask."""
        raise CallDeferred(kind="question", metadata=QUESTION)

    for tool in (add, boom, choose):
        agent.tool_plain(tool)
    agent.tool_plain(requires_approval=True)(pay)
    return PydanticAIAgent(agent, **options)


# --- LangGraph --------------------------------------------------------------------------------------------------------


def langgraph_agent(  # noqa: C901  # its tools are functions in it
    effects: Effects, *, structured: bool = False, **options: Any
) -> Any:
    pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
    pytest.importorskip("langchain", reason="langchain is not installed")
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatGenerationChunk
    from langchain_core.tools import StructuredTool, ToolException
    from langgraph.types import interrupt

    from dragoman.adapters.langgraph import LangGraphAgent
    from tests.adapters.langgraph_models import ScriptedChatModel, chunks_of

    def step_of(messages: Sequence[BaseMessage]) -> Sequence[Any]:
        prompts = [message.text for message in messages if message.type == "human"]
        newest = max(place for place, message in enumerate(messages) if message.type == "human")
        done = sum(message.type == "ai" for message in messages[newest:])
        return [CallOf("Weather", {"city": "Bern", "degrees": 7})] if structured else effects.script_for(prompts)[done]

    class Model(ScriptedChatModel):
        async def _astream(
            self, messages: list[BaseMessage], *given: Any, **more: Any
        ) -> AsyncIterator[ChatGenerationChunk]:
            parts = step_of(messages)
            made: list[Any] = []
            for part in parts:
                match part:
                    case str():
                        made.append(AIMessage(part))
                    case Reason(text):
                        made.append(AIMessage([{"type": "thinking", "thinking": text}]))
                    case CallOf():
                        pass
                    case Pause():
                        made.append(part)
            called = [part for part in parts if isinstance(part, CallOf)]
            ids = (f"call_{len(messages)}_{place}" for place in range(len(called)))
            whole = [
                {"name": tool, "args": dict(arguments), "id": origin, "type": "tool_call"}
                for (tool, arguments), origin in zip(called, ids, strict=True)
            ]
            for each in [*made, AIMessage("", tool_calls=whole)]:
                if isinstance(each, Pause):
                    await effects.pause()
                    continue
                for chunk in chunks_of(each):
                    yield chunk
                    await asyncio.sleep(0)

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        await effects.begin("add", a, b)
        return a + b

    async def fail() -> str:
        """Fail."""
        await effects.begin("boom")
        raise ToolException("no such account")

    async def pay(amount: int) -> str:
        """Pay."""
        await effects.begin("pay", amount)
        return f"paid {amount}"

    async def choose() -> str:
        """Ask."""
        return str(interrupt(QUESTION))

    boom = StructuredTool.from_function(coroutine=fail, name="boom", handle_tool_error=True)
    graph = create_agent(
        Model(script=lambda messages: AIMessage("")),
        [add, boom, pay, choose],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True})],
        response_format=weather_type() if structured else None,
    )
    return LangGraphAgent(graph, **options)


# --- OpenAI Agents SDK ------------------------------------------------------------------------------------------------


def openai_agents_agent(effects: Effects, *, structured: bool = False, **options: Any) -> Any:
    pytest.importorskip("agents", reason="the extra openai-agents is not installed")
    from agents import Agent, function_tool

    from dragoman.adapters.openai_agents import OpenAIAgentsAgent
    from tests.adapters import openai_model

    class Model(openai_model.PlayedModel):
        def script_for(self, prompts: Sequence[str]) -> openai_model.Script:
            if structured:
                return [[STRUCTURED]]
            return [[translated(part) for part in step] for step in effects.script_for(prompts)]

    def translated(part: Any) -> openai_model.Action:
        match part:
            case Reason(text):
                return openai_model.Reason(text)
            case CallOf(tool, arguments):
                return openai_model.CallOf(tool, arguments)
            case Pause():
                return effects.pause
            case _:
                return str(part)

    @function_tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        await effects.begin("add", a, b)
        return a + b

    @function_tool(failure_error_function=lambda context, error: str(error))
    async def boom() -> str:
        """Fail."""
        await effects.begin("boom")
        raise NoSuchAccount("no such account")

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        await effects.begin("pay", amount)
        return f"paid {amount}"

    agent: Any = Agent(
        name="player", model=Model({}), tools=[add, boom, pay], output_type=weather_type() if structured else None
    )
    return OpenAIAgentsAgent(agent, **options)


def weather_type() -> Any:
    from pydantic import BaseModel

    class Weather(BaseModel):
        city: str
        degrees: int

    return Weather


BUILDERS: dict[Framework, Callable[..., Any]] = {
    "pydantic_ai": pydantic_ai_agent,
    "langgraph": langgraph_agent,
    "openai_agents": openai_agents_agent,
}
