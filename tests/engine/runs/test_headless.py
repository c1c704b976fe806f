"""Runs that nobody attends: nobody is asked, and an answer fits its schema or the run fails."""

from typing import Any

from dragoman.core.content import SystemMessage, text_of
from dragoman.core.events import CallSettled, MessageAdded, RunStopped
from dragoman.core.headless import NO_USER_ANSWER
from dragoman.core.inputs import Submit, UserInput
from dragoman.core.run_metadata import RunMetadata
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.world import ANN, CallTool, World, ask_user, open_session, play, wait_for_end, waiting_tools

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def headless(engine: Engine, live: LiveSession, text: str, **metadata: Any) -> RunStopped:
    request = Submit(
        protocol="test", messages=(UserInput(content=text),), metadata=RunMetadata(headless=True, **metadata)
    )
    await engine.start_run(live, request, by=ANN)
    await wait_for_end(live)
    stops = [each.event for each in await engine.history.events(live, 0) if isinstance(each.event, RunStopped)]
    return stops[-1]


async def test_an_answer_that_fits_its_schema_ends_the_run(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    any_world.scripts["count"] = [['{"n": 3}']]
    stop = await headless(engine, live, "count", output_schema=NUMBER)
    assert (stop.reason, stop.code) == ("end_turn", None)


async def test_an_agent_gets_the_validation_errors_and_fails_after_three_answers(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    any_world.scripts["count"] = [['{"n": "three"}']]
    stop = await headless(engine, live, "count", output_schema=NUMBER)
    assert (stop.reason, stop.code) == ("error", "output_invalid")
    assert stop.message == "The answer does not fit the schema: $.n: expected integer"
    notices = [
        text_of(each.event.message.content)
        for each in await engine.history.events(live, 0)
        if isinstance(each.event, MessageAdded) and isinstance(each.event.message, SystemMessage)
    ]
    assert len(notices) == 2
    assert "$.n: expected integer" in notices[0]


async def test_a_headless_run_asks_nobody(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    any_world.scripts["go"] = [[ask_user("staging")], ["as you like"]]
    stop = await headless(engine, live, "go")
    events = [each.event for each in await engine.history.events(live, 0)]
    results = [text_of(each.result.content) for each in events if isinstance(each, CallSettled)]
    assert stop.reason == "end_turn"
    assert results == [f"Tool execution failed: {NO_USER_ANSWER}"]


async def test_a_run_without_approvals_fails_the_calls_that_need_one_and_still_asks_questions(world: World) -> None:
    world.echo("careful", needs_approval=True)
    world.scripts["go"] = [[CallTool("careful", {"value": "v"})], [ask_user("staging")], ["done"]]
    engine = await world.start()
    live = await open_session(engine)
    metadata = RunMetadata(denies_approvals=True)
    await play(engine, live, Submit(protocol="test", messages=(UserInput(content="go"),), metadata=metadata))
    assert world.tools["careful"].started_calls == []
    assert waiting_tools(live.state) == ["AskUserQuestion"]
