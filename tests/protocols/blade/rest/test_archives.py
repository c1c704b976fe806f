"""Blade's export and import: a conversation survives the round trip, and no archive does harm."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_STORED, ZipFile

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import admission
from dragoman.core.content import AssistantMessage, Call, SystemMessage, Text, Thinking, ToolMessage, UserMessage
from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId, fork_loop
from dragoman.core.input_checks import InputLimits
from dragoman.core.inputs import Create
from dragoman.core.refusals import Invalid, LimitExceeded
from dragoman.core.tools import AgentSpec
from dragoman.protocols.blade import archives
from dragoman.protocols.blade.archives import ArchivedTurn, messages_of, read_archive, warnings_of, write_archive
from dragoman.protocols.blade.projection.projection import Projection
from tests.asgi_client import DEADLINE_S
from tests.conversations import call, calls, script
from tests.core.log_generator import LogGenerator, conversations
from tests.core.strategies import NOON
from tests.protocols.blade.client import RestAnswer, RestClient, socket_client
from tests.requirements import requirement

MANIFEST = {"format": "dragoman-session", "format_version": 1, "exported_at": "2026-01-01T00:00:00Z"}
FILES: dict[str, Any] = {"manifest.json": MANIFEST, "session.json": {"intent": "tea"}, "turns.json": []}


class SequentialIds:
    """Ids in order."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"new-{self.count}"


def packed(files: dict[str, Any], method: int = ZIP_DEFLATED) -> bytes:
    """An archive with these files."""
    created = BytesIO()
    with ZipFile(created, "w", method) as archive:
        for name, value in files.items():
            archive.writestr(name, value if isinstance(value, bytes) else msgspec.json.encode(value))
    return created.getvalue()


def turns(*given: dict[str, Any]) -> tuple[ArchivedTurn, ...]:
    return msgspec.convert(list(given), tuple[ArchivedTurn, ...])


def summarize_turns(turns: Sequence[dict[str, Any]]) -> list[Any]:
    """What an import preserves of turns: roles, texts, calls, loops and results, with ids replaced by their order."""
    names: dict[str, int] = {}
    result: list[Any] = []
    for turn in turns:
        real = [each for each in turn["tool_calls"] if not each["id"].startswith("perm_")]
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
    every = [each for turn in turns for each in turn["tool_calls"] if not each["id"].startswith("perm_")]
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


@requirement("blade:archive:order")
def test_results_stand_before_the_next_turn_of_their_loop_and_sub_agents_within_their_call() -> None:
    def use(name: str, tool: str, **arguments: Any) -> dict[str, Any]:
        return {"type": "tool_use", "tool_call_id": name, "content": arguments}

    result = messages_of(
        turns(
            {"role": "user", "blocks": [{"type": "text", "content": "hi"}]},
            {
                "role": "assistant",
                "model": "m",
                "blocks": [{"type": "thinking", "content": "hm"}, use("a", "Agent"), use("b", "add", x=1)],
                "tool_calls": [
                    {"id": "a", "tool_name": "Agent", "result": "gold"},
                    {"id": "b", "tool_name": "add", "status": "error", "result": "broken"},
                    {"id": "perm_b", "tool_name": "AskUserQuestion"},
                ],
            },
            {
                "role": "assistant",
                "loop_id": "fork:a",
                "blocks": [use("c", "dig")],
                "tool_calls": [{"id": "c", "tool_name": "dig", "result": {"n": 1, "_meta": {"ui": {}}}}],
            },
            {"role": "assistant", "loop_id": "fork:a", "blocks": [{"type": "text", "content": "gold"}]},
            {"role": "system", "blocks": [{"type": "system_notification", "content": "note"}]},
        ),
        SequentialIds(),
    )
    loop = fork_loop(result[1].calls()[0].call_id)  # type: ignore[union-attr]  # the second is the assistant's
    one, two = (each.call_id for each in result[1].calls())  # type: ignore[union-attr]
    three = result[2].calls()[0].call_id  # type: ignore[union-attr]
    bare = [msgspec.structs.replace(each, id="") for each in result]
    assert bare == [
        UserMessage(id="", content="hi"),  # type: ignore[arg-type]
        AssistantMessage(
            id="",  # type: ignore[arg-type]
            content=(
                Thinking("hm"),
                Call(call_id=one, name="Agent", input={}),
                Call(call_id=two, name="add", input={"x": 1}),
            ),
            model="m",
        ),
        AssistantMessage(id="", content=(Call(call_id=three, name="dig", input={}),), loop=loop),  # type: ignore[arg-type]
        ToolMessage(
            id="",  # type: ignore[arg-type]
            call_id=three,
            name="dig",
            content='{"n":1}',
            loop=loop,
            raw={"n": 1, "_meta": {"ui": {}}},
        ),
        AssistantMessage(id="", content=(Text("gold"),), loop=loop),  # type: ignore[arg-type]
        ToolMessage(id="", call_id=one, name="Agent", content="gold"),  # type: ignore[arg-type]
        ToolMessage(id="", call_id=two, name="add", content="broken", is_error=True),  # type: ignore[arg-type]
        SystemMessage(id="", content="note", origin="notice"),  # type: ignore[arg-type]
    ]


@requirement("blade:archive:preview")
def test_what_is_left_out_is_reported() -> None:
    archive = turns(
        {"role": "system", "kind": "compaction"},
        {"role": "assistant", "blocks": [{"type": "plan_status"}], "tool_calls": [
            {"id": "a", "tool_name": "t", "status": "awaiting_answer"}
        ]},
    )  # fmt: skip
    assert warnings_of(archive) == [
        "summaries of earlier turns are not imported",
        "plans and changes of mode are not imported",
        "calls that were still running are imported as interrupted",
    ]
    assert warnings_of(turns({"role": "user"})) == []


