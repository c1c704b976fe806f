"""What a turn keeps across its runs and a restart: which runs they are, the message's metadata, and raw results."""

import pytest

from dragoman.core.answers import RAW_LIMIT
from dragoman.core.content import Image, ToolMessage, UserMessage
from dragoman.core.ids import CallId
from dragoman.core.inputs import Decision, Result, Submit, UserInput
from dragoman.core.refusals import ImageUnsupported, Invalid, LimitExceeded
from dragoman.core.session import SessionState
from dragoman.core.tools import Capabilities, ToolSpec
from tests.engine.world import CallTool, World, answer_request, open_session, play, reload, send

PAINT = ToolSpec(name="paint", description="Paint.", parameters={"type": "object"})


def only_waiting(state: SessionState) -> CallId:
    (call,) = state.waiting_calls()
    return call.call.call_id


async def test_a_turn_is_found_by_any_of_its_runs(any_world: World) -> None:
    any_world.scripted_agent.spec_fields["capabilities"] = Capabilities(client_tools=True)
    any_world.echo("ask_first", needs_approval=True)
    any_world.scripts["go"] = [[CallTool("paint")], [CallTool("ask_first")], ["done"]]
    engine = await any_world.start()
    live = await open_session(engine, client_tools=(PAINT,))
    starts = [(await play(engine, live, "before")).seq, (await play(engine, live, "go")).seq]
    result = Result(call_id=only_waiting(live.state), content='{"size":3}', raw={"size": 3})
    starts.append((await play(engine, live, answer_request(result))).seq)
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    decision = Decision(call_id=only_waiting(live.state), granted=True)
    starts.append((await play(engine, live, answer_request(decision))).seq)
    starts.append((await play(engine, live, "after")).seq)
    found = [await engine.history.turn_at(live, seq) for seq in starts]
    assert [[run.first_seq for run in turn.runs] for turn in found if turn] == [
        starts[:1],
        starts[1:4],
        starts[1:4],
        starts[1:4],
        starts[4:],
    ]
    assert await engine.history.turn_at(live, starts[1] + 1) is None, "no run starts there"
    painted = next(each for each in await engine.history.messages(live) if isinstance(each, ToolMessage))
    assert (painted.content, painted.raw) == ('{"size":3}', {"size": 3})


async def test_a_messages_metadata_is_kept_with_it(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    message = UserInput(content="hello", metadata={"from": "the form", "at": None})
    await play(engine, live, Submit(protocol="test", messages=(message,)))
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    (said, _) = await engine.history.messages(live)
    assert isinstance(said, UserMessage)
    assert said.metadata == {"from": "the form", "at": None}


async def test_metadata_and_results_have_limits(world: World) -> None:
    world.scripts["go"] = [[CallTool("paint")], ["done"]]
    engine = await world.start()
    live = await open_session(engine, client_tools=(PAINT,))
    await play(engine, live, "go")
    before, call_id = live.state.seq, only_waiting(live.state)
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    for raw, refusal in ((deep, Invalid), ("x" * RAW_LIMIT, LimitExceeded)):
        with pytest.raises(refusal) as refused:
            await send(engine, live, answer_request(Result(call_id=call_id, content="", raw=raw)))
        assert refused.value.path == "answers"
    picture = (Image("https://example.org/x.png"),)
    with pytest.raises(ImageUnsupported):
        await send(engine, live, answer_request(Result(call_id=call_id, content=picture)))
    for metadata, refusal in ((deep, Invalid), ("x" * 16 * 1024, LimitExceeded)):
        with pytest.raises(refusal) as refused:
            await send(engine, live, Submit(protocol="test", messages=(UserInput(content="hi", metadata=metadata),)))
        assert refused.value.path == "messages[0].metadata"
    assert live.state.seq == before
