"""A client that uses one session at a time and continues whatever happens to the server.

It behaves like a careful application: it keeps its cursor, resumes after a break, and checks the outcome of a request
before it repeats it. What it learns is recorded; a broken promise that it notices at once is raised.
"""

import random
from contextlib import nullcontext
from typing import Any

from tests.crash import turn_plans
from tests.crash.client import Answer, ConnectionBroken, Exchange, open_request, send_request
from tests.crash.client_records import Message, RunRecord, SessionRecord, TurnRecord, Violation
from tests.crash.server_availability import ServerAvailability
from tests.crash.stream_watcher import watch
from tests.crash.turn_plans import CLIENT_TOOL, PlannedCall, TurnPlan
from tests.protocols.aap.official_client import OfficialClient
from tests.protocols.aap.stream import STREAMS, Call, Frame, Mode

Json = Any
MODES: tuple[Mode, ...] = ("delta", "delta", "message", "none")
TRUSTED = ("add", "lookup", "boom")
TURNS = (2, 6)
"""The least and the greatest number of turns of a session."""


class Actor:
    """A client and its sessions."""

    def __init__(self, name: str, rng: random.Random, availability: ServerAvailability) -> None:
        self.name = name
        self.sessions: list[SessionRecord] = []
        self._rng = rng
        self._availability = availability
        self._count = 0

    async def run(self) -> None:
        """Run turns until the campaign is closing, then finish the current turn."""
        while not self._availability.is_closing():
            session = await self._create()
            async with watch(session, self._rng, self._availability) if self._rng.random() < 0.4 else nullcontext():
                for _ in range(self._rng.randint(*TURNS)):
                    if self._availability.is_closing():
                        break
                    await self._turn(session)
                if self._rng.random() < 0.25:
                    await self.delete(session)

    # --- sessions -------------------------------------------------------------------------------------------------

    async def _create(self) -> SessionRecord:
        tag = self._unique_tag("s")
        options = {"greeting": tag}
        if self._rng.random() < 0.5:
            options["token"] = f"secret of {tag}"
        tools = [{"name": name, "trust": True} for name in TRUSTED]
        tools += [{"name": "slow", "trust": self._rng.random() < 0.7}, {"name": "stamp", "trust": False}]
        config: Json = {
            "agent": {"name": "rehearsal", "tools": tools, "options": options},
            "tools": [{"name": CLIENT_TOOL, "description": "", "parameters": {"type": "object"}}],
        }
        if self._rng.random() < 0.3:
            config["messages"] = [{"role": "system", "content": f"seed of {tag}"}]
        session = SessionRecord(tag, config, options=dict(options), client=OfficialClient(config.get("messages", ())))
        key = f"create {tag}" if self._rng.random() < 0.5 else None
        was_sent = False
        while not session.session_id:
            try:
                async with self._availability.open() as port:
                    if was_sent and key is None:
                        session.session_id = await self._find(port, tag) or ""
                    if not session.session_id:
                        was_sent = True
                        headers = {} if key is None else {"idempotency-key": key}
                        answer = self._raise_if_stopping(await send_request(port, "POST", "/sessions", config, headers))
                        session.session_id = expect(answer, 201).json["sessionId"]
            except ConnectionBroken:
                continue
        self.sessions.append(session)
        return session

    async def _find(self, port: int, tag: str) -> str | None:
        """Find the session with a tag among the latest ones."""
        page = expect(self._raise_if_stopping(await send_request(port, "GET", "/sessions?limit=200")), 200).json
        ids = [each["sessionId"] for each in page["sessions"] if each["agent"]["options"].get("greeting") == tag]
        if len(ids) > 1:
            raise Violation(f"one request created {len(ids)} sessions: {ids}")
        return ids[0] if ids else None

    async def delete(self, session: SessionRecord) -> None:
        """Delete a session, sometimes during a turn."""
        if self._rng.random() < 0.5:
            text = turn_plans.text_turn(self._rng, self._unique_tag("d"), frozenset()).text
            body = {"messages": [user(text)], "stream": "delta"}
            try:
                async with (
                    self._availability.open() as port,
                    open_request(port, "POST", turns_of(session), body) as exchange,
                ):
                    async for _ in exchange.chunks():
                        break
            except ConnectionBroken:
                pass  # it does not matter whether the turn was accepted, because the session is deleted
        session.is_deleting = True
        while not session.is_deleted:
            try:
                async with self._availability.open() as port:
                    answer = self._raise_if_stopping(await send_request(port, "DELETE", path_of(session)))
                    expect(answer, 204, 404)
                    session.is_deleted = True
            except ConnectionBroken:
                continue

    # --- turns ----------------------------------------------------------------------------------------------------

    async def _turn(self, session: SessionRecord) -> None:
        if self._rng.random() < 0.1:
            await self._send_invalid_request(session)
        untrusted = frozenset(tool["name"] for tool in session.config["agent"]["tools"] if not tool["trust"])
        plan = turn_plans.any_plan(self._rng, self._unique_tag("t"), untrusted)
        await self.play(session, plan)

    async def play(self, session: SessionRecord, plan: TurnPlan) -> None:
        """Run one turn to its end, including its pauses."""
        waiting = [each.id for each in session.client.pending()]
        if waiting:  # their turn was given up, or is superseded now
            session.turns[-1].is_superseded = True
            session.client.send(*(result(call_id, turn_plans.CANCELLED) for call_id in waiting))
        turn = TurnRecord(plan)
        session.turns.append(turn)
        fields: Json = {}
        if self._rng.random() < 0.2:
            fields["agent"] = {"options": {"style": self._rng.choice(["plain", "loud"]), "language": plan.text[-40:]}}
        run = await self._run(session, turn, [user(plan.text)], fields)
        await self._check_pending(session)
        while run.stop == "tool_use":
            if not self._availability.is_closing() and self._rng.random() < 0.1:
                await self._turn(session)
                return
            run = await self._run(session, turn, self._answers(session, turn), {})
            await self._check_pending(session)

    async def _run(self, session: SessionRecord, turn: TurnRecord, sent: list[Message], fields: Json) -> RunRecord:
        """Send one request of a turn and continue until its outcome is known."""
        key = self._unique_tag("k") if self._rng.random() < 0.5 else None
        run = RunRecord(sent, self._rng.choice(MODES), key)
        known = session.run_ids
        turn.runs.append(run)
        attempts = 0
        while not run.is_over:
            try:
                async with self._availability.open() as port:
                    checks_first = attempts and (run.key is None or self._rng.random() < 0.3)
                    if run.run_id is not None or (checks_first and await self._was_accepted(port, session, run, known)):
                        await self._resume(port, session, run)
                    else:
                        attempts += 1
                        await self._post_turn(port, session, run, fields)
            except ConnectionBroken:
                run.deaths += 1
        for name, value in fields.get("agent", {}).get("options", {}).items():
            session.options[name] = value
        session.client.send(*sent)
        if run.answer is not None:
            session.client.receive_answer(run.answer["messages"])
        else:
            session.client.receive(run.frames)
        if any(message["role"] != "user" for message in sent) and self._rng.random() < 0.3:
            await self._answer_again(session, run)
        return run

    async def _post_turn(self, port: int, session: SessionRecord, run: RunRecord, fields: Json) -> None:
        body = {"messages": run.sent, "stream": run.mode, **fields}
        headers = {} if run.key is None else {"idempotency-key": run.key}
        async with open_request(port, "POST", turns_of(session), body, headers) as exchange:
            if run.mode != "none" and exchange.status == 200:
                await self._read(exchange, run, run.mode)
                return
            answer = expect(self._raise_if_stopping(await exchange.read_to_end()), 200)
            run.answer = answer.json
            run.run_id = run.answer["_meta"]["turnId"]

    async def _was_accepted(self, port: int, session: SessionRecord, run: RunRecord, known: set[str]) -> bool:
        """Whether a request whose answer was lost was accepted: then its turn is the session's latest."""
        async with open_request(port, "GET", events_of(session), headers={"last-event-id": "0"}) as exchange:
            if exchange.status != 200:
                answer = self._raise_if_stopping(await exchange.read_to_end())
                if answer.code == "invalid_cursor" and not known:
                    return False
                raise Violation(f"turns {known} are known, and the session has none: {answer}")
            async for frame in exchange.frames():
                newest = str(frame.data["_meta"]["turnId"])
                if newest in known:
                    return False
                run.run_id = newest
                return True
        raise Violation("the newest turn has no first event")

    async def _resume(self, port: int, session: SessionRecord, run: RunRecord) -> None:
        """Resume after the last event received, in one of the possible ways."""
        mode = run.stream_mode or run.mode
        if mode == "none":
            mode = self._rng.choice(STREAMS)
        query = [f"stream={mode}"] if run.mode != mode or self._rng.random() < 0.5 else []
        query += [f"turn={run.run_id}"] if self._rng.random() < 0.5 else []
        headers = {"last-event-id": str(len(run.frames))}
        path = events_of(session) + ("?" + "&".join(query) if query else "")
        async with open_request(port, "GET", path, headers=headers) as exchange:
            if exchange.status != 200:
                answer = self._raise_if_stopping(await exchange.read_to_end())
                raise Violation(f"{len(run.frames)} events of turn {run.run_id} were seen: {answer}")
            await self._read(exchange, run, mode)

    async def _read(self, exchange: Exchange, run: RunRecord, mode: Mode) -> None:
        """Read a stream to its end, or leave it at some point."""
        run.stream_mode = mode
        leave_after = self._rng.randint(0, 20) if self._rng.random() < 0.2 else None
        read = 0
        async for frame in exchange.frames():
            record_frame(run, frame)
            read += 1
            if read == leave_after:
                return
        if not run.is_over:
            self._availability.check_draining(f"the stream of turn {run.run_id} broke off without a turn_stop")
            raise ConnectionBroken("the server stops")

    # --- answers --------------------------------------------------------------------------------------------------

    def _answers(self, session: SessionRecord, turn: TurnRecord) -> list[Message]:
        """Answer every waiting call."""
        answers = []
        for call in session.client.pending():
            planned = self.planned(turn.plan, call)
            answers.append(self._answer(turn, call, planned))
        return answers

    def planned(self, plan: TurnPlan, call: Call) -> PlannedCall:
        """Find the planned call. No step has two calls that look the same."""
        matches = [
            each
            for step in plan.steps
            for shown in step.calls
            for each in ([shown] if shown.asks is None else [shown.asks])
            if each.name == call.name and each.arguments == call.input
        ]
        if len(matches) != 1:
            raise Violation(f"a call that was not planned: {call}")
        return matches[0]

    def _answer(self, turn: TurnRecord, call: Call, planned: PlannedCall) -> Message:
        way = self._rng.random()
        text = f"answer to {call.id[-6:]}"
        if planned.decided_by == "permission" and way < 0.7:
            return {"role": "tool_permission", "toolCallId": call.id, "granted": True}
        if planned.decided_by == "permission" or (planned.decided_by != "question" and way < 0.85):
            turn.decisions[call.id] = f"Tool call denied: {text}"
            return {"role": "tool_permission", "toolCallId": call.id, "granted": False, "reason": text}
        if planned.decided_by in ("server", "fork"):
            raise Violation(f"the server waits for an answer to a call of its own: {call}")
        turn.decisions[call.id] = text
        return result(call.id, text)

    async def _check_pending(self, session: SessionRecord) -> None:
        """Check that the server waits for exactly the calls without a result in the client's history (AAP, 7.5)."""
        if self._rng.random() < 0.5:
            return
        try:
            async with self._availability.open() as port:
                info = expect(self._raise_if_stopping(await send_request(port, "GET", path_of(session))), 200).json
        except ConnectionBroken:
            return
        expected = [call.id for call in session.client.pending()]
        pending = [call["toolCallId"] for call in info["_meta"].get("pending", [])]
        status = "waiting" if expected else "idle"
        if (pending, info["_meta"]["status"]) != (expected, status):
            raise Violation(f"{status} for {expected} was expected, got {info}")

    async def _answer_again(self, session: SessionRecord, run: RunRecord) -> None:
        """Check that answers are accepted only once."""
        body = {"messages": [each for each in run.sent if each["role"] != "user"]}
        try:
            async with self._availability.open() as port:
                answer = self._raise_if_stopping(await send_request(port, "POST", turns_of(session), body))
        except ConnectionBroken:
            return
        if answer.code != "tool_call_resolved":
            raise Violation(f"answers were taken twice: {answer} (session {session.session_id})")

    async def _send_invalid_request(self, session: SessionRecord) -> None:
        """Send a request that must be refused and leave nothing behind."""
        mark = self._unique_tag("r")
        body = {"messages": [result(mark, mark)], "agent": {"options": {"language": mark}}}
        try:
            async with self._availability.open() as port:
                answer = self._raise_if_stopping(await send_request(port, "POST", turns_of(session), body))
        except ConnectionBroken:
            return
        if answer.code != "unknown_tool_call":
            raise Violation(f"an answer to nothing got {answer}")
        session.refused_texts.append(mark)

    # --- small things ---------------------------------------------------------------------------------------------

    def _unique_tag(self, kind: str) -> str:
        """Return a text that occurs nowhere else."""
        self._count += 1
        return f"{kind}-{self.name}-{self._count}"

    def _raise_if_stopping(self, answer: Answer) -> Answer:
        """Return the answer, unless the server refuses all requests because it is stopping."""
        if answer.status == 503:
            self._availability.check_draining(f"the server refuses work: {answer}")
            raise ConnectionBroken("the server stops")
        return answer


