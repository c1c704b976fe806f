"""The AI SDK over HTTP: decode, hand over to `chats`, encode.

Source: specification of AI SDK, 1, 2, 7 to 11.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.core.admission import is_busy
from dragoman.core.branches import shown_events
from dragoman.core.events import LoggedEvent, MessageAdded, SettingsChange
from dragoman.core.ids import RunId
from dragoman.core.inputs import DisconnectPolicy
from dragoman.core.page_cursor import page_cursor, parse_page_cursor
from dragoman.core.refusals import AgentNotChangeable, Invalid, InvalidCursor, SessionNotFound, SessionUnreadable
from dragoman.core.session import SessionState
from dragoman.core.stream import Record
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.aisdk import wire
from dragoman.protocols.aisdk.chats import Chats
from dragoman.protocols.aisdk.decision import Decisions, PostedRequest
from dragoman.protocols.aisdk.errors import ERRORS
from dragoman.protocols.aisdk.history import ChatHistory, count_user_messages, newest_that_fit
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import ProtocolApp, principal_of
from dragoman.protocols.kit.body import header, json_response, read_body
from dragoman.protocols.kit.decoding import parse_query_number
from dragoman.protocols.kit.endpoints import LAST_EVENT_ID, ApiDescription, Handlers, endpoint, query, request_header
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.message_history import MESSAGE_HISTORY, sends_all_messages
from dragoman.protocols.kit.openapi import INPUT_ERRORS
from dragoman.protocols.kit.runs import find_run_in
from dragoman.protocols.kit.session_pages import session_page

DEFAULT_MESSAGES, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 200, 50, 200
MAX_STORE_PAGES = 10
"""How many pages of a user's sessions one list of chats reads, in search of those with the agent."""
ASSISTANT_UI_PLACEHOLDER = "DEFAULT_THREAD_ID"


class AiSdkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The protocol's settings."""

    body_limit: int = 16 * 1024 * 1024
    on_disconnect: DisconnectPolicy = "continue"
    client_version: wire.ClientVersion = 6
    """The version assumed for clients that do not name theirs."""


def app(engine: Engine, access: AccessControl, options: AiSdkOptions) -> ASGIApp:
    """Build the protocol as an ASGI application, to be mounted anywhere."""
    routes = _Handlers(engine, options, Chats(engine, access.admit_stream)).routes()
    as_text = ProtocolApp("ai-sdk", routes, ERRORS, access, write_error=_write_text)
    as_json = ProtocolApp("ai-sdk", routes, ERRORS, access, write_error=_write_json)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        wants_json = "application/json" in (header(scope, b"accept") or "")
        await (as_json if wants_json else as_text)(scope, receive, send)

    return answer


def _write_text(error: ErrorResponse) -> Response:
    """`useChat` shows the whole body as the error's message."""
    return PlainTextResponse(error.message, error.status, {**error.headers, "x-dragoman-error": error.code})


def _write_json(error: ErrorResponse) -> Response:
    path = error.facts.get("path") or None
    body = wire.ErrorBody(error=error.message, code=error.code, path=path if isinstance(path, str) else None)
    return json_response(body, error.status, {**error.headers, "x-dragoman-error": error.code})


_STREAM = "Server-sent events: a UI message stream (version 1), from `start` to `finish` and `[DONE]`."
_VERSION = request_header("X-AI-SDK-Version", "The major version of the client's package `ai`, such as `5`.")
_EXAMPLE = {
    "id": "chat-1",
    "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hello!"}]}],
    "trigger": "submit-message",
}


