"""One table of scenes for all frameworks: the same log, and the same conversation over every protocol."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from itertools import groupby, product
from typing import Any

import pytest

from dragoman.core.content import text_of
from dragoman.core.events import MessageAdded
from dragoman.core.inputs import Answer as CoreAnswer
from dragoman.core.inputs import Choice, Decision, Submit
from dragoman.core.inputs import Result as CoreResult
from dragoman.core.tools import ToolSpec
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import LiveSession
from tests.adapters.log_shape import shape
from tests.adapters.protocol_drivers import DRIVERS, driver_for, setup_for
from tests.adapters.scenes import AGENT, FRAMEWORKS, REJOINED, SCENES, Framework, Scene
from tests.adapters.scripted_agents import Effects, build
from tests.conversations import (
    Allow,
    Answer,
    Answers,
    Choose,
    Conversation,
    Deny,
    Interruption,
    Prompt,
    Result,
    Rewind,
    Step,
)
from tests.conversations import play as conversation
from tests.engine.world import (
    DEADLINE_S,
    PauseGate,
    World,
    answer_request,
    open_session,
    play,
    running_world,
    send,
    user_request,
    wait_for_end,
)
from tests.extent import IS_FULL
from tests.protocols.agui.official_clients import OfficialClients, official_clients
from tests.protocols.blade.driver import BladeDriver
from tests.servers import SocketServer, running_socket_server
from tests.stores.simulated import SimulatedLog

# --- in the log -------------------------------------------------------------------------------------------------------

CASES = [
    pytest.param(framework, scene, id=f"{framework}-{scene.name.replace(' ', '-')}")
    for scene in SCENES
    for framework in FRAMEWORKS
    if scene.log_of(framework) is not None
]


@pytest.mark.parametrize(("framework", "scene"), CASES)
async def test_a_scene_leaves_the_same_log_in_every_framework(framework: Framework, scene: Scene) -> None:
    effects = Effects()
    async with running_world(SimulatedLog()) as world:
        world.agents["player"] = build(framework, effects, structured=scene.structured)
        engine = await world.start()
        tools = tuple(
            ToolSpec(name=name, description="Paints.", parameters={"type": "object"}) for name in scene.client_tools
        )
        live = await open_session(engine, client_tools=tools)
        for step in scene.steps_of(framework):
            await perform(engine, live, step, effects, world)
        assert tuple(comparable(await lines(world, live))) == tuple(comparable(scene.log_of(framework) or ()))


async def perform(engine: Engine, live: LiveSession, step: Step, effects: Effects, world: World) -> None:
    """Do what a user does in a step, and wait for the end of its run."""
    if isinstance(step, Rewind):
        before = [
            logged.seq
            for logged in await world.events(live.state.session_id)
            if isinstance(logged.event, MessageAdded) and text_of(logged.event.message.content) == step.prompt
        ]
        await engine.rewind(live, before[-1])
        return
    if isinstance(step, Interruption):
        await send(engine, live, step.input.text)
        async with asyncio.timeout(DEADLINE_S):
            await effects.pause.entered.wait()
            while not live.state.open_messages:  # the words before the pause are not in the log yet
                await live.next_commit()
        await engine.stop_run(live, None)
        await wait_for_end(live)
        return
    await play(engine, live, request_for(live, step.input))


def request_for(live: LiveSession, given: Prompt | Answers) -> Submit:
    if isinstance(given, Prompt):
        return user_request(given.text)
    waiting = {each.call.name: each.call.call_id for each in live.state.waiting_calls()}

    def core(answer: Answer) -> CoreAnswer:
        match answer:
            case Allow(name):
                return Decision(call_id=waiting[name], granted=True)
            case Deny(name, reason):
                return Decision(call_id=waiting[name], granted=False, reason=reason)
            case Result(name, text):
                return CoreResult(call_id=waiting[name], content=text)
            case Choose():
                (call_id,) = waiting.values()
                return Choice(call_id=call_id, selections={"0": [1]})

    return answer_request(*map(core, given.answers))


async def lines(world: World, live: LiveSession) -> list[str]:
    return shape(await world.events(live.state.session_id))


def comparable(lines: Iterable[str]) -> Iterable[str]:
    """The lines without stages and notes; those of calls side by side are sorted."""
    shown = (
        re.sub(r"^(waits: \w+ \w+|denied: \w+) .*", r"\1", line) for line in lines if not line.startswith("stage: ")
    )
    of_calls = ("starts: ", "waits: ", "done: ", "failed: ", "denied: ")
    for is_call, group in groupby(shown, lambda line: line.startswith(of_calls)):
        found = list(group)
        yield from sorted(found) if is_call else found


# --- over the protocols -----------------------------------------------------------------------------------------------


class ServedFramework:
    """A server with an agent under the name that the drivers expect. One that is left lets its model go on."""

    def __init__(self, server: SocketServer, effects: Effects) -> None:
        self._server = server
        self.connection: Any = server.connection
        self.effects = effects

    def key(self, name: str) -> str:
        return self._server.key(name)

    async def restart(self) -> None:
        raise NotImplementedError("no scene restarts a server")

    async def crash(self) -> None:
        self.effects.pause.opened.set()


Served = dict[tuple[Framework, bool], ServedFramework]
"""By the framework, and whether the agent answers with an object."""


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Servers for the frameworks that are installed."""
    async with AsyncExitStack() as servers:
        found: Served = {}
        for framework, structured in product(FRAMEWORKS, (False, True)):
            effects = Effects()
            try:
                agent = build(framework, effects, name=AGENT, structured=structured)
            except pytest.skip.Exception:
                continue
            folder = tmp_path_factory.mktemp(framework)
            running = running_socket_server(folder, agents=[agent], rehearsal=False)
            found[framework, structured] = ServedFramework(await servers.enter_async_context(running), effects)
        yield found


@pytest.fixture(scope="module")
async def clients() -> AsyncIterator[OfficialClients]:
    async with official_clients() as official:
        yield official


PLAYED = [
    pytest.param(framework, protocol, scene, id=f"{framework}-{protocol}-{scene.name}".replace(" ", "-"))
    for place, framework in enumerate(FRAMEWORKS)
    for number, protocol in enumerate(DRIVERS)
    for third, scene in enumerate([*SCENES, REJOINED])
    if scene.log_of(framework) is not None and (IS_FULL or (place + number + third) % len(FRAMEWORKS) == 0)
]
"""Every scene over every protocol, with one framework each; with FULL=1, all of them."""


@pytest.mark.parametrize(("framework", "protocol", "scene"), PLAYED)
async def test_a_scene_is_the_same_conversation_live_replayed_and_in_the_history(
    served: Served,
    clients: OfficialClients,
    framework: Framework,
    protocol: str,
    scene: Scene,
) -> None:
    driver = driver_for(protocol, clients, framework, scene.name)
    if (framework, scene.structured) not in served:
        pytest.skip(f"{framework} is not installed")
    server = served[framework, scene.structured]
    server.effects.pause = PauseGate()
    try:
        setup = setup_for(framework, scene.client_tools)
        await conversation(Conversation(scene.name, scene.steps_of(framework), setup), driver, server)
    finally:
        if isinstance(driver, BladeDriver):
            await driver.close()
