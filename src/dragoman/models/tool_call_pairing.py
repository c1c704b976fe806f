"""Conversations as providers accept them: every call with its result. Pure; used by each adapter."""

from collections.abc import Iterator, Sequence

import msgspec

from dragoman.core.content import AssistantMessage, Call, Message, ToolMessage
from dragoman.core.ids import CallId


def with_paired_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """The conversation with every call followed by its result, and neither alone.

    Providers refuse a call without a result, and a result without its call. A result counts up to the next assistant
    message and moves right behind its step; of two results for one call the first counts, and of two calls with one id.
    A call without a result is taken out of its message; a message that has nothing left is dropped.
    """
    results = _results_by_message(messages)
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            answered = dict.fromkeys(call.call_id for call in message.calls() if call.call_id in results[index])
            pruned = _keep_calls(message, set(answered))
            if pruned.content:
                yield pruned
            yield from (results[index][call_id] for call_id in answered)
        elif not isinstance(message, ToolMessage):
            yield message


def _results_by_message(messages: Sequence[Message]) -> dict[int, dict[CallId, ToolMessage]]:
    """For each assistant message, by its index: the results of its calls."""
    results: dict[int, dict[CallId, ToolMessage]] = {}
    here: dict[CallId, ToolMessage] = {}
    wanted: frozenset[CallId] = frozenset()
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            here = results[index] = {}
            wanted = frozenset(call.call_id for call in message.calls())
        elif isinstance(message, ToolMessage) and message.call_id in wanted:
            here.setdefault(message.call_id, message)
    return results


def _keep_calls(message: AssistantMessage, answered: set[CallId]) -> AssistantMessage:
    if isinstance(message.content, str):
        return message
    kept = []
    for block in message.content:
        if isinstance(block, Call):
            if block.call_id not in answered:
                continue
            answered.remove(block.call_id)
        kept.append(block)
    return msgspec.structs.replace(message, content=tuple(kept))
