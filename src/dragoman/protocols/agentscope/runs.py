"""Responses as runs of the engine: begun by a request, or found again. Thin; the rules are elsewhere."""

import hashlib
from contextlib import AsyncExitStack
from typing import NamedTuple

import msgspec

from dragoman.core.admission import is_busy
from dragoman.core.content import UserMessage
from dragoman.core.events import MessageAdded, SettingsChange
from dragoman.core.ids import RunId, UserId, parse_session_id
from dragoman.core.principal import Principal
from dragoman.core.refusals import AgentFixed, Forbidden, IdTaken, Refused, RunNotFound, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import Key
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.protocols.agentscope import inputs, wire
from dragoman.protocols.agentscope.streams import response_events
from dragoman.protocols.agentscope.translate import ResponseEvents
from dragoman.protocols.kit.http import Admit


class Begun(NamedTuple):
    """A run that answers a request: a new one, or the one that the same request began before.

    No run: the request answered some of the open calls, and more answers are needed before it goes on.
    """

    live: LiveSession
    run_id: RunId | None
    first_seq: int
    may_answer: bool
    is_found: bool = False
    """It was begun before, so that who follows it is one more reader."""


class Asks(NamedTuple):
    """Who asks what, and how it is to be told."""

    caller: Principal
    asked: wire.Asked
    noted: inputs.Noted
    once: Key | None = None


