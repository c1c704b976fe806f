"""What an MCP server asks the user during a call, as questions of the session.

Source: Model Context Protocol, "Elicitation". The call stays open on the server while the session waits for the answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar, copy_context
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import structlog

from dragoman.core.agent import Deferred
from dragoman.core.content import Json, JsonObject
from dragoman.core.json_schema import check_schema, validation_error
from dragoman.core.question_text import NO_ANSWER
from dragoman.core.refusals import Invalid

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

ANSWER_TIMEOUT_S = 3600.0
"""How long a call waits on its server for the user's answer. Then it is cancelled."""
ACCEPT, DECLINE, SKIP, YES, NO = "accept", "decline", "skip", "yes", "no"

Answers = Sequence[Sequence[str]]
"""`ToolContext.answers`."""

log = structlog.get_logger(__name__)


class UnsuitableAnswer(Exception):
    """The answers do not fit the form. The message says why, for the user."""


class ServerCall:
    """A call in progress. Its task outlives a run that ends because the user has to answer.

    Args:
        call: calls the tool on the server.
        can_ask: whether there is a user who can be asked.
        first_answers: the answer to the server's first question, if it fits; for a call that is repeated.
    """

    current: "ContextVar[ServerCall | None]" = ContextVar("current", default=None)
    """The call that a request of the server belongs to, where the transport knows it."""

    def __init__(
        self, call: Callable[[], Awaitable["CallToolResult"]], *, can_ask: bool, first_answers: Answers
    ) -> None:
        self.form: ElicitRequestParams | None = None
        """What the server asks at the moment."""
        self.is_asking = False
        """Whether the server waits for an answer."""
        self._can_ask = can_ask
        self._first_answers = first_answers
        self._response: asyncio.Future[ElicitResult] = asyncio.get_running_loop().create_future()
        self._has_changed = asyncio.Event()
        context = copy_context()
        context.run(self.current.set, self)
        self.task = asyncio.create_task(self._run(call), context=context)

    async def _run(self, call: Callable[[], Awaitable["CallToolResult"]]) -> "CallToolResult":
        try:
            return await call()
        finally:
            self._has_changed.set()

    async def ask(self, form: "ElicitRequestParams") -> "ElicitResult":
        """Wait for the user's answer to a form. A second form at the same time, or one without an answer, is closed."""
        from mcp_types import ElicitResult

        if self.is_asking or not self._can_ask or not _is_supported(form):
            return ElicitResult(action="cancel")
        first, self._first_answers = self._first_answers, ()
        if first:
            try:
                return response_to(form, first)
            except UnsuitableAnswer:  # it was the answer to another form
                pass
        self.form, self.is_asking = form, True
        self._response = asyncio.get_running_loop().create_future()
        self._has_changed.set()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._response
        except TimeoutError:
            self.task.cancel()  # no run waits for its result, and as an open call it may keep others from asking
            return ElicitResult(action="cancel")
        finally:
            self.is_asking = False

    def answer(self, answers: Answers) -> None:
        """Send the user's answer to the server.

        Raises:
            Deferred: it does not fit the form, and the user is asked again.
        """
        if self.form is not None and not self._response.done():
            try:
                self._response.set_result(response_to(self.form, answers))
            except UnsuitableAnswer as error:
                raise Deferred("question", questions_for(self.form, str(error))) from error
            self.form = None

    def abandon(self) -> None:
        """Close what the server asks, now and later: nobody will answer."""
        from mcp_types import ElicitResult

        self._can_ask = False
        if self.is_asking and not self._response.done():
            self._response.set_result(ElicitResult(action="cancel"))

    async def result(self) -> "CallToolResult":
        """The call's result.

        Raises:
            Deferred: the server asks the user first; `answer` continues the call.
        """
        await self._has_changed.wait()
        self._has_changed.clear()
        if self.form is not None and self.is_asking:
            raise Deferred("question", questions_for(self.form))
        return await self.task


