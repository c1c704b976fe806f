"""Responses over HTTP.

The order of the checks: key, path and method, content type and size, JSON, fields, agent, idempotency, session,
answers.
"""

from contextlib import AbstractAsyncContextManager

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.events import SettingsChange
from dragoman.core.refusals import SessionUnreadable
from dragoman.engine.engine import Engine
from dragoman.protocols.kit.app import principal_of
from dragoman.protocols.kit.body import json_response, read_json_body
from dragoman.protocols.kit.decoding import parse_whole_number
from dragoman.protocols.kit.endpoints import endpoint, query, request_header
from dragoman.protocols.kit.idempotency_key import IDEMPOTENCY_KEY, idempotency_key
from dragoman.protocols.kit.runs import RunHandle, SessionStreams
from dragoman.protocols.kit.sse import fixed_stream
from dragoman.protocols.openai import ids, wire
from dragoman.protocols.openai.delivery import Delivery, session_headers
from dragoman.protocols.openai.errors import ContextLengthExceeded, InvalidParameter, ResponseNotFound
from dragoman.protocols.openai.handlers import PAGING, OpenAiHandlers, OpenAiOptions, page
from dragoman.protocols.openai.items import SessionItems
from dragoman.protocols.openai.requests import CreateResponse, decode_request
from dragoman.protocols.openai.runs import RunRequest, Runs
from dragoman.protocols.openai.translate import ALL, ResponseEvents, new_response, run_fields

_STREAM = "Server-sent events, from `response.created` to the response's last event and `[DONE]`."
_RUN_ERRORS = {409: "The conversation is busy, or the idempotency key belongs to another request."}
_TRUE = ("true", "1")
MAX_EVENT = 10**9


