"""Group commit: what one session cannot write fails with it, and with no other."""

import asyncio
from collections.abc import Sequence

from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.sessions.group_commit import GroupCommitter
from dragoman.ports.log import Append
from tests.requirements import requirement
from tests.stores.contract import DEADLINE_S, SessionWriter
from tests.stores.simulated import SimulatedLog


class NewSession:
    """A session that is to be created, and what the committer makes of it."""

    starts_run = False

    def __init__(self, number: int) -> None:
        self.writer = SessionWriter(number, epoch=1)
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def collect(self) -> Sequence[Append]:
        return (self.writer.new(),)

    def publish(self) -> None:
        self.outcome.set_result(None)

    def fail(self, error: Exception) -> None:
        self.outcome.set_exception(error)


class TooLargeSession(NewSession):
    """A session for whose events there is no memory."""

    def collect(self) -> Sequence[Append]:
        raise MemoryError


@requirement("faults:50:memory")
async def test_a_session_that_cannot_be_encoded_fails_alone_and_later_commits_succeed() -> None:
    store = SimulatedLog()
    committer = GroupCommitter(store, on_commit=lambda _: None)
    committer.start()
    sessions = [NewSession(1), TooLargeSession(2), NewSession(3)]
    for each in sessions:
        committer.schedule(each)
    async with asyncio.timeout(DEADLINE_S):
        outcomes = await asyncio.gather(*(each.outcome for each in sessions), return_exceptions=True)
        assert [type(each) for each in outcomes] == [type(None), StoreUnavailable, type(None)]
        committer.schedule(last := NewSession(4))
        await last.outcome
        await committer.stop()
    assert [await store.find_owner(each.writer.session_id) is not None for each in (*sessions, last)] == [
        True,
        False,
        True,
        True,
    ]
