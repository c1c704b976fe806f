"""The run service's files: uploaded images behind signed links, and recordings to transcribe."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

import structlog
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.ids import UserId
from dragoman.core.principal import Principal
from dragoman.core.refusals import Forbidden, Invalid, SessionNotFound
from dragoman.core.upload_links import LIFETIME_S, Links
from dragoman.core.uploads import BUCKET, EXTENSIONS, is_path_of, mime_type_of, sniff_image_type, wav_data_size
from dragoman.engine.engine import Engine
from dragoman.engine.services.uploads import Uploads
from dragoman.ports.environment import Clock
from dragoman.ports.models import Transcriber, TranscriptionFailed
from dragoman.protocols.agui.run_service import wire
from dragoman.protocols.agui.run_service.errors import FOREIGN_OWNER_MESSAGE, Problem, parse_thread
from dragoman.protocols.agui.run_service.rules import RUN_ID_LIMIT
from dragoman.protocols.kit.body import read_form_body
from dragoman.protocols.kit.endpoints import Handlers, endpoint, query
from dragoman.protocols.kit.errors import BodyTooLarge
from dragoman.protocols.kit.multipart import InvalidForm, Part

MAX_FILE_BYTES = 10 * 1024 * 1024
LIST_LIMIT = 500
"""How many of a user's images are listed."""
CLOSE = {"Connection": "close"}
"""Headers of a response to a body that was not read to its end."""
AUDIO_LIMIT_MESSAGE = f"a recording must have at most {MAX_FILE_BYTES} bytes"
SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": f"private, max-age={LIFETIME_S}",
}
"""Headers of an image, besides `nosniff`, which every response has."""

log = structlog.get_logger(__name__)


_OBJECT_PATH = query("path", "The path that the upload returned.", is_required=True)


def require_query(query: Mapping[str, str], name: str) -> str:
    """A parameter of the query. Raises Invalid if it is missing or empty."""
    value = query.get(name)
    if not value:
        raise Invalid(f"the parameter {name} is required")
    return value


