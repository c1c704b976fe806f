"""Rewinding and switching branches: hidden events leave the history but stay in the log."""

from collections.abc import Sequence

from dragoman.core import admission
from dragoman.core.branches import BranchPoint
from dragoman.core.events import Branched, Compaction, CompactionMade
from dragoman.core.refusals import SessionBusy
from dragoman.engine.sessions.history import History
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.environment import Ids


class Branches:
    """Changes the active branch of sessions. The caller must have write access."""

    def __init__(self, history: History, ids: Ids) -> None:
        self._history = history
        self._ids = ids

    async def rewind(self, live: LiveSession, point: BranchPoint) -> None:
        """Begin a branch that hides everything from the point on. Does not wait until it is durable.

        Raises:
            SessionBusy: a run is active or queued.
            ValueError: the session has no such event.
        """
        before_seq, hidden_before = point
        if not 1 < before_seq <= live.state.seq:
            raise ValueError(f"expected event 2 to {live.state.seq}, got {before_seq} ({live.state.session_id})")
        if hidden_before is None:
            hidden_before = live.state.hidden_ranges
        hidden = [each for each in hidden_before if each[1] < before_seq]
        await self.branch(live, (*hidden, (before_seq, live.state.seq)))

    async def branch(self, live: LiveSession, hidden: Sequence[tuple[int, int]]) -> None:
        """Make another branch the active one. Nothing is awaited between the last check and the append.

        Args:
            live: the session.
            hidden: ranges of events that the new branch does not contain. The last one, of the branch that is left,
                extends to the end of the log, with the results of the calls that are cancelled here.
        """
        compacted = await self._compaction_outside(live, hidden)
        if admission.is_busy(live.state):
            raise SessionBusy
        live.append(admission.cancel_open_calls(live.state, admission.CANCELLED_BY_NEW_MESSAGE, self._ids.new), None)
        hidden = (*hidden[:-1], (hidden[-1][0], live.state.seq))
        live.append((Branched(hidden_ranges=hidden, compaction=compacted),), None)

    async def _compaction_outside(self, live: LiveSession, hidden: Sequence[tuple[int, int]]) -> Compaction | None:
        """The newest compaction outside of the ranges."""
        newest = live.state.compaction
        if newest is None and not live.state.hidden_ranges:
            return None
        async for page in self._history.newest_events(live):
            for logged in reversed(page):
                event = logged.event
                if isinstance(event, CompactionMade) and not any(a <= logged.seq <= b for a, b in hidden):
                    return Compaction(seq=logged.seq, summary=event.summary, up_to=event.up_to)
        return None