class _Handlers(Handlers):
    def __init__(self, engine: Engine, options: AiSdkOptions, chats: Chats) -> None:
        self._engine = engine
        self._options = options
        self._chats = chats

    @endpoint(
        "POST",
        "/{agent}",
        body=wire.ChatRequest,
        example=_EXAMPLE,
        parameters=(
            _VERSION,
            request_header(
                "X-Run-On-Disconnect",
                "`cancel`: the run stops when this client disconnects and no other client reads it.",
            ),
            MESSAGE_HISTORY,
        ),
        streams=_STREAM,
        errors={409: "The chat is being answered, or nothing waits for these answers; `x-dragoman-error` says which."},
    )
    async def post(self, request: Request) -> Response:
        """Send, edit, answer or ask again, and stream the agent's message.

        The address that a transport is given. The run continues if the client disconnects.
        """
        decoded = wire.decode_request(await read_body(request, self._options.body_limit))
        if decoded.chat.id is not None:
            _check_chat_id(decoded.chat.id)
        policy = header(request.scope, b"x-run-on-disconnect") or self._options.on_disconnect
        posted = PostedRequest(
            principal=principal_of(request),
            agent=request.path_params["agent"],
            chat=decoded.chat,
            extra=decoded.extra,
            client_version=self._client_version(request),
            policy="cancel" if policy.lower() == "cancel" else "continue",
            is_complete=sends_all_messages(request.scope),
        )
        return await self._chats.post(posted)

    @endpoint(
        "GET",
        "/{agent}",
        parameters=(
            query("limit", f"1 to {MAX_PAGE_SIZE}; {DEFAULT_PAGE_SIZE} by default.", int),
            query("before", "The header `x-dragoman-next` of the page before, or the `sessionId` of its last chat."),
        ),
    )
    async def chats(self, request: Request) -> list[wire.Chat] | Response:
        """List the caller's chats with the agent, newest first.

        The header `x-dragoman-next`, if there is one, is `before` of the next page. A page of somebody who has many
        sessions with other agents may be shorter than `limit`.
        """
        owner, agent = principal_of(request).user, self._engine.agent(request.path_params["agent"]).spec.name
        limit = parse_query_number(request.query_params, "limit", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
        found: list[wire.Chat] = []
        after: str | None = None
        if (last := request.query_params.get("before")) is not None:
            state = (await self._engine.find_session(owner, last)).state
            after = page_cursor(state.created_at, state.session_id)

        def show(state: SessionState) -> wire.Chat | None:
            return _chat(state) if state.agent == agent else None

        for _ in range(MAX_STORE_PAGES):
            page, after = await session_page(self._engine, owner, after, MAX_PAGE_SIZE, show)
            found += [chat for chat in page if chat is not None]
            if after is None or len(found) >= limit:
                break
        headers: dict[str, str] = {}
        if len(found) > limit:
            headers["x-dragoman-next"] = found[limit - 1].session_id
        elif after is not None:
            headers["x-dragoman-next"] = parse_page_cursor(after)[1]
        return json_response(found[:limit], headers=headers)

    @endpoint("PATCH", "/{agent}/{chat:path}", body=wire.TitleChange, example={"title": "Holidays"})
    async def rename(self, request: Request) -> wire.Chat:
        """Give a chat a title."""
        title = wire.decode_title(await read_body(request, self._options.body_limit))
        async with self._chat(request) as session:
            await self._engine.change(session, SettingsChange(title=title))
            return _chat(session.state)

    @endpoint("DELETE", "/{agent}/{chat:path}", returns="The chat is gone; a run was stopped.")
    async def delete(self, request: Request) -> None:
        """Delete a chat and everything in it."""
        principal, chat_id = principal_of(request), _check_chat_id(request.path_params["chat"])
        with suppress(SessionUnreadable):
            await self._chats.find(principal, request.path_params["agent"], chat_id)  # it may be another agent's
        await self._engine.delete_by_name(principal.user, chat_id)

    @endpoint(
        "GET",
        "/{agent}/{chat:path}/messages",
        parameters=(
            query("limit", f"The newest messages; at most {DEFAULT_MESSAGES}.", int),
            query("before", "The id of a message; only older ones are returned."),
            query("open", "`1`: with what an active run has said so far."),
            _VERSION,
        ),
    )
    async def messages(self, request: Request) -> list[wire.ShownMessage] | Response:
        """Get a chat's messages, as `useChat({messages})` takes them.

        While a run is active its message is left out, because `resume` streams all of it; the header `x-dragoman-run`
        names the run. `x-dragoman-more` says that there are older messages. A chat that does not exist has none.
        """
        limit = parse_query_number(request.query_params, "limit", DEFAULT_MESSAGES, DEFAULT_MESSAGES)
        try:
            async with self._chat(request) as session:
                return await self._history(request, session, limit)
        except (SessionNotFound, AgentNotChangeable):
            return []

    @endpoint(
        "GET",
        "/{agent}/{chat:path}/stream",
        parameters=(
            query("startIndex", "The chunk from which to continue; if negative, so many before the end.", int),
            query("after", "The last message that the page has: a turn that ended since then is streamed whole."),
            LAST_EVENT_ID,
            _VERSION,
        ),
        streams=_STREAM,
        errors=INPUT_ERRORS,
    )
    async def stream(self, request: Request) -> Response:
        """Join what runs.

        Answers 204 if nothing does. With a position the stream of the newest turn is continued, also when it has ended.
        With the id of a run in place of the chat's, the stream of that run is returned.
        """
        return await self._chats.stream(
            principal_of(request),
            request.path_params["agent"],
            _check_chat_id(request.path_params["chat"]),
            _position(request),
            request.query_params.get("after"),
            self._client_version(request),
        )

    @endpoint("POST", "/{agent}/{chat:path}/stop")
    async def stop(self, request: Request) -> wire.StopResponse:
        """Stop a chat's run.

        The end is durable when this answers. Calls that wait are cancelled.
        """
        try:
            async with self._chat(request) as session:
                return wire.StopResponse(stopped=await self._engine.stop_run(session))
        except (SessionNotFound, AgentNotChangeable):
            return wire.StopResponse(stopped=False)

    # --- inside ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _chat(self, request: Request) -> AsyncIterator[SessionView]:
        chat_id = _check_chat_id(request.path_params["chat"])
        session = await self._chats.find(principal_of(request), request.path_params["agent"], chat_id)
        with self._engine.lease(session):
            yield session

    def _client_version(self, request: Request) -> wire.ClientVersion:
        return wire.client_version_of(header(request.scope, b"x-ai-sdk-version"), self._options.client_version)

    async def _history(self, request: Request, session: SessionView, limit: int) -> Response:
        """The newest messages before the one that the request names."""
        before, run, history = request.query_params.get("before"), session.state.run, self._engine.history
        shows_open, session_id = request.query_params.get("open") == "1" or before is not None, session.state.session_id
        events, is_whole = list[LoggedEvent](), True
        async for page in history.newest_events(
            session, None if before is None else await self._end_before(session, before)
        ):
            events[:0] = page
            if count_user_messages([each for each in events if session.state.is_visible(each.seq)]) > limit:
                is_whole = False
                break
        events = list(shown_events(events, session.state.hidden_ranges))
        records: list[Record] = list(events)
        if shows_open and run is not None and events and events[-1].seq >= run.started_seq:
            records = [each for each in events if each.seq < run.started_seq]
            records += await history.run_records(session, run.run_id, run.started_seq)
        found = ChatHistory(session_id, self._client_version(request))
        for record in records:
            if isinstance(record, LoggedEvent) and isinstance(record.event, MessageAdded):
                record = await self._engine.attachments.restore_event(session_id, record)
            found.feed(record)
        messages = found.messages(with_open_turn=shows_open or run is None)
        shown = newest_that_fit(messages, limit)
        headers: dict[str, str] = {} if run is None else {"x-dragoman-run": run.run_id}
        if len(shown) < len(messages) or not is_whole:
            headers["x-dragoman-more"] = "true"
        return json_response(shown, headers=headers)

    async def _end_before(self, session: SessionView, message_id: str) -> int:
        """The event before which the messages before that one end. Raises InvalidCursor."""
        known = await self._engine.history.find_message_ids(session, [message_id])
        if message_id in known:
            return known[message_id]
        row = await find_run_in(self._engine, session, RunId(message_id))
        if row is None:
            raise InvalidCursor("before: this chat has no such message")
        return await Decisions(self._engine).end_of_beginning(session, row.first_seq)


def _check_chat_id(chat_id: str) -> str:
    """A slash at an end would be lost in the address of the chat.

    `AssistantChatTransport` of assistant-ui sends one constant for the threads of all pages and all users, until the
    page sets the id. They would be one conversation.
    """
    if chat_id == ASSISTANT_UI_PLACEHOLDER:
        raise Invalid(
            f"{chat_id} is not the ID of a chat: set `id` in the transport's prepareSendMessagesRequest", path="id"
        )
    if chat_id in (".", "..") or len(chat_id) > wire.ID_LIMIT or chat_id.strip("/") != chat_id:
        raise Invalid(
            f"a chat's id has 1 to {wire.ID_LIMIT} characters, no slash at an end, and is not '.' or '..'", path="id"
        )
    return chat_id


def _position(request: Request) -> int | None:
    """Where the client continues; None if it does not say. Raises InvalidCursor."""
    for value, offset, name in (
        (request.query_params.get("startIndex"), 0, "startIndex"),
        (request.headers.get("last-event-id"), 1, "Last-Event-ID"),
    ):
        if value is not None:
            if not re.fullmatch(r"-?[0-9]{1,20}", value) or (offset and value.startswith("-")):
                raise InvalidCursor(f"{name}: expected the index of a chunk")
            return int(value) + offset
    return None


def _chat(state: SessionState) -> wire.Chat:
    return wire.Chat(
        id=state.name or state.session_id,
        session_id=state.session_id,
        title=state.title() or None,
        created_at=msgspec.to_builtins(state.created_at),
        updated_at=msgspec.to_builtins(state.updated_at),
        running=is_busy(state),
    )


OPENAPI_ROUTES = ApiDescription("AI SDK", error_body=wire.ErrorBody).routes(_Handlers)