class Files(Handlers):
    """Handles the routes of attachments and recordings."""

    def __init__(
        self,
        *,
        engine: Engine,
        uploads: Uploads,
        links: Links,
        clock: Clock,
        transcriber: Transcriber | None,
        public_url: str | None,
    ) -> None:
        self._engine = engine
        self.uploads = uploads
        self._links = links
        self._clock = clock
        self._transcriber = transcriber
        self._public_url = None if public_url is None else public_url.rstrip("/")

    # --- links ----------------------------------------------------------------------------------------------------

    def base_url(self, request: Request) -> str:
        """The URL under which the client reaches this service."""
        url = self._public_url or f"{request.scope['scheme']}://{request.headers.get('host', '')}"
        return f"{url}{request.scope.get('root_path', '')}"

    def link(self, request: Request, path: str) -> str:
        """A link to an object, valid for an hour from now."""
        until = self._clock.now() + timedelta(seconds=LIFETIME_S)
        return self._links.make(self.base_url(request), path, int(until.timestamp()))

    def path_of(self, owner: UserId, url: str) -> str | None:
        """The object behind a link; None if the link is invalid or expired, or the object is another user's."""
        link = self._links.read(url)
        if link is None or link.expires < self._clock.now().timestamp() or not is_path_of(owner, link.path):
            return None
        return link.path

    def unsigned_links(self, body: wire.RunAgentInput) -> dict[str, str]:
        """The paths behind a message's links, also expired ones, by link."""
        urls = [image.url for image in body.images() if image.url]
        links = {url: self._links.read(url) for url in urls}
        return {url: link.path for url, link in links.items() if link is not None}

    # --- images ---------------------------------------------------------------------------------------------------

    @endpoint(
        "POST",
        "/attachments",
        status=201,
        errors={413: "The file is too large.", 415: "The file is not an image, or not of its declared type."},
    )
    async def upload(self, request: Request, principal: Principal) -> wire.StoredObject:
        """Upload an image.

        A form with one file in the field `file`, and optionally `threadId` and `runId`.
        """
        owner = principal.user
        try:
            parts = await read_form_body(request, MAX_FILE_BYTES)
        except BodyTooLarge:
            raise _too_large(CLOSE) from None
        except InvalidForm as error:
            raise Problem(422, "AGENT_ATTACHMENT_INVALID", str(error)) from error
        fields = {part.name: part.content.decode("utf-8", "replace") for part in parts if part.filename is None}
        run = fields.get("runId") or fields.get("run_id") or None
        if run is not None and len(run) > RUN_ID_LIMIT:
            raise Problem(422, "AGENT_INVALID_RUN_ID", "runId exceeds length limit")
        named = fields.get("threadId") or fields.get("thread_id")
        thread = parse_thread(named) if named else None
        if thread is not None:
            with suppress(SessionNotFound):  # images come before the thread's first run
                await self._engine.find_session(owner, thread, reveals_foreign=True)
        file = _require_single_file(parts, "AGENT_ATTACHMENT_INVALID", 422)
        declared = (file.content_type or "").partition(";")[0].strip().lower()
        if not file.content:
            raise Problem(422, "AGENT_ATTACHMENT_EMPTY", "the file is empty")
        if len(file.content) > MAX_FILE_BYTES:
            raise _too_large()
        if declared not in EXTENSIONS or sniff_image_type(file.content) != declared:
            kinds = ", ".join(EXTENSIONS)
            raise Problem(415, "AGENT_ATTACHMENT_TYPE", f"the file must be of its declared type, and one of {kinds}")
        path = await self.uploads.put(owner, thread, run, file.content, declared)
        return self._stored_object(request, path)

    @endpoint("GET", "/attachments")
    async def list_uploads(self, request: Request, principal: Principal) -> wire.StoredObjectPage:
        """List your images, newest first.

        At most 500. An addition to the protocol.
        """
        owner = principal.user
        paths = [path for path in await self.uploads.paths_of_owner(owner) if is_path_of(owner, path)]
        return wire.StoredObjectPage([self._stored_object(request, path) for path in paths[:LIST_LIMIT]])

    @endpoint("DELETE", "/attachments", parameters=(_OBJECT_PATH,))
    async def remove(self, principal: Principal, query: Mapping[str, str]) -> None:
        """Delete an image.

        Messages with the image show nothing in its place. Succeeds also if it is gone already. An addition to the
        protocol.
        """
        path = require_query(query, "path")
        if not is_path_of(principal.user, path):
            raise Forbidden(FOREIGN_OWNER_MESSAGE)
        await self.uploads.remove(path)

    def _stored_object(self, request: Request, path: str) -> wire.StoredObject:
        return wire.StoredObject(bucket=BUCKET, path=path, mime_type=mime_type_of(path), url=self.link(request, path))

    @endpoint(
        "GET",
        "/attachments/signed-url",
        parameters=(query("bucket", "The bucket that the upload returned.", is_required=True), _OBJECT_PATH),
    )
    async def signed_url(self, request: Request, principal: Principal, query: Mapping[str, str]) -> wire.SignedUrl:
        """Make a new link to an image."""
        bucket, path = require_query(query, "bucket"), require_query(query, "path")
        if bucket != BUCKET:
            raise Forbidden(f"there is no such bucket: it is {BUCKET!r}")
        if not is_path_of(principal.user, path):
            raise Forbidden(FOREIGN_OWNER_MESSAGE)
        return wire.SignedUrl(bucket=BUCKET, path=path, url=self.link(request, path))

    async def content(self, request: Request) -> Response:
        """Serve an image to a signed link, which needs no key."""
        scope = request.scope
        raw = bytes(scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        below = raw.removeprefix(scope.get("root_path", ""))
        link = self._links.read(f"{self.base_url(request)}{below}?{scope['query_string'].decode('latin-1')}")
        if link is None or link.expires < self._clock.now().timestamp():
            raise Forbidden("this link is not valid or has expired")
        content = await self.uploads.get(link.path)
        if content is None:
            raise Problem(404, "AGENT_ATTACHMENT_NOT_FOUND", "the file is gone")
        return Response(content, 200, SAFE_HEADERS, mime_type_of(link.path))

    # --- recordings -----------------------------------------------------------------------------------------------

    @endpoint(
        "POST",
        "/transcribe",
        errors={400: "The recording cannot be read.", 502: "There is no transcription backend, or it failed."},
    )
    async def transcribe(self, request: Request) -> wire.Transcript:
        """Transcribe a recording.

        A form with one WAV file in the field `file`.
        """
        try:
            parts = await read_form_body(request, MAX_FILE_BYTES)
        except BodyTooLarge:
            raise Problem(400, "AGENT_AUDIO_TOO_LARGE", AUDIO_LIMIT_MESSAGE, headers=CLOSE) from None
        except InvalidForm as error:
            raise Problem(400, "AGENT_AUDIO_UNSUPPORTED_FORMAT", str(error)) from error
        audio = _require_single_file(parts, "AGENT_AUDIO_UNSUPPORTED_FORMAT", 400).content
        if len(audio) > MAX_FILE_BYTES:
            raise Problem(400, "AGENT_AUDIO_TOO_LARGE", AUDIO_LIMIT_MESSAGE)
        data_size = wav_data_size(audio) if audio else 0
        if data_size is None:
            raise Problem(400, "AGENT_AUDIO_UNSUPPORTED_FORMAT", "expected a WAV file")
        if not data_size:
            raise Problem(400, "AGENT_AUDIO_EMPTY", "the recording is empty")
        if self._transcriber is None:
            raise Problem(502, "AGENT_ASR_UNAVAILABLE", "this server has no transcription backend")
        try:
            text = await self._transcriber.transcribe(audio)
        except TranscriptionFailed as error:
            log.warning("transcription failed", error=str(error))
            raise Problem(502, "AGENT_ASR_UNAVAILABLE", "the transcription backend failed") from error
        return wire.Transcript(text=text)


def _require_single_file(parts: list[Part], code: str, status: int) -> Part:
    files = [part for part in parts if part.name == "file" and part.filename is not None]
    if len(files) != 1:
        raise Problem(status, code, "expected one file in the field `file`")
    return files[0]


def _too_large(headers: Mapping[str, str] | None = None) -> Problem:
    message = f"a file must have at most {MAX_FILE_BYTES} bytes"
    return Problem(413, "AGENT_ATTACHMENT_TOO_LARGE", message, headers=headers)
