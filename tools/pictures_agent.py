"""The agent in the pictures of the documentation, with a model that says the same in every picture."""

import asyncio
from collections.abc import AsyncGenerator

from dragoman import Agent, tool
from dragoman.core.content import JsonObject, Usage, UserMessage
from dragoman.ports.models import CallRequested, Finished, ModelEvent, ModelRequest, TextDelta

DELAY_S = 0.045
TRAINS = """\
Three trains fit:

| train | leaves | arrives | price |
|---|---|---|---|
| RJX 65 | 7:27 | 11:30 | €49 |
| ICE 21 | 9:16 | 13:30 | €39 |
| RJX 67 | 11:27 | 15:30 | €29 |

I would take **ICE 21**. It is direct, costs ten euros less than the first one, and leaves you the whole afternoon in \
Vienna. The station is ten minutes from your hotel by underground, so you can drop your bags off before the museum \
closes at six.
"""


@tool(reads_only=True)
def find_trains(to: str, day: str) -> list[str]:
    """Find direct trains."""
    return [f"RJX 65 to {to} on {day} at 7:27", "ICE 21 at 9:16", "RJX 67 at 11:27"]


@tool(needs_approval=True)
def book(train: str, seat: str, euros: int) -> str:
    """Book a seat on a train."""
    return f"booked {seat} seat on {train} for {euros} euros"


class Actor:
    """A model that plays its part word by word."""

    context_window = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Answer a request, depending on its last message."""
        last = request.messages[-1]
        call: tuple[str, JsonObject] | None = None
        if isinstance(last, UserMessage) and "Vienna" in str(last.content):
            text, call = "Let me look at the timetable.", ("find_trains", {"to": "Vienna", "day": "Friday"})
        elif isinstance(last, UserMessage) and "ICE" in str(last.content):
            text, call = "I can book it if you allow it.", ("book", {"train": "ICE 21", "seat": "window", "euros": 39})
        elif isinstance(last, UserMessage):
            text = "Hello! Where would you like to go?"
        else:
            text = TRAINS
        for word in text.split(" "):
            await asyncio.sleep(DELAY_S)
            yield TextDelta(f"{word} ")
        if call is not None:
            yield CallRequested(id=f"call-{len(request.messages)}", name=call[0], input=call[1], raw="")
        usage = Usage(input_tokens=412, output_tokens=len(text.split()))
        yield Finished(stop="end_turn" if call is None else "tool_use", usage=usage)


travel = Agent(
    "travel",
    model=Actor(),
    title="Travel",
    tools=[find_trains, book],
    instructions="You plan journeys by train.",
    history=True,
    client_tools=True,
    starters=["Which trains go to Vienna on Friday?"],
)
