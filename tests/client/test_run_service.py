"""The client over the AG-UI run service: what is particular to it. Conversations are in `test_conversations`."""

import pytest

from dragoman.client import (
    Allow,
    AsyncClient,
    Choice,
    ClientError,
    Image,
    NotFound,
    Notice,
    Permission,
    Question,
    Result,
    Tool,
    Unsupported,
)
from dragoman.client.codec import SessionConfig, UserInput
from dragoman.client.connection import Timeouts
from dragoman.client.transports import create_transport
from tests.client.cutting_proxy import cutting_proxy
from tests.conversations import call, script
from tests.servers import SocketServer

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
STAMP = script({"say": "Wait. "}, call("stamp", text="x"), {"say": "so: {result}"})
CARD = {"type": "stack", "children": [{"type": "text", "role": "title", "content": "A card"}]}

over_the_run_service = pytest.mark.parametrize("protocol", ["run-service"])


@over_the_run_service
async def test_threads_are_listed_opened_with_what_waits_and_deleted(client: AsyncClient) -> None:
    session = await client.create("rehearsal", tools=[Tool(name="paint", parameters={"type": "object"})])
    assert (await session.run("hello", images=[PIXEL]).reply()).text == "Hello! I am the rehearsal agent."
    assert (await session.ask("ask me")).end.reason == "tool_use"
    opened = await client.open(session.id)
    assert [type(each) for each in opened.pending] == [Question]
    assert (await opened.info()).status == "waiting"
    assert (await opened.answer(Choice.of("production")).reply()).text == "You chose production."
    reply = await session.ask(script(call("paint", colour="red"), {"say": "It is {result}."}))
    answer = Result(call_id=reply.end.pending[0].call_id, text="wet")
    assert (await session.answer(answer).reply()).text == "It is wet."
    prompt, *_ = history = await session.history()
    assert [(each.role, each.text) for each in history[:4]] == [
        ("user", "hello"),
        ("assistant", "Hello! I am the rehearsal agent."),
        ("user", "ask me"),
        ("assistant", "You chose production."),
    ]
    assert [type(each) for each in prompt.blocks] == [type(prompt.blocks[0]), Image]
    listed = [each async for each in client.sessions() if each.id == session.id]
    assert [(each.agent, each.title, each.status) for each in listed] == [("rehearsal", "hello", "idle")]
    assert (await session.info()).status == "idle"
    assert (await session.resume().reply()).text == "It is wet."
    await session.delete()
    with pytest.raises(NotFound):
        await client.open(session.id)


@over_the_run_service
async def test_what_the_service_lacks_names_a_protocol_that_has_it(client: AsyncClient) -> None:
    session = await client.create()
    assert (await session.ask(STAMP)).end.reason == "tool_use"
    with pytest.raises(Unsupported, match="AG-UI and Blade can"):
        await session.answer(Allow(always=True)).reply()
    for unsupported in (client.agents(), client.create(title="x")):
        with pytest.raises(Unsupported, match="AAP"):
            await unsupported
    with pytest.raises(ClientError, match="expected an image in base64"):
        await session.run("see", images=["data:image/png;base64,%"]).reply()


@over_the_run_service
async def test_a_card_arrives(client: AsyncClient) -> None:
    reply = await (await client.create()).ask(script({"say": "see"}, {"card": CARD}))
    (card,) = [each.content for each in reply.events if isinstance(each, Notice)]
    assert card["root"]["children"][0]["content"] == "A card"


async def test_an_answer_that_arrived_is_not_sent_again(socket_server: SocketServer) -> None:
    """The response to it is lost. Another process takes it up, and the first one, too."""
    cuts = [None, 0]  # the run, and the receipt for the answer
    async with cutting_proxy(socket_server.connection.url, lambda: cuts.pop(0) if cuts else None) as proxy:
        transport = create_transport("run-service", proxy.url, socket_server.key("alice"), Timeouts(reconnect_s=20))
        try:
            handle = await transport.create(SessionConfig(agent="rehearsal"), "")
            events = [each async for each in transport.run_turn(handle, UserInput(text=STAMP), "run-1" + handle.id)]
            (permission,) = [each for each in events if isinstance(each, Permission)]
            asking, answers = handle.last_response_id, (Allow(call_id=permission.call_id),)
            await proxy.close()
            answered = [each async for each in transport.run_turn(handle, answers)]
            assert "stamped x" in str(answered)
            assert cuts == []
            handle.last_response_id = asking
            again = await transport.take_up(handle, answers, "")
            assert again is not None
            assert [each async for each in again] == answered
        finally:
            await transport.close()
