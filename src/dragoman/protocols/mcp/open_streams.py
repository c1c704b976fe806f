"""The open streams of calls, which their clients reach through any server on the database.

A cancelled request and a closed form are messages of their own, so they may arrive at another server than the one that
streams the answer. Each of them is therefore a hint to all servers. A lost hint leaves the stream open until its client
gives up.
"""

from collections.abc import Iterator
from hashlib import sha256

import msgspec
import structlog

from dragoman.ports.bus import Bus
from dragoman.protocols.kit.json_rpc import RequestId
from dragoman.protocols.mcp.streams import CallFrames

SUBJECT = "mcp"
"""Subject of the hints: what happened, the MCP session, and the mark of the request or the form."""

log = structlog.get_logger(__name__)


class OpenStreams:
    """The streams that are open on this server.

    Args:
        bus: reaches the other servers. It also delivers here what is published here.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._streams: dict[CallFrames, tuple[str, RequestId]] = {}
        """With their sessions and requests, oldest first."""
        bus.subscribe(SUBJECT, self._on_hint)  # for as long as the bus is open

    def add(self, frames: CallFrames, session: str, request_id: RequestId) -> None:
        """Remember the stream that answers a request."""
        self._streams[frames] = (session, request_id)

    def remove(self, frames: CallFrames) -> None:
        """Forget a stream."""
        self._streams.pop(frames, None)

    def end_silently(self, session: str, request_id: RequestId) -> None:
        """End the newest stream of a request without a result: the client has cancelled it."""
        self._bus.publish(SUBJECT, f"cancelled {session} {_mark(request_id)}")

    def ask_again(self, session: str, form_id: str) -> None:
        """Show a form once more; the second time, leave its call open."""
        self._bus.publish(SUBJECT, f"again {session} {_mark(form_id)}")

    def leave_open(self, session: str, form_id: str) -> None:
        """End the streams that show a form with the result `input_required`."""
        self._bus.publish(SUBJECT, f"closed {session} {_mark(form_id)}")

    def _on_hint(self, payload: str) -> None:
        match payload.split():
            case ["cancelled", session, mark]:
                for frames, request_id in reversed(tuple(self._of(session))):
                    if _mark(request_id) == mark:
                        frames.end_silently()
                        return
            case ["again" | "closed" as happened, session, mark]:
                for frames, _ in tuple(self._of(session)):
                    if frames.open_form is not None and _mark(frames.open_form) == mark:
                        frames.ask_again() if happened == "again" else frames.leave_open()
            case _:
                log.debug("invalid hint", subject=SUBJECT, length=len(payload))

    def _of(self, session: str) -> Iterator[tuple[CallFrames, RequestId]]:
        return ((frames, request_id) for frames, (owner, request_id) in self._streams.items() if owner == session)


def _mark(name: RequestId) -> str:
    """What stands for a request or a form in hints, which contain nothing that a client wrote."""
    return sha256(msgspec.json.encode(name)).hexdigest()[:32]
