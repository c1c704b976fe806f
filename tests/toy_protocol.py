"""A whole protocol on the kit: `POST chats/{chat}` says something and streams the answer, `GET chats/{chat}` resumes."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core import refusals
from dragoman.core.events import LoggedEvent, RunStopped
from dragoman.core.inputs import Create, Submit, UserInput
from dragoman.core.refusals import InvalidCursor, Refused, SessionNotFound
from dragoman.core.stream import Cursor, Record, cursor_of
from dragoman.engine.engine import Engine
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit.app import AdmitStream, Authenticate, ProtocolApp, principal_of
from dragoman.protocols.kit.body import read_json_body
from dragoman.protocols.kit.decoding import decode_body
from dragoman.protocols.kit.errors import ErrorRow, ErrorTable
from dragoman.protocols.kit.frames import KEEP_ALIVE, escape_line_separators
from dragoman.protocols.kit.router import Route
from dragoman.protocols.kit.sse import open_stream

STATUSES = {refusals.SessionBusy: 409, refusals.Unauthenticated: 401, refusals.Forbidden: 403, refusals.LimitReached: 429}
ERRORS = ErrorTable({kind: ErrorRow(STATUSES.get(kind, 400), kind.__name__) for kind in (*refusals.all_refusals(), *kit.REQUEST_ERRORS)})
SAY = msgspec.json.Decoder(dict[str, str])


class Frames:
    keep_alive, is_over = KEEP_ALIVE, False

    def feed(self, record: Record) -> bytes:
        self.is_over = isinstance(record, LoggedEvent) and isinstance(record.event, RunStopped)
        text = "." if self.is_over else getattr(record, "text", None)
        data = escape_line_separators(msgspec.json.encode(text))
        return b"" if text is None else b"id: %d-%d\ndata: %b\n\n" % (*cursor_of(record), data)

    def close(self, error: Exception) -> bytes:
        return b"data: null\n\n"


def app(engine: Engine, authenticate: Authenticate, admit_stream: AdmitStream) -> ProtocolApp:
    async def say(request: Request) -> Response:
        text = decode_body(SAY, await read_json_body(request, 1000)).get("text", "")
        owner, name = principal_of(request).user, request.path_params["chat"]
        try:
            await engine.find_session(owner, name)
        except SessionNotFound:
            await engine.create(owner, Create(protocol="toy", agent=engine.default_agent, name=name))
        async with engine.session(owner, name) as session:
            run = await engine.start_run(session, Submit(protocol="toy", messages=(UserInput(content=text),)), by=owner)
            return await open_stream(engine.follow(session, Cursor(run.seq - 1)), Frames())

    async def resume(request: Request) -> Response:
        seq, _, pieces = request.headers.get("last-event-id", "0-0").partition("-")
        release = admit_stream(principal_of(request))
        async with engine.session(principal_of(request).user, request.path_params["chat"]) as session:
            reader = engine.follow(session, Cursor(int(seq), int(pieces)))
            return await open_stream(reader, Frames(), before=b"", on_close=lambda _: release())

    routes = (Route("POST", "chats/{chat}", say), Route("GET", "chats/{chat}", resume))
    return ProtocolApp("toy", routes, ERRORS, authenticate)
