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
from dragoman.protocols.blade.projection.loader import active_turns, load_projection, nodes_of, remove_memories
from dragoman.protocols.blade.rest.access import open_owned_session
from dragoman.protocols.blade.rest.router import Route
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire import sessions as told
from dragoman.protocols.kit.http import json_response, principal_of, read_body
from dragoman.protocols.kit.multipart import InvalidForm, read_form

FORM_OVERHEAD_BYTES = 64 * 1024
MAX_CONCURRENT_READS = 2
"""Archives that are read at the same time: each may need much memory."""


def routes(engine: Engine, *, memory_default: bool = True) -> list[Route]:
    """What answers about archives.

    Args:
        engine: where the sessions are.
        remembers: whether imported sessions use memories where their agent does not say.
    """
    door = _ArchiveHandlers(engine, memory_default)
    return [
        Route("GET", "sessions/{session}/export", door.export),
        Route("POST", "sessions/preview-import", door.preview),
        Route("POST", "sessions/import", door.import_),
    ]


class _ArchiveHandlers:
    def __init__(self, engine: Engine, remembers: bool) -> None:
        self._engine = engine
        self._memory_default = remembers
        self._read_semaphore = asyncio.Semaphore(MAX_CONCURRENT_READS)

    async def export(self, request: Request) -> Response:
        async with await open_owned_session(self._engine, request) as live:
            projection = await load_projection(self._engine, live)
            active = active_turns(live, projection)
            session = self._exported_session(translate.detail_of(live.state, None, self._default_agent, is_owner=False))
        remove_memories(projection.turns)
        nodes = nodes_of(projection, active)
        turns = [each.turn for each in active]
        content = await asyncio.to_thread(archives.write_archive, session, turns, nodes, self._engine.clock.now())
        name = f"session-{live.state.session_id}.zip"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return Response(content, 200, headers, "application/zip")

    async def preview(self, request: Request) -> Response:
        archive, _ = await self._read_form_archive(request)
        archives.messages_of(archive.turns, self._engine.ids.new)  # what an import would refuse is refused here
        return json_response(
            {
                "intent": archive.session.intent,
                "turn_count": len(archive.turns),
                "created_at": archive.session.created_at,
                "format_version": archive.manifest.format_version,
                "warnings": archives.warnings_of(archive.turns),
            }
        )

    async def import_(self, request: Request) -> Response:
        archive, fields = await self._read_form_archive(request)
        engine = self._engine
        wanted = fields.get("solution_id") or archive.session.solution_id
        if not fields.get("solution_id") and wanted not in engine.agents:
            wanted = None  # the archive's agent is not served here
        agent = engine.agent(wanted or engine.default_agent)
        title = (fields.get("name") or archive.session.intent)[: told.MAX_INTENT_CHARS].strip()
        memory = agent.spec.memory
        asked = Create(
            protocol=translate.PROTOCOL,
            agent=agent.spec.name,
            tools="all",
            memory_enabled=self._memory_default if memory is None else memory,
            seeds=tuple(archives.messages_of(archive.turns, engine.ids.new)),
            change=SettingsChange(title=title or None),
        )
        limits = msgspec.structs.replace(engine.limits, seeds=archives.MAX_MESSAGES)
        live = await engine.create(principal_of(request).user, asked, limits=limits)
        detail = translate.detail_of(live.state, agent.spec, self._default_agent)
        return json_response({**_to_builtins(detail), "session_id": chat.public_session_id(live.state.session_id)})

    async def _read_form_archive(self, request: Request) -> tuple[Archive, dict[str, str]]:
        """The archive of a form, and the form's other fields."""
        body = await read_body(request, archives.MAX_ARCHIVE_BYTES + FORM_OVERHEAD_BYTES)
        try:
            parts = {part.name: part for part in read_form(request.headers.get("content-type", ""), body)}
        except InvalidForm as error:
            raise Invalid(str(error)) from error
        file = parts.pop("file", None)
        if file is None:
            raise Invalid("is required", path="file")
        async with self._read_semaphore:
            archive = await asyncio.to_thread(archives.read_archive, file.content)
        return archive, {name: part.content.decode("utf-8", "replace") for name, part in parts.items()}

    def _exported_session(self, detail: chat.SessionDetail) -> JsonObject:
        """A session as an archive has it: nothing of its owner's, nothing of this server's."""
        private = {"user_id", "viewer_role", "env", "shared", "is_pinned", "replay_state"}
        return {name: value for name, value in _to_builtins(detail).items() if name not in private}

    @property
    def _default_agent(self) -> str:
        return self._engine.agent(self._engine.default_agent).spec.name


def _to_builtins(detail: chat.SessionDetail) -> JsonObject:
    plain: JsonObject = msgspec.to_builtins(detail)
    return plain
