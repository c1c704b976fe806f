"""Runs that nobody attends: their answer goes to a program, and nobody can be asked anything. Pure.

A door says so in the run's `props`, which the log keeps.
"""

from dragoman.core.answers import compact
from dragoman.core.content import JsonObject
from dragoman.core.json_schema import fault, json_in

HEADLESS = "headless"
"""The property of a run in which nobody can be asked; it is true."""
SCHEMA = "output_schema"
"""The property that holds the JSON Schema which the answer has to fit."""
NOBODY = "nobody can be asked in this run: go on without an answer, as you think best"
UNASKED = "this tool needs the user's approval, and nobody can be asked in this run"


def is_headless(props: JsonObject) -> bool:
    """Whether nobody can be asked."""
    return props.get(HEADLESS) is True


def instruction(props: JsonObject) -> str:
    """What a model is told of the answer that is wanted; empty where none is."""
    schema = props.get(SCHEMA)
    if schema is None:
        return ""
    return (
        f"Your last answer is read by a program. It has to be JSON alone that fits this JSON Schema: {compact(schema)}"
    )


def unfit(schema: JsonObject, text: str) -> str | None:
    """What about an answer does not fit; None when it fits."""
    try:
        value = json_in(text)
    except ValueError:
        return "it is no JSON"
    return fault(schema, value)
