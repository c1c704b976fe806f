"""Responses over WebSocket: each message asks for a response, whose events are the messages of the answer.

    response.create ─► queue ─► one response at a time: Runs.start ─► its events, or one `error`

A response that is not stored can be continued by the next message, as long as the connection remembers it.
Source: Open Responses 2026-04-24, "WebSocket Transport".
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import RunId, UserId
from dragoman.core.principal import Principal
from dragoman.core.refusals import LimitReached
from dragoman.engine.instrumentation.metrics import STREAMS_OPEN
from dragoman.engine.services.limits import MemoryReservation
from dragoman.engine.sessions.reader import Reader
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import address_of, bearer_credentials, counted_error, enter_request
from dragoman.protocols.kit.errors import BodyTooLarge, UnknownPath
from dragoman.protocols.kit.runs import RunHandle
from dragoman.protocols.openai import ids, wire
from dragoman.protocols.openai.delivery import Delivery
from dragoman.protocols.openai.errors import ERRORS, InvalidParameter, error_facts
from dragoman.protocols.openai.handlers import OpenAiOptions, write_error
from dragoman.protocols.openai.requests import CreateResponse, decode_object, parse_request
from dragoman.protocols.openai.runs import RunRequest, Runs
from dragoman.protocols.openai.translate import PROTOCOL, payloads

PATH = "/responses"
MAX_WAITING = 16
"""Messages of a connection that wait for the end of its active response."""
NORMAL_CLOSURE, POLICY_VIOLATION, TRY_AGAIN_LATER = 1000, 1008, 1013
_OPEN_SOCKETS = STREAMS_OPEN.labels(protocol=PROTOCOL)


class ResponseSockets:
    """The ASGI application for the WebSockets of this protocol. They are refused as requests over HTTP are."""

    def __init__(
        self,
        runs: Runs,
        delivery: Delivery,
        access: AccessControl,
        options: OpenAiOptions,
    ) -> None:
        self.runs = runs
        self.delivery = delivery
        self.options = options
        self.memory = access.memory.requests
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection until it is closed."""
        credentials, address = bearer_credentials(scope), address_of(scope)

        async def authorize() -> Principal:
            principal = await self._access.authenticate(credentials, address)
            principal.require("use")
            return principal

        await receive()  # websocket.connect
        try:
            principal = await authorize()
            path: str = scope["path"]
            if path[len(scope.get("root_path", "")) :].rstrip("/") != PATH:
                raise UnknownPath
            release = self._access.admit_stream(principal)
        except Exception as error:  # noqa: BLE001  # the root of a connection: every failure is answered
            await write_error(counted_error(PROTOCOL, ERRORS, error))(scope, receive, send)
            return
        with ExitStack() as stack:
            stack.callback(release)
            _OPEN_SOCKETS.inc()
            stack.callback(_OPEN_SOCKETS.dec)
            enter_request(principal, scope)
            socket = _Socket(self, principal.user, authorize, scope, receive, send)
            stack.callback(self._access.authenticator.on_revoked(principal, socket.on_revoked))
            await socket.serve()


class _Message(NamedTuple):
    """A message that waits, and the memory that it uses."""

    raw: bytes
    memory: MemoryReservation


class _Unstored(NamedTuple):
    """The connection's last response, if it is not stored."""

    run_id: RunId
    session: SessionView
    lease: ExitStack


