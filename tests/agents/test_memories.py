"""Memories in runs: agents receive them, uses are counted, and agents write new ones with source and reason."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.agents.function import agent as function_agent
from dragoman.agents.model import Agent
from dragoman.agents.run import Run
from dragoman.agents.tool import tool
from dragoman.core.content import ToolMessage
from dragoman.core.events import MemoriesInjected, MemoryUse, SettingsChange
from dragoman.core.memories import Memory, MemoryFilter, MemoryTexts
from dragoman.core.refusals import NotFound
from tests.agents.agent_harness import ANN, AgentHarness, ModelGate, ScriptedModel, Session, agent_harness, call

NOT_ON = "Tool execution failed: "


async def note(harness: AgentHarness, content: str, **texts: Any) -> Memory:
    return await harness.memories.add(ANN, MemoryTexts(content=content, **texts))


async def everything(harness: AgentHarness) -> Sequence[Memory]:
    page, _ = await harness.memories.page(ANN, MemoryFilter(), 0, 100)
    return page


async def injected(session: Session) -> list[MemoriesInjected]:
    return [event for event in await session.events() if isinstance(event, MemoriesInjected)]


async def results(session: Session) -> list[str]:
    return [str(each.content) for each in await session.messages() if isinstance(each, ToolMessage)]


async def test_memories_are_in_the_instructions_and_recorded_in_the_log(tmp_path: Path) -> None:
    model = ScriptedModel("hello", "again")
    async with agent_harness(tmp_path, Agent("a", model=model, instructions="Be kind.")) as harness:
        await note(harness, "likes tea")
        await note(harness, "the kettle is broken", type="experience")
        await note(harness, "rain in Spain", type="experience")
        session = await harness.session(memory_enabled=True)
        await session.send_and_wait("is the kettle on?")
        lines = model.requests[0].instructions.split("\n")
        assert (lines[0], lines[1], lines[3:]) == ("Be kind.", "", ["- [1] likes tea", "- [2] the kettle is broken"])
        uses = (MemoryUse(1, "likes tea"), MemoryUse(2, "the kettle is broken"))
        assert await injected(session) == [MemoriesInjected(memories=uses)]
        await session.send_and_wait("and now?")
        assert [each.memories for each in await injected(session)] == [uses, uses[:1]]
        assert [(each.id, each.hit_count, each.last_hit_at is not None) for each in await everything(harness)] == [
            (3, 0, False),
            (2, 1, True),
            (1, 2, True),
        ]


@pytest.mark.parametrize(
    ("agent", "session", "is_on"),
    [(None, None, False), (None, True, True), (None, False, False), (True, None, True), (True, False, False),
     (False, None, False), (False, True, True)],
)  # fmt: skip
async def test_the_session_decides_about_memory_and_otherwise_the_agent(
    tmp_path: Path, agent: bool | None, session: bool | None, is_on: bool
) -> None:
    model = ScriptedModel("hello")
    async with agent_harness(tmp_path, Agent("a", model=model, memory=agent)) as harness:
        await note(harness, "likes tea")
        talk = await harness.session(memory_enabled=session)
        await talk.send_and_wait("hi")
        assert ("likes tea" in model.requests[0].instructions) == is_on
        assert [spec.name for spec in model.requests[0].tools] == (["WriteMemory"] if is_on else [])
        assert len(await injected(talk)) == is_on
        assert [each.hit_count for each in await everything(harness)] == [int(is_on)]


async def test_memory_can_be_turned_on_and_off_in_a_session(tmp_path: Path) -> None:
    model = ScriptedModel("one", "two")
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        await note(harness, "likes tea")
        session = await harness.session()
        await session.send_and_wait("hi")
        await session.send("hi", change=SettingsChange(memory_enabled=True))
        await session.wait_for_end()
        assert ["likes tea" in each.instructions for each in model.requests] == [False, True]


async def test_a_run_without_memories_is_recorded_as_such(tmp_path: Path) -> None:
    model = ScriptedModel("hello")
    async with agent_harness(tmp_path, Agent("a", model=model, memory=True)) as harness:
        session = await harness.session()
        await session.send_and_wait("hi")
        assert (await injected(session), model.requests[0].instructions) == ([MemoriesInjected()], "")


async def test_a_model_writes_a_memory_with_source_and_reason_and_replaces_an_older_one(tmp_path: Path) -> None:
    model = ScriptedModel(
        [call("WriteMemory", content="likes coffee", reason="said so", type="feedback", topic="taste", replaces=1)],
        "noted",
        "yes",
    )
    async with agent_harness(tmp_path, Agent("a", model=model, memory=True)) as harness:
        await note(harness, "likes tea")
        session = await harness.session()
        await session.send_and_wait("I like coffee now")
        new, old = await everything(harness)
        assert (new.texts, new.source_session, old.superseded_by) == (
            MemoryTexts(content="likes coffee", write_reason="said so", topic="taste"),
            session.id,
            2,
        )
        assert await results(session) == ['{"id":2}']
        await session.send_and_wait("hi")
        assert [each.memories for each in await injected(session)] == [
            (MemoryUse(1, "likes tea"),),
            (MemoryUse(2, "likes coffee"),),
        ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"content": "x" * 501, "reason": "r"}, "Expected str of length <= 500 - at $.content"),
        ({"content": "x"}, "Object missing required field reason"),
        ({"content": "  ", "reason": "r"}, "content must not be blank"),
        ({"content": "x", "reason": "r", "replaces": 7}, "there is no memory 7"),
    ],
)
async def test_an_invalid_memory_is_reported_to_the_model(
    tmp_path: Path, arguments: dict[str, Any], expected: str
) -> None:
    model = ScriptedModel([call("WriteMemory", **arguments)], "oh")
    async with agent_harness(tmp_path, Agent("a", model=model, memory=True)) as harness:
        session = await harness.session()
        await session.send_and_wait("remember this")
        assert await results(session) == [f"Tool execution failed: {expected}"]
        assert await everything(harness) == []


async def test_without_memory_the_tool_does_not_exist(tmp_path: Path) -> None:
    model = ScriptedModel([call("WriteMemory", content="c", reason="r")], "oh")
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        await session.send_and_wait("remember this")
        assert await results(session) == ["Tool not found: WriteMemory"]


async def test_an_agents_own_tool_takes_precedence_over_the_memory_tool(tmp_path: Path) -> None:
    @tool(name="WriteMemory", exposed=False)
    def own(content: str) -> str:
        return f"mine: {content}"

    model = ScriptedModel([call("WriteMemory", content="c")], "oh")
    async with agent_harness(tmp_path, Agent("a", model=model, memory=True, tools=[own])) as harness:
        session = await harness.session()
        await session.send_and_wait("remember this")
        assert (await results(session), await everything(harness)) == (["mine: c"], [])


async def test_a_run_that_resumes_after_a_crash_has_the_same_memories_and_counts_them_once(tmp_path: Path) -> None:
    gate = ModelGate()
    model = ScriptedModel(["half", gate], "whole")
    async with agent_harness(tmp_path, Agent("a", model=model, memory=True)) as harness:
        await note(harness, "likes tea")
        session = await harness.session()
        await session.send("hi")
        await gate.reached.wait()
        await note(harness, "likes coffee")
        await harness.kill()
        await session.wait_for_end()
        first, second = (each.instructions for each in model.requests)
        assert first == second
        assert len(await injected(session)) == 1
        assert [(each.id, each.hit_count) for each in await everything(harness)] == [(2, 0), (1, 1)]


async def test_a_memory_removed_in_the_meantime_is_no_longer_in_the_instructions(tmp_path: Path) -> None:
    gate = ModelGate()
    model = ScriptedModel(["half", gate], "whole")
    async with agent_harness(tmp_path, Agent("a", model=model, memory=True)) as harness:
        await note(harness, "likes tea")
        session = await harness.session()
        await session.send("hi")
        await gate.reached.wait()
        await harness.memories.remove(ANN, (1,))
        await harness.kill()
        await session.wait_for_end()
        assert ["likes tea" in each.instructions for each in model.requests] == [True, False]


async def test_a_function_reads_and_writes_memories(tmp_path: Path) -> None:
    @function_agent(memory=True)
    async def keeper(run: Run) -> Any:
        yield run.memories.partition("\n")[2]
        await run.remember("likes tea", reason="said so", kind="feedback")

    async with agent_harness(tmp_path, keeper) as harness:
        session = await harness.session()
        await session.send_and_wait("hi")
        await session.send_and_wait("hi")
        assert [each.texts.content for each in await everything(harness)] == ["likes tea", "likes tea"]
        assert "assistant: - [1] likes tea" in " ".join(await session.summary_lines())


async def test_a_removed_memory_cannot_be_changed(tmp_path: Path) -> None:
    async with agent_harness(tmp_path, Agent("a", model=ScriptedModel("hello"))) as harness:
        with pytest.raises(NotFound):
            await harness.memories.change(ANN, 1, {"content": "c"})
