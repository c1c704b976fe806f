"""A session's log as Blade's turns and events. Pure: the same records give the same events with the same numbers.

    chat       chat:start ─► [system turn: mode] ─► user turn ─► [memory:inject:done] ─► assistant turns … ─► chat:end
    turn       turn:start ─► turn:patch 1, 2, 3 … ─► turn:end       a paused turn continues later, with another turn:end
    call       pending | awaiting_answer ─► … ─► done | error | cancelled

A model step is a turn, which lasts until all its calls have their results. A call that asks a person waits, with every
call above it, and their turns pause when the run ends. An answer that starts no run, because other answers are still
missing, is a short separate chat.
Source: specification, sections 3, 4, 7 and 8; shared rules, 7, 12, 16, 18, 24.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import datetime
from types import MappingProxyType

from dragoman.core import content as core
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
    PlanUpdated,
    RunStarted,
    RunStopped,
    SessionCreated,
    SettingsChanged,
)
from dragoman.core.ids import ROOT, MessageId, SessionId, UserId
from dragoman.core.open_calls import OpenCall
from dragoman.core.session import SessionState, apply, initial_state
from dragoman.core.stream import Piece, Record
from dragoman.protocols.blade.projection import blocks
from dragoman.protocols.blade.projection.calls import CallList
from dragoman.protocols.blade.projection.chats import ChatList, saved_ratio
from dragoman.protocols.blade.projection.emitter import Emitter, OutgoingEvent
from dragoman.protocols.blade.projection.turns import TurnBuilder, TurnList
from dragoman.protocols.blade.wire import chat as wire
from dragoman.protocols.blade.wire.chat import Block, MemoryRef

SUMMARY_PREVIEW_CHARS = 200
SUBAGENT_FAILED_MESSAGE = "The sub-agent failed"


class Projection:
    """Turns the records of a session into turns and events, from the first record on.

    Args:
        titles: the tools' names for people.
        keeps_finished_turns: whether `turns.all` is filled; if not, only unfinished turns stay in memory.
    """

    def __init__(
        self,
        session_id: SessionId,
        titles: Mapping[str, str] = MappingProxyType({}),
        *,
        keeps_finished_turns: bool = False,
    ) -> None:
        self.state: SessionState | None = None
        self.emitter = Emitter(wire.public_session_id(session_id))
        self.branch_marks: list[tuple[int, Branched]] = []
        """The events at which the session left a branch."""
        self._session_id = session_id
        self.turns = TurnList(self.emitter, keeps_finished=keeps_finished_turns)
        self._calls = CallList(self.turns, self.emitter, titles)
        self._chats = ChatList(self.emitter, self.turns, self._calls)
        self._open_steps: dict[MessageId, TurnBuilder] = {}

    def feed(self, record: Record) -> list[OutgoingEvent]:
        """Take the next record, and return the events that it makes."""
        if type(record) is Piece:
            step = self._open_steps.get(record.message_id)
            if step is None:
                return []
            step.append_text(record.index, record.kind, record.text)
        else:
            self._apply_event(record)
        return self.emitter.take_events()

    def snapshot(self) -> list[OutgoingEvent]:
        """Return the beginning of the running chat and its open turns, for a reader who joins now.

        These events repeat others, so they have no number. Source: specification, section 9, rule 1.
        """
        if (chat := self.emitter.running_chat) is None:
            return []
        return [self.emitter.make_snapshot_start(chat.run_id), *self.turns.snapshot()]

    # --- one event ------------------------------------------------------------------------------------------------

    def _apply_event(self, logged: LoggedEvent) -> None:  # noqa: C901  # one case for each kind of event
        if self.state is None:
            assert isinstance(logged.event, SessionCreated), "a session begins with its creation"
            self.state = initial_state(self._session_id, UserId(""), logged)
            return
        state, at = self.state, logged.at
        mode_before = state.settings.mode
        call_before: OpenCall | None = None
        if isinstance(logged.event, CallSettled):
            call_before = state.calls.get(logged.event.result.call_id)
        elif isinstance(logged.event, AnswerGiven):
            call_before = state.calls[logged.event.call_id]
        asks_person = call_before is not None and call_before.asks_person
        apply(state, logged)
        match logged.event:
            case SettingsChanged(change=change):
                self._chats.change_settings(state, change, mode_before)
            case RunStarted() as started:
                self._chats.start(started, logged)
            case RunStopped() as stopped:
                self._chats.stop(state, stopped, logged)
            case MessageAdded(message=message):
                self._on_message_added(message, logged)
            case MessageOpened() as message:
                self._on_message_opened(message, logged)
            case BlockClosed() as closed:
                self._on_block_closed(closed, logged)
            case CallOpened(call=call) as opened:
                self._calls.add(self._open_steps[opened.message_id], call, at, state.calls.get(call.call_id))
            case MessageClosed() as message:
                self._on_message_closed(message, at)
            case CallStarted(call_id=call_id):
                self._calls.start(call_id, at)
            case CallParked(call_id=call_id):
                self._calls.ask(state.calls[call_id])
            case AnswerGiven() as answer:
                if asks_person:  # other answers come with the call's result
                    self._on_answer(state, answer, logged)
                return  # an answered question keeps its status until its result, which comes next
            case CallSettled() as settled:
                self._on_call_settled(state, settled, call_before, logged)
            case MemoriesInjected(memories=memories):
                refs = [MemoryRef(each.id, each.preview, each.skill_name) for each in memories]
                if self.emitter.chat is not None:
                    self.emitter.chat.memories = refs or None
                fields = {"turn_id": None, "memory_refs": refs, "count": len(refs)}
                self.emitter.emit("memory:inject:done", fields, {"turn_id": None, "memory_refs": [], "count": 0})
            case CompactionMade() as compaction:
                self._on_compaction(compaction, logged)
            case PlanUpdated() as plan:
                self._chats.add_plan(plan)
            case Branched() as branched:
                self.branch_marks.append((logged.seq, branched))
                self.emitter.emit("session:updated", {"reload": True})
            case _:
                return
        self._calls.update_statuses(state, is_running=self.emitter.running_chat is not None)

    # --- messages -------------------------------------------------------------------------------------------------

    def _on_message_added(self, message: core.Message, logged: LoggedEvent) -> None:
        chat = self.emitter.chat
        match message:
            case core.UserMessage() if chat is not None and chat.has_merged_answer_text:
                chat.has_merged_answer_text = False
            case core.UserMessage():
                running = self.emitter.running_chat
                attachments = iter(()) if running is None else running.attachments
                content = blocks.user_blocks(message, attachments, self._attachment_path(logged.seq))
                turn = self.turns.add_complete(message.id, "user", logged, blocks=content)
                turn.rewind_seq = logged.seq if self._chats.start_seq is None else self._chats.start_seq
                self._chats.start_seq = None
            case core.SystemMessage(content=text, origin=origin):
                block = Block("text" if origin == "seed" else "system_notification", text)
                self.turns.add_complete(message.id, "system", logged, blocks=[block])
            case core.AssistantMessage():  # of a history that a client sent
                turn = self.turns.begin_step(message.id, logged, message.loop, model=message.model)
                for index, part in enumerate(core.blocks_of(message.content)):
                    self._add_content(turn, index, part, logged)
                turn.set_final_status(message.status)
                self.turns.end_step(turn, logged.at)
            case core.ToolMessage():
                self._calls.settle(message, "error" if message.is_error else "done", logged)

    def _on_message_opened(self, message: MessageOpened, logged: LoggedEvent) -> None:
        self._chats.start_seq = None
        is_first = message.loop == ROOT and ROOT not in self.turns.newest
        chat = self.emitter.chat
        memory_refs = chat.memories if chat is not None and is_first else None
        turn = self.turns.begin_step(message.message_id, logged, message.loop, memory_refs=memory_refs)
        self._open_steps[message.message_id] = turn
        self.turns.newest[message.loop] = turn
        for plan in self._chats.take_plans(message.loop):
            turn.add_block(plan)

    def _on_block_closed(self, closed: BlockClosed, logged: LoggedEvent) -> None:
        step = self._open_steps[closed.message_id]
        if step.growing_index == closed.index:
            step.join_text()
        else:
            self._add_content(step, closed.index, closed.block, logged)

    def _attachment_path(self, seq: int) -> str:
        """Return the path of attachments that event `seq` added, without their index."""
        return f"/api/sessions/{self.emitter.session_id}/attachments/{seq}"

    def _add_content(self, turn: TurnBuilder, index: int, block: core.Block, logged: LoggedEvent) -> None:
        match block:
            case core.Text(text=text) | core.Thinking(text=text):
                if text:
                    turn.append_text(index, "text" if isinstance(block, core.Text) else "thinking", text)
            case core.Call():
                opened = None if self.state is None else self.state.calls.get(block.call_id)
                self._calls.add(turn, block, logged.at, opened)
            case _:
                turn.add_block(blocks.attachment_block(block, f"{self._attachment_path(logged.seq)}-{index}"))

    def _on_message_closed(self, message: MessageClosed, at: datetime) -> None:
        step = self._open_steps.pop(message.message_id)
        step.turn.model = message.model
        step.turn.context_window = message.context_window or 0
        if message.usage is not None:
            step.turn.usage = wire.TokenUsage(message.usage.input_tokens, message.usage.output_tokens)
        step.set_final_status(message.status)
        if message.status == "failed" and message.loop == ROOT:
            step.awaits_run_end = True  # the run's end says why
        elif message.status == "failed":
            step.turn.failure_reason = SUBAGENT_FAILED_MESSAGE
        self.turns.end_step(step, at)

    def _on_compaction(self, compaction: CompactionMade, logged: LoggedEvent) -> None:
        self.turns.add_note(
            "compaction",
            "system",
            logged,
            kind="compaction",
            compaction_id=wire.compaction_id(self.emitter.session_id, logged.seq),
            summary_full=compaction.summary,
            summary_preview=compaction.summary[:SUMMARY_PREVIEW_CHARS],
            archived_count=compaction.archived_count,
            trigger=compaction.trigger,
            tokens_before=compaction.tokens_before,
            tokens_after=compaction.tokens_after,
            saved_ratio=saved_ratio(compaction.tokens_before, compaction.tokens_after),
        )

    # --- answers and results --------------------------------------------------------------------------------------

    def _on_answer(self, state: SessionState, answer: AnswerGiven, logged: LoggedEvent) -> None:
        self._chats.start_seq = None
        with self._chats.answering(state, logged):
            block = self._calls.answer_block(answer, state.calls[answer.call_id], state.settings.trusted_tools)
            self._add_answer_turn(block, logged)
            self._calls.settle_question(answer.call_id, block, logged)

    def _on_call_settled(
        self, state: SessionState, settled: CallSettled, call: OpenCall | None, logged: LoggedEvent
    ) -> None:
        self._chats.start_seq = None
        result, is_cancelled = settled.result, settled.outcome == "cancelled"
        is_decided = call is not None and call.granted is not None
        with self._chats.answering(state, logged) if is_decided and not is_cancelled else nullcontext():
            if call is not None and call.kind == "question" and is_decided and not call.keeps_answer:
                answers = result.raw.get("answers", []) if isinstance(result.raw, dict) else []
                block = blocks.answer_block(wire.public_call_id(result.call_id), call.call.input, answers)
                self._add_answer_turn(block, logged)
            if is_cancelled:
                self._calls.cancel(result.call_id, logged, is_running=self.emitter.running_chat is not None)
            else:
                self._calls.settle(result, "done" if settled.outcome == "done" else "error", logged)

    def _add_answer_turn(self, block: Block, logged: LoggedEvent) -> None:
        """Show an answer as a turn of the user, with the text sent together with it."""
        content, chat = [block], self.emitter.chat
        if chat is not None and chat.answer_text is not None:
            content.append(Block("text", chat.answer_text))
            chat.answer_text, chat.has_merged_answer_text = None, True
        self.turns.add_note("answer", "user", logged, blocks=content)
