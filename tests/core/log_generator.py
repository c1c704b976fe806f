"""Random conversations, written as the engine would write them: what may happen next is drawn, what happens is logged.

The scribe keeps to the order of things that the engine keeps to, and lets the core's own admission decide about input.
"""

from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from dragoman.core import admission
from dragoman.core.admission import Admission, kind_of_call
from dragoman.core.answers import settle_call
from dragoman.core.content import Block, Call, Data, Image, Json, Text, Thinking, UserMessage
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallOutcome,
    CallParked,
    CallSettled,
    CallStarted,
    CardUpdated,
    CompactionMade,
    EncryptedValue,
    Event,
    LoggedEvent,
    MemoriesInjected,
    MemoryUse,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    PlanUpdated,
    RunParked,
    RunResumed,
    RunStarted,
    RunStopped,
    SettingsChange,
    SharedStateReplaced,
    StageChanged,
    WaitKind,
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId, SessionId, UserId, fork_loop
from dragoman.core.input_checks import InputLimits, check_change
from dragoman.core.inputs import Answer, Choice, Create, Decision, Result, Submit, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import Refused
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import SessionState, encode_head, fold, initial_state
from dragoman.core.stream import Piece, Record, gather_cuts, split_into_pieces
from dragoman.core.tools import (
    ASK_USER_QUESTION,
    FORK,
    AgentSpec,
    Capabilities,
    SecretOption,
    ServerTool,
    TextOption,
    ToolGrant,
    ToolPolicy,
    ToolSpec,
)
from tests.core.strategies import NOON

ANN = UserId("ann")
LIMITS = InputLimits()


def tool(name: str, **policy: Json) -> ServerTool:
    return ServerTool(
        spec=ToolSpec(name=name, description="", parameters={"type": "object"}), policy=ToolPolicy(**policy)
    )


SPEC = AgentSpec(
    name="agent",
    tools=(tool("plain"), tool("asking", needs_approval=True), tool("hidden", exposed=False)),
    options=(TextOption(name="tone"), SecretOption(name="key")),
    capabilities=Capabilities(client_tools=True),
    builtins=frozenset({ASK_USER_QUESTION, FORK}),
)
PAINT = ToolSpec(name="paint", description="", parameters={"type": "object"})
QUESTION = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}
TOOL_NAMES = ("plain", "asking", "hidden", "paint", ASK_USER_QUESTION, FORK, "nothing")


WAITS: tuple[WaitKind, ...] = ("client", "permission", "question")
WORDS = ("", "a", "so ", "it is.", "\n", "\0", "\u202e", "\U0001f600", "é\u0301", '{"a": 1}', "long " * 2000)


def encrypt(plaintext: str) -> EncryptedValue:
    return EncryptedValue(plaintext[::-1], len(plaintext))


