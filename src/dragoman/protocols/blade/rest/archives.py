"""Blade's export and import of sessions over REST. Source: specification, section 5.5."""

import asyncio
from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core import session_archive
from dragoman.core.events import SettingsChange
from dragoman.core.inputs import Create
from dragoman.core.principal import Principal
from dragoman.core.refusals import Invalid
from dragoman.core.session_archive import Archive
from dragoman.engine.engine import Engine
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade import translate
from dragoman.protocols.blade.projection.loader import active_turns, load_projection, nodes_of, remove_memories
from dragoman.protocols.blade.rest.endpoints import SESSION, BladeHandlers, endpoint
from dragoman.protocols.blade.rest.sessions import session_detail
from dragoman.protocols.blade.wire.chat import SessionDetail, public_session_id
from dragoman.protocols.blade.wire.sessions import MAX_INTENT_CHARS
from dragoman.protocols.kit.body import read_form_body
from dragoman.protocols.kit.multipart import InvalidForm

MAX_CONCURRENT_READS = 2
"""Archives that are read at the same time, because each may need much memory."""
EXPORTED_FIELDS = (
    *("id", "intent", "status", "created_at", "updated_at", "solution_id", "biz_role_id", "model"),
    *("memory_enabled", "is_persistent", "solution", "primary_skill_snapshot", "session_setup"),
)
"""The fields of a session that are exported. The others belong to its owner or to this server."""


class ImportPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds, and warnings about what an import leaves out."""

    intent: str
    turn_count: int
    created_at: datetime | None
    format_version: int
    warnings: list[str]


class ImportedSession(SessionDetail, frozen=True, kw_only=True):
    """The new session, whose id has two names."""

    session_id: str


class ArchiveHandlers(BladeHandlers):
    """Handlers of archives.

    Args:
        audit: records exports.
        memory_default: whether an imported session uses memories if its agent does not say.
    """

    def __init__(self, engine: Engine, audit: AuditLog, *, memory_default: bool) -> None:
        self.engine = engine
        self._audit = audit
        self._memory_default = memory_default
        self._read_semaphore = asyncio.Semaphore(MAX_CONCURRENT_READS)

    @endpoint("GET", f"{SESSION}/export", access="owner", media_type="application/zip")
    async def export(self, session: SessionView) -> Response:
        """Export a session as a ZIP archive."""
        await self._audit.record("session.exported", target=session.state.session_id)
        projection = await load_projection(self.engine, session)
        active = active_turns(session, projection)
        remove_memories(projection.turns.all)
        detail = translate.detail_of(session.state, None, is_owner=False)
        exported = {name: getattr(detail, name) for name in EXPORTED_FIELDS}
        turns, nodes = [each.turn for each in active], nodes_of(projection, active)
        content = await asyncio.to_thread(
            session_archive.write_archive, exported, turns, nodes, self.engine.clock.now()
        )
        name = f"session-{session.state.session_id}.zip"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return Response(content, 200, headers, "application/zip")

    @endpoint("POST", "/sessions/preview-import")
    async def preview(self, request: Request) -> ImportPreview:
        """Preview an archive, sent as `file` in a form."""
        archive, _ = await self._read_form_archive(request)
        session_archive.messages_of(archive.turns, self.engine.ids.new)  # what an import would refuse is refused here
        return ImportPreview(
            intent=archive.session.intent,
            turn_count=len(archive.turns),
            created_at=archive.session.created_at,
            format_version=archive.manifest.format_version,
            warnings=session_archive.warnings_of(archive.turns),
        )

    @endpoint("POST", "/sessions/import")
    async def import_(self, request: Request, principal: Principal) -> ImportedSession:
        """Import an archive, sent as `file` in a form, as a new session."""
        archive, fields = await self._read_form_archive(request)
        engine = self.engine
        agent_name = fields.get("solution_id")
        if not agent_name and archive.session.solution_id in engine.agents:  # else it is not served here
            agent_name = archive.session.solution_id
        spec = engine.agent(agent_name or engine.default_agent).spec
        title = (fields.get("name") or archive.session.intent)[:MAX_INTENT_CHARS].strip()
        create = Create(
            protocol=translate.PROTOCOL,
            agent=spec.name,
            tools="all",
            memory_enabled=self._memory_default if spec.memory is None else spec.memory,
            seeds=tuple(session_archive.messages_of(archive.turns, engine.ids.new)),
            change=SettingsChange(title=title or None),
        )
        limits = msgspec.structs.replace(engine.limits, seeds=session_archive.MAX_MESSAGES)
        session = await engine.create(principal.user, create, limits=limits)
        detail = msgspec.structs.asdict(session_detail(engine, session))
        return ImportedSession(**detail, session_id=public_session_id(session.state.session_id))

    async def _read_form_archive(self, request: Request) -> tuple[Archive, dict[str, str]]:
        """Read the archive of a form, and the form's other fields."""
        try:
            form = await read_form_body(request, session_archive.MAX_ARCHIVE_BYTES)
        except InvalidForm as error:
            raise Invalid(str(error)) from error
        parts = {part.name: part for part in form}
        file = parts.pop("file", None)
        if file is None:
            raise Invalid("this field is required", path="file")
        async with self._read_semaphore:
            archive = await asyncio.to_thread(session_archive.read_archive, file.content)
        return archive, {name: part.content.decode("utf-8", "replace") for name, part in parts.items()}
