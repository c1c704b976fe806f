"""Runs that nobody attends: their answer goes to a program, and nobody can be asked anything. Pure.

A door says so in the run's `props`, which the log keeps.
"""

from dragoman.core.answers import compact_json
from dragoman.core.content import JsonObject
from dragoman.core.json_schema import parse_json, validation_error

HEADLESS = "headless"
"""The property of a run in which nobody can be asked; it is true."""
OUTPUT_SCHEMA = "output_schema"
"""The property that holds the JSON Schema which the answer has to fit."""
NO_USER_ANSWER = "nobody can be asked in this run: go on without an answer, as you think best"
APPROVAL_UNAVAILABLE = "this tool needs the user's approval, and nobody can be asked in this run"


def is_headless(metadata: JsonObject) -> bool:
    """Whether nobody can be asked."""
    return metadata.get(HEADLESS) is True


def output_instruction(metadata: JsonObject) -> str:
    """What a model is told of the answer that is wanted; empty where none is."""
    schema = metadata.get(OUTPUT_SCHEMA)
    if schema is None:
        return ""
    text = compact_json(schema)
    return f"Your last answer is read by a program. It has to be JSON alone that fits this JSON Schema: {text}"


def output_error(schema: JsonObject, text: str) -> str | None:
    """What about an answer does not fit; None when it fits."""
    try:
        value = parse_json(text)
    except ValueError:
        return "it is no JSON"
    return validation_error(schema, value)
