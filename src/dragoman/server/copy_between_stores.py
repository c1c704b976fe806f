"""Everything of one store written into another, and compared afterwards.

Sessions are written as their server wrote them, append by append, so that what is looked up across them is made anew.
"""

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from dragoman.core.events import LoggedEvent, encode
from dragoman.core.ids import SessionId
from dragoman.core.memories import Memory
from dragoman.core.profile import Profile
from dragoman.core.schedules import Fire, Schedule
from dragoman.core.session import SessionState, encode_head, fold, initial_state
from dragoman.core.stream import Piece
from dragoman.ports.accounts import Share
from dragoman.ports.archive import ArchivedSession
from dragoman.ports.log import Append, IdempotencyRecord, SessionStore, Snapshot
from dragoman.server.stores import Stores

PAGE_SIZE = 500
"""Sessions, events or memories that are read at once."""
BATCH_EVENTS = 2000
"""Events that are committed together, more or less."""


class CopyError(Exception):
    """The copy is not what it should be; the message says where it differs."""


class CopyCounts(msgspec.Struct):
    """What was copied."""

    sessions: int = 0
    events: int = 0
    keys: int = 0
    profiles: int = 0
    memories: int = 0
    schedules: int = 0
    links: int = 0
    blobs: int = 0

    def __str__(self) -> str:
        counts = msgspec.structs.asdict(self)
        return ", ".join(f"{count} {name}" for name, count in counts.items())


Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


async def copy(source: Stores, target: Stores, progress: Progress) -> CopyCounts:
    """Copy everything from one store, which no server uses, into an empty one, and compare both.

    Raises:
        NotCopied: the target is not empty, or something in it differs from the source.
        StoreUnavailable: one of them cannot be used any more; the target is not whole.
    """
    await _check_empty(target)
    done = CopyCounts()
    await _copy_sessions(source, target, done, progress)
    await _copy_rest(source, target, done, progress)
    await _compare_sessions(source, target, done, progress)
    await _compare_rest(source, target)
    return done


async def _check_empty(target: Stores) -> None:
    there = {
        "sessions": await target.archive.count(),
        "keys": len(await target.keys.all()),
        "memories": len(await target.archive.memories(0, 1)),
        "schedules": len(await target.schedules.all()),
        "blobs": len(await target.blobs.names()),
    }
    if any(there.values()):
        found = ", ".join(f"{count} {name}" for name, count in there.items() if count)
        raise CopyError(f"there is something where the copy should go ({found}): name an empty place")


# --- sessions ---------------------------------------------------------------------------------------------------------


async def _copy_sessions(source: Stores, target: Stores, done: CopyCounts, progress: Progress) -> None:
    total = await source.archive.count()
    epoch = await target.log.claim_epoch()
    batch: list[Append] = []
    async for holding in _session_records(source):
        async for append in _appends(source.log, holding, epoch):
            batch.append(append)
            done.events += len(append.events)
            if sum(len(each.events) for each in batch) >= BATCH_EVENTS:
                await _commit(target.log, batch)
                batch = []
        done.sessions += 1
        if done.sessions % PAGE_SIZE == 0 or done.sessions == total:
            progress("sessions copied", done.sessions, total)
    await _commit(target.log, batch)


async def _session_records(stores: Stores) -> AsyncIterator[ArchivedSession]:
    last: SessionId | None = None
    while page := await stores.archive.sessions(last, PAGE_SIZE):
        for holding in page:
            yield holding
        last = page[-1].session_id


async def _events(log: SessionStore, session_id: SessionId) -> AsyncIterator[Sequence[LoggedEvent]]:
    after = 0
    while page := await log.events(session_id, after, PAGE_SIZE):
        yield page
        after = page[-1].seq


async def _appends(log: SessionStore, record: ArchivedSession, epoch: int) -> AsyncIterator[Append]:
    """A session as appends: its first event, what follows up to its last rest, and what came after that."""
    session_id, owner = record.session_id, record.owner
    snapshot = await _load_snapshot(log, session_id)
    rest, last = snapshot.head.seq, snapshot.events[-1].seq if snapshot.events else snapshot.head.seq
    async for page in _events(log, session_id):
        first = [each for each in page if each.seq == 1]
        for part in (
            first,
            [each for each in page if 1 < each.seq <= rest],
            [each for each in page if each.seq > rest],
        ):
            if not part:
                continue
            end = part[-1].seq
            state = snapshot.head if end == rest else initial_state(session_id, owner, part[0]) if end == 1 else None
            yield Append(
                session_id=session_id,
                owner=owner,
                epoch=epoch,
                after=part[0].seq - 1,
                events=part,
                payloads=[encode(logged.event) for logged in part],
                pieces=list(snapshot.pieces) if end == last else [],
                head=None if state is None else encode_head(state, with_settings=True),
                is_new=end == 1,
                name=record.name if end == 1 else None,
                idempotency_records=record.idempotency_records if end == last else (),
            )


async def _commit(log: SessionStore, batch: Sequence[Append]) -> None:
    taken = await log.commit(batch)
    refused = [append.session_id for append, was_taken in zip(batch, taken, strict=True) if not was_taken]
    if refused:
        raise CopyError(f"session {refused[0]} was not taken: its id or its name is there already")


