"""A protocol on the kit: `POST {chat}` says something and streams the answer, `GET {chat}` resumes or watches."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.events import LoggedEvent, RunStopped
from dragoman.core.inputs import Create, Submit, UserInput
from dragoman.core.refusals import LimitReached, SessionBusy, SessionNotFound, Unauthenticated, all_refusals
from dragoman.core.stream import Cursor, Record, cursor_of
from dragoman.engine.engine import Engine
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import ProtocolApp, principal_of
from dragoman.protocols.kit.body import read_json_body
from dragoman.protocols.kit.decoding import decode_body
from dragoman.protocols.kit.errors import REQUEST_ERRORS, ErrorRow, ErrorTable
from dragoman.protocols.kit.frames import KEEP_ALIVE
from dragoman.protocols.kit.router import Route
from dragoman.protocols.kit.runs import SessionStreams

STATUSES = {SessionBusy: 409, Unauthenticated: 401, LimitReached: 429}
ERRORS = ErrorTable({kind: ErrorRow(STATUSES.get(kind, 400), "no") for kind in (*all_refusals(), *REQUEST_ERRORS)})
SAY = msgspec.json.Decoder(dict[str, str])


class Frames:
    keep_alive, is_over = KEEP_ALIVE, False

    def feed(self, record: Record) -> bytes:
        self.is_over = isinstance(record, LoggedEvent) and isinstance(record.event, RunStopped)
        text = "." if self.is_over else getattr(record, "text", "")
        return b"id: %d-%d\ndata: %b\n\n" % (*cursor_of(record), text.encode()) if text else b""

    def close(self, error: Exception) -> bytes:
        return b"data: broken\n\n"


def app(engine: Engine, access: AccessControl) -> ProtocolApp:
    streams = SessionStreams(engine, access.admit_stream)

    async def say(request: Request) -> Response:
        message = UserInput(content=decode_body(SAY, await read_json_body(request, 1000))["text"])
        owner, name = principal_of(request).user, request.path_params["chat"]
        try:
            session = await engine.find_session(owner, name)
        except SessionNotFound:
            session = await engine.create(owner, Create(protocol="toy", agent=engine.default_agent, name=name))
        with engine.lease(session):
            run = await engine.start_run(session, Submit(protocol="toy", messages=(message,)), by=owner)
            after = Cursor(run.seq - 1)
            return await streams.open(principal_of(request), session, after, Frames(), is_new_run=True)

    async def resume(request: Request) -> Response:
        seq, _, pieces = request.headers.get("last-event-id", "0-0").partition("-")
        async with engine.session(principal_of(request).user, request.path_params["chat"]) as session:
            after = Cursor(int(seq), int(pieces))
            return await streams.open(principal_of(request), session, after, Frames(), before=b"")

    return ProtocolApp("toy", (Route("POST", "{chat}", say), Route("GET", "{chat}", resume)), ERRORS, access)
