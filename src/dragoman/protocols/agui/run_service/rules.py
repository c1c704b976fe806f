"""The 20 rules of `POST /runs` as a table. They are checked in order, and the first violation is the answer. Pure.

Source: seed 002, "Validation Rules" and "client_time Validation"; the run service's specification, A.3.
"""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import parse_session_id
from dragoman.core.time_zones import is_instant, is_zone
from dragoman.protocols.agui.run_service.errors import FORWARDED_PROPS_MESSAGE, INPUT_INVALID, MESSAGES_INVALID, Problem
from dragoman.protocols.agui.run_service.wire import BinaryPart, RunAgentInput, UserMessage, decode_input
from dragoman.protocols.kit.errors import InvalidBody, InvalidJson

BODY_LIMIT = 262_144
RUN_ID_LIMIT = 128
MESSAGES_LIMIT = 200
ATTACHMENTS_LIMIT = 3
TEXT_LIMIT = 10_000
MEMORY_AGENT_TYPE = "memory"
"""The agent type of scheduled work, which clients cannot start."""
MESSAGE_RULES = range(5, 15)
"""The numbers of the rules about messages, which have a separate error code."""
CLIENT_TIME_FIELDS = {"device_timezone", "client_now_iso", "client_epoch_ms"}


class RuleContext(NamedTuple):
    """What the rules need to know beyond the body."""

    is_agent: Callable[[str], bool]
    """Whether an agent type is registered."""
    is_link: Callable[[str], bool]
    """Whether a URL is a signed link of this server, valid now, to an object of the caller."""


Subject = TypeVar("Subject")


class Rule(NamedTuple, Generic[Subject]):
    """One rule: its number and name, the message of a violation, and the predicate."""

    number: int
    name: str
    message: str
    holds: Callable[[Subject, RuleContext], bool]

    @property
    def code(self) -> str:
        """The error code of a violation."""
        return MESSAGES_INVALID if self.number in MESSAGE_RULES else INPUT_INVALID


AnyRule = Rule[bytes] | Rule[RunAgentInput] | Rule[BinaryPart]


class RuleViolation(Problem):
    """A body breaks a rule."""

    def __init__(self, rule: AnyRule, cause: InvalidJson | InvalidBody | None = None) -> None:
        is_read = rule is not SIZE_RULE
        headers = None if is_read else {"Connection": "close"}
        super().__init__(422, rule.code, rule.message, headers=headers, cause=cause)
        self.rule = rule


# --- predicates -------------------------------------------------------------------------------------------------------


def _are_forwarded_props_valid(body: RunAgentInput, _: RuleContext) -> bool:
    props = body.forwarded_props
    if not isinstance(props, dict) or props.keys() - {"agent_type", "client_time"}:
        return False
    agent_type = props.get("agent_type")
    return isinstance(agent_type, str) and agent_type != ""


def agent_type_of(body: RunAgentInput) -> str:
    """The agent type of a body whose `forwardedProps` are valid."""
    agent_type: str = body.forwarded_props["agent_type"]
    return agent_type


def client_time_of(body: RunAgentInput) -> JsonObject | None:
    """The device's time, if it is an object."""
    client_time = body.forwarded_props.get("client_time")
    return client_time if isinstance(client_time, dict) else None


def _is_client_time_valid(body: RunAgentInput, _: RuleContext) -> bool:
    client_time = client_time_of(body)
    return body.forwarded_props.get("client_time") is None or (
        client_time is not None and not client_time.keys() - CLIENT_TIME_FIELDS
    )


def _client_time_rule(number: int, field: str, is_valid: Callable[[Json], bool]) -> Rule[RunAgentInput]:
    """A rule about a field of `client_time`. It holds if there is no `client_time`; rule 20 demands an object."""

    def holds(body: RunAgentInput, _: RuleContext) -> bool:
        client_time = client_time_of(body)
        return client_time is None or is_valid(client_time.get(field))

    return Rule(number, field.replace("_", "-"), f"invalid client_time.{field}", holds)


# --- the table --------------------------------------------------------------------------------------------------------

SIZE_RULE: Rule[bytes] = Rule(
    1, "size", "RunAgentInput payload exceeds size limit", lambda raw, _: len(raw) <= BODY_LIMIT
)
SHAPE_RULE: Rule[bytes] = Rule(2, "shape", "invalid RunAgentInput", lambda raw, _: True)
"""Rules about the raw body. The decoder checks the second one."""

