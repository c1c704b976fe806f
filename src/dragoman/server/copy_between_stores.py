"""Copies everything from one store into another, and compares the result.

Sessions are replayed append by append, as their server wrote them, so that the target builds its own indexes.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec

from dragoman.core.audit import AuditEntry
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
from dragoman.ports.stores import Stores
from dragoman.stores.encryption import KEY_FILES

PAGE_SIZE = 500
"""Sessions, events or memories per read."""
KEPT_PAGE_SIZE = 16
"""Kept values per read and commit, each of up to 16 MiB."""
BATCH_EVENTS = 2000
"""Approximate number of events per commit."""


class CopyError(Exception):
    """The copy failed or differs from its source. The message says where."""


class CopyCounts(msgspec.Struct):
    """How many items were copied."""

    sessions: int = 0
    events: int = 0
    kept: int = 0
    keys: int = 0
    profiles: int = 0
    memories: int = 0
    schedules: int = 0
    links: int = 0
    audit: int = 0
    blobs: int = 0

    def __str__(self) -> str:
        counts = msgspec.structs.asdict(self)
        return ", ".join(f"{count} {name}" for name, count in counts.items())


Progress = Callable[[str, int, int], None]
"""Called with the step, the number of items done, and their total."""


async def copy(source: Stores, target: Stores, progress: Progress) -> CopyCounts:
    """Copy everything into an empty store, and compare both. No server may use either of them.

    An interrupted copy cannot be resumed: empty the target and start again.

    Raises:
        CopyError: the target is not empty, or differs from the source.
        StoreUnavailable: one of the stores became unavailable; the target is incomplete.
    """
    await _check_empty(target)
    counts = CopyCounts()
    await _copy_sessions(source, target, counts, progress)
    await _copy_rest(source, target, counts, progress)
    await _copy_fingerprints(source, target)
    await _compare_sessions(source, target, counts, progress)
    await _compare_rest(source, target)
    return counts


async def _check_empty(target: Stores) -> None:
    contents = {
        "sessions": await target.archive.count(),
        "keys": len(await target.keys.all()),
        "memories": len(await target.archive.memories(0, 1)),
        "schedules": len(await target.schedules.all()),
        "blobs": len(await target.blobs.names()),
    }
    if any(contents.values()):
        listed = ", ".join(f"{count} {name}" for name, count in contents.items() if count)
        raise CopyError(f"the target is not empty ({listed}): name an empty one")


# --- sessions ---------------------------------------------------------------------------------------------------------


async def _copy_sessions(source: Stores, target: Stores, counts: CopyCounts, progress: Progress) -> None:
    total = await source.archive.count()
    epoch = await target.log.claim_epoch()
    batch: list[Append] = []
    async for session in _archived_sessions(source):
        async for append in _appends(source.log, session, epoch):
            batch.append(append)
            counts.events += len(append.events)
            counts.kept += len(append.kept)
            if append.kept or sum(len(each.events) for each in batch) >= BATCH_EVENTS:
                await _commit(target.log, batch)
                batch = []
        counts.sessions += 1
        if counts.sessions % PAGE_SIZE == 0 or counts.sessions == total:
            progress("sessions copied", counts.sessions, total)
    await _commit(target.log, batch)


async def _archived_sessions(stores: Stores) -> AsyncIterator[ArchivedSession]:
    last: SessionId | None = None
    while page := await stores.archive.sessions(last, PAGE_SIZE):
        for session in page:
            yield session
        last = page[-1].session_id


async def _events(log: SessionStore, session_id: SessionId) -> AsyncIterator[Sequence[LoggedEvent]]:
    after = 0
    while page := await log.events(session_id, after, PAGE_SIZE):
        yield page
        after = page[-1].seq


async def _appends(log: SessionStore, record: ArchivedSession, epoch: int) -> AsyncIterator[Append]:
    """A session as appends: its first event, the events up to its last snapshot, those after that, the kept values."""
    session_id, owner = record.session_id, record.owner
    snapshot = await _load_snapshot(log, session_id)
    snapshot_seq, last = snapshot.head.seq, snapshot.events[-1].seq if snapshot.events else snapshot.head.seq
    async for page in _events(log, session_id):
        first = [each for each in page if each.seq == 1]
        for part in (
            first,
            [each for each in page if 1 < each.seq <= snapshot_seq],
            [each for each in page if each.seq > snapshot_seq],
        ):
            if not part:
                continue
            end = part[-1].seq
            state = None
            if end == snapshot_seq:
                state = snapshot.head
            elif end == 1:
                state = initial_state(session_id, owner, part[0])
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
    async for kept in _kept(log, session_id):
        yield Append(
            session_id=session_id,
            owner=owner,
            epoch=epoch,
            after=last,
            events=[],
            payloads=[],
            head=None if snapshot.events else encode_head(snapshot.head, with_settings=True),
            kept=kept,
        )


async def _kept(log: SessionStore, session_id: SessionId) -> AsyncIterator[Mapping[str, bytes]]:
    after: str | None = None
    while page := await log.kept(session_id, "", after, KEPT_PAGE_SIZE):
        yield page
        after = max(page)


async def _commit(log: SessionStore, batch: Sequence[Append]) -> None:
    outcomes = await log.commit(batch)
    refused = [append.session_id for append, is_committed in zip(batch, outcomes, strict=True) if not is_committed]
    if refused:
        raise CopyError(f"the target refused session {refused[0]}: its id or name already exists there")


async def _load_snapshot(log: SessionStore, session_id: SessionId) -> Snapshot:
    snapshot = await log.load(session_id)
    if snapshot is None:
        raise CopyError(f"session {session_id} is missing")
    return snapshot


async def _compare_sessions(source: Stores, target: Stores, counts: CopyCounts, progress: Progress) -> None:
    if await target.archive.count() != counts.sessions:
        raise CopyError(f"{counts.sessions} sessions were copied, but the target has {await target.archive.count()}")
    compared = 0
    async for session in _archived_sessions(source):
        session_id = session.session_id
        for part, expected, actual in (
            ("its folded state", await _fold_session(source.log, session), await _fold_session(target.log, session)),
            ("its name", session.name, await _name(target.log, session)),
            ("its idempotency records", [], await _missing_idempotency_records(target.log, session)),
            ("its kept values", [], await _different_kept(source.log, target.log, session_id)),
            ("its snapshot", await _stored_state(source.log, session_id), await _stored_state(target.log, session_id)),
        ):
            if expected != actual:
                raise CopyError(f"session {session_id} differs: {part}")
        compared += 1
        if compared % PAGE_SIZE == 0 or compared == counts.sessions:
            progress("sessions compared", compared, counts.sessions)


async def _different_kept(source: SessionStore, target: SessionStore, session_id: SessionId) -> list[str]:
    """The first page of kept values that differs."""
    after: str | None = None
    while True:
        expected = await source.kept(session_id, "", after, KEPT_PAGE_SIZE)
        actual = await target.kept(session_id, "", after, KEPT_PAGE_SIZE)
        if expected != actual:
            return [*expected, *actual]
        if not expected:
            return []
        after = max(expected)


async def _name(log: SessionStore, record: ArchivedSession) -> str | None:
    """A session's name, if the log finds the session by it."""
    name = record.name
    return name if name is None or await log.find_by_name(record.owner, name) == record.session_id else None


