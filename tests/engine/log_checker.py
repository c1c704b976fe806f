"""The rules that every session's log keeps, whatever happened to it: checked after each test of the engine."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from dragoman.core.content import AssistantMessage, Text, Thinking
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    RunParked,
    RunQueued,
    RunResumed,
    RunStarted,
    RunStopped,
)
from dragoman.core.history import messages_of
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId, SessionId
from dragoman.core.session import SessionState, fold, initial_state
from dragoman.core.stream import cursor_of, expand, pieces_of
from dragoman.core.tools import SLEEP, ServerTool
from dragoman.ports.log import SessionStore


class DeclaredTool(Protocol):
    """A tool with its policy."""

    @property
    def declaration(self) -> ServerTool: ...


async def check_session(
    store: SessionStore, session_id: SessionId, tools: Mapping[str, DeclaredTool], repeats: Collection[str] = ()
) -> None:
    """Check a session's log, and the stored state against it."""
    events = list(await store.events(session_id, 0, 1_000_000))
    snapshot = await store.load(session_id)
    assert snapshot is not None
    state = fold_log(session_id, snapshot.head.owner, events)
    assert fold(snapshot.head, snapshot.events) == state, "what is stored is not the fold of the log"
    check_log(events, tools, repeats)
    if state.run is None and not state.queue:
        check_rest(state)
        assert not snapshot.pieces, "nothing is open, but pieces are left"


def fold_log(session_id: SessionId, owner: str, events: Sequence[LoggedEvent]) -> SessionState:
    """The state after a whole log."""
    state = initial_state(session_id, owner, events[0])  # type: ignore[arg-type]  # a UserId is a str
    return fold(state, events[1:])


def check_log(events: Sequence[LoggedEvent], tools: Mapping[str, DeclaredTool], repeats: Collection[str] = ()) -> None:
    """Check a log by itself."""
    assert [logged.seq for logged in events] == list(range(1, len(events) + 1)), "a gap"
    check_runs(events)
    check_messages(events)
    check_calls(events, tools, repeats)
    check_pieces(events)


def check_runs(events: Sequence[LoggedEvent]) -> None:
    """At most one run is active; each ends once; what belongs to a run stands inside it."""
    active: RunId | None = None
    begun: set[RunId] = set()
    over: set[RunId] = set()
    queued: set[RunId] = set()
    for logged in events:
        match logged.event:
            case RunQueued(run_id=run_id):
                assert run_id not in begun | queued | over, f"{logged.seq}: queued twice"
                queued.add(run_id)
            case RunStarted(run_id=run_id):
                assert active is None, f"{logged.seq}: a second run beside {active}"
                assert run_id not in begun | over, f"{logged.seq}: started twice"
                queued.discard(run_id)
                active = run_id
                begun.add(run_id)
            case RunResumed(run_id=run_id) | RunParked(run_id=run_id):
                assert run_id == active, f"{logged.seq}: resumed or parked, but not active"
            case RunStopped(run_id=run_id):
                assert run_id not in over, f"{logged.seq}: ended twice"
                assert run_id == active or run_id in queued, f"{logged.seq}: ended, but neither active nor queued"
                over.add(run_id)
                queued.discard(run_id)
                active = None if run_id == active else active
            case MessageOpened() | BlockClosed() | CallOpened() | MessageClosed() | CallStarted() | CallParked():
                if logged.run_id is not None:
                    assert logged.run_id == active, f"{logged.seq}: written by a run that is not active"
            case _:
                pass


def check_messages(events: Sequence[LoggedEvent]) -> None:
    """A loop has one open message at most, with its blocks numbered from 0; at a run's end all are closed."""
    blocks: dict[LoopId, int] = {}
    opened: dict[LoopId, MessageId] = {}
    ids: Counter[MessageId] = Counter()
    for logged in events:
        match logged.event:
            case MessageOpened(message_id=message_id, loop=loop):
                assert loop not in opened, f"{logged.seq}: a second open message of loop {loop}"
                opened[loop], blocks[loop] = message_id, 0
                ids[message_id] += 1
            case (
                BlockClosed(message_id=message_id, index=index, loop=loop)
                | CallOpened(message_id=message_id, index=index, loop=loop)
            ):
                assert opened.get(loop) == message_id, f"{logged.seq}: a block of a message that is not open"
                assert index == blocks[loop], f"{logged.seq}: block {blocks[loop]} expected, got {index}"
                blocks[loop] += 1
            case MessageClosed(message_id=message_id, loop=loop):
                assert opened.pop(loop, None) == message_id, f"{logged.seq}: closed, but not open"
            case MessageAdded(message=message):
                ids[message.id] += 1
            case CallSettled(result=result):
                ids[result.id] += 1
            case RunStopped(run_id=run_id) if run_id == logged.run_id:
                assert opened == {}, f"{logged.seq}: the run ended with open messages"
            case _:
                pass
    assert {message_id: count for message_id, count in ids.items() if count > 1} == {}, "an id was used twice"


