"""What protocols with a form of their own for it say of a call that waits. Pure."""

from typing import Literal, TypedDict

from dragoman.core.content import JsonObject
from dragoman.core.open_calls import OpenCall

PendingKind = Literal["question", "approval", "client"]
"""An answer, a decision, or a result of the application's tool."""


class PendingMembers(TypedDict):
    """The members of a protocol's own `PendingCall`. `repeat`: the call may have run already (shared rules, 20)."""

    call_id: str
    kind: PendingKind
    name: str
    input: JsonObject
    repeat: bool


def pending_members(call: OpenCall) -> PendingMembers:
    """The members for a call."""
    asked = call.shown()
    return PendingMembers(
        call_id=asked.call_id,
        kind="approval" if call.waits_for == "permission" else call.waits_for,
        name=asked.name,
        input=asked.input,
        repeat=call.is_repeat,
    )
