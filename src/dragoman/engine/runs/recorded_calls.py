"""Calls that an agent runs itself: the engine keeps their state in the log, and neither runs nor settles them.

    new ──start──► started ──done──► settled
     │                │
     └──────wait──────┴──► waiting ──(the application answers)──► answered ──start or done──► …

A call that was started before a crash is still `started` when the agent continues, so that the agent decides what
becomes of it. A call in an older step does not keep the agent from beginning a new one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from dragoman.core.agent import Needs, RecordedState
from dragoman.core.answers import answer_text, settle_cancelled, settle_with_value
from dragoman.core.content import Call, Json, ToolMessage, text_of
from dragoman.core.events import AnswerGiven, CallOutcome, CallParked, CallSettled, CallStarted, Event, WaitKind
from dragoman.core.headless import cannot_ask, refusal_without_user
from dragoman.core.ids import CallId, LoopId
from dragoman.core.inputs import Decision
from dragoman.core.open_calls import OpenCall
from dragoman.core.run_metadata import RunMetadata
from dragoman.engine.instrumentation.metrics import TOOL_CALLS
from dragoman.engine.sessions.kept_values import KeptValues
from dragoman.engine.sessions.live_session import LiveSession

ENDED_RESULT = "Tool call cancelled: the run ended"


class RecordingLoop(Protocol):
    """The loop whose agent records calls."""

    live: LiveSession
    loop: LoopId
    metadata: RunMetadata
    answers: Mapping[CallId, ToolMessage]
    """The answers that open calls of the loop have, as they were sent."""
    suspended: set[CallId]
    """The started calls that run again when another call has its answer."""
    kept_values: KeptValues

    def append(self, events: Sequence[Event], *, urgent: bool = True) -> int:
        """Add events of this run to the log. Raises CancelledError if the run is over."""


class RecordedCall:
    """`core.agent.Recorded` of one call."""

    def __init__(
        self,
        run: RecordingLoop,
        call: Call,
        needs: Needs,
        trusted: bool,
        new_id: Callable[[], str],
        wait_for_valid_lease: Callable[[], Awaitable[None]],
    ) -> None:
        self.call = call
        self.needs = needs
        self.trusted = trusted
        self._run = run
        self._new_id = new_id
        self._wait_for_valid_lease = wait_for_valid_lease

    @property
    def state(self) -> RecordedState:
        """What has happened to the call."""
        opened = self._run.live.state.calls.get(self.call.call_id)
        if opened is None:
            return "new"
        if opened.is_waiting():
            return "waiting"
        return "started" if opened.started else "new" if opened.granted is None else "answered"

    @property
    def may_ask_again(self) -> bool:
        """Whether the user can be asked if the call, which a crash interrupted, runs again."""
        return not self._opened().approved

    @property
    def answer(self) -> ToolMessage | Decision | None:
        """The application's newest answer."""
        opened = self._run.live.state.calls.get(self.call.call_id)
        if opened is None or opened.granted is None:
            return None
        result = self._run.answers.get(self.call.call_id)
        return result or Decision(call_id=self.call.call_id, granted=opened.granted, reason=opened.reason)

    async def start(self) -> None:
        """Mark the call as started; the mark is durable when this returns."""
        await self._wait_for_valid_lease()
        opened = self._opened()
        seq = self._run.append((CallStarted(call_id=self.call.call_id, internal=opened.internal),))
        await self._run.live.until_durable(seq)

    async def done(
        self, result: Json, *, outcome: CallOutcome = "done", private: Json = None, durable: bool = True
    ) -> None:
        """Settle the call; its result is durable when this returns, unless `durable` is false."""
        opened = self._opened()
        stored = await self._run.kept_values.store_private(private)
        seq = self._run.append((self._settled(opened, result, outcome, stored),), urgent=durable)
        TOOL_CALLS.labels(outcome=outcome).inc()
        if durable:
            await self._run.live.until_durable(seq)

    def wait(self, kind: WaitKind, *, note: Json = None, repeat: bool = False) -> None:
        """Let the call wait for the application. Where nobody can be asked, it is denied instead."""
        call_id, unknown = self.call.call_id, self._opened().unknown_call
        events: list[Event] = [CallParked(call_id=call_id, kind=kind, note=note, repeat=repeat, call=unknown)]
        if kind != "client" and cannot_ask(self._run.metadata, kind):
            reason = refusal_without_user(kind)
            events.append(AnswerGiven(call_id=call_id, granted=False, by="", reason=reason))
        self._run.append(events)

    def suspend(self) -> None:
        """Leave the call open when the agent returns while another call waits."""
        self._run.suspended.add(self.call.call_id)

    def _opened(self) -> OpenCall:
        opened = self._run.live.state.calls.get(self.call.call_id)
        if opened is None:
            raise RuntimeError(f"call {self.call.call_id} is not in the log yet, or has its result already")
        return opened

    def _settled(
        self, opened: OpenCall, result: Json, outcome: CallOutcome, private: Json | msgspec.UnsetType
    ) -> CallSettled:
        """The call's result, marked as known to the application if it equals the application's own answer."""
        event = settle_with_value(opened, outcome, result, self._new_id, private=private)
        answer = self._run.answers.get(self.call.call_id)
        if answer is None or opened.kind not in ("client", "question"):
            return event
        is_known = answer.content == event.result.content or answer_text(answer) == text_of(event.result.content)
        return msgspec.structs.replace(event, by_client=True) if is_known else event


def has_waiting(run: RecordingLoop) -> bool:
    """Whether a recorded call of the loop waits for the application."""
    return any(call.recorded and call.is_waiting() for call in run.live.state.calls_in_loop(run.loop))


def unread_denials(run: RecordingLoop) -> set[tuple[CallId, int]]:
    """The calls that were denied while the agent ran, because nobody can be asked, so that it has to continue.

    Each with the event that denied it. Empty while another call waits for the application.
    """
    if not cannot_ask(run.metadata, "permission") or has_waiting(run):
        return set()
    return {
        (call.call.call_id, call.answered_seq)
        for call in run.live.state.calls_in_loop(run.loop)
        if call.recorded and call.keeps_answer and call.granted is False
    }


def settle_unfinished(run: RecordingLoop, new_id: Callable[[], str]) -> None:
    """Settle the recorded calls that the agent left open when it returned.

    While one of them waits for the application, those that were not started stay open too: they may begin afterwards.
    So do those that are suspended.
    """
    calls = [call for call in run.live.state.calls_in_loop(run.loop) if call.recorded and not call.is_waiting()]
    if has_waiting(run):
        unfinished = [call for call in calls if call.started and call.call.call_id not in run.suspended]
    else:
        unfinished = calls
    if unfinished:
        run.append([settle_cancelled(call, ENDED_RESULT, new_id) for call in unfinished])