def questions_for(form: "ElicitRequestParams", problem: str = "") -> JsonObject:
    """A form as questions: one for each field, or whether to continue if it has none."""
    intro = f"{problem}\n{form.message}" if problem else form.message
    if form.mode == "url":
        intro = f"{intro}\n{form.url}"
    fields = _fields_of(form)
    if not fields:
        return {"questions": [{"question": intro, "options": [{"label": ACCEPT}, {"label": DECLINE}]}]}
    questions: list[Json] = []
    for name, field in fields.items():
        title = str(field.get("title") or name)
        text = f"{title}: {field['description']}" if field.get("description") else title
        labels = [*_choices_of(field), *(() if name in _required(form) else (SKIP,))]
        questions.append(
            {
                "question": text if questions else f"{intro}\n{text}",
                "header": title,
                "options": [{"label": label} for label in labels],
                "multiSelect": field.get("type") == "array",
            }
        )
    return {"questions": questions}


def response_to(form: "ElicitRequestParams", answers: Answers) -> "ElicitResult":
    """The response to a form.

    Raises:
        UnsuitableAnswer: a field's answer is not a value that the form accepts.
    """
    from mcp_types import ElicitResult

    fields = _fields_of(form)
    if not fields:
        is_accepted = answers and [each.strip().casefold() for each in answers[0]] == [ACCEPT]
        action: Literal["accept", "decline"] = "accept" if is_accepted else "decline"
        return ElicitResult(action=action, content={} if is_accepted and form.mode == "form" else None)
    if len(answers) != len(fields):
        raise UnsuitableAnswer(f"Expected {len(fields)} answers, got {len(answers)}.")
    content: dict[str, Any] = {}
    for (name, field), chosen in zip(fields.items(), answers, strict=True):
        if name in _required(form) or not {SKIP, NO_ANSWER} & set(chosen):
            content[name] = _value_of(field, chosen)
        elif "default" in field:
            content[name] = field["default"]
    error = validation_error(form.requested_schema, content) if form.mode == "form" else None
    if error is not None:
        raise UnsuitableAnswer(f"This answer is not accepted: {error}.")
    return ElicitResult(action="accept", content=content)


def _is_supported(form: "ElicitRequestParams") -> bool:
    """Whether a form's schema is valid. The server checks what `validation_error` does not, such as patterns."""
    if form.mode == "url":
        return True
    try:
        check_schema(form.requested_schema, unsupported=frozenset())
    except Invalid as error:
        log.warning("MCP server asked the user with an invalid schema, question closed", reason=str(error))
        return False
    return all(isinstance(each, dict) for each in form.requested_schema.get("properties", {}).values())


def _fields_of(form: "ElicitRequestParams") -> dict[str, JsonObject]:
    if form.mode == "url":
        return {}
    properties: dict[str, JsonObject] = form.requested_schema.get("properties", {})
    return properties


def _required(form: "ElicitRequestParams") -> Sequence[str]:
    required: Sequence[str] = () if form.mode == "url" else form.requested_schema.get("required", ())
    return required


def _choices_of(field: JsonObject) -> dict[str, Json]:
    """The values of a field that can be chosen, by their labels."""
    if field.get("type") == "boolean":
        return {YES: True, NO: False}
    source = field.get("items", {}) if field.get("type") == "array" else field
    if titled := source.get("oneOf") or source.get("anyOf"):
        return {str(each.get("title") or each.get("const")): each.get("const") for each in titled}
    values = source.get("enum", [])
    names = source.get("enumNames", values)
    return dict(zip(map(str, names), values, strict=False))


def _value_of(field: JsonObject, chosen: Sequence[str]) -> Json:
    """The answer as the field's type, as far as it can be read as that. The form's schema decides."""
    choices = {label.casefold(): value for label, value in _choices_of(field).items()}
    values = [choices.get(each.strip().casefold(), each) for each in chosen]
    if field.get("type") == "array":
        return values
    value = values[0] if values else ""
    if field.get("type") in ("integer", "number") and isinstance(value, str):
        try:
            number = int(value) if field["type"] == "integer" else float(value)
        except ValueError:
            return value
        return value if isinstance(number, float) and not isfinite(number) else number  # JSON has no NaN
    return value
