"""Checks of seeds, the messages with which a client begins a session. Pure."""

from collections.abc import Sequence

from dragoman.core.content import AssistantMessage, Message, ToolMessage
from dragoman.core.ids import CallId
from dragoman.core.input_checks import InputLimits, check_content
from dragoman.core.refusals import InvalidSeed, LimitExceeded
from dragoman.core.tools import AgentSpec


def check_seeds(spec: AgentSpec, seeds: Sequence[Message], limits: InputLimits) -> set[CallId]:
    """Check seeds together. Returns the calls that are open; only the last answer may have any.

    Args:
        spec: the session's agent.
        seeds: the messages.
        limits: of one session.

    Raises:
        Invalid: they do not fit the agent, the limits or each other.
    """
    _check_contents(spec, seeds, limits, len(seeds))
    positions, answered, last_answer = _match_calls(seeds)
    for call_id, index in positions.items():
        if call_id not in answered and index != last_answer:
            raise InvalidSeed(f"call {call_id!r} has no result", path=f"messages[{index}]")
    return {call_id for call_id in positions if call_id not in answered}


def check_added_seeds(
    spec: AgentSpec, seeds: Sequence[Message], limits: InputLimits, earlier: Sequence[Message]
) -> None:
    """Check seeds that follow others. The result of a call may be added later than the call, or never.

    Raises:
        Invalid: as `check_seeds`.
    """
    _check_contents(spec, seeds, limits, len(earlier) + len(seeds))
    _match_calls([*earlier, *seeds], first=len(earlier))


def _check_contents(spec: AgentSpec, seeds: Sequence[Message], limits: InputLimits, count: int) -> None:
    if count > limits.seeds:
        raise LimitExceeded("the number of messages", limits.seeds, path="messages")
    for index, message in enumerate(seeds):
        check_content(spec, message.content, limits, f"messages[{index}]")


def _match_calls(seeds: Sequence[Message], first: int = 0) -> tuple[dict[CallId, int], set[CallId], int]:
    """Match results with their calls. Returns the places of the calls, those with a result, and the last answer's.

    Errors count from the message at `first`.
    """
    positions: dict[CallId, int] = {}
    answered: set[CallId] = set()
    last_answer = -1
    for index, message in enumerate(seeds):
        path = f"messages[{index - first}]"
        if isinstance(message, AssistantMessage):
            last_answer = index
            for call in message.calls():
                if call.call_id in positions:
                    raise InvalidSeed(f"call id {call.call_id!r} is used twice", path=path)
                positions[call.call_id] = index
        elif isinstance(message, ToolMessage):
            if message.call_id not in positions or message.call_id in answered:
                error = f"no open call {message.call_id!r} comes before this result"
                raise InvalidSeed(error, path=f"{path}.toolCallId")
            answered.add(message.call_id)
    return positions, answered, last_answer
