"""Agents that are tools: their approvals, and what is stored of them while they wait.

The SDK identifies the calls of a run, and of all agents inside it, by their ids alone. Some providers number the calls
of each response, so that two agents that work at the same time have calls of the same id; one of them gets another.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from agents import FunctionTool, RunState
from agents.agent_tool_state import (
    drop_agent_tool_run_result,
    get_agent_tool_state_scope,
    peek_agent_tool_run_result,
    record_agent_tool_run_result,
)
from agents.items import ToolApprovalItem
from agents.run_state import _SerializedAgentToolRunResult
from agents.tool_context import ToolContext

from dragoman.adapters.openai_agents_stream import origin_of
from dragoman.core.content import Json, encode_json

INNER_STATE = "agent_run_state"
"""Where the SDK puts the state of an agent that is a tool."""


async def pending_approvals(
    tool: FunctionTool, context: ToolContext[Any], used_ids: Collection[str] = ()
) -> Sequence[ToolApprovalItem]:
    """The approvals that the agent behind a tool waits for; none of them has an id that is used."""
    call, scope = context.tool_call, get_agent_tool_state_scope(context)
    if call is None:
        return ()
    pending: Any = peek_agent_tool_run_result(call, scope_id=scope)  # a result, or what stands for one
    approvals: Sequence[ToolApprovalItem] = getattr(pending, "interruptions", None) or ()
    new_ids = {each: f"call_{uuid4().hex}" for item in approvals if (each := origin_of(item.raw_item)) in used_ids}
    if not new_ids:
        return approvals
    encoded = pending.to_state().to_json(context_serializer=lambda _: {})
    agent = tool._agent_instance
    assert agent is not None, "only agents wait for approvals in a tool"
    renamed = _renamed(encoded, new_ids)
    state: RunState[Any, Any] = await RunState.from_json(agent, renamed, context_deserializer=lambda _: context.context)
    drop_agent_tool_run_result(call, scope_id=scope)
    restored: Any = _SerializedAgentToolRunResult(state)  # as the SDK itself restores it
    record_agent_tool_run_result(call, restored, scope_id=scope)
    return state.get_interruptions()


def encode_without_contexts(stored: object, state: dict[str, Any]) -> bytes:
    """Encode a run state, as JSON, without the application's context, and those of agents inside it without theirs.

    The application makes its context again for each run. What is in it, such as a secret option, is not ours to store.

    Args:
        stored: what is encoded; it holds the state.
        state: the state, which is changed.
    """
    _remove_context(state)
    encoded = encode_json(stored)
    if INNER_STATE.encode() not in encoded:  # looking at each value is what costs a long run most
        return encoded
    for inner in _states_inside(state):
        _remove_context(inner)
    return encode_json(stored)


def _remove_context(state: dict[str, Any]) -> None:
    state["context"]["context"] = {}  # from None, the SDK restores None without asking for the application's context
    state["context"].pop("context_meta", None)


def _states_inside(value: Json) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for part in value:
            yield from _states_inside(part)
    elif isinstance(value, dict):
        for name, part in value.items():
            if name == INNER_STATE and isinstance(part, dict):
                yield part
            yield from _states_inside(part)


def _renamed(value: Json, names: Mapping[str, str]) -> Any:  # noqa: ANN401  # JSON of the same shape
    """JSON in which whole texts and keys are replaced by others."""
    match value:
        case str():
            return names.get(value, value)
        case list():
            return [_renamed(each, names) for each in value]
        case dict():
            return {names.get(key, key): _renamed(each, names) for key, each in value.items()}
        case _:
            return value
