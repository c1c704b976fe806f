"""Blade's tool calls: declared, waiting for a person, settled. Pure. Source: specification, 3.4, 8.3 and 8.4."""

from collections.abc import Container, Mapping
from datetime import datetime

import msgspec

from dragoman.core import content as core
from dragoman.core.events import AnswerGiven, LoggedEvent
from dragoman.core.ids import CallId, fork_loop
from dragoman.core.open_calls import OpenCall
from dragoman.core.session import SessionState
from dragoman.core.tools import FORK
from dragoman.protocols.blade.projection import blocks
from dragoman.protocols.blade.projection.emitter import Emitter
from dragoman.protocols.blade.projection.turns import TurnBuilder, TurnList
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.chat import Block, CallStatus, QuestionRef, ToolCall


class _PendingCall(msgspec.Struct):
    """A call without a result, in its turn."""

    turn: TurnBuilder
    tool_call: ToolCall
    started_at: datetime
    permissions: list[ToolCall] = []
    """The questions whether it may run."""
    questions: list[ToolCall] = []
    """The questions that it asked while it ran."""

    def unanswered(self) -> ToolCall | None:
        """Return the question that waits for an answer, if one does."""
        newest = (*self.questions[-1:], *self.permissions[-1:])
        return next((each for each in newest if each.status == "awaiting_answer"), None)


