"""An event log that counts and times its commits, and tracks whether they succeed."""

import time
from collections.abc import Sequence

from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.instrumentation.metrics import COMMIT_SECONDS, COMMITS, EVENTS, PIECES
from dragoman.ports.log import Append, EventLog

_WRITTEN = COMMITS.labels(outcome="written")
_FAILED = COMMITS.labels(outcome="failed")


class CountedLog:
    """`EventLog` around another one."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.claim_epoch = log.claim_epoch
        self.load = log.load
        self.events = log.events
        self.events_before = log.events_before
        self.kept = log.kept
        self.kept_size = log.kept_size
        self.delete = log.delete
        self.pending_cleanups = log.pending_cleanups
        self.finish_cleanup = log.finish_cleanup
        self.is_failing = False
        """Whether the store refused the last commit."""

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        """Commit a batch, and count it."""
        started_at = time.perf_counter()
        try:
            accepted = await self._log.commit(batch)
        except StoreUnavailable:
            self.is_failing = True
            _FAILED.inc()
            raise
        COMMIT_SECONDS.observe(time.perf_counter() - started_at)
        self.is_failing = False
        _WRITTEN.inc()
        EVENTS.inc(sum([len(append.events) for append in batch]))
        PIECES.inc(sum([len(append.pieces) for append in batch]))
        return accepted
