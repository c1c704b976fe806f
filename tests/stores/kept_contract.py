"""What every store promises about the values that agents keep with their sessions."""

import pytest

from dragoman.ports.log import SessionStore
from tests.stores.contract import SessionWriter, commit_accepted, new_session_in, session_id, started, stopped


class KeptContract:
    """Every test takes the fixture `store`."""

    async def test_kept_values_are_read_in_order_of_their_keys(self, store: SessionStore) -> None:
        writing, other = await new_session_in(store, 1), await new_session_in(store, 2)
        values: dict[str, bytes | None] = {f"a/{name}": name.encode() for name in ("é", "b", "\U0001f600", "a", "%_")}
        values |= {"a": b"", "b/1": bytes(range(256)) * 5000}
        assert await commit_accepted(store, writing.append(started(1), kept=values)) == [True]
        assert await commit_accepted(store, other.append(started(2), kept={"a/other": b"2"})) == [True]
        of = writing.session_id
        ordered = ["a", "a/%_", "a/a", "a/b", "a/é", "a/\U0001f600", "b/1"]
        everything = await store.kept(of, "", None, 100)
        assert list(everything.items()) == [(key, values[key]) for key in ordered]
        assert list(await store.kept(of, "a/", None, 100)) == ordered[1:6]
        assert list(await store.kept(of, "a/", "a/a", 2)) == ["a/b", "a/é"]
        assert list(await store.kept(of, "a/", "zzz", 2)) == []
        assert await store.kept(session_id(99), "", None, 10) == {}
        assert await store.kept_size(of) == sum(len(value or b"") for value in values.values())
        assert await store.kept_size(session_id(99)) == 0

    async def test_kept_values_are_written_without_events_replaced_and_removed(self, store: SessionStore) -> None:
        writing = await new_session_in(store)
        assert await commit_accepted(store, writing.append(started(1), kept={"a": b"1", "b": b"1", "c": b"1"})) == [
            True
        ]
        assert await commit_accepted(store, writing.append(kept={"a": b"22", "b": None, "none": None})) == [True]
        assert await commit_accepted(store, writing.append(kept={"d": b"4"})) == [True]
        assert await store.kept(writing.session_id, "", None, 10) == {"a": b"22", "c": b"1", "d": b"4"}
        assert await store.kept_size(writing.session_id) == 4
        assert await store.unfinished_sessions() == [writing.session_id]
        assert await commit_accepted(store, writing.append(stopped(1))) == [True]
        assert await commit_accepted(store, writing.append(kept={"c": None})) == [True]
        assert await store.unfinished_sessions() == [], "a write to a session at rest leaves it at rest"
        assert list(await store.kept(writing.session_id, "", None, 10)) == ["a", "d"]

    @pytest.mark.parametrize("has_events", [True, False])
    async def test_a_writer_that_was_overtaken_keeps_nothing(self, store: SessionStore, has_events: bool) -> None:
        first = await new_session_in(store)
        assert await commit_accepted(store, first.append(started(1), kept={"a": b"first"})) == [True]
        second = SessionWriter(1, epoch=await store.claim_epoch())
        second.log, second.state = list(first.log), first.state
        assert await commit_accepted(store, second.append(kept={"b": b"second"})) == [True]
        late = first.text_events("late") if has_events else first.append()
        late.kept = {"a": b"late", "b": None}
        assert await commit_accepted(store, late) == [False]
        assert await store.kept(first.session_id, "", None, 10) == {"a": b"first", "b": b"second"}

    async def test_kept_values_go_with_their_session(self, store: SessionStore) -> None:
        gone, other = await new_session_in(store, 1), await new_session_in(store, 2)
        many: dict[str, bytes | None] = {f"key {number}": b"value" for number in range(50)}
        for writing in (gone, other):
            assert await commit_accepted(store, writing.append(started(writing.epoch), kept=many)) == [True]
        await store.delete(gone.session_id)
        late = gone.append(kept={"late": b""})
        assert await commit_accepted(store, late) == [False]
        assert await store.kept(gone.session_id, "", None, 100) == {}
        assert len(await store.kept(other.session_id, "", None, 100)) == 50
        again = await new_session_in(store, 1)
        assert await store.kept(again.session_id, "", None, 100) == {}

    async def test_the_store_remembers_which_agent_has_to_forget_a_session(self, store: SessionStore) -> None:
        first, second = await new_session_in(store, 1), await new_session_in(store, 2)
        await store.delete(first.session_id, ["a", "b"])
        await store.delete(second.session_id)
        await store.delete(session_id(99), ["a"])
        assert sorted(await store.pending_cleanups()) == [(first.session_id, "a"), (first.session_id, "b")]
        await store.finish_cleanup(first.session_id, "a")
        await store.finish_cleanup(first.session_id, "unknown")
        assert await store.pending_cleanups() == [(first.session_id, "b")]
