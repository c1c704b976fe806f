"""What every store of memories promises, held against each that there is."""

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.core.ids import RunId, UserId
from dragoman.core.memories import Memory, MemoryFilter, MemoryTexts, searchable_text, trigrams
from dragoman.engine.services.memories import MemoryService
from dragoman.ports.accounts import MemoryStore
from dragoman.stores.lookups import MAX_NEWEST_CANDIDATES
from dragoman.stores.postgres.memories import PostgresMemories
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.memories import SqliteMemories
from tests.core.strategies import NOON
from tests.engine.world import ManualClock
from tests.stores.simulated_memories import SimulatedMemories

ANN, BOB = UserId("ann"), UserId("bob")


@pytest.fixture(params=["sqlite", "postgres", "simulated"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    if request.param == "simulated":
        return SimulatedMemories()
    if request.param == "sqlite":
        return SqliteMemories(request.getfixturevalue("sqlite_database"))
    return PostgresMemories(request.getfixturevalue("postgres_database"))


def new(content: str = "likes tea", *, user: UserId = ANN, **texts: Any) -> Memory:
    return Memory(user=user, texts=MemoryTexts(content=content, **texts), created_at=NOON)


async def added(store: MemoryStore, *memories: Memory) -> list[Memory]:
    found = [await store.add(memory) for memory in memories]
    assert all(found)
    return [memory for memory in found if memory is not None]


class ConcurrentChangeStore:
    """A store in which something else is done just after it was read for the first time."""

    def __init__(self, store: MemoryStore, done: Awaitable[object]) -> None:
        self._store = store
        self._done: Awaitable[object] | None = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, user: UserId, ids: Collection[int]) -> Sequence[Memory]:
        found = await self._store.get(user, ids)
        done, self._done = self._done, None
        if done is not None:
            await done
        return found


async def ids(store: MemoryStore, user: UserId = ANN, **asked: Any) -> list[int]:
    page, total = await store.page(user, MemoryFilter(**asked), 0, 100)
    assert total == len(page)
    return [memory.id for memory in page]


async def test_a_memory_reads_back_as_it_was_written(store: MemoryStore) -> None:
    memory = new(
        "likes tea", type="experience", skill_name="s", record_type="memory", scope="sc", owner="o", topic="t",
        mem0_id="m", write_reason="said so",
    )  # fmt: skip
    (stored,) = await added(store, msgspec.structs.replace(memory, source_session="a-session"))
    assert stored == msgspec.structs.replace(memory, source_session="a-session", id=1)
    assert await store.get(ANN, (1, 2)) == [stored]
    assert await store.page(ANN, MemoryFilter(), 0, 10) == ([stored], 1)


async def test_nobody_sees_or_touches_another_users_memories(store: MemoryStore) -> None:
    (stored,) = await added(store, new())
    assert await store.get(BOB, (1,)) == []
    assert await store.page(BOB, MemoryFilter(), 0, 10) == ([], 0)
    assert await store.candidates(BOB, ["tea"]) == []
    assert await store.remove(BOB, (1,)) == 0
    assert await store.set_disabled(BOB, (1,), disabled=True, at=NOON) == 0
    assert not await store.put(msgspec.structs.replace(stored, user=BOB, disabled=True), expected=stored)
    assert await store.add(new(user=BOB), replaces=1) is None
    await store.record_hits(RunId("r"), BOB, (1,), NOON)
    assert await store.get(ANN, (1,)) == [stored]


async def test_pages_are_newest_first_and_report_how_many_there_are(store: MemoryStore) -> None:
    await added(store, *(new(f"number {number}") for number in range(5)))
    page, total = await store.page(ANN, MemoryFilter(), 1, 2)
    assert ([memory.id for memory in page], total) == ([4, 3], 5)
    assert await store.page(ANN, MemoryFilter(), 5, 2) == ([], 5)


async def test_no_user_gets_more_memories_than_the_limit_however_many_are_added_at_once(store: MemoryStore) -> None:
    await added(store, new(), new(user=BOB))
    results = await asyncio.gather(*(store.add(new(f"likes {number}"), limit=4) for number in range(12)))
    assert sum(each is None for each in results) == 9
    assert len(await ids(store)) == 4
    assert await store.add(new("likes tea no more"), 1, limit=4) is None
    assert [each.superseded_by for each in await store.get(ANN, (1,))] == [None]


async def test_an_id_is_never_given_twice(store: MemoryStore) -> None:
    await added(store, new(), new())
    assert await store.remove(ANN, (2, 3)) == 1
    assert [memory.id for memory in await added(store, new())] == [3]


@pytest.mark.parametrize("name", ["skill_name", "scope", "owner", "topic"])
async def test_a_filter_on_a_name_is_exact(store: MemoryStore, name: str) -> None:
    exact: dict[str, Any] = {name: "alpha"}
    longer: dict[str, Any] = {name: "alphabet"}
    await added(store, new(**exact), new(**longer), new())
    assert await ids(store, **exact) == [1]


async def test_kinds_and_states_are_distinguished(store: MemoryStore) -> None:
    await added(store, new(), new(type="experience", record_type="skill_comment"), new())
    replacing = await store.add(new("newer"), replaces=1)
    assert replacing is not None
    await store.set_disabled(ANN, (3,), disabled=True, at=NOON)
    assert await ids(store, type="experience") == [2]
    assert await ids(store, record_type="skill_comment") == [2]
    assert [await ids(store, status=status) for status in ("enabled", "disabled", "superseded")] == [[4, 2], [3], [1]]
    assert [memory.superseded_by for memory in await store.get(ANN, (1,))] == [4]
    assert {memory.id for memory in await store.candidates(ANN, [])} == {4, 2}


@pytest.mark.parametrize(
    ("keyword", "found"),
    [
        ("tea", [1]),
        ("TEA", [1]),
        ("t", [4, 3, 2, 1]),
        ("咖啡", [2]),
        ("黑咖啡", [2]),
        ("啡", [2]),
        ("über", [3]),
        ("ÜB", [3]),
        ("strasse", [3]),
        ('a "quoted', [4]),
        ("100%", [4]),
        ("%", [4]),
        ("_", []),
        ("OR AND", []),
        ("", [4, 3, 2, 1]),
        ("\0", []),
    ],
)
async def test_a_keyword_is_part_of_content_or_topic_in_any_case(
    store: MemoryStore, keyword: str, found: list[int]
) -> None:
    await added(
        store,
        new("Likes Tea"),
        new("用户喜欢黑咖啡", topic="taste"),
        new("lives in Überstraße", topic="town"),
        new('said a "quoted" 100% thing', topic="quote"),
    )
    assert await ids(store, keyword=keyword) == found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), max_size=5),
    keyword=st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
