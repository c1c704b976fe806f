"""Blade's chats: how runs, and answers that start none, begin and end one, and what sessions report beside. Pure.

Source: specification, 6.2; shared rules, 24.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, NamedTuple

import msgspec

from dragoman.core.content import JsonObject
from dragoman.core.events import LoggedEvent, PlanUpdated, RunStarted, RunStopped, SettingsChange, StopReason
from dragoman.core.ids import ROOT, LoopId
from dragoman.core.json_schema import parse_json
from dragoman.core.run_metadata import NO_METADATA, RunMetadata
from dragoman.core.session import SessionState
from dragoman.protocols.blade.projection.calls import CallList
from dragoman.protocols.blade.projection.emitter import Chat, Emitter
from dragoman.protocols.blade.projection.turns import TurnList
from dragoman.protocols.blade.wire import chat as wire
from dragoman.protocols.blade.wire.chat import Block


class ChatOutcome(NamedTuple):
    """How a chat ended."""

    status: Literal["completed", "interrupted", "failed"]
    finish_reason: str | None


CHAT_OUTCOMES: Mapping[StopReason, ChatOutcome] = {
    "end_turn": ChatOutcome("completed", "completed"),
    "tool_use": ChatOutcome("completed", "completed"),
    "max_tokens": ChatOutcome("completed", "completed"),
    "refusal": ChatOutcome("completed", "completed"),
    "max_steps": ChatOutcome("completed", "max_turns"),
    "cancelled": ChatOutcome("interrupted", None),
    "error": ChatOutcome("failed", None),
    "interrupted": ChatOutcome("interrupted", None),
}
"""The outcome of a chat for each reason why a run stops (shared rules, 24)."""
AGENT_FAILED_MESSAGE = "The agent failed"
MODEL_CODES = frozenset({"model_error", "model_unavailable", "context_too_long"})


class ChatList:
    """Begins and ends the chats of a session. The newest one is the emitter's."""

    def __init__(self, emitter: Emitter, turns: TurnList, calls: CallList) -> None:
        self.start_seq: int | None = None
        """Where the chat began, until its first turn begins."""
        self._emitter = emitter
        self._turns = turns
        self._calls = calls
        self._pending_mode_blocks: list[Block] = []
        self._pending_plans: dict[LoopId, list[Block]] = {}

    def change_settings(self, state: SessionState, change: SettingsChange, mode_before: str) -> None:
        """Report changed settings. A changed mode is shown when the next chat begins."""
        if change.mode is not None and change.mode != mode_before:
            self._pending_mode_blocks = [
                Block("mode_change", {"from": mode_before, "to": change.mode}),
                Block("planning_enter" if change.mode == "planning" else "planning_exit", None),
            ]
        if fields := updated_fields(change, state):
            self._emitter.emit("session:updated", fields)

    def start(self, started: RunStarted, logged: LoggedEvent) -> None:
        """Begin the chat of a run."""
        self._begin(wire.public_run_id(started.run_id), logged.seq, started.metadata)
        self.start_seq = logged.seq
        if self._pending_mode_blocks:
            blocks, self._pending_mode_blocks = self._pending_mode_blocks, []
            self._turns.add_note("mode", "system", logged, blocks=blocks)
        deprecated = started.metadata.protocol.get("deprecate")
        if isinstance(deprecated, list):
            for each in self._turns.all:
                each.turn.deprecated = each.turn.deprecated or each.turn.id in deprecated

    def stop(self, state: SessionState, stopped: RunStopped, logged: LoggedEvent) -> None:
        """End the chat of a run, unless the run never started."""
        chat = self._emitter.running_chat
        if chat is None or wire.public_run_id(stopped.run_id) != chat.run_id:
            return
        self._attach_pending_plans(logged)
        status, finish_reason = CHAT_OUTCOMES[stopped.reason]
        message = stopped.message or AGENT_FAILED_MESSAGE
        chat_end = None
        if stopped.reason not in ("end_turn", "tool_use"):
            chat_end = wire.ChatEnd(status, stopped.code or stopped.reason, stopped.message)
            if (last_turn := self._turns.last_visible(state)) is not None:
                last_turn.chat_end, last_turn.chat_end_seq = chat_end, logged.seq
        for each in list(self._turns.open.values()):
            if each.awaits_run_end:
                each.awaits_run_end = False
                each.final_status = "failed" if status == "failed" else "interrupted"
                each.turn.failure_reason = message if status == "failed" else None
                self._turns.finish_if_complete(each, logged.at)
        self._turns.pause_open(logged.at)
        if stopped.reason == "error":
            code = _error_code(stopped.code)
            self._emitter.emit("system:error", {"message": message, "code": code, "detail": stopped.code})
            finish_reason = "tool_error" if code == "tool_error" else None
        if state.settings.replay is not None and state.settings.replay.is_on:
            self._emitter.emit("session:updated", {"replay_state": replay_state_of(state)})
        last = self._turns.newest.get(ROOT)
        text = "" if last is None else "".join(each.content for each in last.turn.blocks if each.type == "text")
        fields: JsonObject = {"result": _headless_result(chat, status, stopped, text), "finish_reason": finish_reason}
        if stopped.reason in ("max_tokens", "refusal"):
            fields["stop_reason"] = stopped.reason
        if chat_end is not None:
            fields["chat_end"] = msgspec.to_builtins(chat_end)
        self._end(chat, state, logged, {"status": status, **fields})

    @contextmanager
    def answering(self, state: SessionState, logged: LoggedEvent) -> Iterator[None]:
        """Wrap an answer into a separate chat, unless a chat runs."""
        chat = None
        if self._emitter.running_chat is None:
            chat = self._begin(wire.answer_run_id(self._emitter.session_id, logged.seq), logged.seq, NO_METADATA)
        yield
        self._calls.update_statuses(state, is_running=True)
        if chat is not None:
            self._turns.pause_open(logged.at)
            self._end(chat, state, logged, {"status": "completed", "result": None, "finish_reason": "completed"})

    def _begin(self, run_id: str, seq: int, metadata: RunMetadata) -> Chat:
        chat = self._emitter.chat = Chat(run_id, self._emitter.number + 1, seq, metadata)
        self._turns.newest = {}
        self._emitter.emit("chat:start", {})
        return chat

    def _end(self, chat: Chat, state: SessionState, logged: LoggedEvent, fields: JsonObject) -> None:
        is_waiting = any(True for _ in state.waiting_calls())
        self._emitter.emit("chat:end", {**fields, "waiting_for_input": is_waiting})
        chat.ended_at = logged.at

    # --- plans ------------------------------------------------------------------------------------------------------

    def add_plan(self, plan: PlanUpdated) -> None:
        """Show a plan in the step that its loop is at, or else in the next one."""
        block = Block("plan_status", plan.content())
        newest = self._turns.newest.get(plan.loop)
        if newest is not None and not newest.is_step_closed:
            newest.add_block(block)
        else:
            self._pending_plans.setdefault(plan.loop, []).append(block)

    def take_plans(self, loop: LoopId) -> list[Block]:
        """Return the plans that wait for the next step of a loop."""
        return self._pending_plans.pop(loop, [])

    def _attach_pending_plans(self, logged: LoggedEvent) -> None:
        """Attach the plans that no step followed to the last turn of their loop."""
        for loop in list(self._pending_plans):
            plans, newest = self.take_plans(loop), self._turns.newest.get(loop)
            if newest is not None:
                for plan in plans:
                    newest.add_block(plan)
                if newest.turn.turn_id not in self._turns.open:
                    newest.send_end(logged.at)