class ResponseHandlers(OpenAiHandlers):
    """The responses."""

    def __init__(
        self, engine: Engine, runs: Runs, delivery: Delivery, options: OpenAiOptions, streams: SessionStreams
    ) -> None:
        self._engine = engine
        self._runs = runs
        self._delivery = delivery
        self._options = options
        self._streams = streams

    @endpoint(
        "POST",
        "/responses",
        body=CreateResponse,
        example={"model": "assistant", "input": "Hello!"},
        parameters=(
            IDEMPOTENCY_KEY,
            request_header("X-Dragoman-On-Disconnect", "`continue`: the run continues when the client disconnects."),
        ),
        returns="The response; of one in the background, as it begins.",
        streams=_STREAM,
        errors=_RUN_ERRORS,
    )
    async def create(self, request: Request) -> wire.Response | Response:
        """Run an agent and get its response.

        Disconnecting stops the run, unless it is in the background or another client reads it.
        """
        raw = await read_json_body(request, self._options.body_limit)
        parsed = decode_request(raw)
        fields, owner = parsed.fields, principal_of(request).user
        async with self._runs.start(RunRequest(owner, parsed, idempotency_key(request, raw, "openai"))) as handle:
            headers = session_headers(handle.session)
            if not handle.first_seq:
                events, frames = self._runs.acknowledge(handle)
                response: Response = fixed_stream(frames) if fields.stream else json_response(events.response)
            elif fields.stream:
                encoder = await self._runs.events(handle)
                response = await self._delivery.stream(request, handle, encoder, continues=fields.background)
            elif fields.background:
                await handle.session.until_durable(handle.first_seq)
                response = json_response(await self._state(handle))
            else:
                events = await self._runs.events(handle, skip=ALL)
                await self._delivery.read(request, handle, events)
                response = json_response(_terminal(events))
            response.headers.update(headers)
            return response

    @endpoint(
        "GET",
        "/responses/{response}",
        parameters=(
            query("stream", "`true`: the events of the response, then live.", bool),
            query("starting_after", "The number of the last event received, for a stream.", int),
        ),
        returns="The current state of the response.",
        streams=_STREAM,
    )
    async def response(self, request: Request) -> wire.Response | Response:
        """Get a response, or its events."""
        async with self._find(request) as handle:
            if request.query_params.get("stream", "").lower() not in _TRUE:
                return json_response(await self._state(handle), headers=session_headers(handle.session))
            skip = _starting_after(request) + 1
            if not handle.first_seq:
                return fixed_stream(self._runs.acknowledge(handle)[1])
            events = await self._runs.events(handle, skip=skip)
            return await self._streams.resume(principal_of(request), handle.session, handle.before, events)

    @endpoint("DELETE", "/responses/{response}")
    async def delete(self, request: Request) -> wire.DeletedResponse:
        """Delete a response.

        It cannot be retrieved any more. If others follow it, its messages stay in their conversation.
        """
        try:
            async with self._find(request) as handle:
                await self._delete(handle)
        except SessionUnreadable as error:
            conversation = f"DELETE /conversations/{ids.conversation_id(error.session_id)}"
            message = f"{error}, so no single response of it can be deleted; {conversation} deletes all of them"
            raise InvalidParameter("conversation_unreadable", message) from error
        return wire.DeletedResponse(request.path_params["response"])

    @endpoint("POST", "/responses/{response}/cancel")
    async def cancel(self, request: Request) -> wire.Response:
        """Stop a response. One that is over stays as it is, but the calls that it left open are cancelled."""
        async with self._find(request) as handle:
            run = handle.session.state.run
            if run is not None and run.run_id == handle.run_id:
                await self._engine.stop_run(handle.session, handle.run_id)
            else:
                await self._engine.cancel_waiting_calls(handle.session, handle.run_id)
            return await self._state(handle)

    @endpoint("GET", "/responses/{response}/input_items", parameters=PAGING)
    async def input_items(self, request: Request) -> wire.Page[wire.Item]:
        """List the items that the request of a response contained."""
        async with self._find(request) as handle:
            items = SessionItems(handle.session.state)
            for logged in await self._runs.shown_with(handle):
                items.feed(logged)
            return await page(self._engine, handle.session, items, items.inputs_of(handle.run_id), request)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _find(self, request: Request) -> AbstractAsyncContextManager[RunHandle]:
        return self._runs.find(principal_of(request).user, request.path_params["response"])

    async def _delete(self, handle: RunHandle) -> None:
        session = handle.session
        await self._engine.stop_run(session, handle.run_id)
        if session.state.settings.unlisted and session.state.last_run == handle.run_id:
            await self._engine.delete(session)
        else:
            await self._engine.change(session, SettingsChange(deleted_runs=(handle.run_id,)))

    async def _state(self, handle: RunHandle) -> wire.Response:
        """The current state of a response."""
        events = await self._runs.events_so_far(handle)
        if events.response is not None:
            return msgspec.structs.replace(events.response, output=events.output)
        state, queued = handle.session.state, await self._engine.history.event(handle.session, handle.first_seq)
        return new_response(
            handle.run_id,
            state.session_id,
            run_fields(None),
            queued.at,
            agent=state.agent,
            instructions=None,
            status="queued",
        )


def _terminal(events: ResponseEvents) -> wire.Response:
    """A response that was read to its end.

    Raises:
        ResponseNotFound: it has been deleted.
        ContextLengthExceeded: the input is too long for the model, and nothing was done.
    """
    if events.response is None or events.response.completed_at is None:
        raise ResponseNotFound
    error = events.response.error
    if error is not None and error.code == "context_length_exceeded" and not events.output:
        raise ContextLengthExceeded("input")
    return events.response


def _starting_after(request: Request) -> int:
    """The number of the last event that the client has received; -1 if none. Raises InvalidParameter."""
    given = request.query_params.get("starting_after")
    number = -1 if given is None else parse_whole_number(given, 0, MAX_EVENT)
    if number is None:
        raise InvalidParameter("invalid_value", "expected the number of an event", "starting_after")
    return number
