"""Results of background tasks: each starts a run in the session that started the task, when that one is at rest."""

import asyncio
from contextlib import aclosing

import structlog

from dragoman.core.content import AssistantMessage, text_of
from dragoman.core.ids import SessionId, UserId
from dragoman.core.inputs import Submit, UserInput
from dragoman.core.refusals import Conflict, LimitReached, SessionBusy, SessionNotFound
from dragoman.core.run_metadata import FinishedTask, RunMetadata
from dragoman.core.schedules import ANSWER_TIMEOUT, NO_ANSWER, PROTOCOL, Schedule
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.live_session import to_live_session

CHECK_INTERVAL_S = 5.0
"""How often a session is checked that is not at rest, besides after each of its commits."""

NOT_DELIVERED = "result of a task not delivered"

log = structlog.get_logger(__name__)


async def deliver_result(engine: Engine, schedule: Schedule, *, succeeded: bool, error: str | None) -> None:
    """Deliver the result, once, to the session that started the task, as soon as it is idle, unless it is deleted.

    A session that waits for its user is not interrupted: a new message would cancel what it waits for. If it still
    waits after `ANSWER_TIMEOUT`, the result is not delivered.

    Raises:
        Unavailable: the store failed; try again.
    """
    session_id, agent = SessionId(schedule.schedule_id), schedule.agent or engine.default_agent
    assert schedule.reports_to is not None, "it is the schedule of a task"
    text = await _answer(engine, schedule.user, session_id) if succeeded else f"It failed: {error}"
    finished = FinishedTask(session_id=session_id, agent=agent, task=schedule.prompt, succeeded=succeeded)
    request = Submit(
        protocol=PROTOCOL,
        messages=(UserInput(content=finished.heading() + text),),
        metadata=RunMetadata(internal=True, finished_task=finished, task_depth=schedule.task_depth),
    )
    key = IdempotencyKey(f"task:{schedule.schedule_id}", "result", lasts=True)
    started_at = engine.clock.now()
    while await engine.find_idempotency_record(schedule.user, key.name) is None:
        try:
            async with engine.session(schedule.user, schedule.reports_to) as session:
                live = to_live_session(session)
                commit = live.next_commit()
                if live.state.status() == "idle":
                    submitted = await engine.start_run(live, request, by=schedule.user, idempotency_key=key)
                    await live.until_durable(submitted.seq)
                    return
                waiting_since = max(started_at, live.state.updated_at)
                if live.state.status() == "waiting" and engine.clock.now() >= waiting_since + ANSWER_TIMEOUT:
                    log.warning(NOT_DELIVERED, session_id=schedule.reports_to, reason=NO_ANSWER)
                    return
                await asyncio.wait([commit], timeout=CHECK_INTERVAL_S)
                live.replay_buffer.forget_waker(commit)
        except (SessionBusy, LimitReached):
            await asyncio.sleep(CHECK_INTERVAL_S)
        except (SessionNotFound, Conflict) as refused:
            log.warning(NOT_DELIVERED, session_id=schedule.reports_to, reason=str(refused))
            return


async def _answer(engine: Engine, user: UserId, session_id: SessionId) -> str:
    """The last words of the task's session."""
    async with (
        engine.session(user, session_id) as session,
        aclosing(engine.history.root_messages_newest_first(to_live_session(session))) as messages,
    ):
        async for message in messages:
            if isinstance(message, AssistantMessage) and (text := text_of(message.content)):
                return text
    return ""
