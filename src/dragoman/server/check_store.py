"""`dragoman check`: reads everything that a store contains, and reports what is damaged."""

import msgspec

from dragoman.core.ids import SessionId
from dragoman.core.refusals import SessionUnreadable, StoreUnavailable
from dragoman.server.stores import Stores

PAGE_SIZE = 500


class CheckReport(msgspec.Struct, kw_only=True):
    """What was checked, and what is wrong, one sentence for each problem."""

    sessions: int = 0
    events: int = 0
    problems: list[str] = []


async def check(stores: Stores) -> CheckReport:
    """Check the database's structure, and read all sessions with all their events.

    Raises:
        StoreUnavailable: the store cannot be read at all.
    """
    report = CheckReport(problems=[*await stores.structure_problems()])
    last: SessionId | None = None
    while page := await stores.archive.sessions(last, PAGE_SIZE):
        for session in page:
            last = session.session_id
            report.sessions += 1
            try:
                report.events += await _read_session(stores, last)
            except SessionUnreadable as error:
                report.problems.append(f"session {error.session_id}: {error.reason}")
            except StoreUnavailable as error:
                report.problems.append(f"session {last}: {error}: {error.__cause__}")
    return report


async def _read_session(stores: Stores, session_id: SessionId) -> int:
    """Read a session as the server does. Returns the number of its events."""
    await stores.log.load(session_id)
    count = 0
    while events := await stores.log.events(session_id, count, PAGE_SIZE):
        count += len(events)
    return count
