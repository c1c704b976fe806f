"""What two Dragoman servers say to each other beside the conversations: shared state, options, the hops of a chain."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from dragoman import Data, Image, RemoteAgent, Run, SelectOption, agent, tool
from dragoman.client import Allow, AsyncClient, Permission, Restarted, Text
from dragoman.client.transports import ClientProtocol
from tests.asgi_client import DEADLINE_S
from tests.client.cutting_proxy import cutting_proxy
from tests.protocols.agui.agents import counting
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.servers import SocketServer, running_socket_server

CARD = {"type": "stack", "children": [{"type": "text", "role": "title", "content": "A card"}]}


@agent(options=[SelectOption(name="tone", options=("kind", "rude"), default="kind")])
async def speaker(run: Run) -> AsyncIterator[str]:
    """Says how it was asked to speak, and how many servers the request has passed."""
    yield f"{run.option('tone')} after {run.metadata.hops}"


@tool
def mix(colours: list[str]) -> str:
    """Mix colours."""
    return " and ".join(colours)


@agent(tools=[mix])
async def painter(run: Run) -> AsyncIterator[Image | Data | str]:
    """Shows a picture, data and a card."""
    yield "see "
    yield Image("https://example.org/red.png")
    yield Data({"pixels": 3})
    run.card(CARD)
    yield "that"


@pytest.fixture(scope="module")
async def remote(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    folder = tmp_path_factory.mktemp("remote")
    async with running_socket_server(folder, agents=[speaker, counting, painter], rehearsal=False) as server:
        yield server


@pytest.fixture(scope="module")
async def gateway(remote: SocketServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    url, key = remote.connection.url, remote.key("alice")
    agents = [
        RemoteAgent("aap", url, agent="speaker", key=key, name="speaker"),
        RemoteAgent("ag-ui", f"{url}/ag-ui/counting", key=key, name="counting"),
        RemoteAgent("ag-ui", f"{url}/ag-ui/painter", key=key, name="painter"),
    ]
    async with running_socket_server(tmp_path_factory.mktemp("gateway"), agents=agents, rehearsal=False) as server:
        yield server


async def test_a_state_is_shared_with_the_remote_agent_in_both_directions(gateway: SocketServer) -> None:
    shared, thread = Endpoint(gateway.connection, gateway.key("alice"), agent="counting"), str(uuid4())
    assert (await shared.run(an_input("one", thread=thread, state={"count": 5}))).text == "6 7"
    assert (await shared.run(an_input("two", thread=thread))).text == "8 9"
    events = (await shared.hydrate(thread)).events
    assert [each["snapshot"] for each in events if each["type"] == "STATE_SNAPSHOT"] == [{"count": 9, "nothing": None}]


async def test_a_server_that_only_users_may_ask_is_described_as_such(remote: SocketServer) -> None:
    url, key = remote.connection.url, remote.key("alice")
    by_user = RemoteAgent("aap", url, agent="speaker", headers=lambda info: {"Authorization": f"Bearer {key}"})
    by_wrong_key = RemoteAgent("aap", url, agent="speaker", key="wrong")
    for each, said in (
        (by_user, "which says what it can do only to users with credentials"),
        (by_wrong_key, "which could not be asked what it can do: the remote server refused the credentials"),
    ):
        await each.start()
        assert each.describe() == f"AAP at {url}, {said}"
        await each.close()


async def test_a_dragoman_server_says_over_ag_ui_what_its_agent_can_do(remote: SocketServer) -> None:
    url = f"{remote.connection.url}/ag-ui/painter"
    painting = RemoteAgent("ag-ui", url, key=remote.key("alice"))
    await painting.start()
    assert painting.describe() == f"AG-UI at {url}, agent painter, 1 tool"
    assert painting.spec.description == "Shows a picture, data and a card."
    await painting.close()


async def test_pictures_data_and_cards_are_passed_on(remote: SocketServer, gateway: SocketServer) -> None:
    seen = []
    for server in (remote, gateway):
        painter = Endpoint(server.connection, server.key("alice"), agent="painter")
        events = (await painter.run(an_input("paint", thread=str(uuid4())))).events
        seen.append(
            [
                {name: value for name, value in each["value"].items() if name != "messageId"}
                for each in events
                if each["type"] == "CUSTOM"
            ]
        )
    assert seen[0] == seen[1]
    assert len(seen[0]) == 3


async def test_the_options_of_a_remote_agent_are_options_here(gateway: SocketServer) -> None:
    async with AsyncClient(gateway.connection.url, key=gateway.key("alice")) as client:
        (found,) = [each for each in await client.agents() if each.name == "speaker"]
        assert [(each.name, each.kind, each.choices, each.default) for each in found.options] == [
            ("tone", "select", ("kind", "rude"), "kind")
        ]
        assert (await (await client.create("speaker")).ask("hi")).text == "kind after 1"
        assert (await (await client.create("speaker", options={"tone": "rude"})).ask("hi")).text == "rude after 1"


async def test_each_server_of_a_chain_counts(gateway: SocketServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    first = RemoteAgent("openai", gateway.connection.url, agent="speaker", key=gateway.key("alice"), name="first")
    async with (
        running_socket_server(tmp_path_factory.mktemp("first"), agents=[first], rehearsal=False) as server,
        AsyncClient(server.connection.url, key=server.key("alice")) as client,
    ):
        assert (await (await client.create("first")).ask("hi")).text == "kind after 2"


async def test_a_step_that_the_remote_server_repeats_after_a_crash_is_repeated_here(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """It is stopped without grace while it speaks, so that its next start takes the run up."""
    going_on = asyncio.Event()

    @agent
    async def waiter(run: Run) -> AsyncIterator[str]:
        yield "one "
        await going_on.wait()
        yield "two"

    folders = tmp_path_factory.mktemp("remote"), tmp_path_factory.mktemp("gateway")
    async with (
        running_socket_server(folders[0], agents=[waiter], rehearsal=False) as remote,
        cutting_proxy(remote.connection.url, lambda: None) as proxy,
    ):
        served = RemoteAgent("agentscope", proxy.url, key=remote.key("alice"), name="waiter")
        async with (
            running_socket_server(folders[1], agents=[served], rehearsal=False) as server,
            AsyncClient(server.connection.url, key=server.key("alice")) as client,
        ):
            session = await client.create("waiter")
            run = session.run("go")
            assert await anext(run) == Text(text="one ")
            await proxy.until_restarted(remote, remote.restart())
            going_on.set()
            reply = await run.reply()
            restarted, *texts, _ = reply.events
            assert restarted == Restarted(text="one ")
            assert "".join(each.text for each in texts if isinstance(each, Text)) == "one two"
            assert [(each.text, each.cut) for each in (await session.history())[1:]] == [
                ("one ", True),
                ("one two", False),
            ]


@pytest.mark.parametrize("protocol", ["ag-ui", "agentscope", "blade"])
async def test_a_call_that_may_have_run_already_on_the_remote_server_is_asked_about_as_such(
    tmp_path: Path, protocol: ClientProtocol
) -> None:
    """It has run once without asking, and the remote server restarted meanwhile."""
    payments: asyncio.Queue[str] = asyncio.Queue()
    is_stuck = True

    @tool(on_restart="ask")
    async def pay(who: str) -> str:
        """Pay."""
        await payments.put(who)
        if is_stuck:
            await asyncio.Event().wait()
        return f"paid {who}"

    @agent(tools=[pay], history=True)
    async def shop(run: Run) -> AsyncIterator[str]:
        yield await run.call(pay, who="Bob")

    async with (
        running_socket_server(tmp_path / "remote", agents=[shop], rehearsal=False) as remote,
        cutting_proxy(remote.connection.url, lambda: None) as proxy,
    ):
        url = f"{proxy.url}/ag-ui/shop" if protocol == "ag-ui" else proxy.url
        served = RemoteAgent(protocol, url, key=remote.key("alice"), name="shop")
        async with (
            running_socket_server(tmp_path / "gateway", agents=[served], rehearsal=False) as server,
            AsyncClient(server.connection.url, key=server.key("alice")) as client,
        ):
            session = await client.create("shop")
            asking = asyncio.create_task(session.ask("pay"))
            async with asyncio.timeout(DEADLINE_S):
                assert await payments.get() == "Bob"
            await proxy.until_restarted(remote, remote.restart())
            is_stuck = False
            await asking
            (permission,) = session.pending
            assert isinstance(permission, Permission)
            assert (permission.name, permission.arguments, permission.is_repeat) == ("pay", {"who": "Bob"}, True)
            assert payments.empty()
            assert (await session.answer(Allow(call_id=permission.call_id)).reply()).text == "paid Bob"
            assert payments.get_nowait() == "Bob"
