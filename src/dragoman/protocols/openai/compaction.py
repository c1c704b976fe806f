"""`POST /responses/compact`: a conversation in fewer items, with which a new one continues.

    previous_response_id, input ─► messages ─► the agent's summary ─► the user's messages, and an item with the summary

Nothing is stored. Sent back in the input of a response, it is the past of a new session, as any history of a client.
Source: Open Responses, "Context Compaction"; OpenAI, "Compact a response".
"""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request

from dragoman.core import content as core
from dragoman.core.agent import Summarizer, Summary
from dragoman.core.content import Json
from dragoman.core.history import messages_of
from dragoman.core.ids import MessageId, UserId
from dragoman.core.inputs import Result
from dragoman.engine.engine import Engine
from dragoman.protocols.kit.app import principal_of
from dragoman.protocols.kit.body import read_json_body
from dragoman.protocols.kit.connection import while_connected
from dragoman.protocols.kit.endpoints import endpoint
from dragoman.protocols.openai import ids, inputs, requests, wire
from dragoman.protocols.openai.errors import InvalidParameter, RunFailed
from dragoman.protocols.openai.handlers import OpenAiHandlers, OpenAiOptions
from dragoman.protocols.openai.items import user_message
from dragoman.protocols.openai.requests import InputItem, convert, decode_object, parse_items
from dragoman.protocols.openai.runs import Runs

THE_REST = core.UserMessage(id=MessageId("the-rest"), content="The conversation continues here.")
"""Agents summarize what precedes the newest message. With this one as the newest, that is everything."""
NO_RESULT = "no result yet"


class CompactRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /responses/compact`."""

    model: str
    input: Json = None
    previous_response_id: str | None = None
    instructions: str | None = None


class CompactionHandlers(OpenAiHandlers):
    """The compaction of conversations."""

    def __init__(self, engine: Engine, runs: Runs, options: OpenAiOptions) -> None:
        self._engine = engine
        self._runs = runs
        self._options = options

    @endpoint(
        "POST",
        "/responses/compact",
        body=CompactRequest,
        example={"model": "assistant", "input": "We launch on Tuesday."},
        errors={500: "The agent could not write a summary."},
    )
    async def compact(self, request: Request) -> wire.CompactedResponse:
        """Summarize a conversation.

        The output is the beginning of the input of a response that continues it without `previous_response_id`.
        """
        body = decode_object(await read_json_body(request, self._options.body_limit))
        if body.get("model") is None:
            raise InvalidParameter("missing_required_parameter", "this field is required", "model")
        agent = self._engine.agent(self._runs.agent_named(convert(body["model"], str, "model")))
        if not isinstance(agent, Summarizer):
            message = f"the agent {agent.spec.name!r} cannot summarize conversations"
            raise InvalidParameter("unsupported_value", message, "model")
        previous: str | None = convert(body.get("previous_response_id"), str | None, "previous_response_id")
        if previous is None and body.get("input") is None:
            raise InvalidParameter("missing_required_parameter", "this or previous_response_id is required", "input")
        owner = principal_of(request).user
        messages = [] if previous is None else [*await self._messages_up_to(owner, previous)]
        items = [] if body.get("input") is None else parse_items(body["input"])
        messages += self._results_of_open_calls(messages, items)
        messages += inputs.seeds_from([*items, *_missing_outputs(items)], self._engine.ids.new).values()
        summary = await while_connected(request, self._engine.summarize(owner, agent, [*messages, THE_REST]))
        if summary is None:
            raise RunFailed("compaction_failed", "The agent could not write a summary")
        return self._compacted(messages, summary)

    async def _messages_up_to(self, owner: UserId, response_id: str) -> Sequence[core.Message]:
        """The messages of the branch that a response ends."""
        handle = await self._runs.find_previous(owner, response_id)
        session, history = handle.session, self._engine.history
        with self._engine.lease(session):
            if not handle.first_seq:
                return await history.messages(session)
            end = (await self._runs.branch_after(handle)).before_seq
            messages = messages_of(await self._runs.shown_with(handle, end - 1))
            return await self._engine.attachments.restore(session.state.session_id, messages)

    def _results_of_open_calls(
        self, messages: Sequence[core.Message], items: Sequence[InputItem]
    ) -> list[core.ToolMessage]:
        """The results of the calls that wait: those in the input, or that there is none. Agents keep an open call."""
        answered = {each.call_id for each in messages if isinstance(each, core.ToolMessage)}
        made = (each for message in messages if isinstance(message, core.AssistantMessage) for each in message.calls())
        waiting = {each.call_id: each for each in made if each.call_id not in answered}
        given = inputs.new_input(items, start=len(items), open_calls=tuple(waiting)).answers
        results = {each.call_id: each.content for each in given if isinstance(each, Result)}
        return [
            core.ToolMessage(
                id=MessageId(self._engine.ids.new()),
                call_id=call_id,
                name=call.name,
                content=results.get(call_id, NO_RESULT),
            )
            for call_id, call in waiting.items()
        ]

    def _compacted(self, messages: Sequence[core.Message], summary: Summary) -> wire.CompactedResponse:
        own = ids.bare(self._engine.ids.new())  # of no run: items that come back must not lead to a session
        said = [each for each in messages if isinstance(each, core.UserMessage)]
        items = [user_message(f"msg_{own}_i{index}", each) for index, each in enumerate(said)]
        return wire.CompactedResponse(
            id=f"resp_{own}",
            created_at=int(self._engine.clock.now().timestamp()),
            output=(*items, wire.Compaction(id=f"cmp_{own}", encrypted_content=summary.text)),
            usage=wire.Usage(
                input_tokens=summary.tokens_before,
                output_tokens=summary.tokens_after,
                total_tokens=summary.tokens_before + summary.tokens_after,
            ),
        )


def _missing_outputs(items: Sequence[InputItem]) -> list[requests.FunctionCallOutput]:
    """An output for each call in the input that has none."""
    answered = {each.call_id for each in items if isinstance(each, requests.FunctionCallOutput)}
    called = (each.call_id for each in items if isinstance(each, requests.FunctionCall))
    return [requests.FunctionCallOutput(call_id=each, output=NO_RESULT) for each in called if each not in answered]