class Runs:
    """Begins runs and finds them. Sessions are held, and so stay in memory, as long as the caller's stack."""

    def __init__(self, engine: Engine, admit_run: Admit) -> None:
        self._engine = engine
        self._admit_run = admit_run

    # --- finding --------------------------------------------------------------------------------------------------

    async def found(self, held: AsyncExitStack, owner: UserId, response_id: str) -> Begun:
        """A response of that owner's. Raises RunNotFound."""
        once = await self._engine.done_once(owner, _key(response_id))
        if once is not None and once.run_id is not None:
            return await self.of_run(held, owner, once.run_id)
        return await self.of_run(held, owner, response_id.removeprefix("response_"))

    async def of_run(self, held: AsyncExitStack, owner: UserId, run_id: str) -> Begun:
        """A run of that owner's, whichever protocol began it. Raises RunNotFound."""
        known = parse_session_id(run_id)
        row = None if known is None else await self._engine.past.run_row(owner, RunId(known))
        if row is None:
            raise RunNotFound("there is no such response")
        try:
            live = await held.enter_async_context(self._engine.session(owner, row.session_id))
        except SessionNotFound:
            raise RunNotFound("there is no such response") from None
        return Begun(live, row.run_id, row.first_seq, may_answer=True, is_found=True)

    async def so_far(self, begun: Begun) -> ResponseEvents:
        """A run's events up to now, told to nobody."""
        live, run_id, first = begun.live, begun.run_id, begun.first_seq
        assert run_id is not None, "it was found"
        await live.until_durable(first)
        events = await response_events(self._engine, live, run_id, first)
        for record in await self._engine.past.run_records(live, run_id, first):
            if not events.is_over:
                events.feed(record)
        return events

    # --- beginning ------------------------------------------------------------------------------------------------

    async def begin(self, held: AsyncExitStack, asks: Asks) -> Begun:
        """Begin the run that a request asks for; or find it, when the same request began it before (section 7.2)."""
        request = asks.asked.request
        agent = None if not request.model else self._engine.agent(request.model).spec.name
        if request.own_id is None:
            return await self._submit(held, asks, agent)
        asked = asks.asked.essence() + (b" as a task" if asks.noted.is_task else b"")
        key = Key(_key(request.own_id), hashlib.sha256(asked).hexdigest(), lasts=True)
        async with self._engine.once(asks.caller.user, key) as earlier:
            if earlier is not None and earlier.run_id is not None:
                return await self.of_run(held, asks.caller.user, earlier.run_id)
            if earlier is not None:
                live = await held.enter_async_context(self._engine.session(asks.caller.user, earlier.session_id))
                return Begun(live, None, 0, may_answer=False)
            begun = await self._submit(held, asks._replace(once=key), agent)
            await begun.live.until_durable(begun.first_seq)
            return begun

    async def _submit(self, held: AsyncExitStack, asks: Asks, agent: str | None) -> Begun:
        request, owner = asks.asked.request, asks.caller.user
        live = await self._session(held, owner, request.session_id)
        if live is None:
            brought = inputs.brought_by(request.input, new_id=self._engine.ids.new)
            inputs.require_something(brought, is_new=True)
            live = await self._make_session(asks, agent, brought)
            if live is not None:
                return await self._run_first(held, live, asks, brought)
            live = await held.enter_async_context(self._engine.session(owner, request.session_id or ""))
        _check_user(live, request.user_id)
        if agent is not None and agent != live.state.agent:
            raise AgentFixed(f"this session is with agent {live.state.agent!r}")
        start = await self._start_of_new(live, request)
        brought = inputs.brought_by(request.input, start, live.state.answerable())
        inputs.require_something(brought, is_new=False)
        if not is_busy(live.state):
            inputs.require_fitting(brought.answers, live.state.calls)
        return await self._run(live, asks, brought)

    async def _run_first(self, held: AsyncExitStack, made: LiveSession, asks: Asks, brought: inputs.Brought) -> Begun:
        """The first run of a session that was made for it. What is refused leaves nothing."""
        live = await held.enter_async_context(self._engine.session(asks.caller.user, made.state.session_id))
        try:
            return await self._run(live, asks, brought)
        except Refused:
            if live.state.last_run is None:
                await self._engine.delete(live)
            raise

    async def _run(self, live: LiveSession, asks: Asks, brought: inputs.Brought) -> Begun:
        """Let the request in; its run counts against the caller's share until it ends."""
        request = asks.asked.request
        submit = inputs.submit_from(asks.asked, brought, named(asks.noted, live, request.session_id))
        labels = live.state.settings.labels
        if request.user_id and "user_id" not in labels:
            change = SettingsChange(labels={**labels, "user_id": request.user_id})
            submit = msgspec.structs.replace(submit, change=change)
        release = self._admit_run(asks.caller)
        try:
            with inputs.placed(asks.asked, brought):
                submitted = await self._engine.submit(live, submit, by=asks.caller.user, once=asks.once)
        except BaseException:
            release()
            raise
        if submitted.run_id is None:
            release()
        else:
            assert live.run_task is not None, "a run that was started is played"
            live.run_task.add_done_callback(lambda _: release())
        return Begun(live, submitted.run_id, submitted.seq, may_answer=bool(brought.answers))

    # --- sessions -------------------------------------------------------------------------------------------------

    async def _session(self, held: AsyncExitStack, owner: UserId, name: str | None) -> LiveSession | None:
        """The owner's session of that id or name, if there is one."""
        if not name:
            return None
        try:
            return await held.enter_async_context(self._engine.session(owner, name))
        except SessionNotFound:
            return None

    async def _make_session(self, asks: Asks, agent: str | None, brought: inputs.Brought) -> LiveSession | None:
        """Make a session of the caller's own; None when somebody was quicker with the same id.

        Another owner's id is only a name to the caller (rulings, 1).
        """
        wanted, owner = asks.asked.request.session_id or None, asks.caller.user
        session_id = None if wanted is None else parse_session_id(wanted)
        create = inputs.create_from(asks.asked, agent or self._engine.default_agent, brought)
        create = msgspec.structs.replace(create, session_id=session_id, name=None if session_id else wanted)
        with inputs.placed(asks.asked, brought, is_new=True):
            try:
                return await self._engine.create(owner, create)
            except IdTaken:
                if session_id is None or not await self._engine.is_foreign(owner, session_id):
                    return None
                create = msgspec.structs.replace(create, session_id=None, name=session_id)
                try:
                    return await self._engine.create(owner, create)
                except IdTaken:
                    return None

    async def _start_of_new(self, live: LiveSession, request: wire.AgentRequest) -> int:
        """How many of a request's messages are history that the session holds already (section 2.1)."""
        ids = inputs.ids_of(request)
        known = await self._engine.past.known(live, ids) if ids else {}
        for place in range(len(request.input), 0, -1) if known else ():
            message = request.input[place - 1]
            seq = known.get(message.id or "") or known.get(inputs.core_id(message.id or ""))
            if seq is not None and live.state.shows(seq) and inputs.is_same(message, await self._said(live, seq)):
                return place
        return 0

    async def _said(self, live: LiveSession, seq: int) -> UserMessage | None:
        """The user's message that an event added; None when the event is about one of ours."""
        event = (await self._engine.past.events(live, seq - 1, seq))[0].event
        if not isinstance(event, MessageAdded) or not isinstance(event.message, UserMessage):
            return None
        return (await self._engine.attachments.restored(live.state.session_id, [event.message]))[0]


def named(noted: inputs.Noted, live: LiveSession, session_id: str | None) -> inputs.Noted:
    """What is noted, with the session's name where the client calls it by one."""
    if not session_id or parse_session_id(session_id) == live.state.session_id:
        return noted
    return msgspec.structs.replace(noted, session_id=session_id)


def _key(response_id: str) -> str:
    """Under which a client's own id of a response is kept."""
    return f"{inputs.DOOR}:{response_id}"


def _check_user(live: LiveSession, user_id: str | None) -> None:
    label = live.state.settings.labels.get("user_id")
    if user_id and label and label != user_id:
        raise Forbidden("this session is another user's")
