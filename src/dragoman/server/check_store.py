"""`dragoman check`: reads everything that a store contains, and reports what is damaged.

With `--repair`, damaged sessions are put into quarantine, after what is whole of them was written to files.
"""

from pathlib import Path

import msgspec

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId
from dragoman.core.refusals import SessionUnreadable, StoreUnavailable
from dragoman.ports.archive import ArchivedSession
from dragoman.ports.stores import Stores
from dragoman.stores import atomic_files

PAGE_SIZE = 500


class CheckReport(msgspec.Struct, kw_only=True):
    """What was checked, and what is wrong, one sentence for each problem."""

    sessions: int = 0
    events: int = 0
    problems: list[str] = []
    """What is still wrong."""
    repaired: list[str] = []
    """What was put into quarantine."""


class QuarantinedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a session in quarantine."""

    session_id: SessionId
    owner: str
    name: str | None
    reason: str
    """What is damaged."""
    events: list[LoggedEvent]
    """The session's log up to the first damaged event."""


async def check(stores: Stores, quarantine: Path | None = None) -> CheckReport:
    """Check the database's structure, and read all sessions with all their events.

    Args:
        stores: what to check.
        quarantine: the folder for the files of damaged sessions, which are put into quarantine; None to change nothing.

    Raises:
        StoreUnavailable: the store cannot be read at all.
        OSError: the file of a damaged session cannot be written.
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
                await _report_damage(stores, session, error.reason, report, quarantine)
            except StoreUnavailable as error:
                await _report_damage(stores, session, f"{error}: {error.__cause__}", report, quarantine)
    return report


async def _read_session(stores: Stores, session_id: SessionId) -> int:
    """Read a session as the server does. Returns the number of its events."""
    await stores.log.load(session_id)
    count = 0
    while events := await stores.log.events(session_id, count, PAGE_SIZE):
        count += len(events)
    after: str | None = None
    while kept := await stores.log.kept(session_id, "", after, 1):
        after = max(kept)
    return count


async def _report_damage(
    stores: Stores, session: ArchivedSession, reason: str, report: CheckReport, quarantine: Path | None
) -> None:
    session_id = session.session_id
    problem = f"session {session_id}: {reason}"
    if quarantine is None:
        report.problems.append(problem)
        return
    whole = await _whole_events(stores, session_id)
    file = _write_file(
        quarantine,
        QuarantinedSession(session_id=session_id, owner=session.owner, name=session.name, reason=reason, events=whole),
    )
    try:
        await stores.archive.quarantine(session_id, reason)
    except StoreUnavailable as error:
        report.problems.append(f"{problem}; it cannot be put into quarantine: {error.__cause__}")
        return
    report.repaired.append(f"{problem}; it is in quarantine, and its first {len(whole)} events are in {file}")


def _write_file(folder: Path, session: QuarantinedSession) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{session.session_id}.json"
    atomic_files.write(file, msgspec.json.format(msgspec.json.encode(session)))
    return file


async def _whole_events(stores: Stores, session_id: SessionId) -> list[LoggedEvent]:
    """A session's events up to the first one that cannot be read."""
    events: list[LoggedEvent] = []
    size = PAGE_SIZE
    while True:
        try:
            page = await stores.log.events(session_id, len(events), size)
        except StoreUnavailable:  # or SessionUnreadable, which is one
            if size == 1:
                return events
            size = 1
            continue
        if not page:
            return events
        events += page
