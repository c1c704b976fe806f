"""Long conversations: summarized by the agent's model, sent within the context window, complete for clients."""

from pathlib import Path

from dragoman import Agent, tool
from dragoman.agents.compaction import INSTRUCTIONS, SUMMARY_HEADING
from dragoman.agents.window import tokens_of_all
from dragoman.core.content import AssistantMessage, SystemMessage, Usage, UserMessage
from dragoman.core.ids import MessageId
from dragoman.core.tools import FORK
from dragoman.ports.models import ContextTooLong, ModelRequest, ModelUnavailable
from tests.agents.agent_harness import Part, ScriptedModel, agent_harness, call, end

LONG = "word " * 400
"""About 500 tokens."""


def is_summary(request: ModelRequest) -> bool:
    return request.instructions == INSTRUCTIONS


async def test_a_conversation_that_exceeds_the_window_is_summarized_and_continues(tmp_path: Path) -> None:
    model = ScriptedModel("First.", "Second.", "Third.", summaries=["They spoke of words."], context_window=2000)
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session(seeds=(SystemMessage(id=MessageId("1"), content="Be kind."),))
        for number in range(3):
            assert await session.send_and_wait(f"{number} {LONG}") == "end_turn"
        (compaction,) = await session.compactions()
        assert compaction.summary == f"Be kind.\n\n{SUMMARY_HEADING}\nThey spoke of words."
        assert compaction.tokens_after < compaction.tokens_before
        assert len(await session.messages()) == 7, "clients still see the whole history"
    *summary_requests, request = model.requests[2:]
    assert all(map(is_summary, summary_requests))
    assert "User: 0 word" in str(summary_requests[0].messages[0].content)
    assert [type(message).__name__ for message in request.messages] == ["UserMessage", "UserMessage"]
    assert request.messages[0].content == compaction.summary
    assert str(request.messages[1].content).startswith("2 word")
    assert all(tokens_of_all(each.messages) < 2000 for each in model.requests)


async def test_the_usage_of_a_summary_is_added_to_the_step_that_needs_it(tmp_path: Path) -> None:
    used = Usage(100, 10)
    answer: list[Part] = ["Yes.", end("end_turn", Usage(7, 3))]
    model = ScriptedModel(*[answer] * 3, summaries=[["So.", end("end_turn", used)]], context_window=2000)
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        for _ in range(3):
            await session.send_and_wait(LONG)
        count = sum(map(is_summary, model.requests))
        assert count > 0
        usages = [message.usage for message in await session.messages() if isinstance(message, AssistantMessage)]
        assert usages == [Usage(7, 3), Usage(7, 3), Usage(7 + 100 * count, 3 + 10 * count)]
        assert (await session.stop()).usage == usages[-1]


async def test_a_summary_includes_the_previous_one(tmp_path: Path) -> None:
    model = ScriptedModel(*["Yes."] * 9, summaries=["One.", "Two."], context_window=2000)
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        while len(await session.compactions()) < 2:
            assert await session.send_and_wait(LONG) == "end_turn"
        await harness.restart()
        await session.send_and_wait("And now?")
    second = [request for request in model.requests if is_summary(request)][1]
    assert str(second.messages[0].content).startswith(f"{SUMMARY_HEADING}\nOne.\n\nWhat followed:\n")
    assert model.read()[0] == f"user: {SUMMARY_HEADING}\nTwo."


async def test_calls_are_never_separated_from_their_results(tmp_path: Path) -> None:
    @tool
    def look(at: str) -> str:
        """Look."""
        return f"{at}: {LONG}"

    steps = [[call("look", at=str(number))] for number in range(4)]
    model = ScriptedModel(*steps, "Done.", summaries=["Looked around."], context_window=2000)
    async with agent_harness(tmp_path, Agent("a", model=model, tools=[look])) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Look around") == "end_turn"
        assert len(await session.messages()) == 10
    for request in model.requests:
        if not is_summary(request):
            call_ids = [each.call_id for m in request.messages if isinstance(m, AssistantMessage) for each in m.calls()]
            result_ids = [m.call_id for m in request.messages if hasattr(m, "call_id")]
            assert call_ids == result_ids
    assert any(is_summary(request) for request in model.requests)


async def test_the_models_token_count_takes_precedence_over_the_estimate(tmp_path: Path) -> None:
    model = ScriptedModel(
        ["Hi.", end("end_turn", Usage(1900, 5))], "Bye.", "Again.", summaries=["Short."], context_window=2000
    )
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        await session.send_and_wait("Hello")
        await session.send_and_wait("Bye")
        assert len(await session.compactions()) == 1
        await session.send_and_wait("Once more")
        assert len(await session.compactions()) == 1, "a count from before the summary is ignored"


