"""The 20 rules of `POST /runs` as a table: checked from the top down, the first one broken is the answer. Pure.

Source: seed 002, "Validation Rules" and "client_time Validation"; the run service's specification, A.3.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import parse_session_id
from dragoman.core.time_zones import is_zone
from dragoman.protocols.agui.run_service.wire import (
    BinaryPart,
    InvalidBody,
    RunAgentInput,
    UserMessage,
    decode_input,
)

BODY_LIMIT = 262_144
RUN_ID_LIMIT = 128
MESSAGES_LIMIT = 200
ATTACHMENTS_LIMIT = 3
TEXT_LIMIT = 10_000
MEMORY_AGENT_TYPE = "memory"
"""The agent type of scheduled work: this door does not open it."""

INPUT_INVALID = "AGENT_RUN_INPUT_INVALID"
MESSAGES_INVALID = "AGENT_RUN_MESSAGES_INVALID"
FORWARDED_PROPS_MESSAGE = "invalid RunAgentInput.forwardedProps"
CLIENT_TIME_FIELDS = {"device_timezone", "client_now_iso", "client_epoch_ms"}


class RuleContext(NamedTuple):
    """What the rules ask beyond the body itself."""

    is_agent: Callable[[str], bool]
    """Whether an agent type is registered."""
    is_link: Callable[[str], bool]
    """Whether a URL is one of our signed links, valid now, to an object of the caller's."""


Subject = TypeVar("Subject")


class Rule(NamedTuple, Generic[Subject]):
    """One rule: its number and name, what is answered when it does not hold, and when it holds."""

    number: int
    name: str
    message: str
    holds: Callable[[Subject, RuleContext], bool]
    code: str = INPUT_INVALID


AnyRule = Rule[bytes] | Rule[RunAgentInput] | Rule[BinaryPart]


class RuleViolation(Exception):
    """A body breaks a rule. `locations` are the fields at fault, where the rule is about the shape."""

    def __init__(self, rule: AnyRule, locations: Sequence[Sequence[str | int]] = ()) -> None:
        super().__init__(rule.message)
        self.rule = rule
        self.locations = locations


# --- what the rules say -----------------------------------------------------------------------------------------------


def _are_forwarded_props_valid(body: RunAgentInput, _: RuleContext) -> bool:
    props = body.forwarded_props
    if not isinstance(props, dict) or props.keys() - {"agent_type", "client_time"}:
        return False
    agent_type = props.get("agent_type")
    return isinstance(agent_type, str) and agent_type != ""


def agent_type_of(body: RunAgentInput) -> str:
    """The agent type that a body with proper `forwardedProps` names."""
    agent_type: str = body.forwarded_props["agent_type"]
    return agent_type


def client_time_of(body: RunAgentInput) -> JsonObject | None:
    """The device's time, where there is an object."""
    client_time = body.forwarded_props.get("client_time")
    return client_time if isinstance(client_time, dict) else None


def _client_time_rule(holds: Callable[[JsonObject], bool]) -> Callable[[RunAgentInput, RuleContext], bool]:
    """A rule about `client_time`, which holds where there is none. Whether that is an object is rule 20."""
    return lambda body, _: (client_time := client_time_of(body)) is None or holds(client_time)


def _is_client_time_valid(body: RunAgentInput, _: RuleContext) -> bool:
    client_time = client_time_of(body)
    return "client_time" not in body.forwarded_props or (
        client_time is not None and not client_time.keys() - CLIENT_TIME_FIELDS
    )


def _is_zone(value: Json) -> bool:
    return isinstance(value, str) and is_zone(value)


_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:[Zz]|[+-]([0-9]{2}):([0-9]{2}))"
)


def is_instant(value: Json) -> bool:
    """Whether that is a time as RFC 3339 writes it: with an offset, which `Z` is too. A leap second is one."""
    if not isinstance(value, str) or (found := _INSTANT.fullmatch(value)) is None:
        return False
    day, minute, second, offset_hours, offset_minutes = found.groups(default="0")
    try:
        datetime.fromisoformat(f"{day}T{minute}:00+00:00")
    except ValueError:
        return False
    return int(second) <= 60 and int(offset_hours) <= 23 and int(offset_minutes) <= 59


# --- the table --------------------------------------------------------------------------------------------------------

SIZE_RULE: Rule[bytes] = Rule(
    1, "size", "RunAgentInput payload exceeds size limit", lambda raw, _: len(raw) <= BODY_LIMIT
)
SHAPE_RULE: Rule[bytes] = Rule(2, "shape", "invalid RunAgentInput", lambda raw, _: True)
"""What holds of the bytes, before there is a `RunAgentInput`; whether the second one does, the decoder finds."""

