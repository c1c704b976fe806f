"""A travel agent, as LangChain's own documentation writes one: no line of Dragoman. It asks before it books.

export OPENAI_API_KEY=…
pip install "dragoman[langgraph]" langchain langchain-openai
dragoman serve examples/langgraph/app.py
"""

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware


def find_hotels(city: str) -> list[str]:
    """Find hotels in a city."""
    return [f"Hotel {city}", f"{city} Inn"]


def book_hotel(hotel: str, nights: int) -> str:
    """Book a hotel."""
    return f"{hotel}: {nights} nights booked"


travel = create_agent(
    "openai:gpt-5-mini",
    tools=[find_hotels, book_hotel],
    system_prompt="You book hotels.",
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"book_hotel": True})],
)
