"""Graphs with a model that plays scripts, for the servers that serve graphs."""

import json
import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import uuid4

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCallChunk,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from tests.gateway.published_servers.program import COUNTED, pause, pay


class Model(BaseChatModel):
    """Answers by the words of the newest message."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, *_: Any, **__: Any) -> "Model":
        return self  # the tools do not matter

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError("only streams")

    async def _astream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        prompts = [str(each.content) for each in messages if isinstance(each, HumanMessage)]
        word, _space, rest = prompts[-1].rpartition("\n")[2].partition(" ")  # after a conversation that is sent as text
        pieces, calls = ["Hello", " there."], list[tuple[str, dict[str, object]]]()
        if isinstance(messages[-1], ToolMessage):
            pieces = ["So it is."]
        elif word == "count":
            pieces = COUNTED
        elif word == "recall":
            pieces = [" | ".join(prompts)]
        elif word == "forecast":
            pieces, calls = [], [("forecast", {"city": city}) for city in rest.split()]
        elif word == "pay":
            pieces, calls = [], [("pay", {"amount": int(amount)}) for amount in rest.split()]
        message_id = str(uuid4())
        for piece in pieces:
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece, id=message_id))
            await pause()
        for index, (name, arguments) in enumerate(calls):
            for chunk in (
                ToolCallChunk(name=name, args="", id=str(uuid4()), index=index),
                ToolCallChunk(name=None, args=json.dumps(arguments), id=None, index=index),
            ):
                message = AIMessageChunk(content="", id=message_id, tool_call_chunks=[chunk])
                yield ChatGenerationChunk(message=message)


def forecast(city: str) -> str:
    """Forecast the weather."""
    return f"sun in {city}"


def assistant() -> Any:
    """An agent whose payments need approval."""
    approval = HumanInTheLoopMiddleware(interrupt_on={"pay": {"allowed_decisions": ["approve", "reject"]}})
    return create_agent(Model(), [forecast, pay], middleware=[approval], checkpointer=InMemorySaver())


class Answers(MessagesState):
    """The answers that the nodes got."""

    answers: Annotated[list[str], operator.add]


def survey() -> Any:
    """A graph in which two nodes ask at the same time."""

    def colour(state: Answers) -> dict[str, list[str]]:
        return {"answers": [f"colour {interrupt({'question': 'Colour?', 'options': ['red', 'blue']})}"]}

    def size(state: Answers) -> dict[str, list[str]]:
        return {"answers": [f"size {interrupt('Size?')}"]}

    def sum_up(state: Answers) -> dict[str, list[BaseMessage]]:
        return {"messages": [AIMessage(", ".join(sorted(state["answers"])))]}

    builder = StateGraph(Answers)
    for node in (colour, size):
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    builder.add_node("sum_up", sum_up)
    builder.add_edge(["colour", "size"], "sum_up")
    builder.add_edge("sum_up", END)
    return builder.compile(checkpointer=InMemorySaver())