RULES_BEFORE_PICTURES: tuple[Rule[RunAgentInput], ...] = (
    Rule(3, "thread-id", "threadId must be a valid UUID", lambda body, _: parse_session_id(body.thread_id) is not None),
    Rule(4, "run-id", "runId exceeds length limit", lambda body, _: len(body.run_id) <= RUN_ID_LIMIT),
    Rule(
        5,
        "messages",
        "RunAgentInput.messages exceeds limit",
        lambda body, _: len(body.messages) <= MESSAGES_LIMIT,
        MESSAGES_INVALID,
    ),
    Rule(
        6,
        "one-user-message",
        "RunAgentInput.messages must contain exactly one user message",
        lambda body, _: sum(isinstance(each, UserMessage) for each in body.messages) == 1,
        MESSAGES_INVALID,
    ),
    Rule(
        7,
        "user-first",
        "RunAgentInput.messages[0].role must be user",
        lambda body, _: isinstance(body.messages[0], UserMessage),
        MESSAGES_INVALID,
    ),
)

PICTURE_RULES: tuple[Rule[BinaryPart], ...] = (
    Rule(
        8,
        "picture-type",
        "binary content requires image mimeType",
        lambda picture, _: picture.mime_type.lower().startswith("image/"),
        MESSAGES_INVALID,
    ),
    Rule(
        9,
        "picture-data",
        "binary content data is not allowed",
        lambda picture, _: picture.data is None,
        MESSAGES_INVALID,
    ),
    Rule(10, "picture-url", "binary content requires url", lambda picture, _: bool(picture.url), MESSAGES_INVALID),
)
"""Picture by picture: of one that breaks two, the first is the answer; of two that break one, the first picture's."""

RULES_AFTER_PICTURES: tuple[Rule[RunAgentInput], ...] = (
    Rule(
        11,
        "attachments",
        "Too many attachments",
        lambda body, _: len(body.pictures()) <= ATTACHMENTS_LIMIT,
        MESSAGES_INVALID,
    ),
    Rule(
        12,
        "signed-url",
        "binary content url is not a valid signed URL",
        lambda body, world: all(picture.url and world.is_link(picture.url) for picture in body.pictures()),
        MESSAGES_INVALID,
    ),
    Rule(
        13,
        "text",
        "RunAgentInput user message text exceeds limit",
        lambda body, _: len(body.text()) <= TEXT_LIMIT,
        MESSAGES_INVALID,
    ),
    Rule(
        14,
        "not-empty",
        "RunAgentInput user message is empty",
        lambda body, _: bool(body.text().strip() or body.pictures()),
        MESSAGES_INVALID,
    ),
    Rule(15, "forwarded-props", FORWARDED_PROPS_MESSAGE, _are_forwarded_props_valid),
    Rule(
        16,
        "agent-type",
        FORWARDED_PROPS_MESSAGE,
        lambda body, world: agent_type_of(body) != MEMORY_AGENT_TYPE and world.is_agent(agent_type_of(body)),
    ),
    Rule(
        17,
        "device-timezone",
        "invalid client_time.device_timezone",
        _client_time_rule(lambda given: _is_zone(given.get("device_timezone"))),
    ),
    Rule(
        18,
        "client-now-iso",
        "invalid client_time.client_now_iso",
        _client_time_rule(lambda given: is_instant(given.get("client_now_iso"))),
    ),
    Rule(
        19,
        "client-epoch-ms",
        "invalid client_time.client_epoch_ms",
        _client_time_rule(lambda given: type(given.get("client_epoch_ms")) is int),
    ),
    Rule(20, "client-time", FORWARDED_PROPS_MESSAGE, _is_client_time_valid),
)

RULES: tuple[AnyRule, ...] = (SIZE_RULE, SHAPE_RULE, *RULES_BEFORE_PICTURES, *PICTURE_RULES, *RULES_AFTER_PICTURES)
"""All 20, in the order in which they are checked."""


# --- checking ---------------------------------------------------------------------------------------------------------


def decode_run(raw: bytes) -> RunAgentInput:
    """Read the body of `POST /runs`: rules 1 and 2.

    Raises:
        Broken: one of the two does not hold.
    """
    if len(raw) > BODY_LIMIT:
        raise RuleViolation(SIZE_RULE)
    try:
        return decode_input(raw)
    except InvalidBody as error:
        raise RuleViolation(SHAPE_RULE, [error.location]) from error


def check(body: RunAgentInput, context: RuleContext) -> None:
    """Hold a body against the rules from 3 on. Raises Broken for the first one that does not hold."""
    _check_all(RULES_BEFORE_PICTURES, [body], context)
    _check_all(PICTURE_RULES, body.pictures(), context)
    _check_all(RULES_AFTER_PICTURES, [body], context)


def _check_all(rules: Iterable[Rule[Subject]], subjects: Iterable[Subject], context: RuleContext) -> None:
    for subject in subjects:
        for rule in rules:
            if not rule.holds(subject, context):
                raise RuleViolation(rule)  # type: ignore[arg-type]  # a subject is one of the three kinds
