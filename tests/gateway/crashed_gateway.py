"""Lets our server die in the middle of a remote agent's answer."""

import asyncio
from collections.abc import Callable
from itertools import count

from dragoman.agents import serving
from dragoman.core.content import AssistantMessage, text_of
from dragoman.core.events import RunStopped
from dragoman.core.stream import START, Record
from dragoman.gateway.remote_agent import RemoteAgent
from tests.asgi_client import DEADLINE_S
from tests.engine.faulty_log import FaultyLog
from tests.engine.log_checker import check_log
from tests.engine.world import open_session, reload, running_world, send, wait_for_end
from tests.stores.simulated import SimulatedLog

WORLDS = count(1)


async def after_a_crash(
    served: RemoteAgent, text: str, seen_before: str, go_on: Callable[[], None]
) -> tuple[str | None, list[str], list[str]]:
    """Let our server die when it has said something, and the next one take the run up.

    Returns:
        Why the run ended, the whole messages, and those that were cut off.
    """
    await serving.start([served])
    async with running_world(SimulatedLog()) as world:
        world.ids.count = 1000 * next(WORLDS)  # the remote server sees all worlds: their ids must differ
        world.agents["player"] = served
        log = FaultyLog(world.store)
        engine = await world.start(log)
        session = await open_session(engine)
        await send(engine, session, text)
        seen: list[Record] = []
        async with asyncio.timeout(DEADLINE_S):
            with engine.follow(session, START) as reader:
                while seen_before not in str(seen):
                    seen += await reader.next()
        log.is_dead = True
        await world.kill(engine)
        go_on()
        engine = await world.start()
        session = await reload(engine, session)
        await wait_for_end(session)
        events = await world.events(session.state.session_id)
        history = await world.history(session.state.session_id)
    await serving.close([served])
    check_log(events, {})
    stopped = next(each.event for each in events if isinstance(each.event, RunStopped))
    answers = [each for each in history if isinstance(each, AssistantMessage)]
    whole, cut = (
        [text_of(each.content) for each in answers if (each.status == "cut") is is_cut] for is_cut in (False, True)
    )
    return stopped.code or stopped.reason, whole, cut
