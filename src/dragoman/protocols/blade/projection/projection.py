"""A session's log as Blade's turns and events. Pure: the same records give the same events with the same numbers.

    chat       chat:start ─► [system turn: mode] ─► user turn ─► [memory:inject:done] ─► assistant turns … ─► chat:end
    turn       turn:start ─► turn:patch 1, 2, 3 … ─► turn:end       paused turns go on later, with another turn:end
    call       pending | awaiting_answer ─► … ─► done | error | cancelled

A step of the model is a turn; it lasts until all its calls have their results. What asks a person something waits,
with every call above it, and its turns pause when the run ends. An answer that starts no run, because others are still
missing, is a small chat of its own.
Source: specification, sections 3, 4, 7 and 8; rulings, 7, 12, 16, 18, 24.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from dragoman.core import content as core
from dragoman.core.content import JsonObject
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    Branched,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    CompactionMade,
    Logged,
    MemoriesInjected,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    Mode,
    PlanShown,
    RunStarted,
    RunStopped,
    SessionCreated,
    SettingsChange,
    SettingsChanged,
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, SessionId, UserId, forking_call
from dragoman.core.json_schema import json_in
from dragoman.core.session import OpenCall, SessionState, apply, begin
from dragoman.core.stream import Piece, Record
from dragoman.protocols.blade.projection import turns
from dragoman.protocols.blade.projection.chat import (
    ENDS,
    Chat,
    error_code,
    replay_state_of,
    saved_ratio,
    updated_fields,
)
from dragoman.protocols.blade.projection.pending import is_held, waits_in
from dragoman.protocols.blade.projection.turns import Growing
from dragoman.protocols.blade.socket.emitter import Emitted, Telling
from dragoman.protocols.blade.wire import chat as wire_chat
from dragoman.protocols.blade.wire.chat import Attachment, Block, MemoryRef, ToolCall, Turn

PREVIEW = 200
FAILED = "The agent failed"
SUBAGENT_FAILED = "The sub-agent failed"


class Projection:
    """Turns the records of a session into turns and events, from the first record on.

    Args:
        session_id: the session.
        titles: names of tools for people.
        keeps: whether turns that are over are kept in `turns`; else only those that go on are.
    """

    def __init__(
        self,
        session_id: SessionId,
        titles: Mapping[str, str] = MappingProxyType({}),
        *,
        keeps: bool = False,
    ) -> None:
        self.chat: Chat | None = None
        self.state: SessionState | None = None
        self.turns: list[Growing] = []
        self.growing: dict[str, Growing] = {}
        """The turns that are not over, by their client's key."""
        self._telling = Telling(wire_chat.shown_session(session_id))
        self._session_id = session_id
        self._titles = titles
        self._keeps = keeps
        self._entries = 0
        self._steps: dict[MessageId, Growing] = {}
        """The model steps that are open."""
        self._asked: dict[CallId, tuple[Growing, core.Call]] = {}
        self._begun: dict[CallId, datetime] = {}
        self._loops: dict[LoopId, Growing] = {}
        """The newest turn of each loop that belongs to the chat."""
        self._plans: dict[LoopId, list[Block]] = {}
        self._mode: Block | None = None
        self._mode_to: Mode = "executing"
        self._cut_at: int | None = None
        """Where the chat began, as long as nothing of it was said."""
        self.branches: list[tuple[int, Branched]] = []
        """Where the conversation left its course, and what has been hidden since."""

    def feed(self, record: Record) -> list[Emitted]:
        """Take the next record; gives the events that it makes."""
        if type(record) is Piece:
            step = self._steps.get(record.message_id)
            if step is None:
                return []
            self._patch(step, step.grow(record.index, record.kind, record.text))
        else:
            assert isinstance(record, Logged), "a record is a piece or an event"
            self._logged(record)
        return self._telling.taken()

    @property
    def number(self) -> int:
        """The number of the last event."""
        return self._telling.number

    @property
    def is_quiet(self) -> bool:
        """Whether events are only counted."""
        return self._telling.is_quiet

    @is_quiet.setter
    def is_quiet(self, is_quiet: bool) -> None:
        self._telling.is_quiet = is_quiet

    # --- what readers who come later are told ---------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether a chat goes on."""
        return self.chat is not None and not self.chat.is_over

    def snapshot(self) -> list[Emitted]:
        """What a reader who comes now has to know of the chat that goes on: its beginning, and the turns not over.

        These repeat old events, so they have no number. Source: specification, section 9, rule 1.
        """
        if self.chat is None or self.chat.is_over:
            return []
        told = [self._telling.repeated_start(self.chat.run_id)]
        for each in self.growing.values():
            each.settle()
            told.append(self._telling.turn_event("turn:start", each, 0))
        return told

    def syncs(self) -> list[Emitted]:
        """The turns that grew since they were sent whole, as `sync` patches.

        They come at times that no log holds, so they count as nothing: each repeats the patches up to its number, and
        who folds patches drops it. Source: specification, section 7; rulings, 7.
        """
        told = []
        for each in self.growing.values():
            if each.turn.status == "streaming" and each.patches > each.synced:
                each.synced = each.patches
                each.settle()
                told.append(self._telling.sync_event(each))
        return told

    def batch(self, items: Sequence[bytes]) -> bytes:
        """The payload of a `turn:events` event."""
        return self._telling.head + b',"events":[' + b",".join(items) + b"]}"

    # --- one event ------------------------------------------------------------------------------------------------

    def _logged(self, logged: Logged) -> None:  # noqa: C901  # one case for each kind of event
        state = self.state
        if state is None:
            assert isinstance(logged.event, SessionCreated), "a session begins with its creation"
            self.state = begin(self._session_id, UserId(""), logged)
            return
        before = state.settings.mode
        closed = state.calls.get(logged.event.result.call_id) if isinstance(logged.event, CallSettled) else None
        given = state.calls.get(logged.event.call_id) if isinstance(logged.event, AnswerGiven) else None
        was_parked = given is not None and given.parked
        apply(state, logged)
        at = logged.at
        match logged.event:
            case SettingsChanged(change=change):
                self._changed(change, before, at)
            case RunStarted() as started:
                self._started(started, logged)
            case RunStopped() as stopped:
                self._stopped(stopped, at)
            case MessageAdded(message=message):
                self._added(message, logged)
            case MessageOpened(message_id=message_id, loop=loop):
                self._opened(message_id, loop, logged)
            case BlockClosed() as block:
                self._block(block, at)
            case CallOpened() as opened:
                self._called(self._steps[opened.message_id], opened.call, at)
            case MessageClosed() as message:
                self._closed(message, at)
            case CallStarted(call_id=call_id):
                self._begun[call_id] = at
            case CallParked(call_id=call_id):
                self._ask(call_id)
            case AnswerGiven() as answer:
                assert given is not None, "an answer is about an open call"
                self._answered(answer, given, logged, was_parked=was_parked)
                return  # an answered question keeps its status until its result, which comes next
            case CallSettled() as settled:
                self._settled(settled, closed, logged)
            case MemoriesInjected(memories=memories):
                refs = [MemoryRef(each.id, each.preview, each.skill_name) for each in memories]
                if self.chat is not None:
                    self.chat.memories = refs or None
                told = {"turn_id": None, "memory_refs": refs, "count": len(refs)}
                self._emit("memory:inject:done", told, {"turn_id": None, "memory_refs": [], "count": 0})
            case CompactionMade() as made:
                self._compacted(made, logged)
            case PlanShown() as plan:
                self._planned(plan)
            case Branched() as branched:
                self.branches.append((logged.seq, branched))
                self._emit("session:updated", {})
            case _:
                return
        self._sync()

    # --- the chat -------------------------------------------------------------------------------------------------

    def _changed(self, change: SettingsChange, before: Mode, at: datetime) -> None:
        if change.mode is not None and change.mode != before:
            self._mode = Block("mode_change", {"from": before, "to": change.mode})
            self._mode_to = change.mode
        assert self.state is not None, "the session has begun"
        told = updated_fields(change, self.state)
        if told:
            self._emit("session:updated", told)

    def _started(self, started: RunStarted, logged: Logged) -> None:
        self._begin_chat(wire_chat.shown_run(started.run_id), started, logged.seq)
        self._cut_at = logged.seq
        if self._mode is not None:
            enters = self._mode_to == "planning"
            blocks = [self._mode, Block("planning_enter" if enters else "planning_exit", None)]
            self._mode = None
            self._whole("system", f"{logged.seq}-mode", blocks, logged)
        named = started.props.get("deprecate")
        if isinstance(named, list) and self._keeps:
            for each in self.turns:
                each.turn.deprecated = each.turn.deprecated or each.turn.id in named

    def _begin_chat(self, run_id: str, started: RunStarted | None, seq: int) -> None:
        self.chat = Chat(run_id, self.number + 1, started, seq)
        self._loops = {}
        self._emit("chat:start", {})

    def _stopped(self, stopped: RunStopped, at: datetime) -> None:
        chat = self.chat
        if chat is None or chat.is_over or wire_chat.shown_run(stopped.run_id) != chat.run_id:
            return  # it never started
        for loop, plans in self._plans.items():
            self._late_plans(loop, plans, at)
        self._plans = {}
        status, finish = ENDS[stopped.reason]
        for each in list(self.growing.values()):
            if each.is_doomed:
                each.is_doomed = False
                each.ends = "failed" if status == "failed" else "interrupted"
                each.turn.failure_reason = (stopped.message or FAILED) if status == "failed" else None
                self._finish(each, at)
        self._pause(at)
        if stopped.reason == "error":
            code = error_code(stopped.code)
            self._emit("system:error", {"message": stopped.message or FAILED, "code": code, "detail": stopped.code})
            finish = "tool_error" if code == "tool_error" else None
        assert self.state is not None, "the session has begun"
        if self.state.settings.replay is not None and self.state.settings.replay.is_on:
            self._emit("session:updated", {"replay_state": replay_state_of(self.state)})
        self._end_chat(status, finish, stopped, at)

    def _end_chat(self, status: str, finish: str | None, stopped: RunStopped | None, at: datetime) -> None:
        assert self.chat is not None, "a chat ends after it began"
        assert self.state is not None, "the session has begun"
        told = {
            "status": status,
            "result": None if stopped is None else self._result(status, stopped),
            "finish_reason": finish,
            "waiting_for_input": any(True for _ in self.state.waiting()),
        }
        if stopped is not None and stopped.reason in ("max_tokens", "refusal"):
            told["stop_reason"] = stopped.reason
        self._emit("chat:end", told)
        self.chat.is_over = True
        self.chat.ended_at = at

    def _result(self, status: str, stopped: RunStopped) -> JsonObject | None:
        """What a headless chat gives back (specification, 8.6)."""
        chat = self.chat
        if chat is None or not chat.is_headless:
            return None
        if status != "completed":
            return {"err_msg": stopped.message or ("The chat was stopped" if status == "interrupted" else FAILED)}
        last = self._loops.get(ROOT)
        text = "" if last is None else "".join(each.content for each in last.turn.blocks if each.type == "text")
        if chat.schema is None:
            return {"output": text, "result": text}
        try:
            output = json_in(text)
        except ValueError:
            return {"err_msg": "the answer is no JSON"}
        fields = output if isinstance(output, dict) else {}
        kept = {name: value for name, value in fields.items() if name not in ("output", "schema", "err_msg")}
        return {"output": output, "schema": chat.schema, **kept}

    # --- turns ----------------------------------------------------------------------------------------------------

    def _begin(self, turn: Turn, at: datetime, seq: int) -> Growing:
        growing = Growing(turn, at, seq)
        self._entries += 1
        self.growing[turn.turn_id] = growing
        if self._keeps:
            self.turns.append(growing)
        self._telling.turn("turn:start", growing)
        return growing

    def _whole(self, role: str, name: str, blocks: list[Block], logged: Logged) -> Growing:
        """A turn that is complete from its start."""
        message_id = MessageId(name)
        turn = self._turn(message_id, ROOT, role, logged.at)
        turn.blocks = blocks
        growing = self._begin(turn, logged.at, logged.seq)
        growing.is_closed = True
        self._finish(growing, logged.at)
        return growing

    def _turn(self, message_id: MessageId, loop: LoopId, role: str, at: datetime) -> Turn:
        above = forking_call(loop)
        return Turn(
            id=wire_chat.entry_id(message_id),
            sequence=self._entries,
            turn_id=wire_chat.turn_id(message_id),
            loop_id=wire_chat.shown_loop(loop),
            role=role,  # type: ignore[arg-type]  # a role in fact
            blocks=[],
            tool_calls=[],
            started_at=at,
            parent_fork_tool_call_id=None if above is None else wire_chat.shown_call(above),
            chat_run_id=self.chat.run_id if self.is_running and self.chat is not None else None,
        )

    def _finish(self, growing: Growing, at: datetime) -> None:
        """End a turn, if nothing of it is still to come."""
        if not growing.ready():
            return
        if growing.turn.status == "paused":
            self._patch(growing, growing.status(growing.ends))
        growing.turn.status = growing.ends
        self._tell_end(growing, at)
        self.growing.pop(growing.turn.turn_id, None)

    def _tell_end(self, growing: Growing, at: datetime) -> None:
        growing.stand(at)
        growing.told = growing.patches
        self._telling.turn("turn:end", growing)

    def _pause(self, at: datetime) -> None:
        """Pause the turns that wait, the innermost first; not those that were told so already."""
        for growing in reversed(list(self.growing.values())):
            if growing.turn.status == "streaming" or growing.told != growing.patches:
                growing.turn.status = "paused"
                self._tell_end(growing, at)

    # --- messages -------------------------------------------------------------------------------------------------

    def _added(self, message: core.Message, logged: Logged) -> None:
        match message:
            case core.UserMessage() if self.chat is not None and self.chat.is_told:
                self.chat.is_told = False
            case core.UserMessage():
                noted: Iterator[Attachment] = iter(())
                if self.is_running and self.chat is not None:
                    noted = self.chat.attachments
                said = self._whole("user", message.id, turns.user_blocks(message, noted), logged)
                said.cut_at = logged.seq if self._cut_at is None else self._cut_at
                self._cut_at = None
            case core.SystemMessage(content=text, origin=origin):
                kind = "text" if origin == "seed" else "system_notification"
                self._whole("system", message.id, [Block(kind, text)], logged)
            case core.AssistantMessage():
                self._seeded(message, logged)
            case core.ToolMessage():
                self._deliver(message.call_id, "error" if message.is_error else "done", message, logged.at)

    def _seeded(self, message: core.AssistantMessage, logged: Logged) -> None:
        """An assistant's message that a client opened the session with."""
        turn = self._turn(message.id, message.loop, "assistant", logged.at)
        turn.status = "streaming"
        turn.model = message.model
        growing = self._begin(turn, logged.at, logged.seq)
        blocks = (core.Text(message.content),) if isinstance(message.content, str) else message.content
        for index, block in enumerate(blocks):
            self._content(growing, index, block, logged.at)
        growing.is_closed = True
        self._finish(growing, logged.at)

    def _opened(self, message_id: MessageId, loop: LoopId, logged: Logged) -> None:
        self._cut_at = None
        turn = self._turn(message_id, loop, "assistant", logged.at)
        turn.status = "streaming"
        if self.chat is not None and loop == ROOT and ROOT not in self._loops:
            turn.memory_refs = self.chat.memories
        growing = self._begin(turn, logged.at, logged.seq)
        self._steps[message_id] = growing
        self._loops[loop] = growing
        for plan in self._plans.pop(loop, ()):
            self._patch(growing, growing.add(plan))

    def _block(self, closed: BlockClosed, at: datetime) -> None:
        step = self._steps[closed.message_id]
        if step.has_grown(closed.index):
            step.settle()
        else:
            self._content(step, closed.index, closed.block, at)

    def _content(self, growing: Growing, index: int, block: core.Block, at: datetime) -> None:
        match block:
            case core.Text(text=text):
                if text:
                    self._patch(growing, growing.grow(index, "text", text))
            case core.Thinking(text=text):
                if text:
                    self._patch(growing, growing.grow(index, "thinking", text))
            case core.Call():
                self._called(growing, block, at)
            case _:
                attachment = turns.attachment_of(block)
                self._patch(growing, growing.add(Block("text", turns.note_of(attachment), attachment=attachment)))

    def _closed(self, message: MessageClosed, at: datetime) -> None:
        step = self._steps.pop(message.message_id)
        step.is_closed = True
        step.turn.model = message.model
        if message.usage is not None:
            step.turn.usage = wire_chat.TokenUsage(message.usage.input_tokens, message.usage.output_tokens)
        match message.status:
            case "completed":
                step.ends = "completed"
            case "failed" if message.loop != ROOT:
                step.ends, step.turn.failure_reason = "failed", SUBAGENT_FAILED
            case "failed":
                step.ends, step.is_doomed = "failed", True  # the run's end tells why
            case _:
                step.ends = "interrupted"
        self._finish(step, at)

    def _compacted(self, made: CompactionMade, logged: Logged) -> None:
        message_id = MessageId(f"{logged.seq}-compaction")
        turn = self._turn(message_id, ROOT, "system", logged.at)
        turn.kind = "compaction"
        turn.compaction_id = wire_chat.compaction_id(logged.seq)
        turn.summary_full, turn.summary_preview = made.summary, made.summary[:PREVIEW]
        turn.archived_count, turn.trigger = made.archived, made.trigger
        turn.tokens_before, turn.tokens_after = made.tokens_before, made.tokens_after
        turn.saved_ratio = saved_ratio(made.tokens_before, made.tokens_after)
        growing = self._begin(turn, logged.at, logged.seq)
        growing.is_closed = True
        self._finish(growing, logged.at)

    def _planned(self, plan: PlanShown) -> None:
        steps = [{"title": each.title, "status": each.status} for each in plan.steps]
        block = Block("plan_status", {"status": plan.status, "steps": steps})
        newest = self._loops.get(plan.loop)
        if newest is not None and not newest.is_closed:
            self._patch(newest, newest.add(block))
        else:
            self._plans.setdefault(plan.loop, []).append(block)

    def _late_plans(self, loop: LoopId, plans: list[Block], at: datetime) -> None:
        """A plan that no step came after belongs to the last one."""
        newest = self._loops.get(loop)
        if newest is not None:
            for plan in plans:
                self._patch(newest, newest.add(plan))
            if newest.turn.turn_id not in self.growing:
                self._tell_end(newest, at)

    # --- calls ----------------------------------------------------------------------------------------------------

    def _called(self, growing: Growing, call: core.Call, at: datetime) -> None:
        text, parsed = turns.arguments_of(call)
        title = self._titles.get(call.name, call.name)
        shown = ToolCall(wire_chat.shown_call(call.call_id), call.name, title, text, "pending")
        opened = None if self.state is None else self.state.calls.get(call.call_id)
        if opened is not None and opened.kind == "question":
            shown.status = "awaiting_answer"
        growing.calls[call.call_id] = shown
        self._asked[call.call_id] = growing, call
        self._begun[call.call_id] = at
        self._patch(growing, growing.call(shown, parsed))
        if opened is not None and opened.kind == "permission":
            self._ask(call.call_id)

    def _ask(self, call_id: CallId) -> None:
        """Ask whether a call may run: a question beside it, of the same turn."""
        growing, call = self._asked[call_id]
        asked, arguments = turns.permission_call(call)
        known = next((each for each in growing.turn.tool_calls if each.id == asked.id), None)
        if known is None:
            self._patch(growing, growing.call(asked, arguments))
        else:
            self._patch(growing, growing.mark(known, "awaiting_answer"))

    def _answered(self, answer: AnswerGiven, call: OpenCall, logged: Logged, *, was_parked: bool) -> None:
        """A decision about a call. Answers to questions, and an application's results, come with the call's result."""
        if call.kind != "permission" and not was_parked:
            return
        self._cut_at = None
        growing, asked = self._asked[answer.call_id]
        question = next(each for each in growing.turn.tool_calls if each.id == wire_chat.permission_id(answer.call_id))
        label = turns.ALLOWED[2]
        if answer.granted:
            assert self.state is not None, "the session has begun"
            label = turns.ALLOWED[1 if asked.name in self.state.settings.trusted else 0]
        answers = turns.permission_answers(asked, label, answer.reason)
        is_alone = not self.is_running
        if is_alone:
            self._begin_chat(f"answer_{logged.seq}", None, logged.seq)
        _, arguments = turns.permission_call(asked)
        block = turns.answer_block(question.id, arguments, answers)
        self._answer_turn(block, logged)
        took = turns.ms_between(self._begun[answer.call_id], logged.at)
        self._patch(growing, growing.result(question, "done", {"answers": answers}, took))
        self._sync()
        if is_alone:
            self._pause(logged.at)
            self._end_chat("completed", "completed", None, logged.at)

    def _settled(self, settled: CallSettled, call: OpenCall | None, logged: Logged) -> None:
        self._cut_at = None
        result = settled.result
        status = turns.outcome_status(settled.outcome)
        is_answer = call is not None and call.kind == "question" and call.granted is not None
        is_decided = call is not None and call.granted is not None and status != "cancelled"
        is_alone = is_decided and not self.is_running
        if is_alone:
            self._begin_chat(f"answer_{logged.seq}", None, logged.seq)
        if is_answer and call is not None:
            self._tell_answer(call, result, logged)
        if status == "cancelled":
            self._cancel(result.call_id, logged.at)
        else:
            self._deliver(result.call_id, status, result, logged.at)
        if is_alone:
            self._sync()
            self._pause(logged.at)
            self._end_chat("completed", "completed", None, logged.at)

    def _tell_answer(self, call: OpenCall, result: core.ToolMessage, logged: Logged) -> None:
        answers: list[JsonObject] = []
        if isinstance(result.raw, dict):
            answers = result.raw.get("answers", [])
        block = turns.answer_block(wire_chat.shown_call(call.call.call_id), call.call.input, answers)
        self._answer_turn(block, logged)

    def _answer_turn(self, block: Block, logged: Logged) -> None:
        """An answer as a turn of the user's, with what was said along with it."""
        blocks, chat = [block], self.chat
        if chat is not None and chat.answer_text is not None:
            blocks.append(Block("text", chat.answer_text))
            chat.answer_text, chat.is_told = None, True
        self._whole("user", f"{logged.seq}-answer", blocks, logged)

    def _deliver(self, call_id: CallId, status: wire_chat.CallStatus, result: core.ToolMessage, at: datetime) -> None:
        """Give a call its result, with what its `_meta` holds."""
        growing, _ = self._asked.pop(call_id, (None, None))
        if growing is None:
            return  # a result without its call
        shown = growing.calls.pop(call_id)
        value = turns.result_value(result)
        took = turns.ms_between(self._begun.pop(call_id, at), at)
        self._patch(growing, growing.result(shown, status, value, took))
        for part in turns.meta_blocks(value, shown):
            if isinstance(part, Block):
                self._patch(growing, growing.add(part))
            else:
                told = {
                    "notification_type": "tool_meta_invalid",
                    "title": f"{shown.tool_name} returned what cannot be shown",
                    "detail": part.why,
                    "status": "warning",
                }
                self._emit("system:notification", told)
        self._finish(growing, at)

    def _cancel(self, call_id: CallId, at: datetime) -> None:
        growing, _ = self._asked.pop(call_id)
        shown = growing.calls.pop(call_id)
        self._begun.pop(call_id, None)
        self._patch(growing, growing.mark(shown, "cancelled"))
        question = wire_chat.permission_id(call_id)
        for each in growing.turn.tool_calls:
            if each.id == question and each.status == "awaiting_answer":
                self._patch(growing, growing.mark(each, "cancelled"))
        growing.ends = "interrupted"
        growing.is_doomed = self.is_running
        self._finish(growing, at)

    def _sync(self) -> None:
        """Bring the statuses of open calls, and of paused turns, in line with what is waited for."""
        assert self.state is not None, "the session has begun"
        if not self.state.calls:
            return
        waits = waits_in(self.state)
        for call_id, call in self.state.calls.items():
            if call.granted is False:
                continue  # its result comes next
            growing, _ = self._asked[call_id]
            shown = growing.calls[call_id]
            ref = waits.get(call_id)
            status: wire_chat.CallStatus = "pending"
            if call_id in waits:
                status = "awaiting_answer"
            if (shown.status, shown.pending_question_ref) != (status, ref):
                self._patch(growing, growing.mark(shown, status, ref))
            if growing.turn.status == "paused" and self.is_running and not is_held(self.state, growing, waits):
                self._patch(growing, growing.status("streaming"))

    # --- telling --------------------------------------------------------------------------------------------------

    @property
    def _run_id(self) -> str | None:
        return None if self.chat is None else self.chat.run_id

    def _patch(self, growing: Growing, change: turns.Change) -> None:
        self._telling.patch(growing, change, self._run_id)

    def _emit(self, name: str, told: JsonObject, to_viewers: JsonObject | None = None) -> None:
        self._telling.event(name, told, self._run_id if self.is_running else None, to_viewers)
