"""What a session hands over for a commit is the store's from then on: it is written while the session goes on."""

from datetime import UTC, datetime

from dragoman.core.events import BlockClosed, MessageOpened, RunStarted, SessionCreated, SessionSettings
from dragoman.core.ids import ROOT, MessageId, RunId, SessionId, UserId
from dragoman.engine.sessions.group_commit import GroupCommitter
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.log import Append

RUN, MESSAGE = RunId("run"), MessageId("message")


class StoppedClock:
    def now(self) -> datetime:
        return datetime(2026, 11, 21, tzinfo=UTC)


class ManualCommitter(GroupCommitter):
    """Collects nothing: the test does."""

    def __init__(self) -> None:
        pass

    def schedule(self, session: object) -> None:
        pass


def collected(session: LiveSession) -> Append:
    (append,) = session.collect()
    return append


def test_a_block_that_closes_while_its_pieces_are_written_stays_stored_until_its_end_is_written_too() -> None:
    created = SessionCreated(agent="any", settings=SessionSettings(), protocol="aap")
    session = LiveSession.new(
        SessionId("s"),
        [created],
        owner=UserId("me"),
        name=None,
        idempotency_record=None,
        epoch=1,
        committer=ManualCommitter(),
        clock=StoppedClock(),
    )
    collected(session)
    session.publish()
    session.append([RunStarted(run_id=RUN, protocol="aap"), MessageOpened(message_id=MESSAGE)], RUN)
    block = session.open_block(MESSAGE, 0, "text", ROOT)
    block.pending_deltas.append("seen by ")
    session.collect()
    session.publish()
    block.pending_deltas.append("everybody")
    on_its_way = collected(session)
    session.close_block(ROOT, RUN)
    assert ([piece.text for piece in on_its_way.pieces], on_its_way.closed_blocks) == (["everybody"], [])
    session.publish()
    end = collected(session)
    assert [type(logged.event) for logged in end.events] == [BlockClosed]
    assert end.closed_blocks == [(MESSAGE, 0)]