async def _missing_idempotency_records(log: SessionStore, record: ArchivedSession) -> list[IdempotencyRecord]:
    """The idempotency records that the log does not find. Those that do not last may expire at any time."""
    return [
        each
        for each in record.idempotency_records
        if await log.find_idempotency_record(each.owner, each.key) not in ((each,) if each.lasts else (each, None))
    ]


async def _fold_session(log: SessionStore, record: ArchivedSession) -> SessionState | None:
    """A session's state, folded from all its events."""
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
    """A session's stored snapshot, and the events and pieces after it."""
    snapshot = await _load_snapshot(log, session_id)
    return snapshot.head, list(snapshot.events), list(snapshot.pieces)


# --- the rest ---------------------------------------------------------------------------------------------------------


async def _copy_rest(source: Stores, target: Stores, counts: CopyCounts, progress: Progress) -> None:
    for key in await source.keys.all():
        await target.keys.add(key)
        counts.keys += 1
    for profile in await source.profiles.all():
        await target.profiles.put(profile)
        counts.profiles += 1
    async for page in _memories(source):
        await target.archive.restore_memories(page)
        counts.memories += len(page)
    for schedule in await source.schedules.all():
        await target.schedules.put(schedule)
        counts.schedules += 1
    for schedule, fire in await _fires(source):
        await target.schedules.claim_fire(schedule, fire)
    for share in sorted(await source.archive.shares(), key=lambda each: each.created_at):
        await target.shares.add(share)
        counts.links += 1
    if tokens := await source.token_usage.all():
        await target.token_usage.add(tokens)
    async for entries in _audit(source):
        await target.audit.add(entries)
        counts.audit += len(entries)
    names = await source.blobs.names()
    for name in names:
        content = await source.blobs.get(name)
        if content is not None:
            await target.blobs.put(name, content)
            counts.blobs += 1
            if counts.blobs % PAGE_SIZE == 0 or counts.blobs == len(names):
                progress("blobs copied", counts.blobs, len(names))