async def _load_snapshot(log: SessionStore, session_id: SessionId) -> Snapshot:
    snapshot = await log.load(session_id)
    if snapshot is None:
        raise CopyError(f"session {session_id} is not there")
    return snapshot


async def _compare_sessions(source: Stores, target: Stores, done: CopyCounts, progress: Progress) -> None:
    if await target.archive.count() != done.sessions:
        raise CopyError(f"{done.sessions} sessions were copied, {await target.archive.count()} are there")
    compared = 0
    async for holding in _session_records(source):
        session_id = holding.session_id
        for what, wanted, found in (
            ("its fold", await _fold_session(source.log, holding), await _fold_session(target.log, holding)),
            ("its name", holding.name, await _name(target.log, holding)),
            ("what requests with keys did", [], await _missing_idempotency_records(target.log, holding)),
            ("its state", await _stored_state(source.log, session_id), await _stored_state(target.log, session_id)),
        ):
            if wanted != found:
                raise CopyError(f"session {session_id} differs: {what}")
        compared += 1
        if compared % PAGE_SIZE == 0 or compared == done.sessions:
            progress("sessions compared", compared, done.sessions)


async def _name(log: SessionStore, record: ArchivedSession) -> str | None:
    """A session's name, if it is found by it."""
    name = record.name
    return name if name is None or await log.find_by_name(record.owner, name) == record.session_id else None


async def _missing_idempotency_records(log: SessionStore, record: ArchivedSession) -> list[IdempotencyRecord]:
    """What requests with keys of their own did, and is not known any more; what does not last may go at any time."""
    return [
        once
        for once in record.idempotency_records
        if await log.find_idempotency_record(once.owner, once.key) not in ((once,) if once.lasts else (once, None))
    ]


async def _fold_session(log: SessionStore, record: ArchivedSession) -> SessionState | None:
    """A session's state as all its events make it."""
    state: SessionState | None = None
    async for page in _events(log, record.session_id):
        if state is None:
            state = initial_state(record.session_id, record.owner, page[0])
            fold(state, page[1:])
        else:
            fold(state, page)
    return state


async def _stored_state(
    log: SessionStore, session_id: SessionId
) -> tuple[SessionState, list[LoggedEvent], list[Piece]]:
    """What is stored of a session: its state at its last rest, and what came after it."""
    snapshot = await _load_snapshot(log, session_id)
    return snapshot.head, list(snapshot.events), list(snapshot.pieces)


# --- the rest ---------------------------------------------------------------------------------------------------------


async def _copy_rest(source: Stores, target: Stores, done: CopyCounts, progress: Progress) -> None:
    for key in await source.keys.all():
        await target.keys.add(key)
        done.keys += 1
    for profile in await source.profiles.all():
        await target.profiles.put(profile)
        done.profiles += 1
    async for page in _memories(source):
        await target.archive.restore_memories(page)
        done.memories += len(page)
    for schedule in await source.schedules.all():
        await target.schedules.put(schedule)
        done.schedules += 1
    for schedule, fire in await _fires(source):
        await target.schedules.claim_fire(schedule, fire)
    for share in sorted(await source.archive.shares(), key=lambda each: each.created_at):
        await target.shares.add(share)
        done.links += 1
    names = await source.blobs.names()
    for name in names:
        content = await source.blobs.get(name)
        if content is not None:
            await target.blobs.put(name, content)
            done.blobs += 1
            if done.blobs % PAGE_SIZE == 0 or done.blobs == len(names):
                progress("blobs copied", done.blobs, len(names))


async def _memories(stores: Stores) -> AsyncIterator[Sequence[Memory]]:
    last = 0
    while page := await stores.archive.memories(last, PAGE_SIZE):
        yield page
        last = page[-1].id


async def _fires(stores: Stores) -> list[tuple[Schedule, Fire]]:
    found = []
    for schedule in await stores.schedules.all():
        offset = 0
        while fires := await stores.schedules.fires(schedule.schedule_id, offset, PAGE_SIZE):
            found += [(schedule, fire) for fire in fires]
            offset += len(fires)
    return found


async def _compare_rest(source: Stores, target: Stores) -> None:
    for what, wanted, found in (
        ("keys", await source.keys.all(), await target.keys.all()),
        ("profiles", _sorted(await source.profiles.all()), _sorted(await target.profiles.all())),
        ("memories", [each async for each in _memories(source)], [each async for each in _memories(target)]),
        ("schedules", await source.schedules.all(), await target.schedules.all()),
        ("fires", await _fires(source), await _fires(target)),
        ("links", _unexpired(await source.archive.shares()), _unexpired(await target.archive.shares())),
        ("blobs", await source.blobs.names(), await target.blobs.names()),
    ):
        if wanted != found:
            raise CopyError(f"the {what} differ")
    for name in await source.blobs.names():
        if await source.blobs.get(name) != await target.blobs.get(name):
            raise CopyError(f"the blob {name} differs")


def _unexpired(shares: Sequence[Share]) -> list[Share]:
    """The links that have not expired: a store may let the others go as soon as it takes a newer one."""
    newest = max((share.created_at for share in shares), default=None)
    return [share for share in shares if share.expires_at is None or newest is None or share.expires_at > newest]


def _sorted(profiles: Sequence[Profile]) -> list[Profile]:
    return sorted(profiles, key=lambda profile: profile.user)