class OpenBlock:
    """An open block, with the pieces that readers saw."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[Piece] = []


class LogGenerator:
    """A session, its log, and its stream as live readers saw it."""

    def __init__(self) -> None:
        self._ids = 0
        self.state: SessionState
        self.log: list[LoggedEvent] = []
        self.stream: list[Record] = []
        self.open_blocks: dict[LoopId, OpenBlock] = {}
        self._place = 0
        self.refused = 0
        self.stops: list[int] = []
        """The events at which the session came to rest."""

    def new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    @property
    def open_pieces(self) -> list[Piece]:
        """The pieces so far of the blocks that are open."""
        return [piece for each in self.open_blocks.values() for piece in each.pieces]

    # --- writing --------------------------------------------------------------------------------------------------

    def create(self, request: Create) -> None:
        events = admission.create(SPEC, request, encrypt, LIMITS)
        first = self._logged(1, None, events[0])
        self.state = initial_state(SessionId("session"), ANN, first)
        self.log.append(first)
        self.stream.append(first)
        self.append(events[1:])

    def append(self, events: Sequence[Event], run_id: RunId | None = None) -> None:
        for event in events:
            logged = self._logged(self.state.seq + 1, run_id, event)
            fold(self.state, [logged])
            self.log.append(logged)
            self.stream.append(logged)
            self._place = 0

    def _logged(self, seq: int, run_id: RunId | None, event: Event) -> LoggedEvent:
        return LoggedEvent(seq, NOON, run_id, event)

    def grow(self, loop: LoopId, text: str) -> None:
        growing, opened = self.open_blocks[loop], self.state.open_messages[loop]
        for part in split_into_pieces(text) if text else ():
            self._place += 1
            kind = "text" if growing.kind == "text" else "thinking"
            piece = Piece(self.state.seq, self._place, opened.message_id, opened.closed_block_count, kind, part, loop)  # type: ignore[arg-type]  # a literal
            growing.pieces.append(piece)
            self.stream.append(piece)

    def close_block(self, loop: LoopId) -> None:
        growing = self.open_blocks.pop(loop, None)
        if growing is None:
            return
        opened = self.state.open_messages[loop]
        text = "".join(piece.text for piece in growing.pieces)
        closed = BlockClosed(
            message_id=opened.message_id,
            index=opened.closed_block_count,
            block=Text(text) if growing.kind == "text" else Thinking(text),
            loop=loop,
            cuts=gather_cuts(growing.pieces),
        )
        self.append([closed], self._run_id)

    # --- what may happen ------------------------------------------------------------------------------------------

    @property
    def _run_id(self) -> RunId | None:
        return None if self.state.run is None else self.state.run.run_id

    def step(self, chance: Random) -> None:
        """Let one thing happen."""
        if self.state.run is None or chance.random() < 0.2:
            self.receive_request(chance)
        else:
            self.play(chance)

    def receive_request(self, chance: Random) -> None:
        """An application sends something, right or wrong."""
        request = some_request(chance, self.state)
        before = encode_head(self.state, with_settings=True)
        try:
            admitted = self.admit(request)
        except Refused:
            assert encode_head(self.state, with_settings=True) == before, "a refusal changes nothing"
            self.refused += 1
            return
        assert encode_head(self.state, with_settings=True) == before, (
            "what is admitted changes nothing before it is appended"
        )
        self.append(admitted.events, admitted.run_id)

    def admit(self, request: Submit) -> Admission:
        change = check_change(SPEC, self.state.settings, request.change, encrypt, LIMITS)
        if admission.is_busy(self.state) and request.messages:
            return admission.queue_run(self.state, SPEC, request, change, self.new_id, LIMITS)
        known = {each.event.call.call_id for each in self.log if isinstance(each.event, CallOpened)}
        return admission.admit(
            self.state,
            SPEC,
            request,
            change,
            by="ann",
            resolved=known - self.state.calls.keys(),
            new_id=self.new_id,
            limits=LIMITS,
        )

    def play(self, chance: Random) -> None:
        """The agent does something, or a sub-agent below an open call."""
        forks = [fork_loop(call.call.call_id) for call in self.state.calls.values() if call.kind == "fork"]
        loop = chance.choice([ROOT, *forks])
        what = chance.choices(
            ["say", "think", "add", "step", "settle", "show", "sum up", "crash", "stop"],
            weights=[4, 2, 1, 4, 8, 1, 1, 1, 2],
        )[0]
        if what in ("say", "think", "add", "step"):
            self._speak(chance, loop, what)
        elif what == "settle":
            self._settle(chance, loop)
        elif what == "show":
            remembered = MemoriesInjected(memories=(MemoryUse(7, "tea"),))
            plan, stage = PlanUpdated(status="draft", steps=()), StageChanged(stage="a")
            self.append(
                [plan, stage, SharedStateReplaced(state=None), CardUpdated(card={"a": 1}), remembered], self._run_id
            )
        elif what == "sum up":
            up_to = chance.randint(1, self.state.seq)
            made = CompactionMade(summary="…", up_to=up_to, archived_count=0, tokens_before=2, tokens_after=1)
            self.append([made], self._run_id)
        elif what == "crash":
            self._crash()
        else:
            self._stop(chance)

    def _speak(self, chance: Random, loop: LoopId, what: str) -> None:
        if not all(call.recorded for call in self.state.calls_in_loop(loop)):
            return  # the step's calls are settled first, except for those that the agent runs itself
        if loop not in self.state.open_messages:
            self.append([MessageOpened(message_id=MessageId(self.new_id()), loop=loop)], self._run_id)
        opened = self.state.open_messages[loop]
        if what in ("say", "think"):
            growing = self.open_blocks.get(loop)
            if growing is not None and growing.kind != ("text" if what == "say" else "thinking"):
                self.close_block(loop)
                growing = None
            if growing is None:
                self.open_blocks[loop] = OpenBlock("text" if what == "say" else "thinking")
            self.grow(loop, chance.choice(WORDS))
        elif what == "add":
            self.close_block(loop)
            some: list[Block] = [Image("https://example.org/a.png"), Data({"a": 1})]
            block = chance.choice(some)
            self.append(
                [BlockClosed(message_id=opened.message_id, index=opened.closed_block_count, block=block, loop=loop)],
                self._run_id,
            )
        else:
            self.close_block(loop)
            names = chance.choices(TOOL_NAMES, k=chance.randrange(4))
            opening: list[Event] = []
            for index, name in enumerate(names, opened.closed_block_count):
                arguments = QUESTION if name == ASK_USER_QUESTION else {}
                call = Call(call_id=CallId(self.new_id()), name=name, input=arguments)
                recorded = chance.random() < 0.3
                kind = "inline" if recorded else kind_of_call(name, SPEC, self.state.settings)
                opening.append(
                    CallOpened(
                        message_id=opened.message_id, index=index, call=call, kind=kind, loop=loop, recorded=recorded
                    )
                )
            self.append([*opening, MessageClosed(message_id=opened.message_id, loop=loop)], self._run_id)

    def _settle(self, chance: Random, loop: LoopId) -> None:
        ready = [call for call in self.state.calls_in_loop(loop) if not call.is_waiting()]
        if not ready:
            return
        call = chance.choice(ready)
        below = fork_loop(call.call.call_id)
        if call.kind == "fork" and (self.state.calls_in_loop(below) or below in self.state.open_messages):
            return  # its sub-agent is at work
        if call.kind in ("inline", "permission") and not call.started and call.granted is not False:
            self.append([CallStarted(call_id=call.call.call_id)], self._run_id)
            if chance.random() < 0.3:
                wait = chance.choice(WAITS)
                note = QUESTION if wait == "question" else chance.choice([None, {"a": 1}])
                self.append([CallParked(call_id=call.call.call_id, kind=wait, note=note)], self._run_id)
                return
        outcome: CallOutcome = "denied" if call.granted is False else "done" if chance.random() < 0.5 else "failed"
        self.append([settle_call(call, outcome, chance.choice(WORDS), self.new_id)], self._run_id)

    def _crash(self) -> None:
        assert self.state.run is not None
        if len(self.log) % 2:
            self.append([RunParked(run_id=self.state.run.run_id)], self.state.run.run_id)
        for loop in list(self.state.open_messages):
            self._close_message(loop, "cut")
        run = self.state.run
        self.append([RunResumed(run_id=run.run_id, attempt=run.attempt + (not run.parked))], run.run_id)
        started = [call for call in self.state.calls.values() if call.started and not call.recorded]
        self.append([CallParked(call_id=call.call.call_id) for call in started[:1]], run.run_id)

    def _close_message(self, loop: LoopId, status: str) -> None:
        self.close_block(loop)
        opened = self.state.open_messages[loop]
        self.append([MessageClosed(message_id=opened.message_id, loop=loop, status=status)], self._run_id)  # type: ignore[arg-type]  # a literal

    def _stop(self, chance: Random) -> None:
        run_id = self._run_id
        assert run_id is not None
        for loop in list(self.state.open_messages):
            self._close_message(loop, "interrupted")
        pending = any(True for _ in self.state.waiting_calls())
        is_cancelled = not pending or chance.random() < 0.2
        ready = [call for call in self.state.calls.values() if not call.is_waiting() and call.kind != "fork"]
        if is_cancelled:
            self.append(admission.cancel_open_calls(self.state, "stopped", self.new_id), run_id)
        else:
            self.append([settle_call(call, "failed", "", self.new_id) for call in ready], run_id)
            self._settle_childless()
        held = () if self.state.run is None else self.state.run.pending_inputs
        self.append([MessageAdded(message=message) for message in held], run_id)
        self.append([RunStopped(run_id=run_id, reason="cancelled" if is_cancelled else "tool_use")], run_id)
        self.stops.append(self.state.seq)
        if self.state.queue:
            queued = self.state.queue[0]
            self.append(
                admission.cancel_open_calls(self.state, admission.CANCELLED_BY_NEW_MESSAGE, self.new_id), queued.run_id
            )
            self.append([RunStarted(run_id=queued.run_id, protocol=queued.protocol)], queued.run_id)
            self.append([MessageAdded(message=each) for each in queued.inputs], queued.run_id)

    def _settle_childless(self) -> None:
        """Settle the sub-agents below which nothing waits."""
        while True:
            above = {call.loop for call in self.state.calls.values()}
            idle = [
                call
                for call in self.state.calls.values()
                if call.kind == "fork" and not call.is_waiting() and fork_loop(call.call.call_id) not in above
            ]
            if not idle:
                return
            self.append([settle_call(call, "failed", "", self.new_id) for call in idle], self._run_id)

    # --- looking --------------------------------------------------------------------------------------------------

    def settled_ids(self) -> list[CallId]:
        return [each.event.result.call_id for each in self.log if isinstance(each.event, CallSettled)]


def some_request(chance: Random, state: SessionState) -> Submit:
    """Anything that an application might send into a session."""
    waiting = list(state.waiting_calls())
    if waiting and chance.random() < 0.6:
        return Submit(
            protocol="test", answers=tuple(right_answer(chance, call) for call in waiting[: chance.randint(1, 3)])
        )
    known = [call.call.call_id for call in state.calls.values()]
    strange = [CallId("nobody's"), *(CallId(f"id-{number}") for number in (1, 5, 9))]
    chosen = chance.choices([*known, *known, *strange], k=chance.choice([0, 0, 1, 1, 2, 3]))
    texts = chance.choices(WORDS, k=chance.choice([0, 1, 1, 2]))
    return Submit(
        protocol="test",
        messages=tuple(UserInput(content=text) for text in texts),
        answers=tuple(some_answer(chance, call_id) for call_id in chosen),
        change=some_change(chance) if chance.random() < 0.2 else SettingsChange(),
        requires_all_answers=chance.random() < 0.3,
        metadata=chance.choice([RunMetadata(), RunMetadata(locale="de", protocol={"stream": "delta"})]),
    )


def some_change(chance: Random) -> SettingsChange:
    return SettingsChange(
        tools=chance.choice([None, "all", (), (ToolGrant("plain"),), (ToolGrant("asking", trust=True),)]),
        options=chance.choice([{}, {"tone": "loud"}, {"key": "secret"}, {"key": "***"}, {"nothing": "x"}]),
        client_tools=chance.choice([None, (), (PAINT,), (PAINT, PAINT)]),
        title=chance.choice([None, "title"]),
    )


def right_answer(chance: Random, call: OpenCall) -> Answer:
    """One that fits the call."""
    call_id = call.call.call_id
    if chance.random() < 0.3:
        return Decision(call_id=call_id, granted=False, reason=chance.choice([None, *WORDS]))
    if call.kind == "question" and not call.parked:
        return Choice(call_id=call_id, selections={"0": [chance.randrange(2)]})
    if call.kind == "client" and not call.parked:
        return Result(call_id=call_id, content=chance.choice(WORDS), is_error=chance.random() < 0.5)
    return Decision(call_id=call_id, granted=True)


def some_answer(chance: Random, call_id: CallId) -> Answer:
    match chance.randrange(3):
        case 0:
            content = chance.choice(
                [*WORDS, '{"selections": [1]}', '{"selections": {"0": [7]}}', '{"custom": "\\ud800"}']
            )
            return Result(call_id=call_id, content=content, is_error=chance.random() < 0.5)
        case 1:
            return Decision(call_id=call_id, granted=chance.random() < 0.7, reason=chance.choice([None, *WORDS]))
    chosen = chance.choices([-1, 0, 1, 2], weights=[1, 5, 5, 1], k=chance.randrange(3))
    return Choice(call_id=call_id, selections={"0": chosen}, custom=chance.choice([{}, {"0": "own words"}]))


def generated_log(seed: int, steps: int) -> LogGenerator:
    """A conversation; the same seed with fewer steps gives its beginning."""
    chance, scribe = Random(seed), LogGenerator()
    tools: Json = chance.choice([None, "all", (ToolGrant("plain"), ToolGrant("asking", trust=True))])
    client_tools = chance.choice([(), (PAINT,)])
    seeds = (UserMessage(id=MessageId("seed"), content="hello"),) if chance.random() < 0.5 else ()
    scribe.create(Create(protocol="test", agent="agent", tools=tools, client_tools=client_tools, seeds=seeds))
    for _ in range(steps):
        scribe.step(chance)
    return scribe


conversations = st.builds(generated_log, st.integers(0, 2**32), st.integers(1, 120))
"""Fails at the shortest beginning that shows the fault."""
