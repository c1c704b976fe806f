"""Checks of seeds, the messages with which a client begins a session. Pure."""

from collections.abc import Sequence

from dragoman.core.content import AssistantMessage, Message, ToolMessage
from dragoman.core.ids import CallId
from dragoman.core.input_checks import InputLimits, check_content
from dragoman.core.refusals import InvalidSeed, LimitExceeded
from dragoman.core.tools import AgentSpec


def check_seeds(spec: AgentSpec, seeds: Sequence[Message], limits: InputLimits, earlier: int = 0) -> set[CallId]:
    """Check seeds together. Returns the calls that are open; only the last answer may have any.

    Args:
        spec: the session's agent.
        seeds: the messages.
        limits: of one session.
        earlier: the number of seeds that the session has already.

    Raises:
        Invalid: they do not fit the agent, the limits or each other.
    """
    if earlier + len(seeds) > limits.seeds:
        raise LimitExceeded("the number of messages", limits.seeds, path="messages")
    for index, message in enumerate(seeds):
        check_content(spec, message.content, limits, f"messages[{index}]")
    return _check_calls(seeds)


def _check_calls(seeds: Sequence[Message]) -> set[CallId]:
    """Match the seeds' results with their calls. Returns the open calls; only the last answer may have any."""
    positions: dict[CallId, int] = {}
    answered: set[CallId] = set()
    last_answer = -1
    for index, message in enumerate(seeds):
        if isinstance(message, AssistantMessage):
            last_answer = index
            for call in message.calls():
                if call.call_id in positions:
                    raise InvalidSeed(f"call id {call.call_id!r} is used twice", path=f"messages[{index}]")
                positions[call.call_id] = index
        elif isinstance(message, ToolMessage):
            if message.call_id not in positions or message.call_id in answered:
                raise InvalidSeed(
                    f"no open call {message.call_id!r} comes before this result", path=f"messages[{index}].toolCallId"
                )
            answered.add(message.call_id)
    for call_id, index in positions.items():
        if call_id not in answered and index != last_answer:
            raise InvalidSeed(f"call {call_id!r} has no result", path=f"messages[{index}]")
    return {call_id for call_id in positions if call_id not in answered}
