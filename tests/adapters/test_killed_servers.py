"""One table of kills for all frameworks, over the protocols: what clients see of `kill -9`, and what happens again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dragoman.core.answers import INTERRUPTED_RESULT
from tests.adapters.killed_server import HANG
from tests.adapters.kills import Servers, effects_of
from tests.adapters.protocol_drivers import ResponsesDriver, driver_for, setup_for
from tests.adapters.scenes import ADDED, FRAMEWORKS, PAYING, Framework, answered, said
from tests.adapters.scripted_agents import Effects, build
from tests.conversations import (
    Allow,
    Choose,
    Conversation,
    Crash,
    ObservedCall,
    ObservedResult,
    ObservedText,
    Prompt,
    Result,
    Step,
)
from tests.conversations import play as conversation
from tests.engine.world import DEADLINE_S
from tests.extent import IS_FULL
from tests.protocols.aap.client import AapClient, Session
from tests.protocols.agui.official_clients import OfficialClients, official_clients
from tests.protocols.blade.driver import BladeDriver


@dataclass(frozen=True)
class KilledScene:
    """A conversation whose server is killed, and how often tools began and models were asked in it.

    Args:
        name: a name; the table of `protocol_drivers` says by it what a protocol needs.
        steps: before each step but the first, the server is killed and another one started.
        effects: what the tools and models wrote down, in any order.
        hangs_at: the effect at which servers hang until they are killed, in a step that crashes.
        shown: what clients have to be sent once more before each kill: what was shown is kept.
        kills: how many servers hang, one after the other.
        without: frameworks that have no such scene.
    """

    name: str
    steps: tuple[Step, ...]
    effects: Mapping[str, int]
    hangs_at: str = ""
    shown: str = "text_delta"
    kills: int = 1
    without: frozenset[Framework] = field(default_factory=frozenset)
    client_tools: tuple[str, ...] = ()


HEARD = said("again", "heard: pause, again")
CUT = ObservedText("one ")
MORE = ObservedCall("add", {"a": 3, "b": 4})
SCENES = (
    KilledScene(
        "answer",
        (Crash(Prompt("pause"), "one ", (CUT, ObservedText("one two"))), HEARD),
        {"asked pause": 2, "answer": 2, "asked again": 1},
        hangs_at="answer",
    ),
    KilledScene(
        "answer, twice",
        (Crash(Prompt("pause"), "one ", (CUT, CUT, ObservedText("one two"))), HEARD),
        {"asked pause": 3, "answer": 3, "asked again": 1},
        hangs_at="answer",
        kills=2,
    ),
    KilledScene(
        "tool",
        (
            Crash(
                Prompt("two tools"),
                "so ",
                (
                    ObservedText("so "), ADDED[0], MORE, ADDED[1], ObservedResult("add", INTERRUPTED_RESULT),
                    ObservedText("all done"),
                ),
            ),
            said("again", "heard: two tools, again"),
        ),
        {"asked two tools": 2, "add 1 2": 1, "add 3 4": 1, "asked again": 1},
        hangs_at="add 3 4",
        shown="tool_result",
    ),
    KilledScene(
        "approval granted",
        (PAYING, answered(Allow("pay"), then=[ObservedResult("pay", "paid 5"), "paid"])),
        {"asked pay": 2, "pay 5": 1},
    ),
    KilledScene(
        "question",
        (
            said("question", ObservedCall("choose"), stop="tool_use"),
            answered(Choose(("blue",), name="choose"), then=["a good choice"]),
        ),
        {"asked question": 2},
        without=frozenset({"openai_agents"}),  # the SDK has no questions
    ),
    KilledScene(
        "client tool",
        (
            said("client", ObservedCall("paint", {"what": "sky"}), stop="tool_use"),
            answered(Result("paint", "blue"), then=["painted"]),
        ),
        {"asked client": 2},
        without=frozenset({"langgraph"}),  # the graph's model is bound already
        client_tools=("paint",),
    ),
)  # fmt: skip


class KilledServer:
    """The server of a framework's agent. It is killed at the moment of a scene, or between two of its steps."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.connection: Any = servers.connection
        self.scene = SCENES[0]
        self.driver: Any = None

    def key(self, name: str) -> str:
        assert name == "alice"
        return self._servers.key

    def begin(self, scene: KilledScene, driver: Any) -> None:
        """Let the scene's first effect hang, and forget those of other scenes."""
        self.scene, self.driver = scene, driver
        (self._servers.folder / "effects").unlink(missing_ok=True)
        if scene.hangs_at:
            self._hang(scene.hangs_at)

    def effects(self) -> dict[str, int]:
        """What tools and models wrote down."""
        return dict(Counter(line for line in effects_of(self._servers.folder) if not line.startswith(HANG)))

    async def restart(self) -> None:
        """Kill the server while nothing happens, and start another one."""
        await self._servers.kill()
        await self._servers.start()
        self.connection = self._servers.connection

    async def crash(self) -> None:
        """Kill the server at the moment of the scene, as often as it says, and start another one."""
        for kill in range(1, self.scene.kills + 1):
            await self._moment(kill)
            if kill < self.scene.kills:
                self._hang(self.scene.hangs_at)
            await self.restart()

    async def _moment(self, kill: int) -> None:
        """Wait until the effect has begun, and what the scene shows was sent this many times."""
        async with asyncio.timeout(DEADLINE_S):
            while self.effects().get(self.scene.hangs_at, 0) < kill:  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
            client = AapClient(self.connection, self._servers.key)
            unlisted = [self.driver.session_id()] if isinstance(self.driver, ResponsesDriver) else []
            session = await running_session(client, unlisted)
            stream = await session.watch("0", query="?stream=delta")
            for _ in range(kill):
                await stream.until(self.scene.shown)
            await stream.disconnect()

    def _hang(self, effect: str) -> None:
        with (self._servers.folder / "effects").open("a", encoding="utf-8") as file:
            file.write(f"{HANG} {effect}\n")


