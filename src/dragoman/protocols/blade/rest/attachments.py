"""The contents of attachments over Blade's REST API: an extension, for what a turn shows only as a note."""

import base64
import re
from urllib.parse import quote, unquote_to_bytes

from starlette.responses import Response

from dragoman.core.content import File, Image
from dragoman.core.events import BlockClosed, MessageAdded
from dragoman.core.refusals import NotFound
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade.projection.blocks import attachment_of
from dragoman.protocols.blade.rest.endpoints import SESSION, BladeHandlers, endpoint

_NAME = re.compile(r"([1-9][0-9]{0,17})-([0-9]{1,9})")
_SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""Types that a browser may show. Everything else is downloaded."""
_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "private, max-age=86400"}


class AttachmentHandlers(BladeHandlers):
    """The handler of attachments. `projection.blocks` makes their URLs."""

    @endpoint("GET", f"{SESSION}/attachments/{{attachment}}", access="reader", media_type="application/octet-stream")
    async def get(self, session: SessionView, attachment: str) -> Response:
        """Get the content of an attachment."""
        match = _NAME.fullmatch(attachment)
        block = None if match is None else await self._find_block(session, int(match[1]), int(match[2]))
        if block is None or not block.url.startswith("data:"):
            raise NotFound("there is no such attachment")
        attached = attachment_of(block)
        media_type = attached.media_type or "application/octet-stream"
        headers = dict(_HEADERS)
        if media_type not in _SHOWN_TYPES:
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(attached.name or 'attachment')}"
        return Response(_content_of(block.url), 200, headers, media_type)

    async def _find_block(self, session: SessionView, seq: int, index: int) -> Image | File | None:
        """Find a block by the event of the log that added it, and its index in the message."""
        events = await self.engine.history.events(session, seq - 1, seq)
        if not events:
            return None
        event = (await self.engine.attachments.restore_event(session.state.session_id, events[0])).event
        block: object = None
        if isinstance(event, MessageAdded) and not isinstance(event.message.content, str):
            block = next(iter(event.message.content[index : index + 1]), None)
        elif isinstance(event, BlockClosed) and event.index == index:
            block = event.block
        return block if isinstance(block, Image | File) else None


def _content_of(uri: str) -> bytes:
    """Return the content of a `data:` URI."""
    head, _, body = uri.partition(",")
    try:
        return base64.b64decode(body) if head.endswith(";base64") else unquote_to_bytes(body)
    except ValueError as error:
        raise NotFound("the attachment cannot be read") from error
