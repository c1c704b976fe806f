"""The calls of a conversation as protocols without sub-agents show them, such as AAP. Pure.

Their clients answer the calls of the last assistant message that have no result. So a call of a sub-agent that waits
for a person stands in for the sub-agent's own call, `Agent`:

    the step calls Agent        its text, but none of its calls
    a call has its result       the call, then its result
    the run stops and waits     the calls that wait, in one message, whichever loop made them
    the next run                their results; `Agent` follows with its own result
    a new message instead       their results; `Agent`, which nobody saw, is left out

Calls are part of the step's message until the first result; after that they are in messages of their own.
"""

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.core.content import Call
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    Event,
    LoggedEvent,
    MessageClosed,
    MessageOpened,
    RunStarted,
    RunStopped,
)
from dragoman.core.ids import ROOT, CallId, MessageId
from dragoman.core.open_calls import OpenCall, OpenCalls
from dragoman.core.tools import FORK

FLAT_EVENTS = frozenset({BlockClosed, MessageClosed, RunStarted, RunStopped, CallOpened, CallSettled, CallParked})
"""The types of events that `FlatCalls` looks at; it gives all others as they are."""


class FlatCalls:
    """Rewrites the events of a log, from the start of any run on. The same events always give the same."""

    __slots__ = ("_end_of_step", "_is_running", "_step", "_unshown", "open_calls")

    def __init__(self) -> None:
        self.open_calls = OpenCalls()
        """The open calls of all loops, shown or not."""
        self._step: list[LoggedEvent] = []
        """The open step of the conversation, from its first call on."""
        self._unshown: dict[CallId, OpenCall] = {}
        """The open calls that were not shown."""
        self._is_running = True
        """Whether the event belongs to a run; what waits is cancelled between two."""
        self._end_of_step: LoggedEvent | None = None
        """The end of a step whose message is kept open for its first calls."""

    def feed(self, logged: LoggedEvent) -> Sequence[LoggedEvent]:
        """The events in place of the next one."""
        event = logged.event
        if type(event) not in FLAT_EVENTS:
            return (logged,)
        if (type(event) is BlockClosed or type(event) is MessageClosed) and not (self._step and event.loop == ROOT):
            return (logged,)
        match event:
            case BlockClosed():
                self._step.append(logged)
                return ()
            case CallOpened() as opened:
                return self._open(opened, logged)
            case MessageClosed():
                return self._close_step(logged)
            case RunStarted():
                self._is_running = True
            case RunStopped(reason=reason):
                self._is_running = False
                if reason == "tool_use":
                    return (*self._show_waiting(logged), logged)
            case CallSettled(result=result) as settled:
                self.open_calls.settle(result.call_id)
                if result.name == FORK and not self._is_running:
                    return ()
                return self._settle(settled, logged)
            case CallParked() as parked:
                self.open_calls.park(parked)
        return (logged,)

    def end(self) -> Sequence[LoggedEvent]:
        """The remaining events at the end of a log that may still grow."""
        return () if self._end_of_step is None else (self._end_of_step,)

    def _open(self, opened: CallOpened, logged: LoggedEvent) -> Sequence[LoggedEvent]:
        added = self.open_calls.open(opened)
        if opened.loop == ROOT:
            self._step.append(logged)
            return ()
        self._unshown[opened.call.call_id] = added
        return (logged,)

    def _close_step(self, logged: LoggedEvent) -> Sequence[LoggedEvent]:
        step, self._step = self._step, []
        opened = [each.event for each in step if isinstance(each.event, CallOpened)]
        if all(each.kind != "fork" for each in opened):
            return (*step, logged)
        own = (self.open_calls.get(each.call.call_id) for each in opened)
        self._unshown |= {each.call.call_id: each for each in own if each is not None}
        self._end_of_step = logged
        return [each for each in step if not isinstance(each.event, CallOpened)]

    def _settle(self, settled: CallSettled, logged: LoggedEvent) -> Sequence[LoggedEvent]:
        result = settled.result
        opened = self._unshown.pop(result.call_id, None)
        if result.loop == ROOT:
            if opened is not None:
                return (*self._show(logged, [opened.call]), logged)
            if result.name == FORK:  # an earlier run called it
                call = Call(result.call_id, FORK, settled.arguments or {})
                return (*self._show(logged, [call]), logged)
            return (logged,)
        if opened is not None or result.name == FORK:
            return ()
        own = msgspec.structs.replace(settled, result=msgspec.structs.replace(result, loop=ROOT))
        return (_at(logged, own),)

    def _show_waiting(self, logged: LoggedEvent) -> Sequence[LoggedEvent]:
        waiting = [call for call in self._unshown.values() if call.is_waiting()]
        for each in waiting:
            del self._unshown[each.call.call_id]
        return self._show(logged, [each.call for each in waiting]) if waiting else self.end()

    def _show(self, logged: LoggedEvent, calls: Sequence[Call]) -> Sequence[LoggedEvent]:
        """Calls in the message that is open, or in one of their own at the time of an event."""
        end, self._end_of_step = self._end_of_step, None
        message_id = MessageId(calls[0].call_id)
        if end is not None and isinstance(end.event, MessageClosed):
            message_id = end.event.message_id
        shown = [
            _at(logged, CallOpened(message_id=message_id, index=index, call=call, kind="inline"))
            for index, call in enumerate(calls)
        ]
        if end is not None:
            return (*shown, end)
        opened, closed = MessageOpened(message_id=message_id), MessageClosed(message_id=message_id)
        return (_at(logged, opened), *shown, _at(logged, closed))


def flatten(events: Iterable[LoggedEvent]) -> list[LoggedEvent]:
    """The events of a history without sub-agents."""
    calls = FlatCalls()
    return [*(shown for logged in events for shown in calls.feed(logged)), *calls.end()]


def _at(logged: LoggedEvent, event: Event) -> LoggedEvent:
    return LoggedEvent(logged.seq, logged.at, logged.run_id, event)
