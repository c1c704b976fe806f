"""Blade's turns: how one grows and ends, and the list of those of a session. Pure.

A turn changes only together with a patch, so that folding the patches gives `turn:end` (specification, section 7, G1).
"""

from datetime import datetime

import msgspec

from dragoman.core.content import Json, JsonObject, MessageStatus
from dragoman.core.events import LoggedEvent
from dragoman.core.ids import ROOT, CallId, LoopId
from dragoman.core.session import SessionState
from dragoman.protocols.blade.projection.emitter import Emitter, OutgoingEvent
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.chat import Block, CallStatus, ChatEnd, QuestionRef, ToolCall, Turn, TurnStatus

FULL_CONTENT_MAX_CHARS = 4096
"""The length up to which every patch repeats the whole content of a growing block (`PatchOptions`)."""
FULL_CONTENT_EVERY_PATCHES = 16
"""How often the patches of a longer block do."""

RESULT_BLOCKS = ("tool_result", "tool_bridge", "tool_ui")
"""The blocks that show the result of a call."""


class TurnBuilder:
    """A turn that may still change. Each change emits a patch."""

    def __init__(self, turn: Turn, logged: LoggedEvent, emitter: Emitter) -> None:
        self.turn = turn
        self.started_at = logged.at
        self.first_seq = logged.seq
        self.rewind_seq: int | None = None
        """For a user turn: the event before which the conversation ends after a rewind to this turn."""
        self.chat_end: ChatEnd | None = None
        """How the chat ended whose last turn this is, if its answer is not complete."""
        self.chat_end_seq = 0
        self.patch_count = 0
        self.patches_at_last_end = -1
        """How many patches there were when the turn's end was last sent."""
        self.patches_at_last_sync = 0
        """How many there were when the growing turn was last sent whole."""
        self.is_step_closed = False
        """Whether the model step has ended; the turn ends when its calls have their results too."""
        self.final_status: TurnStatus = "completed"
        self.awaits_run_end = False
        """Whether the run's end decides how the turn ends."""
        self.open_calls: set[CallId] = set()
        """The calls without a result."""
        self._settled: list[tuple[int, ToolCall]] = []
        """The other calls, and the event that ended each."""
        self._emitter = emitter
        self.growing_index = -1
        """The step's index of the block whose text arrives, or arrived last."""
        self._block_position = 0
        self._deltas: list[str] = []
        self._char_count = 0
        self._delta_count = 0

    @property
    def is_checkpoint(self) -> bool:
        """Whether the conversation can go back to before this turn."""
        return self.rewind_seq is not None

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the turn is still to come."""
        return self.is_step_closed and not self.open_calls and not self.awaits_run_end

    def append_text(self, index: int, kind: str, text: str) -> None:
        """Append text to the step's block of that index."""
        blocks = self.turn.blocks
        if index != self.growing_index:
            self.join_text()
            self.growing_index, self._block_position = index, len(blocks)
            self._deltas, self._char_count, self._delta_count = [], 0, 0
            blocks.append(Block(kind, ""))
        self._deltas.append(text)
        self._char_count += len(text)
        self._delta_count += 1
        data: JsonObject = {"type": kind, "block_index": self._block_position, "text_delta": text}
        is_short = self._char_count <= FULL_CONTENT_MAX_CHARS
        if is_short or self._delta_count % FULL_CONTENT_EVERY_PATCHES == 0 or self._emitter.repeats_content:
            data["content"] = self.join_text()
        self._patch("add_content", data)

    def join_text(self) -> str:
        """Join the deltas of the growing block, and return its text so far."""
        if not self._deltas:
            return ""
        text = self._deltas[0] if len(self._deltas) == 1 else "".join(self._deltas)
        self._deltas = [text]
        self.turn.blocks[self._block_position].content = text
        return text

    def add_block(self, block: Block) -> None:
        """Add a whole block."""
        self.turn.blocks.append(block)
        self._patch("add_content", {"block_index": len(self.turn.blocks) - 1, **msgspec.to_builtins(block)})

    def add_call(self, call: ToolCall, arguments: Json) -> None:
        """Add a call, and the block that declares it."""
        self.turn.tool_calls.append(call)
        self.turn.blocks.append(Block("tool_use", arguments, call.id, call.tool_name, call.display_name))
        fields = ("id", "tool_name", "display_name", "arguments", "status")
        self._patch("add_tool_call", {name: getattr(call, name) for name in fields})

    def add_result(
        self, call: ToolCall, status: CallStatus, result: Json, started_at: datetime, logged: LoggedEvent
    ) -> None:
        """Set the result of a call, and add the block that shows it."""
        self._settled.append((logged.seq, call))
        duration_ms = ms_between(started_at, logged.at)
        call.status, call.result, call.duration_ms, call.pending_question_ref = status, result, duration_ms, None
        self.turn.blocks.append(Block("tool_result", result, call.id, call.tool_name, call.display_name))
        data = {"tool_call_id": call.id, "result": result, "status": status, "duration_ms": duration_ms}
        self._patch("tool_result", data)

    def set_call_status(self, call: ToolCall, status: CallStatus, ref: QuestionRef | None, **extension: Json) -> None:
        """Set the status of a call, and the question that it waits for."""
        call.status, call.pending_question_ref = status, ref
        data = {"tool_call_id": call.id, "status": status, "pending_question_ref": ref}
        self._patch("set_tool_status", {**data, **extension})

    def cancel_call(self, call: ToolCall, started_at: datetime, logged: LoggedEvent) -> None:
        """Cancel a call. Its duration is an extension of the patch."""
        self._settled.append((logged.seq, call))
        call.duration_ms = ms_between(started_at, logged.at)
        self.set_call_status(call, "cancelled", None, duration_ms=call.duration_ms)

    def cancel_calls_settled_elsewhere(self, state: SessionState) -> None:
        """Show as cancelled what ended on another branch (`core.branches`)."""
        turn = self.turn
        for seq, call in self._settled:
            if not state.is_visible(seq):
                call.status, call.result, turn.status = "cancelled", None, "interrupted"
                turn.blocks = [
                    each for each in turn.blocks if each.tool_call_id != call.id or each.type not in RESULT_BLOCKS
                ]

    def set_status(self, status: TurnStatus) -> None:
        """Set the status of an unfinished turn."""
        self.turn.status = status
        self._patch("set_status", {"status": status})

    def set_final_status(self, status: MessageStatus) -> None:
        """Set how the turn will end. One that a crash cut off is marked, because its step is repeated."""
        self.final_status = "interrupted" if status == "cut" else status
        if status == "cut":
            self.turn.cut = True

    def send_end(self, at: datetime) -> None:
        """Send the turn as it is now, as its end."""
        self.join_text()
        self.turn.duration_ms = ms_between(self.started_at, at)
        self.patches_at_last_end = self.patch_count
        self._emitter.emit_turn("turn:end", self.turn, self.patch_count)

    def _patch(self, patch_type: str, data: JsonObject) -> None:
        self.patch_count += 1
        self._emitter.emit_patch(self.turn, self.patch_count, patch_type, data)


