"""Tasks: begun and continued by messages, found, cancelled and listed.

a message without a task   ──► a run of its context, queued after those that are active
a message to a task        ──► an answer to what it waits for, or the user's next words in the same task
the same message again     ──► the task that it began
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec

from dragoman.core.content import Text
from dragoman.core.events import LoggedEvent, MessageAdded, RunQueued, RunStarted, RunStopped
from dragoman.core.ids import RunId, SessionId, UserId, parse_session_id
from dragoman.core.inputs import Create, Submit
from dragoman.core.page_cursor import page_cursor, parse_page_cursor
from dragoman.core.question_text import answers_from_text
from dragoman.core.refusals import IdempotencyKeyReused, Invalid, InvalidCursor, SessionBusy, SessionNotFound
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import SessionState
from dragoman.core.stream import Cursor, Record, cursor_of
from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import IdempotencyRecord
from dragoman.protocols.a2a import wire
from dragoman.protocols.a2a.errors import (
    InvalidParams,
    PushNotificationNotSupported,
    QueueFull,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.protocols.a2a.translate import (
    PROTOCOL,
    TASK,
    TaskFold,
    answers_of,
    check_configuration,
    is_approval,
    user_input,
)
from dragoman.protocols.kit.named_sessions import create_named, find_or_create
from dragoman.protocols.kit.runs import RunHandle, find_run

MAX_ATTEMPTS = 5
"""How often something is tried again that other requests change at the same moment."""
SESSIONS_PER_READ = 1000
"""How many sessions are read from the store at a time."""
MAX_REMEMBERED_LISTS = 10_000
"""Logs whose tasks are remembered, for all owners: clients read lists page by page, and poll them."""
MAX_COUNTED_SESSIONS = 1000
"""Tasks that are not on the page are counted in this many sessions, those used last."""
MAX_LISTED_EVENTS = 50_000
"""The newest events of a log that are read for lists; also the limit of all logs that are read only to count tasks."""
MAX_PAGE_EVENTS = 250_000
"""The events that are read for a page, about a second of CPU time. A page that would need more is shorter."""
LAST_ID = SessionId("ffffffff-ffff-ffff-ffff-ffffffffffff")
"""An id at or after every other one."""


class FoundTask(NamedTuple):
    """A task, folded up to a position of its session.

    Attributes:
        session: its session.
        fold: the task.
        cursor: up to where it is folded.
        first_seq: its first event.
        is_repeated: an earlier request began it.
    """

    session: SessionView
    fold: TaskFold
    cursor: Cursor
    first_seq: int
    is_repeated: bool = False


class _Sent(NamedTuple):
    """A message: who sent it to which agent, what it asks for, and the key by which it is known when it comes again."""

    owner: UserId
    spec: AgentSpec
    message: wire.Message
    submit: Submit
    key: IdempotencyKey


class _ListedSession(NamedTuple):
    """A session whose tasks may be listed. Their statuses are from between the two times."""

    updated_at: datetime
    created_at: datetime
    session_id: SessionId
    seq: int


class _ListedTask(NamedTuple):
    """A task's place in lists, which tokens of pages name, and its state."""

    changed_at: datetime
    task_id: SessionId
    state: wire.State


class _TasksOfLog(NamedTuple):
    """The tasks of a session at rest, and which state of its log they are from."""

    created_at: datetime
    seq: int
    tasks: list[_ListedTask]


