"""Reads what `decision` needs to know about a thread, and no more of its log than that."""

from dragoman.core.events import RunStarted
from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import IdempotencyRecord
from dragoman.protocols.agui import decision
from dragoman.protocols.agui.decision import AlreadyFinished, Facts, Follow, StoredMessage
from dragoman.protocols.agui.request_mapping import RESENT
from dragoman.protocols.agui.translate import PROTOCOL
from dragoman.protocols.agui.wire import RunInput


async def read_facts(
    engine: Engine,
    run: RunInput,
    live: SessionView,
    spec: AgentSpec,
    known: dict[str, int],
    earlier: IdempotencyRecord | None,
) -> Facts:
    """What `decide` needs to know about the thread for this request.

    Args:
        engine: the engine.
        run: the request.
        live: the thread.
        spec: its agent.
        known: the request's message ids that the log has.
        earlier: the record of an earlier request with the same run id.
    """
    state = live.state
    if earlier is not None:
        row = await engine.find_run_of(earlier)
        outcome = AlreadyFinished() if row is None else Follow(row.run_id, row.first_seq)
        return Facts(state, spec, earlier=outcome)
    is_resent = not known and bool(run.messages) and await _is_resent(engine, live)
    if decision.needs_all_branches(run, state, known):
        stored = decision.stored_messages(await engine.history.events(live, 0), state)
    else:
        first_seq = 0 if is_resent else decision.first_needed(run, known)
        stored = [] if first_seq is None else await _visible_messages(engine, live, first_seq)
    # Contents are compared, large parts included.
    restored = await engine.attachments.restore(state.session_id, [each.message for each in stored])
    stored = [each._replace(message=message) for each, message in zip(stored, restored, strict=True)]
    return Facts(state, spec, known, stored, is_resent)


async def _visible_messages(engine: Engine, live: SessionView, first_seq: int) -> list[StoredMessage]:
    return [
        StoredMessage(seq, message, True, live.state.hidden_ranges)
        for seq, message in await engine.history.visible_user_messages(live, first_seq)
    ]


async def _is_resent(engine: Engine, live: SessionView) -> bool:
    """Whether one of the newest runs came with the client's whole history."""
    async for page in engine.history.newest_events(live):
        started = (each.event for each in page if isinstance(each.event, RunStarted))
        return any(each.protocol == PROTOCOL and RESENT in each.metadata.protocol for each in started)
    return False
