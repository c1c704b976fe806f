"""One agent of each framework for the benchmark. Their models play the `emit` step of a script without ever waiting."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import agents
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def _deltas(prompt: str) -> Iterator[str]:
    for step in json.loads(prompt)["script"]:
        for _ in range(step["emit"]["count"]):
            yield step["emit"]["text"]


# --- Pydantic AI ------------------------------------------------------------------------------------------------------


async def _play(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
    (prompt,) = (
        part for message in messages[-1:] for part in message.parts if isinstance(message, ModelRequest)
        if isinstance(part, UserPromptPart)
    )  # fmt: skip
    for delta in _deltas(str(prompt.content)):
        yield delta


pydantic_ai = Agent(FunctionModel(stream_function=_play), name="pydantic_ai")


# --- LangGraph --------------------------------------------------------------------------------------------------------


class _ChatModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "bench"

    def _generate(self, messages: list[BaseMessage], *given: object, **more: object) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self, messages: list[BaseMessage], *given: object, **more: object
    ) -> AsyncIterator[ChatGenerationChunk]:
        for delta in _deltas(messages[-1].text):
            yield ChatGenerationChunk(message=AIMessageChunk(content=delta))


async def _answer(state: MessagesState) -> dict[str, Sequence[BaseMessage]]:
    return {"messages": [await _ChatModel().ainvoke(state["messages"])]}


langgraph = (
    StateGraph(MessagesState).add_node("answer", _answer).add_edge(START, "answer").add_edge("answer", END).compile()
)
langgraph.name = "langgraph"


# --- OpenAI Agents SDK ------------------------------------------------------------------------------------------------


class _Model(agents.Model):
    async def get_response(self, *given: object, **more: object) -> agents.ModelResponse:
        raise NotImplementedError

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[agents.TResponseInputItem],  # noqa: A002  # the SDK's name
        *given: object,
        **more: object,
    ) -> AsyncIterator[Any]:
        content: Any = input if isinstance(input, str) else dict(input[-1])["content"]
        deltas = list(_deltas(content if isinstance(content, str) else content[-1]["text"]))
        for number, delta in enumerate(deltas):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta", delta=delta, item_id="msg", output_index=0, content_index=0,
                sequence_number=number, logprobs=[],
            )  # fmt: skip
        text = ResponseOutputText(type="output_text", text="".join(deltas), annotations=[])
        message = ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=[text])
        response = Response(
            id="resp", created_at=0, model="bench", object="response", output=[message], tools=[], tool_choice="auto",
            parallel_tool_calls=True,
        )  # fmt: skip
        yield ResponseCompletedEvent(type="response.completed", sequence_number=len(deltas), response=response)


openai_agents = agents.Agent(name="openai_agents", model=_Model())
