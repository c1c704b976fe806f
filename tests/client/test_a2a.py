"""The client over A2A: with this server, and with the official SDK's server, which lacks our extensions."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Role

from dragoman.client import (
    AsyncClient,
    Choice,
    Deny,
    Ended,
    NotFound,
    Notice,
    Permission,
    Question,
    RunFailed,
    Text,
    Thinking,
    Unsupported,
)
from dragoman.client.a2a import A2aCodec
from tests.client.a2a_server import running_a2a_server
from tests.client.cutting_proxy import cutting_proxy
from tests.conversations import call, calls, script

STAMP = script({"say": "Wait. "}, call("stamp", text="x"), {"say": "so: {result}"})
FOREVER = script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})

# --- this server ------------------------------------------------------------------------------------------------------

over_a2a = pytest.mark.parametrize("protocol", ["a2a"])


@over_a2a
async def test_an_approval_and_a_question_are_asked_and_answered(client: AsyncClient) -> None:
    session = await client.create(
        "rehearsal", on_permission=lambda _: Deny(reason="not today"), on_question=lambda _: "production"
    )
    reply = await session.ask(STAMP)
    assert [type(each) for each in reply.events] == [Text, Permission, Text, Ended]
    assert reply.text == "Wait. so: Tool call denied: not today"
    assert reply.end.usage is not None
    reply = await session.ask("ask me")
    assert [type(each) for each in reply.events] == [Question, Text, Ended]
    assert reply.text == "You chose production."
    assert [(each.role, each.text) for each in await session.history()][1:] == [
        ("assistant", "Wait. "),
        ("assistant", "so: Tool call denied: not today"),
        ("user", "ask me"),
        ("assistant", "You chose production."),
    ]


@over_a2a
async def test_another_client_opens_a_context_that_waits_and_answers(client: AsyncClient) -> None:
    session = await client.create("rehearsal", on_permission=lambda _: True)
    two = script({"say": "Two: "}, calls(("stamp", {"text": "a"}), ("stamp", {"text": "b"})), {"say": "{results}"})
    asking = await client.create("rehearsal")
    ended = (await asking.ask(two)).end
    assert (ended.reason, [type(each) for each in ended.pending]) == ("tool_use", [Permission, Permission])
    other = await client.open(asking.id, agent="rehearsal", on_permission=lambda _: True)
    assert other.pending == ended.pending
    assert (await other.answer().reply()).text == "stamped a, stamped b"
    assert (await other.resume().reply()).text == "Two: stamped a, stamped b"
    assert (await session.ask(STAMP)).text == "Wait. so: stamped x"


@over_a2a
async def test_a_task_is_cancelled_and_joined(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    assert await session.stop() is False
    run = session.run(FOREVER)
    assert await anext(run) == Text(text="one")
    await run.aclose()
    assert (await session.info()).status == "running"
    again = await client.open(session.id, agent="rehearsal")
    async with again.resume() as resumed:
        assert await anext(resumed) == Text(text="one")
        assert await again.stop() is True
        last = [event async for event in resumed][-1]
    assert isinstance(last, Ended)
    assert last.reason == "cancelled"
    with pytest.raises(RunFailed, match="the run failed"):
        await session.ask(script({"say": "half"}, {"fail": "internal details"}))
    assert (await session.ask(script({"say": "no"}, {"stop": "refusal"}))).end.reason == "refusal"
    assert [each.name for each in await client.agents()] == ["rehearsal"]
    for attempt in (client.create("nobody"), client.open("nothing", agent="rehearsal")):
        with pytest.raises(NotFound):
            await attempt
    for unsupported in (session.delete(), anext(client.sessions()), client.create("rehearsal", title="x")):
        with pytest.raises(Unsupported, match="AAP can"):
            await unsupported


# --- the official server ----------------------------------------------------------------------------------------------


class Scripted(AgentExecutor):
    """Does what the user's text names."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        text = context.get_user_input()
        if text == "word":
            await event_queue.enqueue_event(new_text_message("a word", role=Role.ROLE_AGENT))
            return
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        await updater.start_work(new_text_message("thinking", role=Role.ROLE_AGENT))
        match text:
            case "ask":
                await updater.requires_input(new_text_message("Which one?", role=Role.ROLE_AGENT))
            case "fail":
                await updater.failed(new_text_message("no coffee", role=Role.ROLE_AGENT))
            case "status":
                await updater.complete(new_text_message("in the status", role=Role.ROLE_AGENT))
            case "reason":
                reasoning = new_text_part("because ")
                reasoning.metadata.update({"adk_thought": True})
                parts = [reasoning, new_text_part("yes")]
                await updater.start_work(updater.new_agent_message(parts))
                await updater.add_artifact(parts, artifact_id="a", last_chunk=True)
                await updater.complete()
            case _:
                for index, word in enumerate(["You ", "said ", text]):
                    part = new_text_part(word)
                    await updater.add_artifact([part], artifact_id="a", append=index > 0, last_chunk=index == 2)
                await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise AssertionError("nothing is cancelled here")


