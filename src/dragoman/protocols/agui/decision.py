"""What a run request with a new run id does to its thread, decided from what is known. Pure: no engine, no storage.

    new input, or asked again?   ── no ───► ShowSnapshot, or Join a run that is active
      │ yes
    run active?                  ── yes ──► Join if it is answering this very message, or if the request only answers
      │ no                                  interrupts again; otherwise StopActiveRun, then decide again
    StartRun, on a new branch or the active one

Clients resend the whole conversation: `core.resent_history` tells which messages are new, and where they branch off.
Source: specification of AG-UI, B.9 to B.11; shared rules, 13, 15, 19 to 21.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from dragoman.core.admission import is_busy
from dragoman.core.branches import BranchPoint
from dragoman.core.inputs import Submit, UserInput
from dragoman.core.resent_history import Placement, SentMessage, StoredHistory, begins_answered, place
from dragoman.core.tools import AgentSpec
from dragoman.protocols.agui.content import UserMessage
from dragoman.protocols.agui.downgrade import text_of
from dragoman.protocols.agui.request_mapping import (
    answers_of,
    is_same_content,
    run_metadata_from,
    tools_of,
    unknown_interrupts,
    user_input,
)
from dragoman.protocols.agui.translate import PROTOCOL
from dragoman.protocols.agui.wire import RunInput


class ShowSnapshot(NamedTuple):
    """Send the thread as it is and run nothing. `unknown_interrupts`: answers to interrupts that are not open."""

    unknown_interrupts: tuple[str, ...] = ()


class Join(msgspec.Struct, frozen=True):
    """Send the thread as it is and continue with the active run, as `connect` does."""


class StopActiveRun(msgspec.Struct, frozen=True):
    """Stop the active run if nobody reads it, then decide again; otherwise the thread is busy."""


class StartRun(NamedTuple):
    """Submit input. `branch`: where it branches off; None: it continues the active branch."""

    submit: Submit
    branch: BranchPoint | None


Decision = ShowSnapshot | Join | StopActiveRun | StartRun


def sent_messages(run: RunInput, spec: AgentSpec) -> list[SentMessage]:
    """The client's history, to be compared with the stored one."""
    return [
        SentMessage(each.id, True, text_of(each.content), partial(is_same_content, each.content, spec=spec))
        if isinstance(each, UserMessage)
        else SentMessage(each.id)
        for each in run.messages
    ]


def decide(run: RunInput, sent: Sequence[SentMessage], history: StoredHistory) -> Decision:
    """Decide what a run request does. `sent` are its messages, as `sent_messages` returns them.

    Raises ResultsMissing or InvalidAnswer, as `answers_of` does.
    """
    state = history.state
    placement = place(sent, history)
    if placement.again is not None and run.resume:
        placement = Placement()  # the request answers interrupts
    messages = {each.id: each for each in run.messages if isinstance(each, UserMessage)}
    inputs = tuple(user_input(messages[each]) for each in placement.new)
    if (again := placement.again) is not None:
        if state.run is not None and history.is_newest(again):
            return Join()
        newest = next(each.id for each in reversed(sent) if each.is_user)
        inputs = (UserInput(content=again.message.content, client_id=newest, name=again.message.name),)
    if is_busy(state):
        if inputs:
            return StopActiveRun()
        if run.resume:  # an answer that is sent twice must not end the run that the first one started
            return Join()
    unknown = unknown_interrupts(run, state)
    answers = answers_of(run, state, has_new_message=bool(inputs))
    if not inputs and not answers:
        return Join() if state.run is not None and run.messages else ShowSnapshot(unknown)
    submit = Submit(
        protocol=PROTOCOL,
        messages=inputs,
        answers=() if placement.branch is not None else answers,
        client_run_id=run.run_id,
        client_tools=tools_of(run.tools),
        metadata=run_metadata_from(
            run,
            unknown,
            resends_history=history.is_complete or (bool(placement.new) and begins_answered(sent)),
            replaces_answer=placement.again is not None and not sent[-1].is_user,
            closed_calls=len(state.calls) if inputs and placement.branch is None else 0,
        ),
    )
    return StartRun(submit, placement.branch)