@requirement("blade:archive:hold-together")
def test_a_loop_that_no_call_began_is_refused() -> None:
    with pytest.raises(Invalid, match="no call started"):
        messages_of(turns({"role": "assistant", "loop_id": "fork:x"}), SequentialIds())


@requirement("blade:archive:bounds")
def test_too_many_messages_and_too_deep_results_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MESSAGES", 2)
    with pytest.raises(LimitExceeded):
        messages_of(turns(*[{"role": "user", "blocks": [{"type": "text", "content": "hi"}]}] * 3), SequentialIds())
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    step = {
        "role": "assistant",
        "blocks": [{"type": "tool_use", "tool_call_id": "a"}],
        "tool_calls": [{"id": "a", "tool_name": "t", "result": deep}],
    }
    with pytest.raises(Invalid, match="nested too deeply"):
        messages_of(turns(step), SequentialIds())


# --- untrusted archives -----------------------------------------------------------------------------------------------


def encrypted() -> bytes:
    """An archive that says of its first entry that it is encrypted."""
    created = bytearray(packed(FILES, ZIP_STORED))
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        created[created.index(signature) + offset] |= 1
    return bytes(created)


def lying(size: int) -> bytes:
    """An archive that says that its turns are smaller than they are."""
    created = bytearray(packed({**FILES, "turns.json": b"[" + b" " * 100_000 + b"]"}))
    at = created.rindex(b"turns.json") - 46 + 24
    created[at : at + 4] = size.to_bytes(4, "little")
    return bytes(created)


@requirement("blade:archive:broken")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        b"not an archive",
        packed(FILES)[:-10],
        packed(FILES)[20:],
        packed(FILES).replace(b"PK\3\4", b"PK\3\5"),
        packed(FILES, ZIP_BZIP2)[:-40] + packed(FILES)[-40:],
        encrypted(),
        lying(5),
        packed({}),
        packed({name: FILES[name] for name in ("session.json", "turns.json")}),
        packed({name: FILES[name] for name in ("manifest.json", "turns.json")}),
        packed({name: FILES[name] for name in ("manifest.json", "session.json")}),
        packed({**FILES, "manifest.json": {**MANIFEST, "format": "another"}}),
        packed({**FILES, "manifest.json": {**MANIFEST, "format_version": 2}}),
        packed({**FILES, "manifest.json": b"\xff\xfe"}),
        packed({**FILES, "turns.json": b"[" * 200_000}),
        packed({**FILES, "turns.json": {}}),
        packed({**FILES, "turns.json": [{"role": "robot"}]}),
        packed({**FILES, "turns.json": b'[{"role": "user", "blocks": [{"type": "text", "content": "\\ud800"}]}]'}),
        packed({**FILES, "session.json": []}),
    ],
)
def test_what_is_no_archive_of_ours_is_refused(content: bytes) -> None:
    with pytest.raises(Invalid) as refused:
        read_archive(content)
    assert refused.value.path == "file"


@requirement("blade:archive:outside")
@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/passwd", "a/../../evil", "a\\..\\evil", "C:evil", "..", "a/..", "\\\\host\\share", "C:\\evil"],
)
def test_an_entry_that_leads_outside_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        read_archive(packed({**FILES, name: b"x"}))


@requirement("blade:archive:outside")
@pytest.mark.parametrize("name", ["notes..txt", "a/b.json", "..a", "a../b"])
def test_a_name_that_only_looks_so_is_taken_and_ignored(name: str) -> None:
    assert read_archive(packed({**FILES, name: b"x"})).session.intent == "tea"


@requirement("blade:archive:bounds")
def test_an_archive_that_is_too_large_unpacked_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = packed({**FILES, "bomb": bytes(2_000_000)})
    assert len(bomb) < 10_000
    assert read_archive(bomb).session.intent == "tea"
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1_000_000)
    with pytest.raises(LimitExceeded, match="1000000"):
        read_archive(bomb)


@requirement("blade:archive:bounds")
def test_a_part_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_TURNS_BYTES", 100)
    with pytest.raises(LimitExceeded):
        read_archive(packed({**FILES, "turns.json": b"[" + b" " * 100 + b"]"}))


@requirement("blade:archive:bounds")
def test_an_archive_of_very_many_entries_or_of_one_twice_is_refused() -> None:
    with pytest.raises(Invalid, match="entries"):
        read_archive(packed({**FILES, **{f"{number}": b"" for number in range(1000)}}))
    created = BytesIO(packed(FILES))
    with ZipFile(created, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("turns.json", b"[]")
    with pytest.raises(Invalid, match="entries"):
        read_archive(created.getvalue())


@requirement("blade:archive:broken")
@given(st.data())
def test_any_bytes_are_an_archive_or_refused(data: st.DataObject) -> None:
    created = bytearray(packed(FILES))
    for _ in range(data.draw(st.integers(1, 8))):
        created[data.draw(st.integers(0, len(created) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_archive(bytes(created))
    except (Invalid, LimitExceeded):
        return


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
async def test_a_session_is_exported_imported_and_gone_on_with(alice: RestClient, bob: RestClient) -> None:
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
    assert ([each["status"] for each in turn["tool_calls"]], status) == (["error"], "created")
    assert turn["tool_calls"][0]["result"] == archives.INTERRUPTED_CALL_RESULT