def ms_between(start: datetime, end: datetime) -> int:
    """Return the whole milliseconds between two times; 0 if the clock went back."""
    return max(0, round((end - start).total_seconds() * 1000))


class TurnList:
    """The turns of a session.

    Args:
        emitter: sends the turns and their changes.
        keeps_finished: whether turns that have ended stay in `all`; if not, only `open` is filled.
    """

    def __init__(self, emitter: Emitter, *, keeps_finished: bool) -> None:
        self.keeps_finished = keeps_finished
        self.all: list[TurnBuilder] = []
        self.open: dict[str, TurnBuilder] = {}
        """The turns that have not ended, by their turn id."""
        self.newest: dict[LoopId, TurnBuilder] = {}
        """The newest assistant turn of each loop that belongs to the chat."""
        self._emitter = emitter
        self._entry_count = 0

    def begin(
        self, message_id: str, role: str, logged: LoggedEvent, loop: LoopId = ROOT, **fields: Json
    ) -> TurnBuilder:
        """Begin a turn with an event. `fields` are its other fields."""
        running = self._emitter.running_chat
        turn = Turn(
            id=f"entry_{message_id}",
            sequence=self._entry_count,
            turn_id=chat.public_turn_id(message_id),
            loop_id=chat.public_loop_id(loop),
            role=role,  # type: ignore[arg-type]  # a role in fact
            started_at=logged.at,
            parent_fork_tool_call_id=chat.parent_call_id(loop),
            chat_run_id=None if running is None else running.run_id,
            **fields,
        )
        builder = TurnBuilder(turn, logged, self._emitter)
        self._entry_count += 1
        self.open[turn.turn_id] = builder
        if self.keeps_finished:
            self.all.append(builder)
        self._emitter.emit_turn("turn:start", turn, 0)
        return builder

    def begin_step(self, message_id: str, logged: LoggedEvent, loop: LoopId, **fields: Json) -> TurnBuilder:
        """Begin the turn of a model step."""
        return self.begin(message_id, "assistant", logged, loop, status="streaming", **fields)

    def add_complete(self, message_id: str, role: str, logged: LoggedEvent, **fields: Json) -> TurnBuilder:
        """Add a turn that is complete from its start."""
        builder = self.begin(message_id, role, logged, **fields)
        self.end_step(builder, logged.at)
        return builder

    def add_note(self, name: str, role: str, logged: LoggedEvent, **fields: Json) -> None:
        """Add a complete turn for an event that is not a message. Its ids are unique over all sessions."""
        self.add_complete(f"{self._emitter.session_id}-{logged.seq}-{name}", role, logged, **fields)

    def end_step(self, builder: TurnBuilder, at: datetime) -> None:
        """End the model step of a turn, and the turn itself if its calls have their results."""
        builder.is_step_closed = True
        self.finish_if_complete(builder, at)

    def finish_if_complete(self, builder: TurnBuilder, at: datetime) -> None:
        """End a turn if nothing of it is still to come."""
        if not builder.is_complete:
            return
        if builder.turn.status == "paused":
            builder.set_status(builder.final_status)
        builder.turn.status = builder.final_status
        builder.send_end(at)
        self.open.pop(builder.turn.turn_id, None)

    def pause_open(self, at: datetime) -> None:
        """Pause the turns that wait, the innermost first, unless their last end already showed it."""
        for builder in reversed(list(self.open.values())):
            if builder.turn.status == "streaming" or builder.patches_at_last_end != builder.patch_count:
                builder.turn.status = "paused"
                builder.send_end(at)

    def last_visible(self, state: SessionState) -> TurnBuilder | None:
        """Return the newest turn of the active branch that is the user's or the root loop's; None without `all`."""
        for each in reversed(self.all):
            if each.turn.loop_id == ROOT and each.turn.role != "system" and state.is_visible(each.first_seq):
                return each
        return None

    def snapshot(self) -> list[OutgoingEvent]:
        """Return the open turns as events for a reader who joins now."""
        for each in self.open.values():
            each.join_text()
        return [self._emitter.make_turn_event("turn:start", each.turn, each.patch_count) for each in self.open.values()]

    def sync_events(self) -> list[OutgoingEvent]:
        """Return the turns that grew since the last call, as `sync` patches.

        They depend on timers and not on the log, so they have no number: each repeats the patches up to its
        `sequence`, and a client that folds patches drops it. Source: specification, section 7; shared rules, 7.
        """
        grown = [
            each
            for each in self.open.values()
            if each.turn.status == "streaming" and each.patch_count > each.patches_at_last_sync
        ]
        for each in grown:
            each.patches_at_last_sync = each.patch_count
            each.join_text()
        return [self._emitter.make_sync_event(each.turn, each.patch_count) for each in grown]
