"""What a turn did and when, from its events."""

from datetime import datetime, timedelta

from dragoman.core.admission import CANCELLED_BY_NEW_MESSAGE
from dragoman.core.content import AssistantMessage, Call, Text, ToolMessage, Usage, UserMessage
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    Branched,
    CallOpened,
    CallSettled,
    CallStarted,
    CompactionMade,
    Event,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    RunResumed,
    RunStarted,
    RunStopped,
)
from dragoman.core.ids import ROOT, CallId, MessageId, RunId, fork_loop
from dragoman.core.internal_calls import visible_events
from dragoman.core.timeline import CallSpan, RunSpan, StepSpan, Timeline, WaitSpan, input_of_step, timeline_of
from tests.core.strategies import NOON

FIRST, SECOND = RunId("r1"), RunId("r2")
STEP, LAST_STEP, HIDDEN_STEP = MessageId("m1"), MessageId("m2"), MessageId("m3")


def log_of(*events: Event) -> list[LoggedEvent]:
    """A log with a second between its events."""
    return [LoggedEvent(seq, NOON + timedelta(seconds=seq), None, event) for seq, event in enumerate(events, 1)]


def second(number: int) -> datetime:
    return NOON + timedelta(seconds=number)


def call(name: str) -> Call:
    return Call(CallId(f"c-{name}"), name, {"a": 1})


def result(name: str, content: str) -> ToolMessage:
    return ToolMessage(
        id=MessageId(f"t-{name}"), call_id=CallId(f"c-{name}"), name=name, content=content, private="of the agent"
    )


def asked(text: str) -> MessageAdded:
    return MessageAdded(message=UserMessage(id=MessageId(f"u-{text}"), content=text))


def answered(message_id: str, text: str) -> list[Event]:
    message = MessageId(message_id)
    return [
        MessageOpened(message_id=message),
        BlockClosed(message_id=message, index=0, block=Text(text)),
        MessageClosed(message_id=message),
    ]


def test_a_timeline_has_the_runs_of_a_turn_its_steps_calls_and_waits_and_nothing_internal() -> None:
    events = log_of(
        RunStarted(run_id=FIRST, protocol="blade"),
        MessageOpened(message_id=STEP),
        BlockClosed(message_id=STEP, index=0, block=Text("I look.")),
        CallOpened(message_id=STEP, index=1, call=call("stamp"), kind="permission"),
        MessageClosed(message_id=STEP, model="m", usage=Usage(3, 4), private="of the agent", provider_data={"a": 1}),
        RunStopped(run_id=FIRST, reason="tool_use", usage=Usage(3, 4)),
        AnswerGiven(call_id=CallId("c-stamp"), granted=True, by="alice"),
        RunStarted(run_id=SECOND, protocol="ag-ui"),
        CallStarted(call_id=CallId("c-stamp")),
        RunResumed(run_id=SECOND, attempt=2),
        CallSettled(outcome="done", result=result("stamp", "stamped")),
        MessageOpened(message_id=HIDDEN_STEP, internal=True),
        CallOpened(message_id=HIDDEN_STEP, index=0, call=call("secret"), kind="inline", internal=True),
        MessageClosed(message_id=HIDDEN_STEP, internal=True),
        CallSettled(outcome="done", result=result("secret", "secret"), internal=True),
        MessageOpened(message_id=LAST_STEP, loop=fork_loop(CallId("c-stamp"))),
        RunStopped(run_id=SECOND, reason="error", code="quota", message="used up"),
    )
    assert timeline_of(visible_events(events)) == Timeline(
        runs=[
            RunSpan(
                run_id=FIRST,
                first_seq=1,
                protocol="blade",
                started_at=second(1),
                ended_at=second(6),
                reason="tool_use",
                usage=Usage(3, 4),
            ),
            RunSpan(
                run_id=SECOND,
                first_seq=8,
                protocol="ag-ui",
                started_at=second(8),
                resumed_at=[second(10)],
                ended_at=second(17),
                reason="error",
                code="quota",
                message="used up",
            ),
        ],
        steps=[
            StepSpan(
                message_id=STEP,
                loop=ROOT,
                first_seq=2,
                started_at=second(2),
                ended_at=second(5),
                status="completed",
                model="m",
                usage=Usage(3, 4),
                content=[Text("I look.")],
            ),
            StepSpan(message_id=LAST_STEP, loop=fork_loop(CallId("c-stamp")), first_seq=16, started_at=second(16)),
        ],
        calls=[
            CallSpan(
                call=call("stamp"),
                kind="permission",
                loop=ROOT,
                message_id=STEP,
                first_seq=4,
                opened_at=second(4),
                started_at=second(9),
                waits=[WaitSpan(kind="permission", started_at=second(4), ended_at=second(7), granted=True)],
                ended_at=second(11),
                outcome="done",
                result=result("stamp", "stamped"),
            )
        ],
    )


def test_the_input_of_a_step_is_the_branch_before_it_after_the_summary_without_what_a_crash_cut_off() -> None:
    events = log_of(
        asked("forgotten"),
        *answered("a1", "summarized"),
        CompactionMade(summary="They talked.", up_to=4, archived_count=2, tokens_before=9, tokens_after=3),
        asked("rewound"),
        *answered("a2", "hidden"),
        Branched(hidden_ranges=((6, 9),)),
        asked("now"),
        MessageOpened(message_id=MessageId("a3")),
        BlockClosed(message_id=MessageId("a3"), index=0, block=Text("half an ans")),
        MessageClosed(message_id=MessageId("a3"), status="cut"),
        *answered("a4", "whole"),
    )
    given = input_of_step(events, ROOT)
    # The branch has no compaction of its own any more: `Branched` says which one is in force.
    assert (given.summary, [each.content for each in given.messages]) == (
        None,
        ["forgotten", (Text("summarized"),), "now", (Text("whole"),)],
    )
    before = input_of_step(events[:9], ROOT)
    assert (before.summary, [each.id for each in before.messages]) == ("They talked.", ["u-rewound", "a2"])
    assert isinstance(before.messages[1], AssistantMessage)


def test_the_input_of_a_step_has_calls_of_another_branch_as_cancelled() -> None:
    events = log_of(
        asked("ask"),
        MessageOpened(message_id=STEP),
        CallOpened(message_id=STEP, index=0, call=call("stamp"), kind="permission"),
        MessageClosed(message_id=STEP),
        CallSettled(outcome="done", result=result("stamp", "stamped")),
        Branched(hidden_ranges=((5, 5),)),
        asked("instead"),
    )
    given = input_of_step(events, ROOT)
    assert [each.content for each in given.messages] == [
        "ask",
        (call("stamp"),),
        CANCELLED_BY_NEW_MESSAGE,
        "instead",
    ]