class Tasks:
    """The tasks of an engine's agents. A task's session stays in memory until the given stack is left."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listed: OrderedDict[SessionId, _TasksOfLog] = OrderedDict()
        """The tasks of logs that were read for lists."""

    # --- finding --------------------------------------------------------------------------------------------------

    async def find(self, owner: UserId, spec: AgentSpec, task_id: str, stack: AsyncExitStack) -> FoundTask:
        """A task as it is now. Raises TaskNotFound, also if it is another owner's or another agent's."""
        found = await self._run(owner, task_id, stack)
        session, first_seq = found.session, found.first_seq
        await session.until_durable(first_seq)
        fold, up_to = TaskFold(found.run_id, session.state), session.durable_cursor
        with self._engine.follow(session, found.before) as reader:
            while reader.cursor < up_to and not fold.is_over:
                for record in await reader.next():
                    await self._feed(fold, session, record)
        if not fold.is_task or session.state.agent != spec.name:
            raise TaskNotFound
        return FoundTask(session, fold, reader.cursor, first_seq)

    async def _run(self, owner: UserId, task_id: str, stack: AsyncExitStack) -> RunHandle:
        """The run with which a task began, or by which it was continued. Raises TaskNotFound."""
        found = await find_run(self._engine, owner, task_id)
        if found is None:
            raise TaskNotFound
        stack.enter_context(self._engine.lease(found.session))
        return found

    async def _at(self, session: SessionView, task_id: RunId, first_seq: int, seq: int) -> FoundTask:
        """A task as it was at event `seq`, which a message caused, with that message."""
        await session.until_durable(seq)
        fold, at, up_to = TaskFold(task_id, session.state), Cursor(seq), session.durable_cursor
        with self._engine.follow(session, Cursor(first_seq - 1)) as reader:
            while reader.cursor < up_to and reader.cursor <= at:
                for record in await reader.next():
                    is_message = isinstance(record, LoggedEvent) and isinstance(record.event, MessageAdded)
                    if cursor_of(record) > at and not is_message:
                        return FoundTask(session, fold, at, first_seq)
                    await self._feed(fold, session, record)
                    at = max(at, cursor_of(record))
        return FoundTask(session, fold, at, first_seq)

    async def _feed(self, fold: TaskFold, session: SessionView, record: Record) -> None:
        """Feed a record, with attachments that are stored beside the log."""
        if isinstance(record, LoggedEvent):
            record = await self._engine.attachments.restore_event(session.state.session_id, record)
        fold.feed(record)

    # --- messages -------------------------------------------------------------------------------------------------

    async def send(
        self, owner: UserId, spec: AgentSpec, request: wire.SendMessageRequest, stack: AsyncExitStack
    ) -> FoundTask:
        """Take a message: the task as it is with it. The same message again finds the task that it began."""
        message, configuration = request.message, request.configuration
        if message.role != "ROLE_USER":
            raise InvalidParams("expected a message of the user, with the role ROLE_USER", "message.role")
        if not message.context_id.isprintable():
            raise InvalidParams("a contextId must not contain line breaks or control characters", "message.contextId")
        if configuration.task_push_notification_config not in (msgspec.UNSET, None, {}):
            raise PushNotificationNotSupported
        check_configuration(configuration)
        answers = answers_of(message)
        submit = Submit(
            protocol=PROTOCOL,
            answers=answers,
            messages=() if answers else (user_input(message),),
            metadata=RunMetadata(forwarded={**request.metadata, **message.metadata} or msgspec.UNSET),
        )
        for reference in message.reference_task_ids:
            known = parse_session_id(reference)
            if known is None or await self._engine.history.find_run(owner, RunId(known)) is None:
                raise TaskNotFound
        fingerprint = hashlib.sha256(msgspec.json.encode(message, order="deterministic")).hexdigest()
        key = IdempotencyKey(f"{PROTOCOL}:{spec.name}:{message.message_id}", fingerprint, lasts=True)
        sent = _Sent(owner, spec, message, submit, key)
        try:
            async with self._engine.reserve_key(owner, key) as earlier:
                if earlier is not None:
                    return await self._repeat(sent, earlier, stack)
                if message.task_id:
                    return await self._continue(sent, stack)
                return await self._begin(sent, stack)
        except IdempotencyKeyReused:
            raise InvalidParams("messageId was used with another message", "message.messageId") from None
        except Invalid as error:  # the core has a list of messages, and their content
            place = error.path.replace("messages[0].content", "message.parts").replace("messages[0].", "message.")
            error.path = "message.parts" if place == "messages[0]" else place
            raise

    async def _repeat(self, sent: _Sent, earlier: IdempotencyRecord, stack: AsyncExitStack) -> FoundTask:
        owner, task_id = sent.owner, sent.message.task_id
        if earlier.run_id is None:  # it answered some of the calls that wait
            return (await self.find(owner, sent.spec, task_id, stack))._replace(is_repeated=True)
        caused = await self._run(owner, earlier.run_id, stack)
        first = await self._run(owner, task_id, stack) if task_id else caused
        task = await self._at(caused.session, first.run_id, first.first_seq, caused.first_seq)
        return task._replace(is_repeated=True)

    async def _begin(self, sent: _Sent, stack: AsyncExitStack) -> FoundTask:
        owner, submit = sent.owner, sent.submit
        if submit.answers:
            raise InvalidParams("answers belong to a task, which taskId names", "message.taskId")
        session, is_new = await self._context(owner, sent.spec, sent.message.context_id, stack)
        try:
            async with self._engine.first_request(session, is_new=is_new):
                result = await self._engine.start_run(session, submit, by=owner, busy="queue", idempotency_key=sent.key)
        except SessionBusy as error:
            raise QueueFull(str(error)) from error
        assert result.run_id is not None, "a message always starts or queues a run"
        return await self._at(session, result.run_id, result.seq, result.seq)

    async def _context(
        self, owner: UserId, spec: AgentSpec, context_id: str, stack: AsyncExitStack
    ) -> tuple[SessionView, bool]:
        """The session of a context, and whether it is new. Another owner's is only a name (shared rules, 1)."""
        new = Create(protocol=PROTOCOL, agent=spec.name, tools="all")
        create = partial(create_named, self._engine, owner, context_id, new)
        if context_id:
            session, is_new = await find_or_create(partial(self._engine.find_session, owner, context_id), create)
        else:
            session, is_new = await create(), True
        stack.enter_context(self._engine.lease(session))
        if session.state.agent != spec.name:
            raise InvalidParams("the context belongs to another agent", "message.contextId")
        return session, is_new

    async def _continue(self, sent: _Sent, stack: AsyncExitStack) -> FoundTask:
        task = await self.find(sent.owner, sent.spec, sent.message.task_id, stack)
        session, fold, submit = task.session, task.fold, sent.submit
        if sent.message.context_id not in ("", fold.context_id, session.state.session_id):
            raise InvalidParams("the task belongs to another context", "message.contextId")
        if fold.is_over:
            raise UnsupportedOperation("the task is over: send without taskId to continue its context")
        if fold.phase == "asking":
            with suppress(SessionBusy):
                meant = submit if submit.answers else _for_waiting(fold, submit)
                result = await self._engine.start_run(session, meant, by=sent.owner, idempotency_key=sent.key)
                return await self._at(session, fold.task_id, task.first_seq, result.seq)
        raise UnsupportedOperation("the task is working: send without taskId, and the message is queued behind it")

    # --- cancelling -----------------------------------------------------------------------------------------------

    async def cancel(self, owner: UserId, spec: AgentSpec, task_id: str, stack: AsyncExitStack) -> FoundTask:
        """Stop a task, whatever it does or waits for. Raises TaskNotFound and TaskNotCancelable."""
        task = await self.find(owner, spec, task_id, stack)
        if task.fold.is_over:
            raise TaskNotCancelable("the task is over")
        for _ in range(MAX_ATTEMPTS):
            if task.fold.phase == "asking":
                await self._engine.cancel_waiting_calls(task.session, task.fold.last_run)
            else:
                await self._engine.stop_run(task.session, task.fold.last_run)
            task = await self.find(owner, spec, task_id, stack)
            if task.fold.is_over:
                break
        return task

    # --- listing --------------------------------------------------------------------------------------------------

    async def page(self, owner: UserId, spec: AgentSpec, request: wire.ListTasksRequest) -> wire.TaskPage:
        """A page of the agent's tasks, newest status first.

        Only the logs of sessions that may have a task of the page are read, and more of them to count the others.
        If too many of them have none, the page ends early, and may be empty: its token leads to the rest.
        """
        try:
            before = parse_page_cursor(request.page_token) if request.page_token else None
        except InvalidCursor:
            raise InvalidParams("expected the nextPageToken of an earlier page", "pageToken") from None
        since, status, size = request.status_timestamp_after, request.status, request.page_size
        if since is not None and since.tzinfo is None:
            raise InvalidParams("expected an RFC 3339 time with its offset", "statusTimestampAfter")
        newest, total, read_count, short_of = list[_ListedTask](), 0, 0, ""
        for number, session in enumerate(await self._sessions(owner, spec, request.context_id, since)):
            is_before_page = before is not None and session.created_at > before[0]
            is_after_page = len(newest) > size and session.updated_at < newest[-1].changed_at
            if is_before_page or is_after_page:
                if number >= MAX_COUNTED_SESSIONS or read_count >= MAX_LISTED_EVENTS:
                    continue
            elif read_count >= MAX_PAGE_EVENTS and (before is None or session.updated_at < before[0]):
                short_of = page_cursor(session.updated_at, LAST_ID)
                newest = [each for each in newest if each.changed_at > session.updated_at]
                break
            with suppress(SessionNotFound):  # it was deleted meanwhile
                found = [
                    each
                    for each in await self._tasks_of(owner, session)
                    if (since is None or each.changed_at > since)
                    and status in ("", "TASK_STATE_UNSPECIFIED", each.state)
                ]
                total, read_count = total + len(found), read_count + session.seq
                newest += [each for each in found if before is None or each[:2] < before]
                newest = sorted(newest, reverse=True)[: size + 1]
        page, has_more = newest[:size], len(newest) > size
        shown: list[wire.Task] = []
        for each in page:
            with suppress(TaskNotFound):  # its session was deleted meanwhile
                async with AsyncExitStack() as stack:
                    fold = (await self.find(owner, spec, each.task_id, stack)).fold
                length = request.history_length
                shown.append(fold.task(history_length=length, with_artifacts=request.include_artifacts))
        return wire.TaskPage(
            tasks=tuple(shown),
            next_page_token=page_cursor(page[-1].changed_at, page[-1].task_id) if has_more else short_of,
            page_size=size,
            total_size=total,
        )

    async def _sessions(
        self, owner: UserId, spec: AgentSpec, context_id: str, since: datetime | None
    ) -> list[_ListedSession]:
        """The owner's sessions with an agent that changed after `since`, those used last first."""
        found: list[_ListedSession] = []
        states = await self._states(owner, context_id, None)
        while states:
            found += [
                _ListedSession(each.updated_at, each.created_at, each.session_id, each.seq)
                for each in states
                if each.agent == spec.name and (since is None or each.updated_at > since)
            ]
            last = states[-1]
            states = [] if context_id else await self._states(owner, "", (last.created_at, last.session_id))
        return sorted(found, reverse=True)

    async def _states(
        self, owner: UserId, context_id: str, before: tuple[datetime, SessionId] | None
    ) -> Sequence[SessionState]:
        """The session of a context; without one, the owner's next sessions, newest first."""
        if not context_id:
            return await self._engine.page(owner, before, SESSIONS_PER_READ)
        try:
            return [(await self._engine.find_session(owner, context_id)).state]
        except SessionNotFound:
            return []

    async def _tasks_of(self, owner: UserId, listed: _ListedSession) -> list[_ListedTask]:
        """The tasks of a session. A log that has not grown is not read again."""
        known = self._listed.pop(listed.session_id, None)
        if known is None or known[:2] != (listed.created_at, listed.seq):
            async with self._engine.session(owner, listed.session_id) as session:
                seq = session.state.seq
                await session.until_durable(seq)
                tasks = await self._read_tasks(session, max(0, seq - MAX_LISTED_EVENTS))
                if seq != listed.seq or session.state.run is not None:
                    return tasks
                known = _TasksOfLog(listed.created_at, seq, tasks)
        self._listed[listed.session_id] = known  # as the newest
        if len(self._listed) > MAX_REMEMBERED_LISTS:
            self._listed.popitem(last=False)
        return known.tasks

    async def _read_tasks(self, session: SessionView, after: int) -> list[_ListedTask]:
        folds: dict[RunId, TaskFold] = {}
        started: list[TaskFold] = []
        for logged in await self._engine.history.events(session, after):
            event = logged.event
            if isinstance(event, RunQueued | RunStarted) and event.run_id not in folds:
                folds[event.run_id] = TaskFold(event.run_id, session.state)
            for fold in started:
                fold.feed(logged)
            if isinstance(event, RunQueued | RunStarted | RunStopped) and event.run_id in folds:
                fold = folds[event.run_id]
                if fold.phase == "queued":  # there may be many, and nothing else concerns them
                    fold.feed(logged)
                    started.append(fold)
            started = [fold for fold in started if fold.phase in ("running", "asking")]
        tasks = (fold for fold in folds.values() if fold.is_task)
        return [_ListedTask(fold.changed_at, SessionId(fold.task_id), fold.status.state) for fold in tasks]


def _for_waiting(fold: TaskFold, submit: Submit) -> Submit:
    """What a user's message means to a task that waits: the answer to its question, else the next words of the user."""
    waiting, (message,) = fold.waiting(), submit.messages
    answers = () if any(map(is_approval, waiting)) else answers_from_text(waiting, message.content)
    if not answers:
        metadata = msgspec.structs.replace(submit.metadata, protocol={TASK: fold.task_id})
        return msgspec.structs.replace(submit, metadata=metadata)
    if not isinstance(message.content, str) and not all(isinstance(each, Text) for each in message.content):
        raise InvalidParams("the agent asks a question, which is answered by text", "message.parts")
    return msgspec.structs.replace(submit, answers=answers, messages=())