RULES_BEFORE_IMAGES: tuple[Rule[RunAgentInput], ...] = (
    Rule(3, "thread-id", "threadId must be a valid UUID", lambda body, _: parse_session_id(body.thread_id) is not None),
    Rule(4, "run-id", "runId exceeds length limit", lambda body, _: len(body.run_id) <= RUN_ID_LIMIT),
    Rule(5, "messages", "RunAgentInput.messages exceeds limit", lambda body, _: len(body.messages) <= MESSAGES_LIMIT),
    Rule(
        6,
        "one-user-message",
        "RunAgentInput.messages must contain exactly one user message",
        lambda body, _: sum(isinstance(each, UserMessage) for each in body.messages) == 1,
    ),
    Rule(
        7,
        "user-first",
        "RunAgentInput.messages[0].role must be user",
        lambda body, _: isinstance(body.messages[0], UserMessage),
    ),
)

IMAGE_RULES: tuple[Rule[BinaryPart], ...] = (
    Rule(
        8,
        "picture-type",
        "binary content requires image mimeType",
        lambda image, _: image.mime_type.lower().startswith("image/"),
    ),
    Rule(9, "picture-data", "binary content data is not allowed", lambda image, _: image.data is None),
    Rule(10, "picture-url", "binary content requires url", lambda image, _: bool(image.url)),
)
"""Checked image by image: all rules for the first image, then all for the second."""

RULES_AFTER_IMAGES: tuple[Rule[RunAgentInput], ...] = (
    Rule(11, "attachments", "Too many attachments", lambda body, _: len(body.images()) <= ATTACHMENTS_LIMIT),
    Rule(
        12,
        "signed-url",
        "binary content url is not a valid signed URL",
        lambda body, context: all(image.url and context.is_link(image.url) for image in body.images()),
    ),
    Rule(13, "text", "RunAgentInput user message text exceeds limit", lambda body, _: len(body.text()) <= TEXT_LIMIT),
    Rule(
        14,
        "not-empty",
        "RunAgentInput user message is empty",
        lambda body, _: bool(body.text().strip() or body.images()),
    ),
    Rule(15, "forwarded-props", FORWARDED_PROPS_MESSAGE, _are_forwarded_props_valid),
    Rule(
        16,
        "agent-type",
        FORWARDED_PROPS_MESSAGE,
        lambda body, context: agent_type_of(body) != MEMORY_AGENT_TYPE and context.is_agent(agent_type_of(body)),
    ),
    _client_time_rule(17, "device_timezone", lambda value: isinstance(value, str) and is_zone(value)),
    _client_time_rule(18, "client_now_iso", is_instant),
    _client_time_rule(19, "client_epoch_ms", lambda value: type(value) is int),
    Rule(20, "client-time", FORWARDED_PROPS_MESSAGE, _is_client_time_valid),
)

RULES: tuple[AnyRule, ...] = (SIZE_RULE, SHAPE_RULE, *RULES_BEFORE_IMAGES, *IMAGE_RULES, *RULES_AFTER_IMAGES)
"""All 20 rules in order."""


# --- checking ---------------------------------------------------------------------------------------------------------


def decode_run(raw: bytes) -> RunAgentInput:
    """Decode the body of `POST /runs`. Raises RuleViolation for rules 1 and 2."""
    if len(raw) > BODY_LIMIT:
        raise RuleViolation(SIZE_RULE)
    try:
        return decode_input(raw)
    except (InvalidJson, InvalidBody) as error:
        raise RuleViolation(SHAPE_RULE, error) from error


def check(body: RunAgentInput, context: RuleContext) -> None:
    """Check a body against the rules from 3 on. Raises RuleViolation for the first violation."""
    _check_all(RULES_BEFORE_IMAGES, [body], context)
    _check_all(IMAGE_RULES, body.images(), context)
    _check_all(RULES_AFTER_IMAGES, [body], context)


def _check_all(rules: Iterable[Rule[Subject]], subjects: Iterable[Subject], context: RuleContext) -> None:
    for subject in subjects:
        for rule in rules:
            if not rule.holds(subject, context):
                raise RuleViolation(rule)  # type: ignore[arg-type]  # a subject is one of the three kinds
