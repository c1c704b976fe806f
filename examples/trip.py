"""An agent that is a function and needs no model. Serve it with `dragoman serve examples/trip.py`.

It is straight-line code, but may wait for its user for a month. Meanwhile it occupies no memory. When the answer
arrives, the function is called again from its beginning; its earlier steps are recorded and are not executed again.
"""

from collections.abc import AsyncIterator

from msgspec import Struct

from dragoman import Run, SelectOption, ToolFailed, agent, tool


class Train(Struct):
    """A train connection."""

    number: str
    leaves: str
    price: int


@tool(idempotent=True, exposed=False)  # used only by the function itself, so clients need not enable it
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
    connections = await run.call(trains, place)
    choices = [(train.number, f"{train.leaves}, {train.price} EUR") for train in connections]
    number = await run.ask("Which train?", choices)
    chosen = next((train for train in connections if train.number == number), None)
    if chosen is None:
        yield f"There is no train {number!r}."
        return
    try:
        receipt = await run.call(buy, number=chosen.number, price=chosen.price, place_class=run.option("class"))
    except ToolFailed as error:
        yield f"Nothing was bought ({error})."
    else:
        yield f"Done: {receipt}. It leaves at {chosen.leaves}."
