"""What clients do, what they receive, and what must be true of it whatever happens in between."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from random import Random

from dragoman.core.agent import AgentError, Run
from dragoman.core.content import JsonObject
from dragoman.core.events import RunQueued, RunStarted
from dragoman.core.ids import CallId, RunId, SessionId
from dragoman.core.inputs import Answer, Choice, Decision, Result
from dragoman.core.refusals import Refused, SessionNotFound
from dragoman.core.stream import START, Cursor, Record, cursor_of, expand
from dragoman.engine.engine import Engine
from dragoman.engine.runs.submissions import BusyPolicy
from dragoman.engine.services.idempotency import IdempotencyKey
from tests.engine.log_checker import check_tool_call_pairing
from tests.engine.runs.test_crash import PAINT, SCRIPTS, answer_to
from tests.engine.world import (
    ANN,
    CallTool,
    End,
    World,
    answer_request,
    fork,
    open_session,
    send,
    user_request,
    wait_for_end,
    wait_until_durable,
)

BUSY: list[BusyPolicy] = ["refuse", "queue", "supersede"]
SESSIONS = 4
"""So few that they meet."""
ALL_SCRIPTS = (*SCRIPTS, "slow", "fails", "fails in words", "swallows", "stubborn", "limit", "many below", "hello")


def more_scripts(world: World, chance: Random) -> None:  # one small function for each way
    """Scripts of agents and tools that misbehave."""

    async def wait(run: Run) -> None:
        await asyncio.sleep(chance.choice((0, 0.001, 0.01, 0.1)))

    async def fail(run: Run) -> None:
        raise RuntimeError("inside")

    async def fail_in_words(run: Run) -> None:
        raise AgentError("too_dry", "The beds are too dry.")

    async def swallow(run: Run) -> None:
        for _ in range(3):
            try:
                await wait(run)
            except asyncio.CancelledError:
                run.emit("I go on ")

    async def stubborn(arguments: JsonObject) -> str:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
        return "done after all"

    async def odd(arguments: JsonObject) -> object:
        return chance.choice([object(), "\ud800", {"_meta": 1}, None, "x" * 5000])

    world.tool("stubborn", stubborn, on_restart="repeat")
    world.tool("odd", odd, on_restart="repeat")
    world.scripts |= {
        "slow": [["a ", wait, wait_until_durable, "b ", wait], [wait, "c"]],
        "fails": [["so ", wait, wait_until_durable, fail]],
        "fails in words": [["so ", fail_in_words]],
        "swallows": [["so ", swallow, wait_until_durable, "on"], ["and on"]],
        "stubborn": [[CallTool("stubborn"), CallTool("odd"), CallTool("stubborn")], ["said"]],
        "limit": [["long ", wait, End("max_tokens")]],
        "many below": [[fork("slow"), fork("fails"), fork("stubborn"), fork("below")], ["end"]],
    }


class Clients:
    """All applications together: they share their sessions, and one record of what they received."""

    def __init__(self, world: World, chance: Random, *, is_single_server: bool) -> None:
        """`sees_now`: what a server knows of a session is what it is, because there is no other one."""
        self.world = world
        self._is_single_server = is_single_server
        self.chance = chance
        self.sessions: list[SessionId] = []
        self.deleted: set[SessionId] = set()
        self.acknowledged: list[tuple[SessionId, RunId]] = []
        self.by_key: dict[tuple[SessionId, str], set[RunId]] = defaultdict(set)
        self.readers: list[tuple[SessionId, Cursor, list[Record]]] = []

    def operation(self) -> Callable[[Engine], Awaitable[None]]:
        """What the next one does."""
        if not self.sessions:
            return self.open
        names = [
            self.open,
            self.send_message,
            self.answer,
            self.send_invalid,
            self.stop,
            self.repeat,
            self.read,
            self.delete,
        ]
        return self.chance.choices(names, weights=[2, 8, 8, 2, 3, 3, 6, 0.3])[0]

    def some_session(self) -> SessionId:
        if not self.sessions:
            raise SessionNotFound("all were deleted")
        return self.chance.choice(self.sessions)

    async def open(self, engine: Engine) -> None:
        if len(self.sessions) < SESSIONS:
            live = await open_session(engine, client_tools=(PAINT,))
            self.sessions.append(live.state.session_id)

    async def send_message(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            submitted = await send(engine, live, self.chance.choice(ALL_SCRIPTS), self.chance.choice(BUSY))
            assert submitted.run_id is not None
            self.acknowledged.append((live.state.session_id, submitted.run_id))

    async def answer(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            waiting = list(live.state.waiting_calls())
            some = self.chance.sample(waiting, self.chance.randint(0, len(waiting)))
            await send(engine, live, answer_request(*map(answer_to, some)))

    async def send_invalid(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            calls = live.state.calls if self._is_single_server else ()  # another server may just open one to answers
            call_id = CallId(self.chance.choice([*calls, "nobody's"]))
            forged: list[Answer] = [
                Decision(call_id=call_id, granted=True),
                Result(call_id=call_id, content=""),
                Choice(call_id=call_id),
            ]
            if call_id in live.state.answerable_calls():
                return
            try:
                await send(engine, live, answer_request(self.chance.choice(forged)), self.chance.choice(BUSY))
            except Refused:
                return
            raise AssertionError("a forged answer was taken")

    async def stop(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            runs = [queued.run_id for queued in live.state.queue]
            await engine.stop_run(live, self.chance.choice([None, None, *runs]))

    async def repeat(self, engine: Engine) -> None:
        key = self.chance.choice("ab")
        async with (
            engine.session(ANN, self.some_session()) as live,
            engine.reserve_key(ANN, IdempotencyKey(key, "f")) as earlier,
        ):
            if earlier is not None:
                if earlier.run_id is not None:
                    self.by_key[earlier.session_id, key].add(earlier.run_id)
                return
            submitted = await engine.start_run(
                live, user_request("hello"), by=ANN, idempotency_key=IdempotencyKey(key, "f"), busy="queue"
            )
            await live.until_durable(live.state.seq)
            assert submitted.run_id is not None
            self.by_key[live.state.session_id, key].add(submitted.run_id)

    async def read(self, engine: Engine) -> None:
        async with engine.session(ANN, self.some_session()) as live:
            known = [cursor_of(each) for of, _, seen in self.readers if of == live.state.session_id for each in seen]
            after = self.chance.choice([START, *known])
            seen: list[Record] = []
            self.readers.append((live.state.session_id, after, seen))
            with engine.follow(live, after) as reader:
                for _ in range(self.chance.randrange(8)):
                    await asyncio.sleep(self.chance.choice((0, 0.001, 0.01)))
                    if reader.cursor < live.durable_cursor:
                        seen += await reader.next()

    async def delete(self, engine: Engine) -> None:
        session_id = self.some_session()
        async with engine.session(ANN, session_id) as live:
            if session_id in self.sessions:
                self.sessions.remove(session_id)  # from here on it may be there or not
            await engine.delete(live)
            self.deleted.add(session_id)

    # --- what must hold -------------------------------------------------------------------------------------------

    async def finish_all_sessions(self, engine: Engine) -> None:
        """Answer whatever is asked, until every session rests."""
        for session_id in self.sessions:
            async with engine.session(ANN, session_id) as live:
                await wait_for_end(live)
                while live.state.status() == "waiting":
                    await send(engine, live, answer_request(answer_to(next(live.state.waiting_calls()))))
                    await wait_for_end(live)
        for session_id in self.deleted:
            try:
                await engine.find_session(ANN, session_id)
            except SessionNotFound:
                continue
            raise AssertionError("what was deleted is there")

    async def check(self) -> None:
        """Compare what the clients received with what is stored."""
        for session_id in self.sessions:
            events = await self.world.events(session_id)
            check_tool_call_pairing(events)
            runs = {each.event.run_id for each in events if isinstance(each.event, RunStarted | RunQueued)}
            missing = [run_id for of, run_id in self.acknowledged if of == session_id and run_id not in runs]
            assert missing == [], "acknowledged, and not in the log"
            whole = expand(events)
            for of, after, seen in self.readers:
                if of == session_id and seen:
                    last = cursor_of(seen[-1])
                    assert seen == [each for each in whole if after < cursor_of(each) <= last], "seen, and not so"
        assert {place: runs for place, runs in self.by_key.items() if len(runs) > 1} == {}, "done twice"