def _headless_result(chat: Chat, status: str, stopped: RunStopped, text: str) -> JsonObject | None:
    """Return the result of a headless chat whose last turn has this text (specification, 8.6), else None."""
    if not chat.is_headless:
        return None
    if status != "completed":
        default = "The chat was stopped" if status == "interrupted" else AGENT_FAILED_MESSAGE
        return {"err_msg": stopped.message or default}
    if chat.schema is None:
        return {"output": text, "result": text}
    try:
        output = parse_json(text)
    except ValueError:
        return {"err_msg": "the answer is not JSON"}
    fields = output if isinstance(output, dict) else {}
    extra = {name: value for name, value in fields.items() if name not in ("output", "schema", "err_msg")}
    return {"output": output, "schema": chat.schema, **extra}


def updated_fields(change: SettingsChange, state: SessionState) -> JsonObject:
    """Return the fields of a session that a change has changed, under Blade's names; `state` is the state after it."""
    fields = {
        "intent": change.title,
        "model": change.model,
        "is_pinned": change.pinned,
        "shared": change.shared,
        "memory_enabled": change.memory_enabled,
        "replay_state": None if change.replay is None else replay_state_of(state),
    }
    return {name: value for name, value in fields.items() if value is not None}


def replay_state_of(state: SessionState) -> wire.ReplayState | None:
    """Return the progress of a replay session; None if it is not one."""
    replay = state.settings.replay
    if replay is None:
        return None
    status: Literal["replaying", "waiting", "autonomous", "finished"] = "waiting"
    if not replay.is_on:
        status = "autonomous"
    elif state.run is not None:
        status = "replaying"
    elif replay.position >= replay.total:
        status = "finished"
    return wire.ReplayState(
        source_session_id=wire.public_session_id(replay.source),
        status=status,
        speed=replay.speed,
        position=replay.position,
        total=replay.total,
    )


def _error_code(code: str | None) -> str:
    """Return the socket's code for the failure of a chat (specification, section 15)."""
    if code in MODEL_CODES:
        return "model_error"
    return "tool_error" if code == "tool_error" else "internal"


def saved_ratio(before: int, after: int) -> float:
    """Return the share of tokens that a compaction saved, from 0 to 1, rounded to 4 digits."""
    return max(0.0, round(1 - after / before, 4)) if before else 0.0
