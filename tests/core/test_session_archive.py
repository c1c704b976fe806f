"""Archives of sessions: what is read from them as messages, and that none does harm."""

from io import BytesIO
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_LZMA, ZIP_STORED, ZipFile

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import session_archive
from dragoman.core.content import AssistantMessage, Call, SystemMessage, Text, Thinking, ToolMessage, UserMessage
from dragoman.core.ids import fork_loop
from dragoman.core.refusals import Invalid, LimitExceeded
from dragoman.core.session_archive import (
    MAX_CONTAINERS,
    MAX_LOOP_DEPTH,
    MAX_PARTS,
    MAX_TURNS,
    MAX_VALUES,
    ArchivedTurn,
    messages_of,
    read_archive,
    warnings_of,
)
from tests.core.archives import FILES, MANIFEST, SequentialIds, packed
from tests.requirements import requirement


def turns(*given: dict[str, Any]) -> tuple[ArchivedTurn, ...]:
    return msgspec.convert(list(given), tuple[ArchivedTurn, ...])


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
        {"role": "user", "blocks": [{"type": "text", "content": "[image image/png 1 KB]", "attachment": {"size": 9}}]},
        {"role": "assistant", "blocks": [{"type": "plan_status"}], "tool_calls": [
            {"id": "a", "tool_name": "t", "status": "awaiting_answer"}
        ]},
    )  # fmt: skip
    assert warnings_of(archive) == [
        "summaries of earlier turns are not imported",
        "plans and changes of mode are not imported",
        "images and files are not imported: each is named in its message",
        "calls that were still running are imported as interrupted",
    ]
    assert warnings_of(turns({"role": "user"})) == []


@requirement("blade:archive:hold-together")
def test_a_loop_that_no_call_began_is_refused() -> None:
    with pytest.raises(Invalid, match="no call started"):
        messages_of(turns({"role": "assistant", "loop_id": "fork:x"}), SequentialIds())


@requirement("blade:archive:bounds")
def test_too_many_messages_and_too_deep_results_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_archive, "MAX_MESSAGES", 2)
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


@requirement("blade:archive:bounds")
def test_sub_agents_inside_one_another_are_limited() -> None:
    """Their results are appended one inside the other."""

    def nested(depth: int) -> tuple[ArchivedTurn, ...]:
        return turns(
            *[
                {
                    "role": "assistant",
                    "loop_id": "root" if number == 0 else f"fork:c{number - 1}",
                    "blocks": [{"type": "tool_use", "tool_call_id": f"c{number}"}],
                    "tool_calls": [{"id": f"c{number}", "tool_name": "Agent", "result": "x"}],
                }
                for number in range(depth + 1)
            ]
        )

    assert len(messages_of(nested(MAX_LOOP_DEPTH), SequentialIds())) == 2 * (MAX_LOOP_DEPTH + 1)
    with pytest.raises(LimitExceeded, match="inside one another"):
        messages_of(nested(5000), SequentialIds())


@requirement("blade:archive:bounds")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[%s{"role":"user"}]' % (b'{"role":"user"},' * MAX_TURNS), "the number of turns"),
        (b'[{"role":"user","blocks":[%s{"type":"x"}]}]' % (b'{"type":"x"},' * MAX_PARTS), "of blocks and calls"),
        (b'[{"role":"user","blocks":[{"type":"text","content":[%s{}]}]}]' % (b"{}," * MAX_CONTAINERS), "of values"),
        (b'[{"role":"user","blocks":[{"type":"text","content":[%s0]}]}]' % (b"0," * MAX_VALUES), "of values"),
    ],
    ids=["turns", "blocks", "objects", "numbers"],
)
def test_an_archive_of_very_many_small_things_is_refused_before_it_fills_the_memory(
    content: bytes, message: str
) -> None:
    with pytest.raises(LimitExceeded, match=message):
        read_archive(packed({**FILES, "turns.json": content}))


@requirement("blade:archive:bounds")
def test_a_long_name_of_a_model_is_refused() -> None:
    turn = b'[{"role":"assistant","model":"%s","blocks":[{"type":"text","content":"hi"}]}]'
    assert read_archive(packed({**FILES, "turns.json": turn % (b"m" * 256)})).turns[0].model == "m" * 256
    with pytest.raises(Invalid, match=r"unreadable turns\.json"):
        read_archive(packed({**FILES, "turns.json": turn % (b"m" * 257)}))


# --- untrusted archives -----------------------------------------------------------------------------------------------


def encrypted() -> bytes:
    """An archive that says of its first entry that it is encrypted."""
    created = bytearray(packed(FILES, ZIP_STORED))
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        created[created.index(signature) + offset] |= 1
    return bytes(created)


def compressed_otherwise() -> bytes:
    """An archive with an entry in a compression that ours never have, which is damaged."""
    created = bytearray(packed(FILES, ZIP_LZMA))
    created[created.index(b"manifest.json") + len(b"manifest.json") + 4] = 0xFF
    return bytes(created)


def far_away() -> bytes:
    """An archive that says that its first entry begins at the greatest offset that there is."""
    created = packed(FILES)
    at = created.index(b"PK\1\2")
    directory = bytearray(created[at:])
    directory[42:46] = b"\xff" * 4
    directory[30:32] = (12).to_bytes(2, "little")
    name_end = 46 + int.from_bytes(directory[28:30], "little")
    directory[name_end:name_end] = b"\1\0\10\0" + b"\xff" * 8
    end = directory.index(b"PK\5\6")
    directory[end + 12 : end + 16] = end.to_bytes(4, "little")
    return created[:at] + bytes(directory)


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
        compressed_otherwise(),
        far_away(),
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
    monkeypatch.setattr(session_archive, "MAX_UNPACKED_BYTES", 1_000_000)
    with pytest.raises(LimitExceeded, match="1000000"):
        read_archive(bomb)


@requirement("blade:archive:bounds")
def test_a_part_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_archive, "MAX_TURNS_BYTES", 100)
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
