"""Blade's export and import of sessions. Thin; what stands in an archive is in `archives`. Source: section 5.5."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.content import JsonObject
from dragoman.core.events import SettingsChange
from dragoman.core.inputs import Create
from dragoman.core.refusals import Invalid
from dragoman.engine.engine import Engine
from dragoman.protocols.blade import archives, translate
from dragoman.protocols.blade.archives import Archive
from dragoman.protocols.blade.projection.loader import folded, nodes_of, shown, without_memories
from dragoman.protocols.blade.rest.access import owned
from dragoman.protocols.blade.rest.router import Route
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire import sessions as told
from dragoman.protocols.kit.http import caller_of, json_answer, read_body
from dragoman.protocols.kit.multipart import NotAForm, read_form

FORM_OVERHEAD = 64 * 1024
AT_ONCE = 2
"""Archives that are read at the same time: each may need much memory."""


def routes(engine: Engine, *, remembers: bool = True) -> list[Route]:
    """What answers about archives.

    Args:
        engine: where the sessions are.
        remembers: whether imported sessions use memories where their agent does not say.
    """
    door = _Door(engine, remembers)
    return [
        Route("GET", "sessions/{session}/export", door.export),
        Route("POST", "sessions/preview-import", door.preview),
        Route("POST", "sessions/import", door.import_),
    ]


class _Door:
    def __init__(self, engine: Engine, remembers: bool) -> None:
        self._engine = engine
        self._remembers = remembers
        self._reading = asyncio.Semaphore(AT_ONCE)

    async def export(self, request: Request) -> Response:
        async with await owned(self._engine, request) as live:
            projection = await folded(self._engine, live)
            active = shown(live, projection)
            session = self._session(translate.detail_of(live.state, None, self._default, is_owner=False))
        without_memories(projection.turns)
        nodes = nodes_of(projection, active)
        turns = [each.turn for each in active]
        content = await asyncio.to_thread(archives.written, session, turns, nodes, self._engine.clock.now())
        name = f"session-{live.state.session_id}.zip"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return Response(content, 200, headers, "application/zip")

    async def preview(self, request: Request) -> Response:
        archive, _ = await self._archive(request)
        archives.messages_of(archive.turns, self._engine.ids.new)  # what an import would refuse is refused here
        return json_answer(
            {
                "intent": archive.session.intent,
                "turn_count": len(archive.turns),
                "created_at": archive.session.created_at,
                "format_version": archive.manifest.format_version,
                "warnings": archives.warnings_of(archive.turns),
            }
        )

    async def import_(self, request: Request) -> Response:
        archive, fields = await self._archive(request)
        engine = self._engine
        wanted = fields.get("solution_id") or archive.session.solution_id
        if not fields.get("solution_id") and wanted not in engine.agents:
            wanted = None  # the archive's agent is not served here
        agent = engine.agent(wanted or engine.default_agent)
        title = (fields.get("name") or archive.session.intent)[: told.INTENT].strip()
        memory = agent.spec.memory
        asked = Create(
            door=translate.DOOR,
            agent=agent.spec.name,
            tools="all",
            memory_enabled=self._remembers if memory is None else memory,
            seeds=tuple(archives.messages_of(archive.turns, engine.ids.new)),
            change=SettingsChange(title=title or None),
        )
        limits = msgspec.structs.replace(engine.limits, seeds=archives.MESSAGES)
        live = await engine.create(caller_of(request).user, asked, limits=limits)
        detail = translate.detail_of(live.state, agent.spec, self._default)
        return json_answer({**_plain(detail), "session_id": chat.shown_session(live.state.session_id)})

    async def _archive(self, request: Request) -> tuple[Archive, dict[str, str]]:
        """The archive of a form, and the form's other fields."""
        body = await read_body(request, archives.PACKED + FORM_OVERHEAD)
        try:
            parts = {part.name: part for part in read_form(request.headers.get("content-type", ""), body)}
        except NotAForm as error:
            raise Invalid(str(error)) from error
        file = parts.pop("file", None)
        if file is None:
            raise Invalid("is required", path="file")
        async with self._reading:
            archive = await asyncio.to_thread(archives.read, file.content)
        return archive, {name: part.content.decode("utf-8", "replace") for name, part in parts.items()}

    def _session(self, detail: chat.SessionDetail) -> JsonObject:
        """A session as an archive has it: nothing of its owner's, nothing of this server's."""
        private = {"user_id", "viewer_role", "env", "shared", "is_pinned", "replay_state"}
        return {name: value for name, value in _plain(detail).items() if name not in private}

    @property
    def _default(self) -> str:
        return self._engine.agent(self._engine.default_agent).spec.name


def _plain(detail: chat.SessionDetail) -> JsonObject:
    plain: JsonObject = msgspec.to_builtins(detail)
    return plain
