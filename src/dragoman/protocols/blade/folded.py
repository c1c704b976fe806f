"""A session as a whole, folded from its log: for who asks once, and does not follow."""

from collections.abc import Mapping

from dragoman.core.stream import START
from dragoman.engine.engine import Engine
from dragoman.engine.live import LiveSession
from dragoman.protocols.blade.projection import Projection


def titles_of(engine: Engine, live: LiveSession) -> Mapping[str, str]:
    """The names for people of the agent's tools."""
    agent = engine.agents.get(live.state.agent)
    if agent is None:
        return {}
    return {tool.spec.name: tool.spec.title for tool in agent.spec.tools if tool.spec.title}


async def folded(engine: Engine, live: LiveSession) -> Projection:
    """Everything that is durable now, with all turns."""
    projection = Projection(live.state.session_id, titles_of(engine, live), keeps=True)
    projection.is_quiet = True
    durable = live.durable
    with engine.follow(live, START) as reader:
        while reader.cursor < durable:
            for record in await reader.next():
                projection.feed(record)
    for growing in projection.turns:
        growing.settle()
    return projection