@pytest.fixture(scope="module")
async def official() -> AsyncIterator[str]:
    """The address of the official server."""
    async with running_a2a_server(Scripted()) as url:
        yield url


@pytest.mark.parametrize("base", ["", "/old"], ids=["1.0", "0.3"])
async def test_an_agent_of_the_official_sdk_answers_in_every_way(official: str, base: str) -> None:
    async with AsyncClient(f"{official}{base}/.well-known/agent-card.json", protocol="a2a") as client:
        assert [(each.name, each.version) for each in await client.agents()] == [("scripted", "1")]
        session = await client.create()
        reply = await session.ask("hello")
        assert [each.text for each in reply.events if isinstance(each, Text)] == ["You ", "said ", "hello"]
        assert [each.content for each in reply.events if isinstance(each, Notice)] == ["thinking"]
        assert (await session.ask("word")).text == "a word"
        assert (await session.ask("status")).text == "in the status"
        with pytest.raises(RunFailed, match="no coffee"):
            await session.ask("fail")
        asked = (await session.ask("ask")).end
        (question,) = asked.pending
        assert isinstance(question, Question)
        assert (asked.reason, question.questions[0].question) == ("tool_use", "Which one?")
        assert (await session.answer(Choice.of(custom="this one")).reply()).text == "You said this one"
        if base:
            with pytest.raises(Unsupported, match=r"A2A 0\.3 cannot list the tasks"):
                await session.history()
            return
        history = [each.text for each in await session.history() if each.role == "assistant"]
        assert history == ["You said hello", "You said this one"]


@pytest.mark.parametrize("base", ["", "/old"], ids=["1.0", "0.3"])
async def test_the_reasoning_of_an_adk_agent_is_no_part_of_its_answer(official: str, base: str) -> None:
    async with AsyncClient(official + base, protocol="a2a") as client:
        session = await client.create()
        reply = await session.ask("reason")
        assert [event for event in reply.events if not isinstance(event, Ended)] == [
            Notice(kind="status", content="thinking"),
            Notice(kind="status", content="yes"),
            Thinking(text="because "),
            Text(text="yes"),
        ]
        if not base:
            assert [each.text for each in await session.history()] == ["reason", "yes"]


@pytest.mark.parametrize("base", ["", "/old"], ids=["1.0", "0.3"])
async def test_a_lost_stream_of_the_official_server_is_read_from_its_task(official: str, base: str) -> None:
    cuts = [None, 1700]  # the card, and the stream in the middle of its artifact
    async with (
        cutting_proxy(official, lambda: cuts.pop(0) if cuts else None) as proxy,
        AsyncClient(proxy.url + base, protocol="a2a") as client,
    ):
        session = await client.create()
        await proxy.close()  # so that the next request takes a new connection
        reply = await session.ask("x" * 300)
        assert reply.text == "You said " + "x" * 300
        assert "reconnecting" in [each.kind for each in reply.events if isinstance(each, Notice)]


@pytest.mark.parametrize("url", ["@other.example/rpc", ".other.example/rpc", "http://[", "mailto:me@other.example"])
def test_a_card_cannot_send_requests_and_their_key_to_another_host(url: str) -> None:
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = A2aCodec().card("").decode(msgspec.json.encode({"name": "sly", "supportedInterfaces": [interface]}))
    with pytest.raises(Unsupported, match="expected a card with the address of its agent"):
        _ = card.rpc
