"""Writes the events of a remote turn into the log, as one played run.

A turn that is read again, after a crash of this server, repeats its events from the start: those that the log has are
skipped, by their number of characters and by the ids of calls. So no text is lost or doubled.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing

import msgspec

from dragoman.client import events as remote
from dragoman.client.pending import question_arguments
from dragoman.core.agent import Recorded, Run
from dragoman.core.answers import denied_result
from dragoman.core.content import Data, Image, Json, JsonObject, Usage
from dragoman.core.events import PlanStep, PlanUpdated, WaitKind
from dragoman.core.ids import CallId
from dragoman.core.inputs import Decision
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.gateway.conversion import to_result
from dragoman.gateway.remote_session import Link, Position

CALL_WINDOW_S = 0.05
"""How long a step stays open after a call, for further calls of the same step."""
UNSEEN_RESULT = "The remote agent does not show the result of this call."
UNFINISHED: frozenset[str] = frozenset({"error", "cancelled", "interrupted"})
"""Reasons for which a remote turn ends in the middle of a step."""
_WAIT_KINDS: Mapping[type, WaitKind] = {
    remote.Permission: "permission",
    remote.Question: "question",
    remote.ClientCall: "client",
}


class RemoteRun:
    """One remote turn on its way into the log.

    Args:
        run: our run.
        link: the remote session; its `steps` and `waiting` are updated.
        origins: the remote ids of the calls that the log has of the turn.
        position: what the log has of the turn.
    """

    def __init__(self, run: Run, link: Link, origins: Iterable[str], position: Position) -> None:
        self._run = run
        self._link = link
        self._known = set(origins)
        self._unsettled: dict[str, Recorded] = {each.call.origin or each.call.call_id: each for each in run.recorded()}
        """The calls without a result, by their remote ids."""
        self._new_calls: list[Recorded] = []
        """The calls of the open step."""
        self._left_open = frozenset(each.call.call_id for each in self._unsettled.values())
        """The calls that earlier turns left open."""
        self._newest_calls: frozenset[CallId] = frozenset()
        """Those of the newest step with calls."""
        self._position = Position()
        self._skip = position.copy()
        """What of the following events is in the log already."""
        self._is_open = False
        """Whether a message of ours is open."""
        self._spoken: list[str] = []
        self._thought: list[str] = []
        """What the open message says."""
        self._restarted: remote.Restarted | None = None
        self.allowed: tuple[remote.Allow, ...] = ()
        """Answers to everything that the remote server waits for at the end, because the session trusts the tools."""
        self.has_events = False
        """Whether the remote server has sent anything."""

    async def follow(self, events: AsyncGenerator[remote.Event, None]) -> remote.Ended:
        """Read a turn to its end. The hot path: every delta comes through here."""
        run = self._run
        async with aclosing(events):
            while True:
                event = await (self._next_soon(events) if self._new_calls else anext(events))
                if type(event) is remote.Text and not (event.loop or self._new_calls or self._restarted):
                    if self._say(event.text):
                        await run.drain()
                elif isinstance(event, remote.Ended):
                    self.has_events = True
                    await self._end(event)
                    return event
                elif not isinstance(event, remote.Notice) or event.kind != "reconnecting":
                    self.has_events = True
                    if not getattr(event, "loop", ""):  # what a remote sub-agent does is its call's work
                        await self._take(event)

    async def _next_soon(self, events: AsyncGenerator[remote.Event, None]) -> remote.Event:
        """The next event. If it does not follow at once, the step with its calls ends first, so that they are seen."""
        task = asyncio.ensure_future(anext(events))
        try:
            done, _ = await asyncio.wait((task,), timeout=CALL_WINDOW_S)
            if not done:
                for call in await self.end_step():
                    if call.call.name != ASK_USER_QUESTION and call.call.name not in self._client_tools():
                        await call.start()
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    async def _take(self, event: remote.Event) -> None:
        """Take any event but the end."""
        if isinstance(event, remote.Restarted):
            self._restarted = event
            return
        if isinstance(event, remote.Notice):
            self._take_notice(event)
            return
        if self._restarted is not None:
            self._repeat_step(self._restarted)
        match event:
            case remote.ToolCall(id=call_id, name=name, arguments=arguments):
                self._record(call_id, name, arguments)
            case remote.Question(call_id=call_id, questions=questions):
                self._record(call_id, ASK_USER_QUESTION, question_arguments(questions))
            case remote.Text() | remote.Thinking() | remote.Image() | remote.ToolResult():
                if self._new_calls:
                    await self.end_step()
                await self._take_content(event)

    async def _take_content(self, event: remote.Text | remote.Thinking | remote.Image | remote.ToolResult) -> None:
        match event:
            case remote.Text(text=text):
                if self._say(text):
                    await self._run.drain()
            case remote.Thinking(text=text):
                if self._think(text):
                    await self._run.drain()
            case remote.Image(url=url):
                if self._begin_block():
                    self._run.add(Image(url))
            case remote.ToolResult():
                await self._settle(event)

    # --- text -----------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> bool:
        self.has_events = True
        position = self._position
        start = position.text
        position.text += len(text)
        if start < self._skip.text:
            text = text[self._skip.text - start :]
            if not text:
                return False
        self._is_open = True
        self._spoken.append(text)
        return self._run.emit(text)

    def _think(self, text: str) -> bool:
        start = self._position.thinking
        self._position.thinking += len(text)
        text = text[max(0, self._skip.thinking - start) :]
        if not text:
            return False
        self._is_open = True
        self._thought.append(text)
        return self._run.think(text)

    def _begin_block(self) -> bool:
        """Count something beside the text that belongs to the message. Returns whether the log does not have it."""
        self._position.blocks += 1
        if self._position.blocks <= self._skip.blocks:
            return False
        self._is_open = True
        return True

    def _repeat_step(self, restarted: remote.Restarted) -> None:
        """The remote server repeats its step after a crash: close ours as cut, and say again what is not repeated."""
        self._restarted = None
        kept = "".join(self._spoken).removesuffix(restarted.text)
        thought = "".join(self._thought).removesuffix(restarted.thinking)
        for call in self._new_calls:
            origin = call.call.origin or ""
            self._known.discard(origin)
            self._unsettled.pop(origin, None)
        self._new_calls = []
        self._run.repeat_step()
        self._is_open = bool(kept or thought)
        self._spoken, self._thought = [], []
        if thought:
            self._thought.append(thought)
            self._run.think(thought)
        if kept:
            self._spoken.append(kept)
            self._run.emit(kept)

    # --- calls ----------------------------------------------------------------------------------------------------

    def _record(self, call_id: str, name: str, arguments: JsonObject) -> None:
        if call_id in self._known:
            return
        self._known.add(call_id)
        self._is_open = True
        self._unsettled[call_id] = recorded = self._run.record(name, arguments, origin=call_id)
        self._new_calls.append(recorded)

    async def _settle(self, result: remote.ToolResult) -> None:
        if result.call_id not in self._known:  # a server that announces no calls
            self._record(result.call_id, result.name or "tool", {})
            await self.end_step()
        recorded = self._unsettled.pop(result.call_id, None)
        if recorded is not None:
            is_denied = isinstance(recorded.answer, Decision) and not recorded.answer.granted
            await recorded.done(to_result(result), outcome="denied" if is_denied else "done")

    async def end_step(self, usage: Usage | None = None) -> list[Recorded]:
        """End the open step, if there is one. Returns its calls."""
        calls, self._new_calls = self._new_calls, []
        if calls:
            self._newest_calls = frozenset(each.call.call_id for each in calls)
        if self._is_open:
            self._is_open = False
            self._spoken, self._thought = [], []
            self._link.steps += 1
            await self._run.end_step(usage=usage, private=self._link.mark(self._position))
        return calls

    def _client_tools(self) -> set[str]:
        return {tool.name for tool in self._link.handle.tools}

    # --- what is not the answer -----------------------------------------------------------------------------------

    def _take_notice(self, notice: remote.Notice) -> None:
        content = notice.content
        match notice.kind:
            case "plan":
                if (plan := _to_plan(content)) is not None:
                    self._run.plan(plan)
            case "state" | "state_delta":
                self._run.share(self._link.handle.state)
            case "step_started" if isinstance(content, str):
                self._run.stage(content)
            case "step_finished":
                self._run.stage(None)
            case "dragoman.block" if isinstance(content, dict) and isinstance(content.get("data"), dict):
                if self._begin_block():
                    self._run.add(Data(content["data"]))
            case "dragoman.ui_schema":
                if self._begin_block():
                    self._run.card(content)

    # --- the end --------------------------------------------------------------------------------------------------

    async def _end(self, ended: remote.Ended) -> None:
        used = ended.usage
        usage = None if used is None else Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens)
        if ended.reason in UNFINISHED and not self._new_calls:
            return  # the engine closes the step as what it is
        asked: list[tuple[remote.Pending, Recorded]] = []
        for pending in ended.pending:
            recorded = self._call_of(pending, {each.call.call_id for _, each in asked})
            if recorded is None:
                name = ASK_USER_QUESTION if isinstance(pending, remote.Question) else pending.name
                self._record(pending.call_id, name, _arguments_of(pending))
                recorded = self._unsettled[pending.call_id]
            asked.append((pending, recorded))
        await self.end_step(usage)
        self._link.waiting = {}
        if asked and all(_is_allowed(pending, recorded) for pending, recorded in asked):
            self.allowed = tuple(remote.Allow(call_id=each.call_id) for each, _ in asked)
            return
        for pending, recorded in asked:
            self._link.waiting[recorded.call.call_id] = pending.call_id
            if recorded.state != "waiting":
                is_question = isinstance(pending, remote.Question)
                note = _arguments_of(pending) if is_question else None
                recorded.wait(_WAIT_KINDS[type(pending)], note=note, repeat=_is_repeat(pending))
        for recorded in self._unsettled.values():
            call_id = recorded.call.call_id
            if call_id in self._link.waiting:
                continue
            if asked and call_id in self._newest_calls | self._left_open:
                recorded.suspend()  # the remote agent may run it after the answers
            else:
                await self._settle_unanswered(recorded)

    def _call_of(self, pending: remote.Pending, taken: Collection[str]) -> Recorded | None:
        """The call that a request belongs to. Its id may be another one, of the request itself."""
        if pending.call_id in self._unsettled:
            return self._unsettled[pending.call_id]
        calls = [each for each in self._unsettled.values() if each.call.call_id not in taken]
        if isinstance(pending, remote.Question):
            return calls[0] if len(calls) == 1 else None  # asked from inside that call
        same = (pending.name, pending.arguments)
        return next((each for each in calls if (each.call.name, each.call.input) == same), None)

    async def _settle_unanswered(self, recorded: Recorded) -> None:
        """Settle a call of which the remote server says nothing more."""
        answer = recorded.answer
        if isinstance(answer, Decision) and not answer.granted:
            await recorded.done(denied_result(answer.reason), outcome="denied")
        else:
            await recorded.done(UNSEEN_RESULT)


def _is_repeat(pending: remote.Pending) -> bool:
    return isinstance(pending, remote.Permission) and pending.is_repeat


def _is_allowed(pending: remote.Pending, recorded: Recorded) -> bool:
    """Whether the session allows a call without asking. A repeat is always asked about."""
    return isinstance(pending, remote.Permission) and recorded.trusted and not pending.is_repeat


def _arguments_of(pending: remote.Pending) -> JsonObject:
    return question_arguments(pending.questions) if isinstance(pending, remote.Question) else pending.arguments


def _to_plan(content: Json) -> PlanUpdated | None:
    """A plan in the form that our servers send; None if it has another one."""
    try:
        steps = msgspec.convert(content["steps"], tuple[PlanStep, ...])
        return PlanUpdated(status=content["status"], steps=steps)
    except (msgspec.ValidationError, KeyError, TypeError):
        return None