async def test_the_index_finds_what_a_plain_search_finds(
    tmp_path_factory: pytest.TempPathFactory, contents: list[str], keyword: str
) -> None:
    contents = [content.replace("\0", "0") for content in contents]
    keyword = keyword.replace("\0", "0")
    database = Database(tmp_path_factory.mktemp("memories"), synchronous="normal")
    database.start()
    try:
        store = SqliteMemories(database)
        stored = await added(store, *(new(content) for content in contents))
        expected = [each.id for each in reversed(stored) if keyword.casefold() in searchable_text(each.texts)]
        assert await ids(store, keyword=keyword) == expected
    finally:
        database.close()


async def test_a_change_is_found_under_its_new_words_only(store: MemoryStore) -> None:
    (memory,) = await added(store, new("likes tea"))
    later = NOON + timedelta(hours=1)
    changed = msgspec.structs.replace(
        memory, texts=MemoryTexts(content="likes coffee", topic="taste"), updated_at=later, disabled=True
    )
    assert await store.put(changed, expected=memory)
    assert await store.get(ANN, (1,)) == [changed]
    assert (await ids(store, keyword="tea"), await ids(store, keyword="coffee")) == ([], [1])
    assert not await store.put(msgspec.structs.replace(changed, id=2), expected=changed)


async def test_a_change_of_what_was_changed_meanwhile_is_made_again(store: MemoryStore) -> None:
    (memory,) = await added(store, new("likes tea"))
    elsewhere = MemoryService(store, ManualClock()).change(ANN, 1, {"content": "likes coffee"})
    changed = await MemoryService(ConcurrentChangeStore(store, elsewhere), ManualClock()).change(
        ANN, 1, {"topic": "drinks"}
    )
    assert (changed.texts.content, changed.texts.topic) == ("likes coffee", "drinks")
    assert await store.get(ANN, (1,)) == [changed]
    assert not await store.put(memory, expected=memory)


async def test_switching_counts_what_was_otherwise(store: MemoryStore) -> None:
    await added(store, new(), new())
    assert await store.set_disabled(ANN, (1, 2, 3), disabled=True, at=NOON) == 2
    assert await store.set_disabled(ANN, (1, 2, 3), disabled=True, at=NOON) == 0
    assert await store.set_disabled(ANN, (1,), disabled=False, at=NOON) == 1
    assert [(memory.id, memory.disabled, memory.updated_at) for memory in await store.get(ANN, (1, 2))] == [
        (2, True, NOON),
        (1, False, NOON),
    ]


async def test_a_hit_counts_once_for_each_run(store: MemoryStore) -> None:
    await added(store, new(), new())
    for run in ("run-1", "run-2", "run-1"):
        await store.record_hits(RunId(run), ANN, (1,), NOON)
    assert [(memory.id, memory.hit_count, memory.last_hit_at) for memory in await store.get(ANN, (1, 2))] == [
        (2, 0, None),
        (1, 2, NOON),
    ]


async def test_a_removed_memory_is_nowhere_any_more(sqlite_database: Database, tmp_path: Path) -> None:
    store = SqliteMemories(sqlite_database)
    await added(store, new("a canary sings"))
    assert await store.remove(ANN, (1,)) == 1
    assert await ids(store, keyword="canary") == []
    indexed = await sqlite_database.read(
        lambda connection: connection.execute("SELECT count(*) FROM memories_text ('canary')").fetchone()
    )
    assert indexed == (0,)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_an_old_memory_is_a_candidate_when_it_fits(store: MemoryStore) -> None:
    """Beyond the newest ones, the index finds what has something in common with the message."""
    await added(store, new("the canary sings at dawn", type="experience"), new("never so", type="experience"))
    await added(store, *(new(f"something else {number}") for number in range(3)))
    await added(store, *(new(f"filler {number}", type="experience") for number in range(MAX_NEWEST_CANDIDATES)))
    said = trigrams("Does the Canary sing?")
    assert {memory.id for memory in await store.candidates(ANN, said)} >= {1, 3, 4, 5}
    assert 2 not in {memory.id for memory in await store.candidates(ANN, said)}
