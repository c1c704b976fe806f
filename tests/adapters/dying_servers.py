"""Servers that die at a commit, and an application that goes on with the next one."""

import asyncio
from collections.abc import Sequence

from dragoman.core.inputs import Answer, Decision, Result
from dragoman.core.open_calls import OpenCall
from dragoman.core.tools import ToolSpec
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import DEADLINE_S, World, answer_request, open_session, reload, send, wait_for_end


def answer_to(call: OpenCall) -> Answer:
    if call.call.name == "paint":
        return Result(call_id=call.call.call_id, content="painted")
    return Decision(call_id=call.call.call_id, granted=True)


class Client:
    """An application: sends one message, and answers calls one by one."""

    def __init__(self, script: str, client_tools: Sequence[ToolSpec] = ()) -> None:
        self.script = script
        self._client_tools = tuple(client_tools)
        self.live: LiveSession | None = None

    async def converse(self, world: World, log: FaultyLog) -> None:
        engine = await world.start(log)
        if self.live is None:
            self.live = await open_session(engine, client_tools=self._client_tools)
        live = self.live = await reload(engine, self.live)
        if live.state.last_run is None:
            await send(engine, live, self.script)
        await wait_for_end(live)
        while live.state.status() == "waiting":
            await send(engine, live, answer_request(answer_to(next(live.state.waiting_calls()))))
            await wait_for_end(live)


async def serve(world: World, client: Client, log: FaultyLog) -> bool:
    """Let an engine serve the client until its conversation ends or the store dies. Returns whether it died."""
    talking = asyncio.create_task(client.converse(world, log))
    dying = asyncio.create_task(log.died.wait())
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([talking, dying], return_when=asyncio.FIRST_COMPLETED)
    died = not talking.done()
    (talking if died else dying).cancel()
    await asyncio.wait([talking])
    if not died:
        talking.result()
    for engine in tuple(world.engines):
        await (world.kill if died else world.stop)(engine)
    return died
