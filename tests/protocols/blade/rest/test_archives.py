"""Blade's export and import: a conversation survives the round trip, and no archive does harm."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import httpx2
import msgspec
from hypothesis import given

from dragoman.core import admission
from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId
from dragoman.core.input_checks import InputLimits
from dragoman.core.inputs import Create
from dragoman.core.session_archive import INTERRUPTED_CALL_RESULT, messages_of, read_archive, write_archive
from dragoman.core.tools import AgentSpec
from dragoman.protocols.blade.projection.projection import Projection
from tests.asgi_client import DEADLINE_S
from tests.conversations import call, calls, script
from tests.core.archives import FILES, SequentialIds, packed
from tests.core.log_generator import LogGenerator, conversations
from tests.core.strategies import NOON
from tests.protocols.blade.client import RestAnswer, RestClient, socket_client
from tests.requirements import requirement


def summarize_turns(turns: Sequence[dict[str, Any]]) -> list[Any]:
    """What an import preserves of turns: roles, texts, calls, loops and results, with ids replaced by their order."""
    names: dict[str, int] = {}
    result: list[Any] = []
    for turn in turns:
        real = [each for each in turn["tool_calls"] if not each["id"].startswith(("perm_", "ask"))]
        for each in real:
            names.setdefault(each["id"], len(names))
        texts = [
            (block["type"], block["content"])
            for block in turn["blocks"]
            if block["type"] in ("text", "thinking") and block["content"]
        ]
        created = [(names[each["id"]], each["tool_name"], each["arguments"]) for each in real]
        loop = names.get(turn["loop_id"].removeprefix("fork:"))
        if turn["role"] == "assistant" and (texts or created):
            result.append((loop, texts, created))
        elif turn["role"] == "user" and texts:
            result.append((loop, "\n".join(content for _, content in texts)))
    return result


def results(turns: Sequence[dict[str, Any]]) -> list[Any]:
    """The results of calls that ended well, in the order of the calls."""
    every = [each for turn in turns for each in turn["tool_calls"] if not each["id"].startswith(("perm_", "ask"))]
    return [each["result"] for each in every if each["status"] == "done"]


# --- round trips ------------------------------------------------------------------------------------------------------


@requirement("blade:archive:round-trip")
@given(conversations)
def test_any_conversation_is_imported_as_it_was_exported(scribe: LogGenerator) -> None:
    projection = Projection(SessionId(scribe.state.session_id), keeps_finished_turns=True)
    for record in scribe.stream:
        projection.feed(record)
    for builder in projection.turns.all:
        builder.join_text()
    exported = [each.turn for each in projection.turns.all]
    archive = read_archive(write_archive({"intent": "tea"}, exported, [], NOON))
    seeds = tuple(messages_of(archive.turns, SequentialIds()))
    create = Create(protocol="blade", agent="agent", seeds=seeds)
    events = admission.create(AgentSpec(name="agent"), create, lambda _: None, InputLimits(seeds=20_000))  # type: ignore[arg-type,return-value]  # nothing is secret
    again = Projection(SessionId("s"), keeps_finished_turns=True)
    for seq, event in enumerate(events, 1):
        again.feed(LoggedEvent(seq, NOON, None, event))
    assert not again.turns.open, "everything imported is over"
    before = msgspec.json.decode(msgspec.json.encode(exported))
    after = msgspec.json.decode(msgspec.json.encode([each.turn for each in again.turns.all]))
    assert summarize_turns(after) == summarize_turns(before)


# --- at a server ------------------------------------------------------------------------------------------------------


async def exported(caller: RestClient, session: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=caller.url, timeout=DEADLINE_S, verify=False) as http:
        headers = {"authorization": f"Bearer {caller.key}"}
        return await http.get(f"/api/sessions/{session}/export", headers=headers)


async def sent(caller: RestClient, path: str, content: bytes, **fields: str) -> RestAnswer:
    """An archive sent to be imported."""
    async with httpx2.AsyncClient(base_url=caller.url, timeout=DEADLINE_S, verify=False) as http:
        headers = {"authorization": f"Bearer {caller.key}"}
        files = {"file": ("session.zip", content, "application/zip")}
        answer = await http.post(f"/api/sessions/{path}", headers=headers, files=files, data=fields)
        return RestAnswer(answer.status_code, msgspec.json.decode(answer.content))


async def recorded_session(caller: RestClient) -> str:
    """A session with texts, thoughts, calls, results and a sub-agent; with a variable and a title."""
    session = await caller.session(intent="tea", env={"SECRET": "a canary"})
    async with socket_client(caller.url, caller.key) as socket:
        await socket.send(session, "add 1 and 2")
        await socket.send(
            session,
            script(
                {"think": "hm"},
                {"say": "Working. "},
                calls(("add", {"a": 1, "b": 2}), ("add", {"a": 5, "b": 6})),
                call("boom"),
                {"fork": {"description": "dig", "script": [{"say": "gold"}, call("add", a=3, b=4), {"say": "more"}]}},
                {"say": "Grüße, 咖啡"},
            ),
        )
    return session


@requirement("blade:archive:export", "blade:archive:round-trip", "blade:archive:import")
async def test_a_session_is_exported_imported_and_continued(alice: RestClient, bob: RestClient) -> None:
    session = await recorded_session(alice)
    answer = await exported(alice, session)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert re.fullmatch(r'attachment; filename="session-[0-9a-f-]{36}\.zip"', answer.headers["content-disposition"])
    with ZipFile(BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["manifest.json", "session.json", "turns.json", "history.json"]
        assert b"canary" not in b"".join(archive.read(name) for name in archive.namelist())
        turns = msgspec.json.decode(archive.read("turns.json"))
        nodes = msgspec.json.decode(archive.read("history.json"))["nodes"]
        manifest = msgspec.json.decode(archive.read("manifest.json"))
        details = msgspec.json.decode(archive.read("session.json"))
    before = await alice.messages(session)
    assert (turns, len(nodes)) == (before, len(before))
    assert (manifest["format"], manifest["format_version"]) == ("dragoman-session", 1)
    assert datetime.fromisoformat(manifest["exported_at"]).tzinfo == UTC
    assert details.keys() & {"env", "user_id", "viewer_role"} == set()

    preview = await sent(bob, "preview-import", answer.content)
    assert preview == (200, {
        "intent": "tea", "turn_count": len(before), "created_at": details["created_at"], "format_version": 1,
        "warnings": [],
    })  # fmt: skip

    status, created = await sent(bob, "import", answer.content)
    assert (status, created["id"], created["intent"], created["user_id"]) == (200, created["session_id"], "tea", "bob")
    after = await bob.messages(created["session_id"])
    assert (summarize_turns(after), results(after)) == (summarize_turns(before), results(before))
    ids = {each["id"] for each in before} | {call["id"] for each in before for call in each["tool_calls"]}
    assert not ids & {each["id"] for each in after}
    assert {each["status"] for each in after} == {"completed"}
    async with socket_client(bob.url, bob.key) as socket:
        await socket.send(created["session_id"], script({"recall": "user"}))
    assert "add 1 and 2" in str((await bob.messages(created["session_id"]))[-1]["blocks"])


@requirement("blade:archive:import")
async def test_an_import_takes_a_name_and_an_agent(alice: RestClient) -> None:
    content = packed(FILES)
    status, created = await sent(alice, "import", content, name="coffee", solution_id="rehearsal")
    assert (status, created["intent"]) == (200, "coffee")
    assert (await sent(alice, "import", content, solution_id="nobody")).status == 404
    away = packed({**FILES, "session.json": {"intent": "tea", "solution_id": "nobody"}})
    assert (await sent(alice, "import", away)).status == 200


@requirement("blade:archive:broken")
async def test_a_broken_archive_is_422_and_makes_no_session(alice: RestClient) -> None:
    total = (await alice.get("sessions"))["total"]
    for path in ("import", "preview-import"):
        assert await sent(alice, path, b"PK") == (422, {"detail": "file: is not a readable archive"})
        assert (await alice.request("POST", f"sessions/{path}", {})).status == 422
        torn = packed({**FILES, "turns.json": [{"role": "assistant", "loop_id": "fork:x"}]})
        assert (await sent(alice, path, torn)).status == 422, "a preview promises nothing that an import refuses"
    assert (await alice.get("sessions"))["total"] == total


@requirement("blade:archive:own")
async def test_only_its_owner_exports_a_session(alice: RestClient, bob: RestClient) -> None:
    session = await alice.session()
    assert (await exported(bob, session)).status_code == 404
    await alice.request("PATCH", f"sessions/{session}/sharing", {"shared": True})
    assert (await exported(bob, session)).status_code == 403


@requirement("blade:archive:forged")
async def test_an_imported_call_that_was_open_runs_nothing_and_asks_nobody(alice: RestClient) -> None:
    step = {
        "role": "assistant",
        "blocks": [{"type": "tool_use", "tool_call_id": "a", "content": {"a": 1, "b": 2}}],
        "tool_calls": [{"id": "a", "tool_name": "add", "status": "awaiting_answer"}],
    }
    _, created = await sent(alice, "import", packed({**FILES, "turns.json": [step]}))
    ((turn,), status) = (
        await alice.messages(created["session_id"]),
        (await alice.get(f"sessions/{created['id']}"))["status"],
    )
    assert ([each["status"] for each in turn["tool_calls"]], status) == (["error"], "completed")
    assert turn["tool_calls"][0]["result"] == INTERRUPTED_CALL_RESULT
