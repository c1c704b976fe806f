"""`sync` patches, for clients that fold nothing (specification, section 7)."""

from pathlib import Path
from typing import Any

import pytest

from tests.conversations import script
from tests.protocols.blade.client import Event, RestClient, flat, is_list_update, socket_client
from tests.protocols.blade.driver import url_of
from tests.protocols.blade.patch_folding import FoldedTurns
from tests.requirements import requirement
from tests.servers import running_socket_server

Json = Any
WAITS = script({"say": "one"}, {"wait_ms": 600_000})


def is_sync(name: str, payload: dict[str, Json]) -> bool:
    """Whether an event is a `sync` patch, or holds one."""
    return any(one == "turn:patch" and each["patch_type"] == "sync" for one, each in flat([(name, payload)]))


@requirement("blade:patches:sync")
@pytest.mark.parametrize("form", [{}, {"event_format": "raw"}])
async def test_a_sync_patch_holds_the_turn_as_it_is_and_counts_as_nothing(tmp_path: Path, form: Json) -> None:
    async with running_socket_server(tmp_path, blade_sync_patch_ms=1) as app_server:
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        session = await alice.session()
        async with socket_client(alice.url, alice.key) as socket:
            await socket.call("session:subscribe", {"session_id": session, **form})
            await socket.call("chat:send", {"session_id": session, "message": WAITS})
            events = flat(await socket.until(is_sync))
            await socket.call("chat:stop", {"session_id": session})
            events += flat(await socket.until("chat:end"))
    syncs = [payload for name, payload in events if name == "turn:patch" and payload["patch_type"] == "sync"]
    others: list[Event] = [event for event in events if event[1] not in syncs and not is_list_update(*event)]
    [start] = [payload for name, payload in others if name == "turn:start" and payload["role"] == "assistant"]
    sync = syncs[-1]
    turn = sync["data"].pop("turn")
    assert sync == {
        "session_id": session,
        "sequence": 1,
        "turn_id": start["turn_id"],
        "loop_id": "root",
        "patch_type": "sync",
        "data": {},
        "chat_run_id": start["chat_run_id"],
    }
    left_out = {"session_id", "patch_sequence", "stream_sequence"}
    text = {"type": "text", "content": "one", "tool_call_id": None, "tool_name": None, "display_name": None}
    assert turn == {**{name: each for name, each in start.items() if name not in left_out}, "blocks": [text]}
    folded = FoldedTurns()
    for event in others:
        folded.feed(event)
    numbers = [payload["stream_sequence"] for _, payload in others]
    assert numbers == list(range(1, len(others) + 1)), "they are as they would be without"


@requirement("blade:patches:sync")
async def test_nothing_is_sent_twice_for_a_turn_that_does_not_grow(tmp_path: Path) -> None:
    async with running_socket_server(tmp_path, blade_sync_patch_ms=1) as app_server:
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        session = await alice.session()
        async with socket_client(alice.url, alice.key) as socket:
            await socket.call("chat:send", {"session_id": session, "message": WAITS})
            await socket.until(is_sync)
            await alice.request("GET", f"sessions/{session}/messages")
            await socket.call("chat:stop", {"session_id": session})
            rest = await socket.until("chat:end")
    assert [name for name, payload in rest if is_sync(name, payload)] == []


@requirement("blade:patches:content")
@pytest.mark.parametrize("is_full", [True, False])
async def test_a_client_that_reads_only_content_sees_all_of_a_long_answer_grow(tmp_path: Path, is_full: bool) -> None:
    answer = script({"emit": {"count": 100, "text": "0123456789" * 10}}, {"step": True})
    async with running_socket_server(tmp_path, blade_full_content=is_full) as app_server:
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        session = await alice.session()
        async with socket_client(alice.url, alice.key) as socket:
            events = await socket.send(session, answer)
            changes = [payload["data"] for name, payload in events if name == "turn:patch"]
            await socket.call("session:subscribe", {"session_id": session, "after_sequence": -1})
            again = await socket.until("chat:end")
    text = ""
    for change in changes:
        text += change["text_delta"]
        assert change.get("content", text) == text
    assert len(text) == 10_000
    assert all("content" in change for change in changes) is is_full
    assert [payload["data"] for name, payload in again if name == "turn:patch"] == changes
