"""A session as a whole, folded from its log: for who asks once, and does not follow."""

from collections.abc import Mapping, Sequence

from dragoman.core.stream import START
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade import branches
from dragoman.protocols.blade.branches import Branch
from dragoman.protocols.blade.projection.projection import Projection
from dragoman.protocols.blade.projection.turns import TurnBuilder
from dragoman.protocols.blade.wire.sessions import HistoryNode, node_of


def tool_titles(engine: Engine, live: SessionView) -> Mapping[str, str]:
    """The names for people of the agent's tools."""
    agent = engine.agents.get(live.state.agent)
    if agent is None:
        return {}
    return {tool.spec.name: tool.spec.title for tool in agent.spec.tools if tool.spec.title}


async def load_projection(engine: Engine, live: SessionView) -> Projection:
    """Everything that is durable now, with all turns."""
    projection = Projection(live.state.session_id, tool_titles(engine, live), keeps_finished_turns=True)
    projection.is_quiet = True
    durable = live.durable_cursor
    with engine.follow(live, START) as reader:
        while reader.cursor < durable:
            for record in await reader.next():
                projection.feed(record)
    for growing in projection.turns:
        growing.join_text()
    return projection


def active_turns(live: SessionView, projection: Projection) -> Sequence[TurnBuilder]:
    """The turns of the active branch; those that a compaction stands for are marked."""
    state = live.state if projection.state is None else projection.state
    found = [each for each in projection.turns if state.is_visible(each.first_seq)]
    up_to = 0 if state.compaction is None else state.compaction.up_to
    for each in found:
        each.turn.archived = each.first_seq <= up_to
    return found


def remove_memories(turns: Sequence[TurnBuilder]) -> None:
    """Take out of turns what was remembered of the session's owner: nobody else is told."""
    for each in turns:
        each.turn.memory_refs = None


def branches_in(projection: Projection) -> list[Branch]:
    """The branches of a session, as far as it was read."""
    return branches.branches_of(projection.branch_marks, 0 if projection.state is None else projection.state.seq)


def nodes_of(projection: Projection, active: Sequence[TurnBuilder]) -> list[HistoryNode]:
    """All entries of all branches, as a tree.

    Args:
        projection: the session.
        active: the turns of the active branch.
    """
    parents = branches.parents_of(branches_in(projection), projection.turns)
    names = {each.turn.turn_id for each in active}
    return [node_of(each, parents[each.turn.turn_id], active=each.turn.turn_id in names) for each in projection.turns]
