"""The travel agent with a test model, which needs no key, and a workflow that asks before it sends a letter.

pip install "dragoman[langgraph]" langchain
dragoman serve examples/langgraph/rehearsed.py
"""

from collections.abc import Sequence

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


def find_hotels(city: str) -> list[str]:
    """Find hotels in a city."""
    return [f"Hotel {city}", f"{city} Inn"]


def book_hotel(hotel: str, nights: int) -> str:
    """Book a hotel."""
    return f"{hotel}: {nights} nights booked"


class TestModel(BaseChatModel):
    """Finds hotels in the city that ends the message, books the first one, and says what was booked."""

    @property
    def _llm_type(self) -> str:
        return "test"

    def bind_tools(self, tools: Sequence[object], **options: object) -> "TestModel":
        return self

    def _generate(self, messages: list[BaseMessage], *rest: object, **options: object) -> ChatResult:
        newest = max(place for place, message in enumerate(messages) if message.type == "human")
        city = str(messages[newest].text).split()[-1]
        results = [str(message.text) for message in messages[newest:] if message.type == "tool"]
        calls = [("find_hotels", {"city": city}), ("book_hotel", {"hotel": f"Hotel {city}", "nights": 2})]
        if len(results) < len(calls):
            name, arguments = calls[len(results)]
            call = {"name": name, "args": arguments, "id": f"{name}-{city}", "type": "tool_call"}
            answer = AIMessage("", tool_calls=[call])
        else:
            answer = AIMessage(results[-1])
        return ChatResult(generations=[ChatGeneration(message=answer)])


travel = create_agent(
    TestModel(),
    tools=[find_hotels, book_hotel],
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"book_hotel": True})],
)


class Topic(TypedDict):
    """What the user says."""

    topic: str


class Letter(Topic):
    """What the workflow writes."""

    text: str
    verdict: str


def write(state: Topic) -> dict[str, str]:
    """Write the letter."""
    return {"text": f"Dear reader, this is about {state['topic']}."}


def review(state: Letter) -> dict[str, str]:
    """Ask whether to send it."""
    return {"verdict": interrupt({"question": f"Send this? {state['text']}", "options": ["send", "drop"]})}


builder = StateGraph(Letter, input_schema=Topic)
builder.add_node("write", write)
builder.add_node("review", review)
builder.add_edge(START, "write")
builder.add_edge("write", "review")
builder.add_edge("review", END)
letters = builder.compile()
