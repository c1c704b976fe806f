"""Chats as pages use them: send, join, resume. One chat is one session.

`decision` decides what a request asks for; this module does it, and streams turns.
Source: specification of AI SDK, 1, 3 to 5, 7, 8; shared rules, 1 to 4, 9, 10.
"""

from starlette.responses import Response

from dragoman.core.admission import is_busy
from dragoman.core.ids import RunId, parse_session_id
from dragoman.core.inputs import Create, Submit
from dragoman.core.principal import Principal
from dragoman.core.refusals import (
    AgentNotChangeable,
    CallAlreadySettled,
    SessionBusy,
    SessionNotFound,
    UnknownCall,
)
from dragoman.core.stream import Cursor
from dragoman.engine.abandoned_runs import AbandonedRuns
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.aisdk import requests
from dragoman.protocols.aisdk.decision import Decisions, PostedRequest, StartRun, StreamRun
from dragoman.protocols.aisdk.errors import NothingToAnswer
from dragoman.protocols.aisdk.streams import NOTHING, ChunkFrames, complete_stream
from dragoman.protocols.aisdk.translate import PROTOCOL, TurnChunks
from dragoman.protocols.aisdk.wire import ClientVersion
from dragoman.protocols.kit.access import AdmitStream
from dragoman.protocols.kit.errors import InvalidBody
from dragoman.protocols.kit.named_sessions import find_of_agent, find_or_create
from dragoman.protocols.kit.runs import SessionStreams, find_run
from dragoman.protocols.kit.sse import fixed_stream