async def running_session(client: AapClient, unlisted: Sequence[str]) -> Session:
    """The session of the scene: no other one of its server has a run. Those of Responses are in no list."""
    listed = [each["sessionId"] for each in (await client.get("/sessions")).json["sessions"]]
    for session_id in (*listed, *unlisted):
        session = Session(client, session_id)
        if (await session.info())["_meta"]["status"] == "running":
            return session
    raise AssertionError("no session has a run")


@pytest.fixture(scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[Framework, KilledServer]]:
    """A server for each framework that is installed."""
    async with AsyncExitStack() as running:
        found = {}
        for framework in FRAMEWORKS:
            try:
                build(framework, Effects())
            except pytest.skip.Exception:
                continue
            server = Servers(tmp_path_factory.mktemp(framework), framework, "scenes")
            await server.open()
            running.push_async_callback(server.close)
            await server.start()
            found[framework] = KilledServer(server)
        yield found


@pytest.fixture(scope="module")
async def clients() -> AsyncIterator[OfficialClients]:
    async with official_clients() as official:
        yield official


SAMPLED = ("aap", "ag-ui", "blade")
PROTOCOLS = (*SAMPLED, "run service", "agent api", "ai sdk", "a2a", "responses")
PLAYED = [
    pytest.param(framework, protocol, scene, id=f"{framework}-{protocol}-{scene.name}".replace(" ", "-"))
    for place, framework in enumerate(FRAMEWORKS)
    for number, protocol in enumerate(PROTOCOLS)
    for third, scene in enumerate(SCENES)
    if framework not in scene.without
    and (IS_FULL or (protocol in SAMPLED and (place + number + third) % len(FRAMEWORKS) == 0))
]
"""Each scene over three protocols, with one framework each; with FULL=1, all of them over eight."""


def without_cut_text(step: Step) -> Step:
    """A step without the words that a kill cut off: A2A withdraws them."""
    if not isinstance(step, Crash):
        return step
    return replace(step, expected=tuple(each for each in step.expected if each is not CUT))


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "protocol", "scene"), PLAYED)
async def test_after_a_kill_clients_see_the_rest_and_nothing_that_was_done_is_done_again(
    servers: dict[Framework, KilledServer],
    clients: OfficialClients,
    framework: Framework,
    protocol: str,
    scene: KilledScene,
) -> None:
    driver = driver_for(protocol, clients, framework, scene.name, rejoins=scene.hangs_at != "")
    if framework not in servers:
        pytest.skip(f"{framework} is not installed")
    server = servers[framework]
    server.begin(scene, driver)
    steps = tuple(map(without_cut_text, scene.steps)) if protocol == "a2a" else scene.steps
    planned = Conversation(scene.name, steps, setup_for(framework, scene.client_tools))
    try:
        await conversation(planned, driver, server, restart_before=lambda index: index > 0)
    finally:
        if isinstance(driver, BladeDriver):
            await driver.close()
    assert server.effects() == scene.effects
