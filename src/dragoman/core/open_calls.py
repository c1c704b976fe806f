"""The calls without a result: which of them wait, for whom and for what. Pure."""

from datetime import datetime

import msgspec

from dragoman.core.content import Call, Json, JsonObject, ToolMessage
from dragoman.core.events import CallKind, CallOpened, CallParked, WaitKind
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId
from dragoman.core.tools import ASK_USER_QUESTION, SLEEP


class OpenCall(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call without a result. `granted` is the user's decision, if there is one.

    Of a `recorded` call the agent alone decides what happens: the engine neither runs nor settles it while the run
    lasts. It may be `deniable` while nobody is asked about it. If it `keeps_answer`, an answer does not settle it:
    `answer` holds what is more than a decision. `edited` are the arguments with which it was allowed, if they are
    others.
    """

    call: Call
    kind: CallKind
    message_id: MessageId
    loop: LoopId = ROOT
    server: str | None = None
    started: bool = False
    parked: bool = False
    granted: bool | None = None
    reason: str | None = None
    answered_seq: int = 0
    internal: bool = False
    recorded: bool = False
    deniable: bool = False
    keeps_answer: bool = False
    note: Json = None
    answer: ToolMessage | None = None
    edited: JsonObject | None = None
    approved: bool = False
    """Whether the user has approved the call at some time, whatever it waited for since."""
    attempts: int = 0
    """How often its tool has started since the call was opened, or was answered last."""
    opened_at: datetime | None = None
    """None: an earlier release did not record it."""
    repeat: bool = False
    """See `is_repeat`; an earlier release did not store it for calls that are `parked`."""
    is_of_earlier_run: bool = False
    """Whether it was made by an earlier run than the active one."""

    @classmethod
    def opened_by(cls, opened: CallOpened, at: datetime | None = None) -> "OpenCall":
        """The call that an event opened."""
        return cls(
            call=opened.call,
            kind=opened.kind,
            message_id=opened.message_id,
            loop=opened.loop,
            server=opened.server,
            internal=opened.internal,
            recorded=opened.recorded,
            deniable=opened.deniable,
            opened_at=at,
            repeat=opened.repeat,
        )

    def park(self, parked: CallParked) -> None:
        """Let it wait for the application."""
        self.repeat = parked.is_repeat
        self.is_of_earlier_run |= parked.call is not None
        if parked.kind is None:
            self.parked = True
            return
        self.kind, self.note, self.keeps_answer = parked.kind, parked.note, True
        self.parked = self.started = False
        self.granted = self.reason = self.answer = None

    def is_waiting(self) -> bool:
        """Whether the application has to act on it."""
        return self.parked or (self.kind in ("client", "permission", "question") and self.granted is None)

    @property
    def waits_for(self) -> WaitKind:
        """What it needs while it waits. A call that a crash interrupted needs permission to run again."""
        return self.kind if self.kind in ("client", "question") and not self.parked else "permission"

    @property
    def asks_person(self) -> bool:
        """Whether somebody decides about it, or answers it, before it has a result.

        An answer to `AskUserQuestion` and a result of the application settle the call at once.
        """
        return self.parked or self.kind == "permission" or (self.kind == "question" and self.keeps_answer)

    @property
    def can_be_edited(self) -> bool:
        """Whether the user may allow it with other arguments.

        Not if it is `parked`: the model would not learn that it may have run already. Nor if its agent runs it itself.
        """
        return self.kind == "permission" and not self.parked and not self.keeps_answer

    @property
    def is_repeat(self) -> bool:
        """Whether the user is asked, or was asked last, if it runs again: the server restarted while it ran."""
        return self.parked or self.repeat

    @property
    def unknown_call(self) -> Call | None:
        """The call, if readers of the active run alone do not know it."""
        return self.call if self.is_of_earlier_run else None

    def shown(self) -> Call:
        """The call as the application sees it while it waits."""
        return shown_call(self.call, self.kind, self.note)


class OpenCalls(dict[CallId, OpenCall]):
    """The calls of one run without a result, in the order in which they were made, for readers of the run's events.

    They are as in the session's state while nobody has answered, which another run follows.
    """

    __slots__ = ()

    def open(self, opened: CallOpened) -> OpenCall:
        """Add a call."""
        call = self[opened.call.call_id] = OpenCall.opened_by(opened)
        return call

    def park(self, parked: CallParked) -> None:
        """Let a call wait, which may be an earlier run's: if an earlier release stored it, only its id is known."""
        call = parked.call or Call(parked.call_id, "", {})
        self.setdefault(parked.call_id, OpenCall(call=call, kind="permission", message_id=MessageId(""))).park(parked)

    def settle(self, call_id: CallId) -> None:
        """Remove a call that has its result."""
        self.pop(call_id, None)


def is_sleep(call: OpenCall) -> bool:
    """Whether a call is one of the built-in tool `Sleep`."""
    return call.internal and call.call.name == SLEEP


def shown_call(call: Call, kind: CallKind | None, note: Json) -> Call:
    """A call as the application sees it while it waits: a question in a note replaces the call's own arguments."""
    if kind == "question" and isinstance(note, dict):
        return Call(call_id=call.call_id, name=ASK_USER_QUESTION, input=note)
    return call


def asking_call(opened: CallOpened, parked: CallParked) -> CallOpened:
    """A call that was parked, as if it had been opened as one that waits."""
    return msgspec.structs.replace(
        opened,
        call=shown_call(opened.call, parked.kind, parked.note),
        kind=parked.kind or "permission",
        repeat=parked.is_repeat,
    )
