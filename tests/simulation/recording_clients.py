"""Clients that record when they ask for something, what they get, and when, for the checker of linearizability."""

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from random import Random

from dragoman.core.events import LoggedEvent, MessageAdded, RunQueued, RunStarted
from dragoman.core.ids import RunId, SessionId
from dragoman.core.inputs import Choice, Result
from dragoman.core.refusals import Refused, SessionNotFound, ShuttingDown, Unavailable
from dragoman.core.stream import Record
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionView
from tests.engine.runs.test_crash import answer_to
from tests.engine.world import ANN, World, answer_request, read_all, send, user_request
from tests.simulation.clients import ALL_SCRIPTS, BUSY, Clients
from tests.simulation.linearizability import Operation
from tests.simulation.session_model import Accepted, Messages, Missing, Repeated, Request

PREFIX = "message "


class RecordingClients(Clients):
    """All clients, with one history for each session."""

    def __init__(self, world: World, chance: Random, *, is_single_server: bool) -> None:
        super().__init__(world, chance, is_single_server=is_single_server)
        self.histories: dict[SessionId, dict[int, Operation[Request]]] = defaultdict(dict)
        self._moments = itertools.count()
        self._names = itertools.count(1)
        self._message_of: dict[RunId, str] = {}
        self._seen_calls: dict[SessionId, set[str]] = defaultdict(set)

    def some_session(self) -> SessionId:
        """A session, now and then one that was deleted."""
        if self.deleted and self.chance.random() < 0.1:
            return self.chance.choice(sorted(self.deleted))
        return super().some_session()

    async def _record(
        self, session_id: SessionId, request: Request, perform: Callable[[], Awaitable[Hashable]]
    ) -> None:
        """Record a request. What a crash or a failing store left open has no output; other refusals change nothing."""
        history, invoked = self.histories[session_id], next(self._moments)
        history[invoked] = Operation(request, None, invoked)
        try:
            output = await perform()
        except SessionNotFound:
            output = Missing()
            if not self._is_single_server:  # another server may have done it before the session was deleted
                history[next(self._moments)] = Operation(request, None, invoked)
                request = Request("read")
        except ShuttingDown:
            del history[invoked]
            raise
        except Unavailable:
            raise
        except Refused:
            del history[invoked]
            raise
        history[invoked] = Operation(request, output, invoked, next(self._moments))

    # --- requests -------------------------------------------------------------------------------------------------

    async def send_message(self, engine: Engine) -> None:
        session_id, message = self.some_session(), f"{PREFIX}{next(self._names)}"
        script, busy = self.chance.choice(ALL_SCRIPTS), self.chance.choice(BUSY)

        async def perform() -> Accepted:
            async with engine.session(ANN, session_id) as live:
                await self.submit(engine, live, script, message, busy)
                return Accepted()

        await self._record(session_id, Request("submit", message), perform)

    async def submit(self, engine: Engine, session: SessionView, script: str, message: str, busy: str) -> None:
        submitted = await send(engine, session, user_request(script, message), busy)  # type: ignore[arg-type]  # of BUSY
        assert submitted.run_id is not None
        self._message_of[submitted.run_id] = message

    async def repeat(self, engine: Engine) -> None:
        session_id, message = self.some_session(), f"{PREFIX}{next(self._names)}"
        key = IdempotencyKey(f"{session_id} {self.chance.choice('ab')}", "f")

        async def perform() -> Accepted | Repeated:
            async with engine.session(ANN, session_id) as live, engine.reserve_key(ANN, key) as earlier:
                if earlier is not None:
                    return Repeated(None if earlier.run_id is None else self._message_of.get(earlier.run_id))
                request = user_request("hello", message)
                submitted = await engine.start_run(live, request, by=ANN, idempotency_key=key, busy="queue")
                await live.until_durable(live.state.seq)
                assert submitted.run_id is not None
                self._message_of[submitted.run_id] = message
                return Accepted()

        await self._record(session_id, Request("submit", message, key.name), perform)

    async def answer(self, engine: Engine) -> None:
        session_id = self.some_session()
        async with engine.session(ANN, session_id) as live:
            waiting = list(live.state.waiting_calls())
        some = self.chance.sample(waiting, self.chance.randint(0, len(waiting)))
        answers = [answer_to(each) for each in some]
        once = frozenset(each.call_id for each in answers if isinstance(each, Result | Choice))
        self._seen_calls[session_id] |= once

        async def perform() -> Accepted:
            async with engine.session(ANN, session_id) as live:
                await send(engine, live, answer_request(*answers))
                return Accepted()

        await self._record(session_id, Request("answer", calls=once), perform)

    async def stop(self, engine: Engine) -> None:
        session_id = self.some_session()

        async def perform() -> Accepted:
            async with engine.session(ANN, session_id) as live:
                await engine.stop_run(live)
                return Accepted()

        calls = frozenset(self._seen_calls[session_id])
        await self._record(session_id, Request("stop", calls=calls), perform)

    async def read(self, engine: Engine) -> None:
        session_id = self.some_session()

        async def perform() -> Messages:
            async with engine.session(ANN, session_id) as live:
                return Messages(messages_in(await read_all(engine, live)), is_newest=self._is_single_server)

        await self._record(session_id, Request("read"), perform)

    async def delete(self, engine: Engine) -> None:
        session_id = self.some_session()

        async def perform() -> Accepted:
            async with engine.session(ANN, session_id) as live:
                if session_id in self.sessions:
                    self.sessions.remove(session_id)
                await engine.delete(live)
                self.deleted.add(session_id)
                return Accepted()

        await self._record(session_id, Request("delete"), perform)

    async def check(self) -> None:
        """Add what the log contains in the end, as one more read, to the histories."""
        await super().check()
        for session_id in self.sessions:
            found = Messages(messages_in(await self.world.events(session_id)), is_newest=True)
            invoked = next(self._moments)
            self.histories[session_id][invoked] = Operation(Request("read"), found, invoked, next(self._moments))


class EarlyClients(RecordingClients):
    """A planted fault: messages are acknowledged before they are durable."""

    async def submit(self, engine: Engine, session: SessionView, script: str, message: str, busy: str) -> None:
        request = user_request(script, message)
        await engine.start_run(session, request, by=ANN, busy=busy)  # type: ignore[arg-type]  # of BUSY


def messages_in(records: Sequence[Record]) -> tuple[str, ...]:
    """The messages of a session in the order in which they were accepted."""
    found: dict[str, None] = {}
    for record in records:
        contents: list[object] = []
        match record.event if isinstance(record, LoggedEvent) else None:
            case RunQueued(inputs=inputs) | RunStarted(inputs=inputs):
                contents = [each.content for each in inputs]
            case MessageAdded(message=message):
                contents = [message.content]
        found |= {each: None for each in contents if isinstance(each, str) and each.startswith(PREFIX)}
    return tuple(found)
