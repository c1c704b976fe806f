"""Calls of Pydantic AI's agents that wait for somebody: approvals, questions, and the application's tools."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")

from pydantic_ai import Agent as FrameworkAgent
from pydantic_ai import (
    ApprovalRequired,
    CallDeferred,
    RunContext,
    ToolReturn,
)
from pydantic_ai.messages import (
    BinaryContent,
    CustomEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from dragoman.core.answers import denied_result
from dragoman.core.content import Data
from dragoman.core.events import (
    BlockClosed,
)
from dragoman.core.inputs import Choice, Decision, Result
from dragoman.core.refusals import Invalid
from dragoman.core.tools import ToolSpec
from tests.adapters.pydantic_ai_models import answer, bank, call, scripted, short, talk
from tests.engine.world import World, answer_request, play, send

# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_a_tool_that_requires_approval_waits_and_runs_when_it_is_granted(any_world: World) -> None:
    executed: list[str] = []
    engine, live, log = await talk(any_world, bank(executed))
    assert log == [
        'call pay {"amount":90}', "call balance {}", "step", "started", "done: 100", "waits for permission", "tool_use"
    ]  # fmt: skip
    assert executed == ["balance"]
    log = await answer(any_world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    assert log == ["granted", "started", "done: paid 90", "text: paid", "step", "end_turn"]
    assert executed == ["balance", "pay"]


async def test_a_tool_may_ask_for_approval_by_its_arguments_and_a_trusting_session_gives_it(world: World) -> None:
    agent = FrameworkAgent(scripted([call("pay", amount=90)], ["paid"]))

    @agent.tool
    def pay(ctx: RunContext[Any], amount: int) -> str:
        if amount > 50 and not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"limit": 50})
        return "ok"

    engine, live, log = await talk(world, agent)
    assert log[-2:] == ["waits for permission", "tool_use"]
    (waiting,) = live.state.waiting_calls()
    assert waiting.note == {"limit": 50}
    log = await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True, remember=True))
    assert log == ["granted", "started", "done: ok", "text: paid", "step", "end_turn"]
    before = len(await world.events(live.state.session_id))
    await play(engine, live, "once more")
    log = short((await world.events(live.state.session_id))[before:])
    assert log[-4:] == ["done: ok", "text: paid", "step", "end_turn"]
    assert "waits for permission" not in log


async def test_what_a_tool_returned_beside_its_result_reaches_the_model_after_another_call_was_approved(
    world: World,
) -> None:
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("look"), call("pay", a=5)], ["done"], seen=seen))

    @agent.tool_plain
    def look() -> ToolReturn:
        return ToolReturn(
            "seen",
            content=["the screen:", BinaryContent(b"GIF89a", media_type="image/gif")],
            metadata={"width": 80, "icon": b"\xff"},
        )

    @agent.tool_plain(requires_approval=True)
    def pay(a: int) -> str:
        return f"paid {a}"

    engine, live, _ = await talk(world, agent)
    await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    (beside,) = [part for part in seen[1][-1].parts if isinstance(part, UserPromptPart)]
    words, picture = list(beside.content)
    assert isinstance(picture, BinaryContent)
    assert (words, picture.data, picture.media_type) == ("the screen:", b"GIF89a", "image/gif")
    (look_result,) = [
        part for part in seen[1][-1].parts if isinstance(part, ToolReturnPart) and part.tool_name == "look"
    ]
    assert (look_result.content, look_result.metadata) == ("seen", {"width": 80, "icon": "_w=="})


async def test_a_large_document_that_a_tool_returned_beside_its_result_reaches_the_model_in_later_turns(
    world: World,
) -> None:
    document = bytes(range(256)) * 16 * 1024
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("scan"), call("pay")], ["done"], seen=seen))

    @agent.tool_plain
    def scan() -> ToolReturn:
        return ToolReturn("scanned", content=[BinaryContent(document, media_type="application/pdf")])

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        return "paid"

    engine, live, _ = await talk(world, agent)
    await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    await play(engine, live, "and again")
    for messages in seen[1:3]:
        beside = [part.content for part in messages[2].parts if isinstance(part, UserPromptPart)]
        scanned = beside[0][0]
        assert isinstance(scanned, BinaryContent)
        assert (scanned.data == document, scanned.media_type) == (True, "application/pdf")


@dataclass(kw_only=True)
class Progress(CustomEvent):
    thumbnail: bytes


async def test_bytes_of_the_author_are_base64_wherever_they_are_shown(world: World) -> None:
    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="ask", json_args="{}", tool_call_id="c")}
        else:
            yield {0: DeltaToolCall(name=info.output_tools[0].name, json_args="{}", tool_call_id="d")}

    def picture() -> dict[str, bytes]:
        """The answer."""
        return {"png": b"\xff"}

    agent = FrameworkAgent(FunctionModel(stream_function=speak), output_type=picture)

    @agent.tool
    async def ask(ctx: RunContext[Any]) -> str:
        if not ctx.tool_call_approved:
            await ctx.emit(Progress(thumbnail=b"\xfe"))
            raise ApprovalRequired(metadata={"icon": b"\xfd"})
        return "asked"

    engine, live, _ = await talk(world, agent)
    (waiting,) = live.state.waiting_calls()
    assert waiting.note == {"icon": "_Q=="}
    log = await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    assert log[-3:] == ['text: {"png":"_w=="}', "step", "end_turn"]
    shown = [
        each.event.block for each in await world.events(live.state.session_id) if isinstance(each.event, BlockClosed)
    ]
    assert [each.data["thumbnail"] for each in shown if isinstance(each, Data) and isinstance(each.data, dict)] == [
        "_g=="
    ]


async def test_a_tool_that_shows_its_progress_and_then_asks_for_approval_runs_when_it_is_granted(world: World) -> None:
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("pay")], ["paid"], seen=seen))

    @agent.tool
    async def pay(ctx: RunContext[Any]) -> str:
        await ctx.emit(Progress(thumbnail=b"1"))
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return "ok"

    engine, live, log = await talk(world, agent)
    assert log == ["call pay {}", "step", "started", "data: …", "waits for permission", "step", "tool_use"]
    log = await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    assert [each for each in log if each != "data: …"] == [
        "granted", "started", "done: ok", "text: paid", "step", "end_turn"
    ]  # fmt: skip
    assert [len(message.parts) for message in seen[1]] == [1, 1, 1]


@pytest.mark.parametrize("is_granted", [True, False], ids=["granted", "denied"])
async def test_each_approval_that_a_tool_asks_for_belongs_to_a_call_of_its_own(world: World, is_granted: bool) -> None:
    prices, accepted, denied = iter([90, 95, 95]), set[int](), denied_result(None)
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("buy"), call("look")], ["done"], seen=seen))

    @agent.tool
    def buy(ctx: RunContext[Any]) -> str:
        price = next(prices)
        if not ctx.tool_call_approved or price not in accepted:
            accepted.add(price)
            raise ApprovalRequired(metadata={"price": price})
        return f"bought for {price}"

    @agent.tool_plain
    def look() -> str:
        return "looked"

    engine, live, _ = await talk(world, agent)
    (first,) = live.state.waiting_calls()
    log = await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    assert log == ["granted", "started", "call buy {}", "step", "waits for permission", "tool_use"]
    (second,) = live.state.waiting_calls()
    assert (first.note, second.note) == ({"price": 90}, {"price": 95})
    with pytest.raises(Invalid):
        await send(engine, live, answer_request(Decision(call_id=first.call.call_id, granted=True)))
    log = await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=is_granted))
    assert log[1:] == (
        ["done: Approved", "done: bought for 95", "text: done", "step", "end_turn"]
        if is_granted
        else [f"denied: {denied}", f"denied: {denied}", "text: done", "step", "end_turn"]
    )
    bought = [part for part in seen[1][-1].parts if isinstance(part, ToolReturnPart)]
    assert [part.content for part in bought] == ["bought for 95" if is_granted else denied, "looked"]
    await play(engine, live, "and again")
    assert [type(each) for each in seen[-1][:4]] == [ModelRequest, ModelResponse, ModelRequest, ModelResponse]


async def test_a_message_in_place_of_a_further_approval_settles_the_call(world: World) -> None:
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("buy")], seen=seen))

    @agent.tool_plain
    def buy() -> str:
        raise ApprovalRequired

    engine, live, _ = await talk(world, agent)
    await answer(world, engine, live, lambda call_id: Decision(call_id=call_id, granted=True))
    before = len(await world.events(live.state.session_id))
    await play(engine, live, "something else")
    assert [line[:9] for line in short((await world.events(live.state.session_id))[before:])][:2] == ["cancelled"] * 2
    assert [type(each) for each in seen[-1]] == [ModelRequest, ModelResponse, ModelRequest]


async def test_a_question_of_a_deferred_call_is_asked_with_its_choices(world: World) -> None:
    agent = FrameworkAgent(scripted([call("colour")], ["nice"]))

    @agent.tool_plain
    def colour() -> str:
        raise CallDeferred(metadata={"question": "Which colour?", "options": ["red", "blue"]}, kind="question")

    engine, live, log = await talk(world, agent)
    assert log[-2:] == ["waits for question", "tool_use"]
    (waiting,) = live.state.waiting_calls()
    assert waiting.shown().input == {
        "questions": [{"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}]
    }
    log = await answer(world, engine, live, lambda call_id: Choice(call_id=call_id, selections={"0": [1]}))
    assert log == ["answered", "done: blue", "text: nice", "step", "end_turn"]


async def test_the_applications_tools_are_offered_and_wait_for_its_result(world: World) -> None:
    paint = ToolSpec(name="paint", description="Paint.", parameters={"type": "object", "properties": {}})
    seen: list[list[ModelMessage]] = []
    agent = FrameworkAgent(scripted([call("paint", what="sky")], ["painted"], seen=seen))
    engine, live, log = await talk(world, agent, client_tools=(paint,))
    assert log == ['call paint {"what":"sky"}', "step", "waits for client", "tool_use"]
    log = await answer(world, engine, live, lambda call_id: Result(call_id=call_id, content="blue"))
    assert log == ["answered", "done: blue", "text: painted", "step", "end_turn"]
    (result,) = [part for part in seen[1][-1].parts if isinstance(part, ToolReturnPart)]
    assert result.content == "blue"