class CallList:
    """The calls of a session that have no result yet; `titles` are the tools' names for people."""

    def __init__(self, turns: TurnList, emitter: Emitter, titles: Mapping[str, str]) -> None:
        self._turns = turns
        self._emitter = emitter
        self._titles = titles
        self._pending: dict[CallId, _PendingCall] = {}

    def add(self, turn: TurnBuilder, call: core.Call, at: datetime, opened: OpenCall | None) -> None:
        """Add a call to a turn; `opened` is its state, unless it belongs to a history that a client sent."""
        kind = None if opened is None else opened.kind
        text, arguments = blocks.arguments_of(call)
        title = self._titles.get(call.name, call.name)
        status: CallStatus = "awaiting_answer" if kind == "question" else "pending"
        tool_call = ToolCall(chat.public_call_id(call.call_id), call.name, title, text, status)
        self._pending[call.call_id] = _PendingCall(turn, tool_call, at)
        turn.open_calls.add(call.call_id)
        turn.add_call(tool_call, arguments)
        if opened is not None and kind == "permission":
            self._request_permission(opened)

    def start(self, call_id: CallId, at: datetime) -> None:
        """Note when a call started to run."""
        if call_id in self._pending:
            self._pending[call_id].started_at = at

    def ask(self, call: OpenCall) -> None:
        """Ask what a call waits for since it was parked, with a question in the same turn."""
        if call.waits_for == "question":
            pending = self._pending[call.call.call_id]
            question_id = chat.question_id(call.call.call_id, len(pending.questions) + 1)
            question, arguments = blocks.question_call(question_id, call.shown().input)
            pending.questions.append(question)
            pending.turn.add_call(question, arguments)
        elif call.waits_for == "permission":
            self._request_permission(call)

    def _request_permission(self, call: OpenCall) -> None:
        """Ask whether a call may run, with a question in the same turn."""
        pending = self._pending[call.call.call_id]
        question, arguments = blocks.permission_call(call, len(pending.permissions) + 1)
        pending.permissions.append(question)
        pending.turn.add_call(question, arguments)

    def answer_block(self, answer: AnswerGiven, asked: OpenCall, trusted_tools: Container[str]) -> Block:
        """Return the answer to the newest question about a call; `trusted_tools` are those after the answer."""
        pending = self._pending[answer.call_id]
        if pending.questions and pending.unanswered() is pending.questions[-1]:
            raw = None if answer.result is None else answer.result.raw
            answers = raw.get("answers", []) if isinstance(raw, dict) else []
            return blocks.answer_block(pending.questions[-1].id, asked.shown().input, answers)
        question, arguments = blocks.permission_call(asked, len(pending.permissions))
        is_trusted = asked.call.name in trusted_tools and not asked.is_repeat
        label = blocks.PERMISSION_OPTIONS[int(is_trusted) if answer.granted else 2]
        answers = [{"question": blocks.permission_question(asked), "labels": [label], "custom": answer.reason}]
        permission = {"tool_name": asked.call.name, "repeat": asked.is_repeat}
        return blocks.answer_block(question.id, arguments, answers, permission)

    def settle_question(self, call_id: CallId, answer: Block, logged: LoggedEvent) -> None:
        """Give the question about a call that waits its answer as a result."""
        pending = self._pending[call_id]
        question = pending.unanswered()
        assert question is not None, "the question was asked"
        result = {"answers": answer.content["answers"]}
        pending.turn.add_result(question, "done", result, pending.started_at, logged)

    def settle(self, result: core.ToolMessage, status: CallStatus, logged: LoggedEvent) -> None:
        """Give a call its result, with the blocks of its `_meta`. A result without its call is ignored."""
        pending = self._pending.pop(result.call_id, None)
        if pending is None:
            return
        turn, tool_call = pending.turn, pending.tool_call
        turn.open_calls.discard(result.call_id)
        value = blocks.result_value(result)
        turn.add_result(tool_call, status, value, pending.started_at, logged)
        for block in blocks.meta_blocks(value, tool_call):
            if isinstance(block, Block):
                turn.add_block(block)
            else:
                notification = {
                    "notification_type": "tool_meta_invalid",
                    "title": f"{tool_call.tool_name} returned metadata that cannot be shown",
                    "detail": block,
                    "status": "warning",
                }
                self._emitter.emit("system:notification", notification)
        self._turns.finish_if_complete(turn, logged.at)

    def cancel(self, call_id: CallId, logged: LoggedEvent, *, is_running: bool) -> None:
        """Cancel a call, and the questions about it."""
        pending = self._pending.pop(call_id)
        turn = pending.turn
        turn.open_calls.discard(call_id)
        turn.cancel_call(pending.tool_call, pending.started_at, logged)
        if (question := pending.unanswered()) is not None:
            turn.cancel_call(question, pending.started_at, logged)
        turn.final_status = "interrupted"
        turn.awaits_run_end = is_running
        self._turns.finish_if_complete(turn, logged.at)

    def update_statuses(self, state: SessionState, *, is_running: bool) -> None:
        """Bring the statuses of pending calls, and of paused turns, in line with what waits for a person."""
        if not state.calls:
            return
        questions = self._pending_questions(state)
        for call_id, call in state.calls.items():
            if call.granted is False:
                continue  # its result comes next
            pending = self._pending[call_id]
            turn, tool_call, ref = pending.turn, pending.tool_call, questions.get(call_id)
            status: CallStatus = "awaiting_answer" if call_id in questions else "pending"
            if (tool_call.status, tool_call.pending_question_ref) != (status, ref):
                turn.set_call_status(tool_call, status, ref)
            if turn.turn.status == "paused" and is_running:
                waits = (each in questions or _waits_for_application(state, each) for each in turn.open_calls)
                if not any(waits):
                    turn.set_status("streaming")

    def _pending_questions(self, state: SessionState) -> dict[CallId, QuestionRef | None]:
        """Return the calls that wait for a person, and the calls above them, with the question that each waits for."""
        questions: dict[CallId, QuestionRef | None] = {}
        for call in state.waiting_calls():
            if call.waits_for == "client":
                continue
            call_id, loop = call.call.call_id, chat.public_loop_id(call.loop)
            if call.kind == "question" and call.keeps_answer:
                question_id = chat.question_id(call_id, len(self._pending[call_id].questions))
                questions[call_id] = ref = QuestionRef(loop, question_id, None)
            elif call.kind == "question":
                questions[call_id] = None
                ref = QuestionRef(loop, chat.public_call_id(call_id), None)
            else:
                question_id = chat.permission_id(call_id, len(self._pending[call_id].permissions))
                question = blocks.permission_question(call)
                ref = QuestionRef(loop, question_id, question, call.is_repeat or msgspec.UNSET)
                questions[call_id] = ref
            above = state.parent_call(call.loop)
            while above is not None:
                description = ref.description or _fork_description(above.call)
                questions.setdefault(above.call.call_id, msgspec.structs.replace(ref, description=description))
                above = state.parent_call(above.loop)
        return questions


def _fork_description(call: core.Call) -> str | None:
    """Return a few words about the task of a sub-agent."""
    text = call.input.get("description") or call.input.get("agent")
    return text if call.name == FORK and isinstance(text, str) else None


def _waits_for_application(state: SessionState, call_id: CallId) -> bool:
    call = state.calls.get(call_id)
    if call is None:
        return False
    if call.kind != "fork":
        return call.is_waiting()
    return any(_waits_for_application(state, each.call.call_id) for each in state.calls_in_loop(fork_loop(call_id)))
