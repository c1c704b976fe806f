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
    LoggedEvent,
    MemoriesInjected,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    Mode,
    PlanUpdated,
    RunStarted,
    RunStopped,
    SessionCreated,
    SettingsChange,
    SettingsChanged,
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, SessionId, UserId, forking_call
from dragoman.core.json_schema import parse_json
from dragoman.core.session import OpenCall, SessionState, apply, initial_state
from dragoman.core.stream import Piece, Record
from dragoman.protocols.blade.projection import turns
from dragoman.protocols.blade.projection.chat import (
    CHAT_OUTCOMES,
    Chat,
    error_code,
    replay_state_of,
    saved_ratio,
    updated_fields,
)
from dragoman.protocols.blade.projection.pending import is_waiting, pending_questions
from dragoman.protocols.blade.projection.turns import TurnBuilder
from dragoman.protocols.blade.socket.emitter import Emitter, OutgoingEvent
from dragoman.protocols.blade.wire import chat as wire_chat
from dragoman.protocols.blade.wire.chat import Attachment, Block, MemoryRef, ToolCall, Turn

SUMMARY_PREVIEW_CHARS = 200
AGENT_FAILED_MESSAGE = "The agent failed"
SUBAGENT_FAILED_MESSAGE = "The sub-agent failed"


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
        keeps_finished_turns: bool = False,
    ) -> None:
        self.chat: Chat | None = None
        self.state: SessionState | None = None
        self.turns: list[TurnBuilder] = []
        self.open_turns: dict[str, TurnBuilder] = {}
        """The turns that are not over, by their client's key."""
        self._emitter = Emitter(wire_chat.public_session_id(session_id))
        self._session_id = session_id
        self._titles = titles
        self._keeps_finished_turns = keeps_finished_turns
        self._entry_count = 0
        self._open_steps: dict[MessageId, TurnBuilder] = {}
        """The model steps that are open."""
        self._open_calls: dict[CallId, tuple[TurnBuilder, core.Call]] = {}
        self._call_started_at: dict[CallId, datetime] = {}
        self._newest_turns: dict[LoopId, TurnBuilder] = {}
        """The newest turn of each loop that belongs to the chat."""
        self._pending_plans: dict[LoopId, list[Block]] = {}
        self._pending_mode_block: Block | None = None
        self._pending_mode: Mode = "executing"
        self._chat_start_seq: int | None = None
        """Where the chat began, as long as nothing of it was said."""
        self.branch_marks: list[tuple[int, Branched]] = []
        """Where the conversation left its course, and what has been hidden since."""

    def feed(self, record: Record) -> list[OutgoingEvent]:
        """Take the next record; gives the events that it makes."""
        if type(record) is Piece:
            step = self._open_steps.get(record.message_id)
            if step is None:
                return []
            self._emit_patch(step, step.append_text(record.index, record.kind, record.text))
        else:
            assert isinstance(record, LoggedEvent), "a record is a piece or an event"
            self._apply_event(record)
        return self._emitter.take_events()

    @property
    def number(self) -> int:
        """The number of the last event."""
        return self._emitter.number

    @property
    def is_quiet(self) -> bool:
        """Whether events are only counted."""
        return self._emitter.is_quiet

    @is_quiet.setter
    def is_quiet(self, is_quiet: bool) -> None:
        self._emitter.is_quiet = is_quiet

    # --- what readers who come later are told ---------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether a chat goes on."""
        return self.chat is not None and not self.chat.has_ended

    def snapshot(self) -> list[OutgoingEvent]:
        """What a reader who comes now has to know of the chat that goes on: its beginning, and the turns not over.

        These repeat old events, so they have no number. Source: specification, section 9, rule 1.
        """
        if self.chat is None or self.chat.has_ended:
            return []
        told = [self._emitter.make_snapshot_start(self.chat.run_id)]
        for each in self.open_turns.values():
            each.join_text()
            told.append(self._emitter.make_turn_event("turn:start", each, 0))
        return told

    def sync_events(self) -> list[OutgoingEvent]:
        """The turns that grew since they were sent whole, as `sync` patches.

        They come at times that no log holds, so they count as nothing: each repeats the patches up to its number, and
        who folds patches drops it. Source: specification, section 7; rulings, 7.
        """
        told = []
        for each in self.open_turns.values():
            if each.turn.status == "streaming" and each.patch_count > each.patches_at_last_sync:
                each.patches_at_last_sync = each.patch_count
                each.join_text()
                told.append(self._emitter.make_sync_event(each))
        return told

    def encode_batch(self, items: Sequence[bytes]) -> bytes:
        """The payload of a `turn:events` event."""
        return self._emitter.payload_prefix + b',"events":[' + b",".join(items) + b"]}"

    # --- one event ------------------------------------------------------------------------------------------------

    def _apply_event(self, logged: LoggedEvent) -> None:  # noqa: C901  # one case for each kind of event
        state = self.state
        if state is None:
            assert isinstance(logged.event, SessionCreated), "a session begins with its creation"
            self.state = initial_state(self._session_id, UserId(""), logged)
            return
        before = state.settings.mode
        closed = state.calls.get(logged.event.result.call_id) if isinstance(logged.event, CallSettled) else None
        given = state.calls.get(logged.event.call_id) if isinstance(logged.event, AnswerGiven) else None
        was_parked = given is not None and given.parked
        apply(state, logged)
        at = logged.at
        match logged.event:
            case SettingsChanged(change=change):
                self._on_settings_changed(change, before, at)
            case RunStarted() as started:
                self._on_run_started(started, logged)
            case RunStopped() as stopped:
                self._on_run_stopped(stopped, at)
            case MessageAdded(message=message):
                self._on_message_added(message, logged)
            case MessageOpened(message_id=message_id, loop=loop):
                self._on_message_opened(message_id, loop, logged)
            case BlockClosed() as block:
                self._on_block_closed(block, at)
            case CallOpened() as opened:
                self._add_call(self._open_steps[opened.message_id], opened.call, at)
            case MessageClosed() as message:
                self._on_message_closed(message, at)
            case CallStarted(call_id=call_id):
                self._call_started_at[call_id] = at
            case CallParked(call_id=call_id):
                self._request_permission(call_id)
            case AnswerGiven() as answer:
                assert given is not None, "an answer is about an open call"
                self._on_answer(answer, given, logged, was_parked=was_parked)
                return  # an answered question keeps its status until its result, which comes next
            case CallSettled() as settled:
                self._on_call_settled(settled, closed, logged)
            case MemoriesInjected(memories=memories):
                refs = [MemoryRef(each.id, each.preview, each.skill_name) for each in memories]
                if self.chat is not None:
                    self.chat.memories = refs or None
                told = {"turn_id": None, "memory_refs": refs, "count": len(refs)}
                self._emit("memory:inject:done", told, {"turn_id": None, "memory_refs": [], "count": 0})
            case CompactionMade() as made:
                self._on_compaction(made, logged)
            case PlanUpdated() as plan:
                self._on_plan(plan)
            case Branched() as branched:
                self.branch_marks.append((logged.seq, branched))
                self._emit("session:updated", {})
            case _:
                return
        self._update_call_statuses()

    # --- the chat -------------------------------------------------------------------------------------------------

    def _on_settings_changed(self, change: SettingsChange, before: Mode, at: datetime) -> None:
        if change.mode is not None and change.mode != before:
            self._pending_mode_block = Block("mode_change", {"from": before, "to": change.mode})
            self._pending_mode = change.mode
        assert self.state is not None, "the session has begun"
        told = updated_fields(change, self.state)
        if told:
            self._emit("session:updated", told)

    def _on_run_started(self, started: RunStarted, logged: LoggedEvent) -> None:
        self._begin_chat(wire_chat.public_run_id(started.run_id), started, logged.seq)
        self._chat_start_seq = logged.seq
        if self._pending_mode_block is not None:
            enters = self._pending_mode == "planning"
            blocks = [self._pending_mode_block, Block("planning_enter" if enters else "planning_exit", None)]
            self._pending_mode_block = None
            self._add_complete_turn("system", f"{logged.seq}-mode", blocks, logged)
        named = started.metadata.protocol.get("deprecate")
        if isinstance(named, list) and self._keeps_finished_turns:
            for each in self.turns:
                each.turn.deprecated = each.turn.deprecated or each.turn.id in named

    def _begin_chat(self, run_id: str, started: RunStarted | None, seq: int) -> None:
        self.chat = Chat(run_id, self.number + 1, started, seq)
        self._newest_turns = {}
        self._emit("chat:start", {})

    def _on_run_stopped(self, stopped: RunStopped, at: datetime) -> None:
        chat = self.chat
        if chat is None or chat.has_ended or wire_chat.public_run_id(stopped.run_id) != chat.run_id:
            return  # it never started
        for loop, plans in self._pending_plans.items():
            self._attach_remaining_plans(loop, plans, at)
        self._pending_plans = {}
        status, finish = CHAT_OUTCOMES[stopped.reason]
        for each in list(self.open_turns.values()):
            if each.awaits_run_end:
                each.awaits_run_end = False
                each.final_status = "failed" if status == "failed" else "interrupted"
                each.turn.failure_reason = (stopped.message or AGENT_FAILED_MESSAGE) if status == "failed" else None
                self._finish_turn(each, at)
        self._pause_turns(at)
        if stopped.reason == "error":
            code = error_code(stopped.code)
            self._emit(
                "system:error",
                {"message": stopped.message or AGENT_FAILED_MESSAGE, "code": code, "detail": stopped.code},
            )
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
            "result": None if stopped is None else self._headless_result(status, stopped),
            "finish_reason": finish,
            "waiting_for_input": any(True for _ in self.state.waiting_calls()),
        }
        if stopped is not None and stopped.reason in ("max_tokens", "refusal"):
            told["stop_reason"] = stopped.reason
        self._emit("chat:end", told)
        self.chat.has_ended = True
        self.chat.ended_at = at

    def _headless_result(self, status: str, stopped: RunStopped) -> JsonObject | None:
        """What a headless chat gives back (specification, 8.6)."""
        chat = self.chat
        if chat is None or not chat.is_headless:
            return None
        if status != "completed":
            return {
                "err_msg": stopped.message
                or ("The chat was stopped" if status == "interrupted" else AGENT_FAILED_MESSAGE)
            }
        last = self._newest_turns.get(ROOT)
        text = "" if last is None else "".join(each.content for each in last.turn.blocks if each.type == "text")
        if chat.schema is None:
            return {"output": text, "result": text}
        try:
            output = parse_json(text)
        except ValueError:
            return {"err_msg": "the answer is no JSON"}
        fields = output if isinstance(output, dict) else {}
        kept = {name: value for name, value in fields.items() if name not in ("output", "schema", "err_msg")}
        return {"output": output, "schema": chat.schema, **kept}

    # --- turns ----------------------------------------------------------------------------------------------------

    def _begin_turn(self, turn: Turn, at: datetime, seq: int) -> TurnBuilder:
        growing = TurnBuilder(turn, at, seq)
        self._entry_count += 1
        self.open_turns[turn.turn_id] = growing
        if self._keeps_finished_turns:
            self.turns.append(growing)
        self._emitter.emit_turn("turn:start", growing)
        return growing

    def _add_complete_turn(self, role: str, name: str, blocks: list[Block], logged: LoggedEvent) -> TurnBuilder:
        """A turn that is complete from its start."""
        message_id = MessageId(name)
        turn = self._new_turn(message_id, ROOT, role, logged.at)
        turn.blocks = blocks
        growing = self._begin_turn(turn, logged.at, logged.seq)
        growing.is_step_closed = True
        self._finish_turn(growing, logged.at)
        return growing

    def _new_turn(self, message_id: MessageId, loop: LoopId, role: str, at: datetime) -> Turn:
        above = forking_call(loop)
        return Turn(
            id=f"entry_{message_id}",
            sequence=self._entry_count,
            turn_id=f"turn_{message_id}",
            loop_id=wire_chat.public_loop_id(loop),
            role=role,  # type: ignore[arg-type]  # a role in fact
            blocks=[],
            tool_calls=[],
            started_at=at,
            parent_fork_tool_call_id=None if above is None else wire_chat.public_call_id(above),
            chat_run_id=self.chat.run_id if self.is_running and self.chat is not None else None,
        )

    def _finish_turn(self, builder: TurnBuilder, at: datetime) -> None:
        """End a turn, if nothing of it is still to come."""
        if not builder.is_complete():
            return
        if builder.turn.status == "paused":
            self._emit_patch(builder, builder.set_status(builder.final_status))
        builder.turn.status = builder.final_status
        self._emit_turn_end(builder, at)
        self.open_turns.pop(builder.turn.turn_id, None)

    def _emit_turn_end(self, builder: TurnBuilder, at: datetime) -> None:
        builder.update_duration(at)
        builder.patches_at_last_end = builder.patch_count
        self._emitter.emit_turn("turn:end", builder)

    def _pause_turns(self, at: datetime) -> None:
        """Pause the turns that wait, the innermost first; not those that were told so already."""
        for growing in reversed(list(self.open_turns.values())):
            if growing.turn.status == "streaming" or growing.patches_at_last_end != growing.patch_count:
                growing.turn.status = "paused"
                self._emit_turn_end(growing, at)

    # --- messages -------------------------------------------------------------------------------------------------

    def _on_message_added(self, message: core.Message, logged: LoggedEvent) -> None:
        match message:
            case core.UserMessage() if self.chat is not None and self.chat.has_merged_answer_text:
                self.chat.has_merged_answer_text = False
            case core.UserMessage():
                noted: Iterator[Attachment] = iter(())
                if self.is_running and self.chat is not None:
                    noted = self.chat.attachments
                said = self._add_complete_turn("user", message.id, turns.user_blocks(message, noted), logged)
                said.rewind_seq = logged.seq if self._chat_start_seq is None else self._chat_start_seq
                self._chat_start_seq = None
            case core.SystemMessage(content=text, origin=origin):
                kind = "text" if origin == "seed" else "system_notification"
                self._add_complete_turn("system", message.id, [Block(kind, text)], logged)
            case core.AssistantMessage():
                self._add_seeded_message(message, logged)
            case core.ToolMessage():
                self._add_result(message.call_id, "error" if message.is_error else "done", message, logged.at)

    def _add_seeded_message(self, message: core.AssistantMessage, logged: LoggedEvent) -> None:
        """An assistant's message that a client opened the session with."""
        turn = self._new_turn(message.id, message.loop, "assistant", logged.at)
        turn.status = "streaming"
        turn.model = message.model
        growing = self._begin_turn(turn, logged.at, logged.seq)
        blocks = (core.Text(message.content),) if isinstance(message.content, str) else message.content
        for index, block in enumerate(blocks):
            self._add_content(growing, index, block, logged.at)
        growing.is_step_closed = True
        self._finish_turn(growing, logged.at)

    def _on_message_opened(self, message_id: MessageId, loop: LoopId, logged: LoggedEvent) -> None:
        self._chat_start_seq = None
        turn = self._new_turn(message_id, loop, "assistant", logged.at)
        turn.status = "streaming"
        if self.chat is not None and loop == ROOT and ROOT not in self._newest_turns:
            turn.memory_refs = self.chat.memories
        growing = self._begin_turn(turn, logged.at, logged.seq)
        self._open_steps[message_id] = growing
        self._newest_turns[loop] = growing
        for plan in self._pending_plans.pop(loop, ()):
            self._emit_patch(growing, growing.add_block(plan))

    def _on_block_closed(self, closed: BlockClosed, at: datetime) -> None:
        step = self._open_steps[closed.message_id]
        if step.has_text_of(closed.index):
            step.join_text()
        else:
            self._add_content(step, closed.index, closed.block, at)

    def _add_content(self, builder: TurnBuilder, index: int, block: core.Block, at: datetime) -> None:
        match block:
            case core.Text(text=text):
                if text:
                    self._emit_patch(builder, builder.append_text(index, "text", text))
            case core.Thinking(text=text):
                if text:
                    self._emit_patch(builder, builder.append_text(index, "thinking", text))
            case core.Call():
                self._add_call(builder, block, at)
            case _:
                attachment = turns.attachment_of(block)
                self._emit_patch(
                    builder, builder.add_block(Block("text", turns.attachment_note(attachment), attachment=attachment))
                )

    def _on_message_closed(self, message: MessageClosed, at: datetime) -> None:
        step = self._open_steps.pop(message.message_id)
        step.is_step_closed = True
        step.turn.model = message.model
        if message.usage is not None:
            step.turn.usage = wire_chat.TokenUsage(message.usage.input_tokens, message.usage.output_tokens)
        match message.status:
            case "completed":
                step.final_status = "completed"
            case "failed" if message.loop != ROOT:
                step.final_status, step.turn.failure_reason = "failed", SUBAGENT_FAILED_MESSAGE
            case "failed":
                step.final_status, step.awaits_run_end = "failed", True  # the run's end tells why
            case _:
                step.final_status = "interrupted"
        self._finish_turn(step, at)

    def _on_compaction(self, made: CompactionMade, logged: LoggedEvent) -> None:
        message_id = MessageId(f"{logged.seq}-compaction")
        turn = self._new_turn(message_id, ROOT, "system", logged.at)
        turn.kind = "compaction"
        turn.compaction_id = wire_chat.compaction_id(logged.seq)
        turn.summary_full, turn.summary_preview = made.summary, made.summary[:SUMMARY_PREVIEW_CHARS]
        turn.archived_count, turn.trigger = made.archived_count, made.trigger
        turn.tokens_before, turn.tokens_after = made.tokens_before, made.tokens_after
        turn.saved_ratio = saved_ratio(made.tokens_before, made.tokens_after)
        growing = self._begin_turn(turn, logged.at, logged.seq)
        growing.is_step_closed = True
        self._finish_turn(growing, logged.at)

    def _on_plan(self, plan: PlanUpdated) -> None:
        steps = [{"title": each.title, "status": each.status} for each in plan.steps]
        block = Block("plan_status", {"status": plan.status, "steps": steps})
        newest = self._newest_turns.get(plan.loop)
        if newest is not None and not newest.is_step_closed:
            self._emit_patch(newest, newest.add_block(block))
        else:
            self._pending_plans.setdefault(plan.loop, []).append(block)

    def _attach_remaining_plans(self, loop: LoopId, plans: list[Block], at: datetime) -> None:
        """A plan that no step came after belongs to the last one."""
        newest = self._newest_turns.get(loop)
        if newest is not None:
            for plan in plans:
                self._emit_patch(newest, newest.add_block(plan))
            if newest.turn.turn_id not in self.open_turns:
                self._emit_turn_end(newest, at)

    # --- calls ----------------------------------------------------------------------------------------------------

    def _add_call(self, builder: TurnBuilder, call: core.Call, at: datetime) -> None:
        text, parsed = turns.arguments_of(call)
        title = self._titles.get(call.name, call.name)
        shown = ToolCall(wire_chat.public_call_id(call.call_id), call.name, title, text, "pending")
        opened = None if self.state is None else self.state.calls.get(call.call_id)
        if opened is not None and opened.kind == "question":
            shown.status = "awaiting_answer"
        builder.open_calls[call.call_id] = shown
        self._open_calls[call.call_id] = builder, call
        self._call_started_at[call.call_id] = at
        self._emit_patch(builder, builder.add_call(shown, parsed))
        if opened is not None and opened.kind == "permission":
            self._request_permission(call.call_id)

    def _request_permission(self, call_id: CallId) -> None:
        """Ask whether a call may run: a question beside it, of the same turn."""
        growing, call = self._open_calls[call_id]
        asked, arguments = turns.permission_call(call)
        known = next((each for each in growing.turn.tool_calls if each.id == asked.id), None)
        if known is None:
            self._emit_patch(growing, growing.add_call(asked, arguments))
        else:
            self._emit_patch(growing, growing.set_call_status(known, "awaiting_answer"))

    def _on_answer(self, answer: AnswerGiven, call: OpenCall, logged: LoggedEvent, *, was_parked: bool) -> None:
        """A decision about a call. Answers to questions, and an application's results, come with the call's result."""
        if call.kind != "permission" and not was_parked:
            return
        self._chat_start_seq = None
        growing, asked = self._open_calls[answer.call_id]
        question = next(each for each in growing.turn.tool_calls if each.id == wire_chat.permission_id(answer.call_id))
        label = turns.PERMISSION_OPTIONS[2]
        if answer.granted:
            assert self.state is not None, "the session has begun"
            label = turns.PERMISSION_OPTIONS[1 if asked.name in self.state.settings.trusted_tools else 0]
        answers = turns.permission_answers(asked, label, answer.reason)
        is_alone = not self.is_running
        if is_alone:
            self._begin_chat(f"answer_{logged.seq}", None, logged.seq)
        _, arguments = turns.permission_call(asked)
        block = turns.answer_block(question.id, arguments, answers)
        self._add_answer_turn(block, logged)
        took = turns.ms_between(self._call_started_at[answer.call_id], logged.at)
        self._emit_patch(growing, growing.add_result(question, "done", {"answers": answers}, took))
        self._update_call_statuses()
        if is_alone:
            self._pause_turns(logged.at)
            self._end_chat("completed", "completed", None, logged.at)

    def _on_call_settled(self, settled: CallSettled, call: OpenCall | None, logged: LoggedEvent) -> None:
        self._chat_start_seq = None
        result = settled.result
        status = turns.outcome_status(settled.outcome)
        is_answer = call is not None and call.kind == "question" and call.granted is not None
        is_decided = call is not None and call.granted is not None and status != "cancelled"
        is_alone = is_decided and not self.is_running
        if is_alone:
            self._begin_chat(f"answer_{logged.seq}", None, logged.seq)
        if is_answer and call is not None:
            self._add_question_answer(call, result, logged)
        if status == "cancelled":
            self._cancel_call(result.call_id, logged.at)
        else:
            self._add_result(result.call_id, status, result, logged.at)
        if is_alone:
            self._update_call_statuses()
            self._pause_turns(logged.at)
            self._end_chat("completed", "completed", None, logged.at)

    def _add_question_answer(self, call: OpenCall, result: core.ToolMessage, logged: LoggedEvent) -> None:
        answers: list[JsonObject] = []
        if isinstance(result.raw, dict):
            answers = result.raw.get("answers", [])
        block = turns.answer_block(wire_chat.public_call_id(call.call.call_id), call.call.input, answers)
        self._add_answer_turn(block, logged)

    def _add_answer_turn(self, block: Block, logged: LoggedEvent) -> None:
        """An answer as a turn of the user's, with what was said along with it."""
        blocks, chat = [block], self.chat
        if chat is not None and chat.answer_text is not None:
            blocks.append(Block("text", chat.answer_text))
            chat.answer_text, chat.has_merged_answer_text = None, True
        self._add_complete_turn("user", f"{logged.seq}-answer", blocks, logged)

    def _add_result(
        self, call_id: CallId, status: wire_chat.CallStatus, result: core.ToolMessage, at: datetime
    ) -> None:
        """Give a call its result, with what its `_meta` holds."""
        growing, _ = self._open_calls.pop(call_id, (None, None))
        if growing is None:
            return  # a result without its call
        shown = growing.open_calls.pop(call_id)
        value = turns.result_value(result)
        took = turns.ms_between(self._call_started_at.pop(call_id, at), at)
        self._emit_patch(growing, growing.add_result(shown, status, value, took))
        for part in turns.meta_blocks(value, shown):
            if isinstance(part, Block):
                self._emit_patch(growing, growing.add_block(part))
            else:
                told = {
                    "notification_type": "tool_meta_invalid",
                    "title": f"{shown.tool_name} returned what cannot be shown",
                    "detail": part.reason,
                    "status": "warning",
                }
                self._emit("system:notification", told)
        self._finish_turn(growing, at)

    def _cancel_call(self, call_id: CallId, at: datetime) -> None:
        growing, _ = self._open_calls.pop(call_id)
        shown = growing.open_calls.pop(call_id)
        self._call_started_at.pop(call_id, None)
        self._emit_patch(growing, growing.set_call_status(shown, "cancelled"))
        question = wire_chat.permission_id(call_id)
        for each in growing.turn.tool_calls:
            if each.id == question and each.status == "awaiting_answer":
                self._emit_patch(growing, growing.set_call_status(each, "cancelled"))
        growing.final_status = "interrupted"
        growing.awaits_run_end = self.is_running
        self._finish_turn(growing, at)

    def _update_call_statuses(self) -> None:
        """Bring the statuses of open calls, and of paused turns, in line with what is waited for."""
        assert self.state is not None, "the session has begun"
        if not self.state.calls:
            return
        waits = pending_questions(self.state)
        for call_id, call in self.state.calls.items():
            if call.granted is False:
                continue  # its result comes next
            growing, _ = self._open_calls[call_id]
            shown = growing.open_calls[call_id]
            ref = waits.get(call_id)
            status: wire_chat.CallStatus = "pending"
            if call_id in waits:
                status = "awaiting_answer"
            if (shown.status, shown.pending_question_ref) != (status, ref):
                self._emit_patch(growing, growing.set_call_status(shown, status, ref))
            if growing.turn.status == "paused" and self.is_running and not is_waiting(self.state, growing, waits):
                self._emit_patch(growing, growing.set_status("streaming"))

    # --- telling --------------------------------------------------------------------------------------------------

    @property
    def _run_id(self) -> str | None:
        return None if self.chat is None else self.chat.run_id

    def _emit_patch(self, builder: TurnBuilder, change: turns.PatchContent) -> None:
        self._emitter.emit_patch(builder, change, self._run_id)

    def _emit(self, name: str, payload: JsonObject, viewer_payload: JsonObject | None = None) -> None:
        self._emitter.emit_event(name, payload, self._run_id if self.is_running else None, viewer_payload)