async def _copy_fingerprints(source: Stores, target: Stores) -> None:
    """Digests and secrets can be used only with the same key files."""
    for name in KEY_FILES:
        if fingerprint := await source.key_fingerprints.find(name):
            await target.key_fingerprints.register(name, fingerprint)


async def _audit(stores: Stores) -> AsyncIterator[Sequence[AuditEntry]]:
    last: str | None = None
    while page := await stores.audit.page(last, PAGE_SIZE):
        yield page
        last = page[-1].entry_id


async def _memories(stores: Stores) -> AsyncIterator[Sequence[Memory]]:
    last = 0
    while page := await stores.archive.memories(last, PAGE_SIZE):
        yield page
        last = page[-1].id


async def _fires(stores: Stores) -> list[tuple[Schedule, Fire]]:
    all_fires = []
    for schedule in await stores.schedules.all():
        offset = 0
        while fires := await stores.schedules.fires(schedule.schedule_id, offset, PAGE_SIZE):
            all_fires += [(schedule, fire) for fire in fires]
            offset += len(fires)
    return all_fires


async def _compare_rest(source: Stores, target: Stores) -> None:
    for kind, expected, actual in (
        ("keys", await source.keys.all(), await target.keys.all()),
        ("profiles", _sorted(await source.profiles.all()), _sorted(await target.profiles.all())),
        ("memories", [each async for each in _memories(source)], [each async for each in _memories(target)]),
        ("audit logs", [each async for each in _audit(source)], [each async for each in _audit(target)]),
        ("counters of tokens", await source.token_usage.all(), await target.token_usage.all()),
        ("schedules", await source.schedules.all(), await target.schedules.all()),
        ("fires", await _fires(source), await _fires(target)),
        ("links", _unexpired(await source.archive.shares()), _unexpired(await target.archive.shares())),
        ("blobs", await source.blobs.names(), await target.blobs.names()),
    ):
        if expected != actual:
            raise CopyError(f"the {kind} differ")
    for name in await source.blobs.names():
        if await source.blobs.get(name) != await target.blobs.get(name):
            raise CopyError(f"the blob {name} differs")


def _unexpired(shares: Sequence[Share]) -> list[Share]:
    """The links that had not expired when the newest was created: a store may delete the others at any write."""
    newest = max((share.created_at for share in shares), default=None)
    return [share for share in shares if share.expires_at is None or newest is None or share.expires_at > newest]


def _sorted(profiles: Sequence[Profile]) -> list[Profile]:
    return sorted(profiles, key=lambda profile: profile.user)
