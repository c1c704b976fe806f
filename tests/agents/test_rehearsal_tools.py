"""The tools of the rehearsal agent, and the file that records starts."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dragoman.agents.rehearsal.agent import rehearsal, rehearsal_bare
from dragoman.agents.rehearsal.tools import StartLog as AnyStartLog
from dragoman.agents.rehearsal.tools import StartLogFile
from dragoman.core.agent import Agent, RunnableTool, ToolFailed
from dragoman.core.content import JsonObject
from dragoman.core.ids import ROOT, CallId
from dragoman.core.run_metadata import RunMetadata
from tests.agents.in_memory_run import Context, InMemoryStarts, MemoryRun, Session

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def agent(starts: AnyStartLog | None = None) -> Agent:
    return rehearsal(starts or InMemoryStarts(), lambda: NOON)


def tool(name: str, starts: AnyStartLog | None = None) -> RunnableTool:
    found = agent(starts).tool(name)
    assert found is not None
    return found


def context(**metadata: Any) -> Context:
    session = Session(agent(), metadata=RunMetadata(**metadata))
    return Context(MemoryRun(session, ROOT, session.agent), CallId("c"))


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("add", {"a": 1, "b": 2}, "3"),
        ("add", {"a": -5, "b": 10**30}, "999999999999999999999999999995"),
        ("lookup", {"q": "tea"}, "looked up tea"),
        ("stamp", {"text": "x"}, "stamped x"),
        ("whisper", {"text": "psst"}, "whispered psst"),
        ("clock", {}, "2026-11-21T12:00:00+00:00"),
        ("clock", {"timezone": "Asia/Tokyo"}, "2026-11-21T21:00:00+09:00"),
        ("clock", {"event_timezone": "Asia/Tokyo", "timezone": "Asia/Kolkata"}, "2026-11-21T21:00:00+09:00"),
        ("slow", {"seconds": 0}, "done"),
        ("slow", {"seconds": 0.001, "tag": "tea"}, "done tea"),
        (
            "card",
            {"title": "<T>"},
            {
                "title": "<T>",
                "_meta": {"ui": {"target": "inline", "resourceHTML": "<h1>&lt;T&gt;</h1>", "height": 120}},
            },
        ),
        (
            "highlight",
            {"city": "7"},
            {
                "highlighted": "7",
                "_meta": {"bridge": {"action": "map.highlight", "payload": {"cityIds": ["7"]}}},
            },
        ),
    ],
)
async def test_results_of_the_tools(name: str, arguments: JsonObject, value: Any) -> None:
    assert await tool(name).run(arguments, context()) == value


async def test_the_clock_uses_the_time_zone_of_the_runs_events() -> None:
    assert await tool("clock").run({}, context(time_zone="Asia/Kolkata")) == "2026-11-21T17:30:00+05:30"


@pytest.mark.parametrize("zone", ["Nowhere/Land", "../etc/passwd", "/etc/localtime", "America", "x\0y", "é" * 300])
async def test_an_unknown_time_zone_is_a_failure(zone: str) -> None:
    with pytest.raises(ToolFailed, match="unknown time zone"):
        await tool("clock").run({"timezone": zone}, context())
    with pytest.raises(ToolFailed, match="event_timezone: unknown time zone"):
        await tool("clock").run({"event_timezone": zone}, context())


async def test_boom_raises_an_unexpected_error() -> None:
    with pytest.raises(RuntimeError, match=r"^boom$"):
        await tool("boom").run({}, context())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add", {"a": "one", "b": 2}),
        ("add", {"a": 1}),
        ("add", {"a": 1, "b": 2, "c": 3}),
        ("add", {"a": None, "b": 1}),
        ("add", {"a": 1.5, "b": 1}),
        ("add", {"a": True, "b": 1}),
        ("lookup", {"q": 1}),
        ("boom", {"loud": True}),
        ("slow", {"seconds": -1}),
        ("slow", {"seconds": 1e300}),
        ("slow", {"seconds": "1"}),
        ("clock", {"timezone": 1}),
    ],
)
async def test_invalid_arguments_are_a_failure(name: str, arguments: JsonObject) -> None:
    with pytest.raises(ToolFailed):
        await tool(name).run(arguments, context())


async def test_the_slow_tool_records_its_start_before_it_sleeps_and_can_be_cancelled() -> None:
    recorded = threading.Event()

    class SignallingStarts(InMemoryStarts):
        def append(self, tag: str) -> None:
            super().append(tag)
            recorded.set()

    starts = SignallingStarts()
    sleeping = asyncio.create_task(tool("slow", starts).run({"seconds": 600, "tag": "t"}, context()))
    async with asyncio.timeout(60):
        await asyncio.to_thread(recorded.wait)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
    assert starts.tags == ["t"]


EXPOSED = ["add", "lookup", "stamp", "clock", "slow", "boom", "card", "highlight"]


def test_declarations_of_the_tools() -> None:
    declared = {each.spec.name: each for each in agent().spec.tools}
    assert list(declared) == [*EXPOSED, "whisper", "calendar_write"]
    assert [name for name, each in declared.items() if each.policy.exposed] == EXPOSED
    assert [name for name, each in declared.items() if each.policy.needs_approval] == ["stamp"]
    assert [name for name, each in declared.items() if each.policy.on_restart != "repeat"] == ["slow"]
    assert declared["slow"].policy.on_restart == "fail"
    assert all(each.spec.parameters["type"] == "object" and each.spec.description for each in declared.values())
    assert declared["add"].spec.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_the_bare_agent_has_the_same_tools_but_hidden() -> None:
    bare = rehearsal_bare(InMemoryStarts())
    assert [each.spec for each in bare.spec.tools] == [each.spec for each in agent().spec.tools]
    assert bare.spec.exposed() == ()
    assert all(bare.tool(each.spec.name) is not None for each in bare.spec.tools)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_starts_are_counted_by_tag_even_after_the_file_is_reopened(tmp_path: Path) -> None:
    path = tmp_path / "starts.jsonl"
    starts = StartLogFile(path)
    assert starts.count("a") == 0
    for tag in ("a", "b", "", 'ü"\n\\', "a", "ab"):
        starts.append(tag)
    for each in (starts, StartLogFile(path)):
        assert {tag: each.count(tag) for tag in ("a", "b", "", 'ü"\n\\', "ab", "none")} == {
            "a": 2,
            "b": 1,
            "": 1,
            'ü"\n\\': 1,
            "ab": 1,
            "none": 0,
        }


def test_a_crash_loses_only_the_line_that_was_being_written(tmp_path: Path) -> None:
    path = tmp_path / "starts.jsonl"
    StartLogFile(path).append("first")
    whole = path.read_bytes()
    StartLogFile(path).append("second")
    for length in range(len(whole), path.stat().st_size):
        path.write_bytes(path.read_bytes()[:length])
        starts = StartLogFile(path)
        starts.append("third")
        assert (starts.count("first"), starts.count("third")) == (1, 1)
        path.write_bytes(whole + b'"second"\n')


def test_concurrent_threads_lose_no_starts(tmp_path: Path) -> None:
    starts = StartLogFile(tmp_path / "starts.jsonl")

    def append_ten() -> None:
        for _ in range(10):
            starts.append("t")

    threads = [threading.Thread(target=append_ten) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert starts.count("t") == 40
