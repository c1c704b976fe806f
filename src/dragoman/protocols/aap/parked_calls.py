"""The calls of a run that wait for something else than AAP's `tool_call` says. Pure."""

from dragoman.core import content as core
from dragoman.core.events import CallOpened, CallParked
from dragoman.core.ids import CallId
from dragoman.core.open_calls import shown_call
from dragoman.protocols.aap import wire


class ParkedCalls:
    """The tools that ask while they run, and the calls that a crash interrupted."""

    __slots__ = ("_earlier", "_opened", "_parked")

    def __init__(self) -> None:
        self._opened: dict[CallId, core.Call] = {}
        self._earlier: dict[CallId, core.Call] = {}
        self._parked: list[CallParked] = []

    def open(self, opened: CallOpened) -> None:
        """Note a call."""
        self._opened[opened.call.call_id] = opened.call
        if opened.repeat:
            self._parked.append(CallParked(call_id=opened.call.call_id))

    def park(self, parked: CallParked) -> None:
        """Let a call wait."""
        if parked.kind in ("question", "client") or parked.is_repeat:
            self._parked.append(parked)
        if parked.call is not None:
            self._earlier[parked.call_id] = self._opened[parked.call_id] = parked.call

    def settle(self, call_id: CallId) -> None:
        """Note the result of a call."""
        self._parked = [each for each in self._parked if each.call_id != call_id]
        self._earlier.pop(call_id, None)

    def of_earlier_runs(self) -> tuple[core.Call, ...]:
        """Those that an earlier run made. Clients answer the calls that the run shows."""
        return tuple(self._earlier.values())

    def pending(self) -> tuple[wire.PendingCall, ...]:
        """What they wait for. The name of a call that an earlier release let wait again is not known here."""
        asked = (
            (
                each,
                shown_call(self._opened.get(each.call_id, core.Call(each.call_id, "", {})), each.kind, each.note),
            )
            for each in self._parked
        )
        return tuple(
            wire.PendingCall(
                tool_call_id=call.call_id,
                name=call.name,
                input=call.input,
                kind=each.kind or "permission",
                repeat=each.is_repeat,
            )
            for each, call in asked
        )