async def test_too_many_messages_are_summarized_even_if_they_are_short(tmp_path: Path) -> None:
    seeds = tuple(
        message
        for number in range(10)
        for message in (
            UserMessage(id=MessageId(f"u{number}"), content=f"{number}?"),
            AssistantMessage(id=MessageId(f"a{number}"), content=f"{number}!"),
        )
    )
    model = ScriptedModel("Yes.", summaries=["Numbers."])
    async with agent_harness(tmp_path, Agent("a", model=model, max_messages=8)) as harness:
        session = await harness.session(seeds=seeds)
        assert await session.send_and_wait("10?") == "end_turn"
        assert len(await session.compactions()) == 1
    assert is_summary(model.requests[0])
    assert "User: 7?" in str(model.requests[0].messages[0].content)
    assert model.read()[0] == f"user: {SUMMARY_HEADING}\nNumbers."
    assert model.read()[-1] == "user: 10?"
    assert len(model.read()) < 8


async def test_a_request_that_is_too_long_is_summarized_and_retried_once(tmp_path: Path) -> None:
    model = ScriptedModel("One.", [ContextTooLong("9000 > 8192")], "Two.", summaries=["Summary."])
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        await session.send_and_wait(LONG)
        assert await session.send_and_wait("Go on") == "end_turn"
        assert len(await session.compactions()) == 1
    assert model.read() == [f"user: {SUMMARY_HEADING}\nSummary.", "user: Go on"]


async def test_a_retry_that_is_too_long_ends_the_run(tmp_path: Path) -> None:
    model = ScriptedModel("One.", [ContextTooLong("a")], [ContextTooLong("b")], summaries=["Summary."])
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        await session.send_and_wait(LONG)
        assert await session.send_and_wait("Go on") == "error"
        assert (await session.stop()).code == "context_too_long"


async def test_without_a_summary_the_oldest_messages_are_dropped(tmp_path: Path) -> None:
    """A model that fails to summarize may still answer, and a single message may be longer than the window."""
    model = ScriptedModel(
        "One.", "Two.", "Three.", "Four.", summaries=[[ModelUnavailable("busy")], ""], context_window=2000
    )
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        for _ in range(3):
            assert await session.send_and_wait(LONG) == "end_turn"
        assert await session.compactions() == []
        assert model.read() == [f"user: {LONG}", "assistant: Two.", f"user: {LONG}"]
        assert await session.send_and_wait(LONG * 20) == "end_turn"
        assert await session.compactions() == []
    assert all(tokens_of_all(request.messages) < 2000 for request in model.requests if not is_summary(request))
    assert "characters omitted" in model.read()[-1]


async def test_a_sub_agent_summarizes_its_own_loop(tmp_path: Path) -> None:
    @tool
    def look(at: str) -> str:
        """Look."""
        return f"{at}: {LONG}"

    steps = [[call("look", at=str(number))] for number in range(4)]
    inner = ScriptedModel(*steps, "Done.", summaries=["Seen some."], context_window=2000)
    outer = ScriptedModel([call(FORK, agent="looker", task="Look around")], "Thanks.")
    looker = Agent("looker", model=inner, tools=[look])
    async with agent_harness(tmp_path, Agent("a", model=outer, subagents=[looker])) as harness:
        session = await harness.session()
        assert await session.send_and_wait("Go") == "end_turn"
        assert await session.compactions() == [], "the session's own conversation is not summarized"
        assert (await session.summary_lines())[2] == "tool: Done."
    assert inner.read()[0] == f"user: {SUMMARY_HEADING}\nSeen some."


LONG_MESSAGE = "a message that is longer than its summary. " * 5


async def test_a_conversation_is_summarized_on_request(tmp_path: Path) -> None:
    model = ScriptedModel("First.", "Second.", "Third.", summaries=["They greeted."])
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        for text in (LONG_MESSAGE, "two"):
            assert await session.send_and_wait(text) == "end_turn"
        compaction = await harness.engine.compact(await session.live())
        assert compaction is not None
        assert (compaction.summary, compaction.archived_count, compaction.trigger) == (
            f"{SUMMARY_HEADING}\nThey greeted.",
            2,
            "manual",
        )
        assert await session.send_and_wait("three") == "end_turn"
    *_, request = model.requests
    assert [message.content for message in request.messages[:2]] == [compaction.summary, "two"]


async def test_a_request_with_nothing_to_summarize_has_no_effect(tmp_path: Path) -> None:
    model = ScriptedModel("First.", "Second.", summaries=["A word.", "A word."])
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        assert await harness.engine.compact(await session.live()) is None
        await session.send_and_wait(LONG_MESSAGE)
        assert await harness.engine.compact(await session.live()) is None, "one turn"
        await session.send_and_wait("two")
        compaction = await harness.engine.compact(await session.live())
        assert compaction is not None
        assert compaction.tokens_after < compaction.tokens_before
        assert await harness.engine.compact(await session.live()) is not None, "the question, but not its answer"
        assert await harness.engine.compact(await session.live()) is None


async def test_a_summary_that_saves_no_tokens_is_not_used(tmp_path: Path) -> None:
    model = ScriptedModel("First.", "Second.", summaries=["This summary is longer than the messages. " * 5])
    async with agent_harness(tmp_path, Agent("a", model=model)) as harness:
        session = await harness.session()
        for text in ("one", "two"):
            await session.send_and_wait(text)
        assert await harness.engine.compact(await session.live()) is None
        assert await session.compactions() == []
