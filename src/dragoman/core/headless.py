"""What applications rule out in a run: questions to a person, further calls, answers of another form. Pure."""

from typing import Literal

from dragoman.core.answers import compact_json
from dragoman.core.content import Json
from dragoman.core.json_schema import parse_json, validation_error
from dragoman.core.run_metadata import RunMetadata

NO_USER_ANSWER = "nobody can be asked in this run: go on without an answer, as you think best"
APPROVAL_UNAVAILABLE = "this tool needs the user's approval, and nobody can be asked in this run"


def cannot_ask(metadata: RunMetadata, kind: Literal["permission", "question"]) -> bool:
    """Whether nobody can be asked for a permission, or a question, in a run."""
    return metadata.headless or (kind == "permission" and metadata.denies_approvals)


def refusal_without_user(kind: Literal["permission", "question"]) -> str:
    """Why a call that needs a person is denied in a headless run, as the model reads it."""
    return NO_USER_ANSWER if kind == "question" else APPROVAL_UNAVAILABLE


def too_many_calls(limit: int) -> str:
    """Why a call is not executed in a run whose application limits calls, as the model reads it."""
    return f"the application allows {limit} tool calls in this run: answer without further calls"


def output_instruction(schema: Json) -> str:
    """The instruction for a model to answer in JSON that matches a schema; empty if there is no schema."""
    if schema is None:
        return ""
    text = compact_json(schema)
    return f"Your last answer is read by a program. It has to be JSON alone that fits this JSON Schema: {text}"


def output_error(schema: Json, text: str) -> str | None:
    """How an answer does not match the schema; None if it does."""
    try:
        value = parse_json(text)
    except ValueError:
        return "it is not valid JSON"
    return validation_error(schema, value)