class _Socket:
    """One connection."""

    def __init__(
        self,
        sockets: ResponseSockets,
        user: UserId,
        authorize: Callable[[], Awaitable[Principal]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._sockets = sockets
        self._user = user
        self._authorize = authorize
        """Called for each message: it counts as a request of its key."""
        self._receive, self._send = receive, send
        self._continues = sockets.delivery.continues(scope)
        self._messages: asyncio.Queue[_Message | None] = asyncio.Queue()
        """None at the end."""
        self._unstored: _Unstored | None = None
        self._reader: Reader | None = None
        """Of the active response."""
        self._is_over = False
        self._is_revoked = False
        self._close_code: int | None = None
        """With which the server closes the connection; None if the client did."""
        self._ends_at = asyncio.get_running_loop().time() + sockets.options.socket_limit_s

    async def serve(self) -> None:
        """Answer messages until the connection is over."""
        receiver = asyncio.create_task(self._receive_messages(), name="messages of a socket")
        try:
            with suppress(OSError, ClientDisconnect):
                await self._send({"type": "websocket.accept"})
                while (message := await self._next_message()) is not None:
                    await self._answer(message)
            if self._close_code is not None:
                with suppress(OSError):
                    await self._send({"type": "websocket.close", "code": self._close_code})
        finally:
            receiver.cancel()
            await asyncio.wait([receiver])
            while not self._messages.empty():
                if (waiting := self._messages.get_nowait()) is not None:
                    waiting.memory.release()
            self._forget()

    def on_revoked(self) -> None:
        """End the connection: its key was revoked. The active run continues, as over HTTP."""
        self._is_revoked = True
        self._end(POLICY_VIOLATION)

    # --- messages -------------------------------------------------------------------------------------------------

    async def _receive_messages(self) -> None:
        while (message := await self._receive())["type"] == "websocket.receive":
            raw: bytes = message.get("bytes") or (message.get("text") or "").encode()
            memory = self._sockets.memory.open(self._user)
            try:
                if self._messages.qsize() >= MAX_WAITING:
                    raise LimitReached("too many messages wait for the response before", retry_after_s=1)
                memory.grow(len(raw))
            except LimitReached:
                memory.release()
                self._end(TRY_AGAIN_LATER)
                return
            self._messages.put_nowait(_Message(raw, memory))
        self._end(None)

    def _end(self, close_code: int | None) -> None:
        if self._is_over:
            return
        self._is_over, self._close_code = True, close_code
        self._messages.put_nowait(None)
        if self._reader is not None:
            self._reader.end(ClientDisconnect())

    async def _next_message(self) -> _Message | None:
        clock = asyncio.get_running_loop().time
        if self._is_over:
            return None
        with suppress(TimeoutError):
            if clock() < self._ends_at:
                async with asyncio.timeout_at(self._ends_at):
                    return await self._messages.get()
        minutes = self._sockets.options.socket_limit_s / 60
        message = f"a connection is limited to {minutes:g} minutes; open a new one"
        await self._send_error(InvalidParameter("websocket_connection_limit_reached", message))
        self._end(NORMAL_CLOSURE)
        return None

    async def _answer(self, message: _Message) -> None:
        """Answer a message with the events of a response, or with an error."""
        previous: Json = None
        try:
            try:
                await self._authorize()
                if len(message.raw) > self._sockets.options.body_limit:
                    raise BodyTooLarge(self._sockets.options.body_limit)
                body = decode_object(message.raw)
                previous = body.get("previous_response_id")
                await self._respond(body, message.memory)
            finally:
                message.memory.release()
        except (OSError, ClientDisconnect):
            raise
        except Exception as error:  # noqa: BLE001  # the root of a request: every failure is answered
            if self._unstored is not None and previous == ids.response_id(self._unstored.run_id):
                self._forget()
            await self._send_error(error)

    async def _send_error(self, error: Exception) -> None:
        answer = counted_error(PROTOCOL, ERRORS, error)
        await self._send_text(
            msgspec.json.encode(wire.SocketError(status=answer.status, error=error_facts(answer))).decode()
        )

    async def _send_text(self, text: str) -> None:
        await self._send({"type": "websocket.send", "text": text})

    # --- responses ------------------------------------------------------------------------------------------------

    async def _respond(self, body: JsonObject, memory: MemoryReservation) -> None:
        parsed = parse_request(_checked(body))
        unstored = None if self._unstored is None else self._unstored.run_id
        async with self._sockets.runs.start(RunRequest(self._user, parsed, unstored=unstored)) as handle:
            memory.release()
            if not handle.first_seq:
                for text in payloads(self._sockets.runs.acknowledge(handle)[1]):
                    await self._send_text(text)
                self._remember(handle, parsed.fields)
                return
            has_left = False
            try:
                await self._send_run(handle)
                self._remember(handle, parsed.fields)
            except (OSError, ClientDisconnect):
                has_left = not self._is_revoked
                raise
            finally:
                is_kept = self._continues or parsed.fields.background
                self._sockets.delivery.end(handle, has_disconnected=has_left, is_kept=is_kept)

    async def _send_run(self, handle: RunHandle) -> None:
        """Send the events of a run. Raises ClientDisconnect when the connection is over first."""
        events = await self._sockets.runs.events(handle)
        with self._sockets.runs.reader(handle) as reader:
            self._reader = reader
            try:
                while True:
                    if self._is_over:
                        raise ClientDisconnect
                    for record in await reader.next():
                        for text in payloads(events.feed(record)):
                            await self._send_text(text)
                        if events.is_over:
                            return
            finally:
                self._reader = None

    def _remember(self, handle: RunHandle, fields: CreateResponse) -> None:
        """Let the next message continue a response that is not stored. Its session stays until then."""
        lease = ExitStack()
        if not fields.store:
            lease.enter_context(self._sockets.runs.lease(handle))
        self._forget()
        if not fields.store:
            self._unstored = _Unstored(handle.run_id, handle.session, lease)

    def _forget(self) -> None:
        unstored, self._unstored = self._unstored, None
        if unstored is not None:
            unstored.lease.close()
            self._sockets.delivery.check(unstored.session)


def _checked(body: JsonObject) -> JsonObject:
    """A message without what belongs to HTTP. Raises InvalidParameter."""
    if body.get("type") != "response.create":
        raise InvalidParameter("invalid_value", "expected response.create", "type")
    if body.get("generate") is False:
        raise InvalidParameter("unsupported_parameter", "every message here runs the agent", "generate")
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
