"""The event stream of a thread over the run service."""

from dragoman.core.ids import RunId
from dragoman.core.stream import Record
from dragoman.protocols.agui.run_service import wire
from dragoman.protocols.agui.run_service.translate import Calls, RunEvents, StreamEvent
from dragoman.protocols.kit.frames import KEEP_ALIVE, encode_json


class ThreadEncoder:
    """The frames of all runs of a thread, or of one of them, after a position.

    It begins before the first record of a run, where these calls are open.
    """

    keep_alive = KEEP_ALIVE

    def __init__(self, thread_id: str, only_run_id: RunId | None, after: wire.EventId, calls: Calls) -> None:
        self._thread_id = thread_id
        self._only_run_id = only_run_id
        self._after = after
        self._run = RunEvents(only_run_id, thread_id, calls)

    @property
    def is_over(self) -> bool:
        """Whether the one run that is followed has ended."""
        return self._only_run_id is not None and self._run.is_over

    def feed(self, record: Record) -> bytes:
        """The frames of a record that are after the position."""
        if self.is_over:
            return b""
        if self._run.is_over:
            self._run = RunEvents(None, self._thread_id, self._run.calls)
        return b"".join(_frame(event) for event in self._run.feed(record) if event.id > self._after)

    def close(self, error: Exception) -> bytes:
        """Nothing: the client continues after its last id, or learns that the thread is gone."""
        return b""


def _frame(event: StreamEvent) -> bytes:
    kind: str = event.body["type"]
    data = encode_json(event.body, event.body.get("delta"))
    return b"id: %d-%d\nevent: %b\ndata: %b\n\n" % (*event.id, kind.encode(), data)
