"""A model with two tools. Serve it with `dragoman serve examples/assistant.py`.

The tools are plain typed functions. The model sees their names, docstrings and parameters; a Google-style docstring
describes each parameter.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

from dragoman import Agent, ToolContext, ToolFailed, tool

RATES = {"EUR": 1.0, "USD": 1.09, "JPY": 163.0, "CHF": 0.94}


@tool(idempotent=True)
def convert(
    amount: Annotated[float, Meta(gt=0)],
    source: Literal["EUR", "USD", "JPY", "CHF"],
    target: Literal["EUR", "USD", "JPY", "CHF"],
) -> dict[str, object]:
    """Convert an amount of money from one currency to another.

    Args:
        amount: the amount in the source currency.
        source: the currency to convert from.
        target: the currency to convert to.
    """
    return {"amount": round(amount / RATES[source] * RATES[target], 2), "currency": target}


@tool(idempotent=True)
def time_in(context: ToolContext, zone: str | None = None) -> str:
    """Tell the time.

    Args:
        zone: an IANA time zone such as Europe/Rome. Default: the user's time zone.
    """
    try:
        return datetime.now(UTC).astimezone(ZoneInfo(zone or context.time_zone)).strftime("%A, %H:%M")
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ToolFailed(f"unknown time zone {zone!r}; expected an IANA name such as Europe/Rome") from error


assistant = Agent(
    "assistant",
    title="Travel assistant",
    description="Converts currencies and tells the time.",
    tools=[convert, time_in],
    history=True,
    client_tools=True,
    instructions="You help travelers. Always use your tools for rates and times; never guess. Be brief.",
)
