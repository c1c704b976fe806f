"""Pair every tool call with its result, as providers require. Pure; used by all adapters."""

from collections.abc import Iterator, Sequence

import msgspec

from dragoman.core.content import AssistantMessage, Call, Message, ToolMessage
from dragoman.core.ids import CallId


def with_paired_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """The conversation with every call followed by its result, and without unpaired calls and results.

    Providers reject a call without a result, and a result without its call. A result must precede the next assistant
    message, and is moved directly after its step. Of two results for one call, or two calls with one id, the first
    counts. A call without a result is removed from its message, and a message that becomes empty is dropped.
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
    """The results of the calls of each assistant message, by the message's index."""
    results: dict[int, dict[CallId, ToolMessage]] = {}
    step_results: dict[CallId, ToolMessage] = {}
    call_ids: frozenset[CallId] = frozenset()
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            step_results = results[index] = {}
            call_ids = frozenset(call.call_id for call in message.calls())
        elif isinstance(message, ToolMessage) and message.call_id in call_ids:
            step_results.setdefault(message.call_id, message)
    return results


def _keep_calls(message: AssistantMessage, answered: set[CallId]) -> AssistantMessage:
    if isinstance(message.content, str):
        return message
    blocks = []
    for block in message.content:
        if isinstance(block, Call):
            if block.call_id not in answered:
                continue
            answered.remove(block.call_id)
        blocks.append(block)
    return msgspec.structs.replace(message, content=tuple(blocks))