def check_calls(events: Sequence[LoggedEvent], tools: Mapping[str, DeclaredTool], repeats: Collection[str]) -> None:
    """Every call is opened once and settled at most once, and no tool is begun again without its policy."""
    opened: dict[CallId, CallOpened] = {}
    settled: set[CallId] = set()
    started: Counter[CallId] = Counter()
    allowed: Counter[CallId] = Counter()
    deferred: Counter[CallId] = Counter()
    resumed = 0
    for logged in events:
        match logged.event:
            case CallOpened(call=call) as event:
                assert call.call_id not in opened, f"{logged.seq}: opened twice"
                opened[call.call_id] = event
            case MessageAdded(message=AssistantMessage() as message):
                assert not {call.call_id for call in message.calls()} & opened.keys(), f"{logged.seq}: opened twice"
            case RunResumed():
                resumed += 1
            case CallStarted(call_id=call_id):
                assert call_id in opened, f"{logged.seq}: never opened"
                assert call_id not in settled, f"{logged.seq}: begun after its result"
                started[call_id] += 1
                tool = tools.get(opened[call_id].call.name)
                policy = tool.declaration.policy.on_restart if tool is not None else "fail"
                if opened[call_id].internal and opened[call_id].call.name == SLEEP:
                    policy = "repeat"
                again = resumed if policy == "repeat" else allowed[call_id] if policy == "ask" else 0
                limit = max(1, allowed[call_id]) if policy == "ask" else 1 + again
                limit += deferred[call_id]
                if tool is not None:  # what waited begins to count anew
                    limit += tool.declaration.policy.retries * (1 + deferred[call_id] + allowed[call_id])
                assert started[call_id] <= limit + (call_id in repeats), f"{logged.seq}: {policy} tool begun again"
            case CallParked(call_id=call_id, kind=kind):
                assert call_id in opened
                assert call_id not in settled
                allowed[call_id] += kind is None
                deferred[call_id] += kind is not None
            case AnswerGiven(call_id=call_id, granted=granted):
                assert call_id in opened, f"{logged.seq}: an answer to a call that nobody made"
                assert call_id not in settled, f"{logged.seq}: answered after its result"
                allowed[call_id] += granted
            case CallSettled(result=result):
                assert result.call_id in opened, f"{logged.seq}: a result without its call"
                assert result.call_id not in settled, f"{logged.seq}: settled twice"
                settled.add(result.call_id)
            case _:
                pass


def check_pieces(events: Sequence[LoggedEvent]) -> None:
    """The pieces of a block are its text, no two stand in one place, and all stand before the block's end."""
    for logged in events:
        event = logged.event
        if isinstance(event, BlockClosed) and isinstance(event.block, Text | Thinking):
            pieces = pieces_of(event)
            assert "".join(piece.text for piece in pieces) == event.block.text, f"{logged.seq}: pieces and text differ"
            assert all(piece.after < logged.seq for piece in pieces), f"{logged.seq}: a piece after the block's end"
    places = [cursor_of(record) for record in expand(events)]
    assert places == sorted(set(places)), "two records in one place"


def check_rest(state: SessionState) -> None:
    """At rest nothing is open but calls that can be answered, what is decided beside them, and what is above."""
    assert state.open_messages == {}
    pending = {call.call.call_id for call in state.waiting_calls()}
    for call in state.waiting_calls():
        parent = state.parent_call(call.loop)
        assert call.loop == ROOT or parent is not None, f"call {call.call.call_id} waits in a loop that is gone"
        while parent is not None:
            pending.add(parent.call.call_id)
            parent = state.parent_call(parent.loop)
        pending |= {
            beside.call.call_id
            for beside in state.calls_in_loop(call.loop)
            if beside.granted is not None or (beside.recorded and not beside.started)
        }
    dangling = [call.call.call_id for call in state.calls.values() if call.call.call_id not in pending]
    assert dangling == [], "calls that nobody will ever answer"


def check_tool_call_pairing(events: Sequence[LoggedEvent]) -> None:
    """Every call in the history has its result behind it; for sessions in which nothing waits."""
    asked: set[CallId] = set()
    answered: set[CallId] = set()
    for message in messages_of(events, None):
        if isinstance(message, AssistantMessage):
            asked |= {call.call_id for call in message.calls()}
        elif message.__struct_config__.tag == "tool":
            call_id: CallId = message.call_id  # type: ignore[union-attr]  # the tag says which of the union it is
            assert call_id in asked, "a result before its call"
            answered.add(call_id)
    assert answered == asked
