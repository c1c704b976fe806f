"""An agent that is a function. Serve it: `dragoman serve examples/trip.py`. It needs no model.

It reads as straight-line code, though it may wait for its user for a month: then nothing of it is in memory, and it is
called again from its beginning when the answer has come. What it did before is on record and is not done twice.
"""

from collections.abc import AsyncIterator

from msgspec import Struct

from dragoman import Run, SelectOption, ToolFailed, agent, tool


class Train(Struct):
    """A connection."""

    number: str
    leaves: str
    price: int


@tool(idempotent=True, exposed=False)  # a step of the function's own: no client has to switch it on
def trains(place: str) -> list[Train]:
    """Look up the trains to a place."""
    first = sum(place.encode()) % 12 + 6
    return [Train(f"{place[:2].upper()} {hour}", f"{hour:02}:15", 20 + 3 * hour) for hour in (first, first + 4)]


@tool(needs_approval=True)
def buy(number: str, price: int, place_class: str) -> str:
    """Buy a ticket."""
    return f"ticket for {number}, {place_class} class, {price} EUR"


@agent(
    title="Trip planner",
    tools=[trains, buy],
    history=True,
    options=[SelectOption(name="class", options=("first", "second"), default="second", title="Class")],
)
async def trip(run: Run) -> AsyncIterator[str]:
    """Finds a train and buys the ticket. Say where you want to go."""
    place = run.text.strip()
    yield f"Trains to {place}. "
    found = await run.call(trains, place)
    number = await run.ask("Which train?", [(each.number, f"{each.leaves}, {each.price} EUR") for each in found])
    chosen = next((each for each in found if each.number == number), None)
    if chosen is None:
        yield f"There is no train {number!r}."
        return
    try:
        receipt = await run.call(buy, number=chosen.number, price=chosen.price, place_class=run.option("class"))
    except ToolFailed as error:
        yield f"Nothing was bought ({error})."
    else:
        yield f"Done: {receipt}. It leaves at {chosen.leaves}."
