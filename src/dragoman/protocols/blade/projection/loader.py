"""Loads a session's turns from its log, for requests that do not follow it."""

from collections.abc import Mapping, Sequence

from dragoman.core.branches import Branch, branches_of, parents_of
from dragoman.core.stream import START
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade.projection.projection import Projection
from dragoman.protocols.blade.projection.turns import TurnBuilder
from dragoman.protocols.blade.wire.sessions import HistoryNode, node_of


def tool_titles(engine: Engine, session: SessionView) -> Mapping[str, str]:
    """Return the names for people of the agent's tools."""
    spec = engine.find_spec(session.state.agent)
    return {} if spec is None else {tool.spec.name: tool.spec.title for tool in spec.tools if tool.spec.title}


async def load_projection(engine: Engine, session: SessionView) -> Projection:
    """Load everything that is durable now, with all turns."""
    projection = Projection(session.state.session_id, tool_titles(engine, session), keeps_finished_turns=True)
    projection.emitter.is_quiet = True
    durable = session.durable_cursor
    with engine.follow(session, START) as reader:
        while reader.cursor < durable:
            for record in await reader.next():
                projection.feed(record)
    for builder in projection.turns.all:
        builder.join_text()
    return projection


def active_turns(session: SessionView, projection: Projection) -> Sequence[TurnBuilder]:
    """Return the turns of the active branch, without ends of chats and calls on other branches; mark compacted ones."""
    state = session.state if projection.state is None else projection.state
    turns = [each for each in projection.turns.all if state.is_visible(each.first_seq)]
    for each in turns:
        each.cancel_calls_settled_elsewhere(state)
        if each.chat_end is not None and state.is_visible(each.chat_end_seq):
            each.turn.chat_end = each.chat_end
        each.turn.archived = state.compaction is not None and each.first_seq <= state.compaction.up_to
    return turns


def remove_memories(turns: Sequence[TurnBuilder]) -> None:
    """Remove the memories from turns, for everybody but the session's owner."""
    for each in turns:
        each.turn.memory_refs = None


def branches_in(projection: Projection) -> list[Branch]:
    """Return the branches of a session."""
    return branches_of(projection.branch_marks, 0 if projection.state is None else projection.state.seq)


def nodes_of(projection: Projection, active: Sequence[TurnBuilder]) -> list[HistoryNode]:
    """Return the entries of all branches as a tree; `active` are the turns of the active branch."""
    turns, on_branch = projection.turns.all, set(active)
    parents = parents_of(branches_in(projection), turns)
    return [node_of(each, parent, active=each in on_branch) for each, parent in zip(turns, parents, strict=True)]
