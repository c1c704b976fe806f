"""Asking whether anybody reads a session elsewhere."""

import asyncio

from dragoman.buses.local import LocalBus
from dragoman.engine.cluster.presence import PresenceQuery
from tests.engine.world import World, open_session


async def test_who_stops_asking_takes_no_answer_from_others_who_ask(world: World) -> None:
    engine = await world.start()
    session_id = (await open_session(engine)).state.session_id
    watching = PresenceQuery(LocalBus(), engine.sessions)
    first, second = [asyncio.create_task(watching.is_watched(session_id)) for _ in range(2)]
    await asyncio.sleep(0)  # both ask
    first.cancel()
    await asyncio.wait([first])
    watching.on_reply(session_id)
    assert await second
    assert watching.pending_queries == {}, "nobody asks any more"