def record_frame(run: RunRecord, frame: Frame) -> None:
    """Record an event of a run. It must be the next one."""
    if frame.id != str(len(run.frames) + 1):
        raise Violation(f"event {len(run.frames) + 1} of turn {run.run_id} was expected, got {frame.id}")
    if not run.frames:
        if frame.event != "turn_start":
            raise Violation(f"a turn begins with {frame}")
        started = str(frame.data["_meta"]["turnId"])
        if run.run_id not in (None, started):
            raise Violation(f"events of turn {run.run_id} were asked for, got those of {started}")
        run.run_id = started
    if run.frames and run.frames[-1].event == "turn_stop":
        raise Violation(f"turn {run.run_id} goes on after its end: {frame}")
    run.frames.append(frame)


def expect(answer: Answer, *statuses: int) -> Answer:
    """Return the answer if it has one of these statuses."""
    if answer.status not in statuses:
        raise Violation(f"status {' or '.join(map(str, statuses))} was expected, got {answer}")
    return answer


def path_of(session: SessionRecord) -> str:
    return f"/sessions/{session.session_id}"


def turns_of(session: SessionRecord) -> str:
    return f"{path_of(session)}/turns"


def events_of(session: SessionRecord) -> str:
    return f"{path_of(session)}/events"


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> Message:
    return {"role": "tool", "toolCallId": call_id, "content": text}
