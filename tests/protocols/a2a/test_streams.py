"""Streams of tasks: the events of a task, joined at any time and resumed after any of them."""

import json
from pathlib import Path

import pytest

from dragoman.core.refusals import LimitReached, NotFound, Refused, Unavailable, all_refusals
from dragoman.protocols.a2a.errors import ERRORS
from dragoman.protocols.kit.errors import REQUEST_ERRORS
from tests.conversations import call, script
from tests.protocols.a2a.client import A2aClient, Dialect, message, said
from tests.requirements import requirement
from tests.servers import AppServer, running_server

LONG = script(
    {"say": "one "},
    call("add", a=1, b=2),
    {"emit": {"count": 20, "text": "ü\u2028", "every_ms": 1}},
    {"data": {"n": 1}},
)
SLOW = script({"say": "one "}, {"wait_ms": 600_000}, {"say": "two"})
ALL_DIALECTS = pytest.mark.parametrize("dialect", ["rpc", "http", "old"])


@requirement("a2a:stream:events", "a2a:stream:same-text", "a2a:stream:over")
@ALL_DIALECTS
async def test_a_stream_is_the_task_its_artifacts_in_pieces_and_its_end(
    app_server: AppServer, dialect: Dialect
) -> None:
    alice = A2aClient(app_server.connection, app_server.key("alice"), dialect=dialect)
    stream = await alice.open(LONG)
    events = await stream.rest()
    task = await alice.get(stream.task_id)
    assert stream.text() == said(task) == "one " + 20 * "ü\u2028"
    assert stream.statuses() == ["working", "completed"]
    updates = [each["artifactUpdate"] if dialect != "old" else each for each in events[1:-1]]
    by_artifact: dict[str, list[tuple[bool, bool]]] = {}
    for update in updates:
        by_artifact.setdefault(update["artifact"]["artifactId"], []).append((update["append"], update["lastChunk"]))
    assert list(by_artifact) == [each["artifactId"] for each in task["artifacts"]]
    for seen in by_artifact.values():
        assert [append for append, _ in seen] == [False] + [True] * (len(seen) - 1)
        assert [last for _, last in seen] == [False] * (len(seen) - 1) + [True]
    (data,) = updates[-1]["artifact"]["parts"]
    assert data["data"] == {"n": 1}
    if dialect == "old":
        assert [each.get("final") for each in events if each["kind"] == "status-update"] == [True]
    assert (await alice.error("SubscribeToTask", {"id": task["id"]}))[1] == "UNSUPPORTED_OPERATION"


@requirement("a2a:old:stream-errors")
async def test_a_refused_stream_is_an_event_in_0_3_and_json_in_1_0(app_server: AppServer, alice: A2aClient) -> None:
    old = A2aClient(app_server.connection, app_server.key("alice"), dialect="old")
    for method, params in (
        ("SendStreamingMessage", {"message": message("x" * 1_048_577)}),
        ("SubscribeToTask", {"id": "nope"}),
    ):
        refused = await alice.request(method, params)
        assert (refused.status, dict(refused.headers)["content-type"]) == (200, "application/json")
        event = await old.request(method, params)
        assert (event.status, dict(event.headers)["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert json.loads(event.body.removeprefix(b"data: "))["error"] == json.loads(refused.body)["error"]


@requirement("a2a:stream:subscribe", "a2a:stream:resume")
async def test_streams_joined_and_resumed_at_any_event_add_up_to_the_whole(alice: A2aClient) -> None:
    whole = await alice.open(LONG)
    await whole.until_text("one ")
    joined = await alice.subscribe(whole.task_id)
    await joined.rest()
    await whole.rest()
    assert joined.text() == whole.text()
    assert joined.events[-1] == whole.events[-1]
    for place in (0, 1, len(whole.ids) // 2, len(whole.ids) - 2):
        rest = await alice.subscribe(whole.task_id, after=whole.ids[place])
        assert await rest.rest() == whole.events[place + 1 :]
        assert rest.ids == whole.ids[place + 1 :]
    nothing = await alice.subscribe(whole.task_id, after=whole.ids[-1])
    assert await nothing.rest() == []
    for wrong in ("x", "999999999", "-1", "1.x", ""):
        answer = await alice.request("SubscribeToTask", {"id": whole.task_id}, **{"last-event-id": wrong})
        assert json.loads(answer.body)["error"]["code"] == -32602, wrong


@requirement("a2a:stream:resume", "a2a:stream:cut")
async def test_a_stream_is_resumed_over_a_restart_and_the_cut_step_is_marked(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        alice = A2aClient(server.connection, server.key("alice"))
        text = script({"say": "first. "}, {"step": True}, {"say": "counting "}, {"wait_ms": 2_000}, {"say": "done"})
        before = await alice.open(text)
        await before.until_text("counting ")
        await server.restart()
        alice.connection = server.connection
        after = await alice.subscribe(before.task_id, after=before.ids[-1])
        after.events = [*before.events, *await after.rest()]
        task = await alice.get(before.task_id)
        assert after.text() == said(task) == "first. counting done", "clients join the artifacts"
        marks = [each.get("metadata", {}).get("interrupted", False) for each in task["artifacts"]]
        assert marks == [False, True, False]


@requirement("a2a:stream:subscribe")
async def test_a_client_that_leaves_stops_nothing(alice: A2aClient) -> None:
    stream = await alice.open(script({"say": "one "}, {"wait_ms": 100}, {"say": "two"}))
    await stream.until_text("one ")
    await stream.stream.disconnect()
    following = await alice.subscribe(stream.task_id)
    await following.rest()
    assert following.text() == "one two"


@requirement("a2a:errors:table")
def test_every_kind_of_refusal_has_an_answer_of_its_own() -> None:
    kinds = {each for each in all_refusals() if each.__base__ is Refused}
    assert {*kinds, *REQUEST_ERRORS} <= set(ERRORS.rows)
    rows = {kind: ERRORS.rows[kind] for kind in kinds}
    assert {row.status for kind, row in rows.items() if kind.__name__ in ("Invalid", "Conflict")} == {400}
    assert (rows[Unavailable].status, rows[NotFound].status, rows[LimitReached].status) == (503, 404, 429)