class Chats:
    """The chats of an engine."""

    def __init__(self, engine: Engine, admit_stream: AdmitStream) -> None:
        self._engine = engine
        self._streams = SessionStreams(engine, admit_stream)
        self._decisions = Decisions(engine)
        self._abandoned = AbandonedRuns(engine, PROTOCOL)

    # --- sending --------------------------------------------------------------------------------------------------

    async def post(self, request: PostedRequest) -> Response:
        """Answer a page's request with a stream."""
        if not request.messages and request.chat.trigger != "regenerate-message":
            raise InvalidBody("expected at least one message", "messages")
        chat_id = request.chat.id
        if chat_id is None:
            session, is_new = await self._create(request), True
        else:
            session, is_new = await find_or_create(
                lambda: self.find(request.principal, request.agent, chat_id), lambda: self._create(request)
            )
        async with self._engine.first_request(session, is_new=is_new):
            try:
                return await self._answer(request, session)
            except (UnknownCall, CallAlreadySettled):  # another request was faster: see what it did
                return await self._answer(request, session)

    async def _create(self, request: PostedRequest) -> SessionView:
        """A new chat that begins with the past that the page sends."""
        messages, spec = request.messages, self._engine.agent(request.agent).spec
        past = len(messages)
        while past and messages[past - 1].role == "user":
            past -= 1
        if past == len(messages) and request.chat.id is None:  # transports that send no id until a page adds it
            raise InvalidBody(
                "the request continues a chat, and must have its id: see prepareSendMessagesRequest", "id"
            )
        if past == len(messages):
            raise SessionNotFound("a chat begins with a message of the user")
        for place in range(past, len(messages)):
            requests.user_input(messages[place], f"messages[{place}]")  # before anything is stored
        chat_id = request.chat.id
        session_id = None if chat_id is None else parse_session_id(chat_id)
        create = Create(
            protocol=PROTOCOL,
            agent=spec.name,
            tools="all",
            seeds=requests.seeds_of(messages[:past], self._engine.ids.new),
            session_id=session_id,
            name=chat_id if session_id is None else None,
        )
        return await self._engine.create(request.principal.user, create)

    async def _answer(self, request: PostedRequest, session: SessionView) -> Response:
        await self._abandoned.until_stopped(session)
        decided = await self._decisions.decide(request, session)
        while isinstance(decided, StartRun) and is_busy(session.state):
            await self._abandoned.stop_active(session)
            decided = await self._decisions.decide(request, session)
        if isinstance(decided, StreamRun):
            return await self._join(request, session, decided)
        answers = requests.answers_of(request.messages, session.state, request.client_version)
        submit = Submit(
            protocol=PROTOCOL,
            messages=decided.messages,
            answers=() if decided.branch is not None else answers,
            client_tools=requests.tools_of(request.chat),
            metadata=requests.run_metadata_of(request.chat, request.extra),
        )
        try:
            submitted = await self._engine.start_run(session, submit, by=request.principal.user, branch=decided.branch)
        except SessionBusy:  # the same request on another connection was faster
            decided = await self._decisions.decide(request, session)
            if isinstance(decided, StreamRun):
                return await self._join(request, session, decided)
            raise
        if submitted.run_id is None:
            await session.until_durable(submitted.seq)
            return await self._still_waiting(session, request.client_version)
        run = StreamRun(submitted.run_id, submitted.seq)
        chunks = await self._chunks_of(session, run, request.client_version, is_first=bool(decided.messages))
        return await self._stream_run(request, session, run, chunks, is_new=True)

    # --- streams --------------------------------------------------------------------------------------------------

    async def _join(self, request: PostedRequest, session: SessionView, run: StreamRun) -> Response:
        """Stream a run that an earlier request started."""
        chunks = await self._chunks_of(session, run, request.client_version)
        return await self._stream_run(request, session, run, chunks, is_new=False)

    async def _stream_run(
        self, request: PostedRequest, session: SessionView, run: StreamRun, chunks: TurnChunks, *, is_new: bool
    ) -> Response:
        """Stream a run from its start."""
        on_close = self._abandoned.on_close(session, run.run_id) if is_new and request.policy == "cancel" else None
        after, frames = Cursor(run.first_seq - 1), ChunkFrames(chunks)
        stream = await self._streams.open(
            request.principal, session, after, frames, is_new_run=is_new, on_close=on_close
        )
        return _with_headers(stream, run.run_id, session)

    async def _still_waiting(self, session: SessionView, client_version: ClientVersion) -> Response:
        """The stream of a request whose answers were taken while other calls wait."""
        turn = await self._decisions.newest_turn(session)
        if turn is None:
            raise NothingToAnswer
        chunks = TurnChunks(session.state.session_id, client_version=client_version)
        for logged in await self._engine.history.events(session, turn.first.first_seq - 1):
            chunks.feed(logged)
        body = complete_stream(chunks.start(), chunks.finish("tool-calls"))
        return _with_headers(fixed_stream(body), turn.newest.run_id, session)

    async def stream(
        self,
        principal: Principal,
        agent: str,
        chat_id: str,
        position: int | None,
        after: str | None,
        client_version: ClientVersion,
    ) -> Response:
        """Join what runs, or continue a stream. The id may be a run's.

        Args:
            principal: who asks.
            agent: the chat's agent.
            chat_id: the chat, or a run.
            position: the chunk from which to continue; if negative, so many before the end. None: join what runs.
            after: the last message that the page has. A turn that ended since then is streamed whole.
            client_version: the version of the client.
        """
        nothing = Response(status_code=204) if position is None else fixed_stream(NOTHING)
        try:
            session = await self.find(principal, agent, chat_id)
        except (SessionNotFound, AgentNotChangeable):
            found = await find_run(self._engine, principal.user, chat_id)
            if found is None:
                return nothing
            with self._engine.lease(found.session):
                run = StreamRun(found.run_id, found.first_seq)
                return await self._resume(principal, found.session, run, client_version, position or 0)
        with self._engine.lease(session):
            state = session.state
            turn = await self._decisions.newest_turn(session) if state.is_visible(state.last_run_seq + 1) else None
            is_missed = after is not None and turn is not None and after != turn.first.run_id
            if turn is None or not (state.run is not None or position is not None or is_missed):
                return nothing
            run = StreamRun(turn.newest.run_id, turn.first.first_seq, is_turn=True)
            return await self._resume(principal, session, run, client_version, position or 0)

    async def _resume(
        self, principal: Principal, session: SessionView, run: StreamRun, client_version: ClientVersion, start: int
    ) -> Response:
        """Stream a turn, or one run, from a chunk on."""
        headers: dict[str, str] = {}
        if start < 0:
            count = await self._count_chunks(session, run, client_version)
            start, headers = max(0, count + start), {"x-workflow-stream-tail-index": str(count - 1)}
        frames = ChunkFrames(await self._chunks_of(session, run, client_version), start)
        stream = await self._streams.resume(principal, session, Cursor(run.first_seq - 1), frames)
        return _with_headers(stream, run.run_id, session, **headers)

    async def _count_chunks(self, session: SessionView, run: StreamRun, client_version: ClientVersion) -> int:
        """How many chunks there are as of now."""
        frames, end = ChunkFrames(await self._chunks_of(session, run, client_version)), session.durable_cursor
        with self._engine.follow(session, Cursor(run.first_seq - 1)) as reader:
            while reader.cursor < end and not frames.is_over:
                for record in await reader.next():
                    frames.feed(record)
        return frames.count

    async def _chunks_of(
        self, session: SessionView, run: StreamRun, client_version: ClientVersion, *, is_first: bool = False
    ) -> TurnChunks:
        """The chunks of a turn, or of one run: then the earlier runs of its turn are read, unless it is the first."""
        history = self._engine.history
        chunks = TurnChunks(session.state.session_id, run.run_id, is_turn=run.is_turn, client_version=client_version)
        turn = None if run.is_turn or is_first else await history.turn_at(session, run.first_seq)
        if turn is not None and turn.first.first_seq < run.first_seq:
            for logged in await history.events(session, turn.first.first_seq - 1, run.first_seq - 1):
                chunks.feed(logged)
        return chunks

    # --- looking up -----------------------------------------------------------------------------------------------

    async def find(self, principal: Principal, agent: str, chat_id: str) -> SessionView:
        """An existing chat of that user and agent, whose agent may no longer be served.

        Raises:
            AgentNotFound, SessionNotFound, AgentNotChangeable: there is no such agent or chat, or no such pair.
        """
        return await find_of_agent(self._engine, principal.user, chat_id, agent, noun="chat")


def _with_headers(response: Response, run_id: RunId, session: SessionView, **more: str) -> Response:
    response.headers.update(
        {
            "x-vercel-ai-ui-message-stream": "v1",
            "x-workflow-run-id": run_id,
            "x-dragoman-run": run_id,
            "x-dragoman-session": session.state.session_id,
            **more,
        }
    )
    return response
