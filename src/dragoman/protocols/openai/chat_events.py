"""What Chat Completions shows of a run: its text, its reasoning, and the calls of the application's tools. Pure.

    first chunk ─► reasoning, content, tool calls ─► last chunk ─► usage ─► [DONE]

The steps of a run follow one another in one content, with an empty line in between. Calls that the server executes are
not shown: clients execute every call that they are shown. What a crash cut off is left out as long as it was not sent.
Source: section 6.2.
"""

from collections.abc import Container, Mapping
from typing import Literal, NamedTuple

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.events import (
    BlockClosed,
    CallKind,
    CallOpened,
    CallParked,
    LoggedEvent,
    MessageClosed,
    MessageOpened,
    RunStarted,
    RunStopped,
    StopReason,
)
from dragoman.core.ids import ROOT, CallId, MessageId, RunId
from dragoman.core.open_calls import shown_call
from dragoman.core.question_text import question_text, repeat_question
from dragoman.core.refusals import SessionNotFound, Unauthenticated
from dragoman.core.stream import Piece, Record
from dragoman.protocols.kit.frames import KEEP_ALIVE, RESUMABLE, encode_json
from dragoman.protocols.openai import ids, wire
from dragoman.protocols.openai.chat_wire import (
    AnswerMessage,
    ChatUsage,
    Choice,
    Completion,
    CompletionDetails,
    FinishReason,
    FunctionFacts,
    PromptDetails,
    ToolCall,
)
from dragoman.protocols.openai.errors import ERRORS, RunFailed, error_facts
from dragoman.protocols.openai.translate import DONE, failure_of, link_to

TextKind = Literal["content", "reasoning_content"]
PARAGRAPH = "\n\n"
INCOMPLETE = "The server is stopping or unavailable, so the answer is incomplete; the run continues"
CUT_NOTICE = "*(cut off by a restart of the server, and repeated)*"
"""Follows words that were streamed before a crash cut them off."""
FINISH_REASONS: Mapping[StopReason, FinishReason] = {
    "end_turn": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "refusal": "content_filter",
}
"""All other reasons are errors."""


class AddedText(NamedTuple):
    """Text that follows what was shown before."""

    kind: TextKind
    text: str


class ShownRun:
    """What clients see of a run, from record to record. Also reads closed blocks whose pieces it was not fed.

    Args:
        left_out: messages whose words are not shown.
    """

    def __init__(self, left_out: Container[MessageId] = ()) -> None:
        self._left_out = left_out
        self._paragraphs: dict[TextKind, object] = {}
        """What the last words of each kind belong to."""
        self._block: tuple[str, int] | None = None
        self._calls: dict[CallId, core.Call] = {}

    def feed(self, record: Record) -> AddedText | ToolCall | None:
        """What a record adds."""
        if isinstance(record, Piece):
            if record.loop != ROOT or record.message_id in self._left_out:
                return None
            self._block = (record.message_id, record.index)
            return self._say(
                "content" if record.kind == "text" else "reasoning_content", record.text, record.message_id
            )
        if isinstance(record.event, BlockClosed):
            return self._close_block(record.event, record.seq)
        match record.event:
            case CallOpened(kind=kind, call=call) as opened:
                self._calls[call.call_id] = call
                return self._ask(kind, call, record, is_repeat=opened.repeat)
            case CallParked(call_id=call_id) as parked if call_id in self._calls:
                kind = parked.kind or "permission"
                asked = shown_call(self._calls[call_id], kind, parked.note)
                return self._ask(kind, asked, record, is_repeat=parked.is_repeat)
            case MessageClosed(status="cut", message_id=cut) if self._paragraphs.get("content") == cut:
                return self._say("content", CUT_NOTICE, record.seq)
        return None

    def begin_again(self, kind: TextKind) -> None:
        """Forget all words of a kind: the next ones are the first."""
        self._paragraphs.pop(kind, None)

    def _ask(
        self, kind: CallKind, call: core.Call, record: LoggedEvent, *, is_repeat: bool
    ) -> AddedText | ToolCall | None:
        """What is shown of a call that waits for an answer."""
        match kind:
            case "client":
                function = FunctionFacts(name=call.name, arguments=compact_json(call.input))
                return ToolCall(id=ids.call_id(record.run_id, call.call_id), function=function)
            case "question":
                return self._say("content", question_text(call.input), record.seq)
            case "permission":
                notice = approval_notice(call.name)
                text = f"{repeat_question(call.name)} {notice}" if is_repeat else notice
                return self._say("content", text, record.seq)
            case _:
                return None

    def _close_block(self, closed: BlockClosed, seq: int) -> AddedText | None:
        is_shown = self._block == (closed.message_id, closed.index)
        if closed.loop != ROOT or is_shown or closed.message_id in self._left_out:
            return None
        match closed.block:
            case core.Text(text=text):
                return self._say("content", text, closed.message_id)
            case core.Thinking(text=text):
                return self._say("reasoning_content", text, closed.message_id)
            case block:
                return self._say("content", link_to(block) or "", seq)

    def _say(self, kind: TextKind, text: str, paragraph: object) -> AddedText | None:
        if not text:
            return None
        before = self._paragraphs.setdefault(kind, paragraph)
        self._paragraphs[kind] = paragraph
        return AddedText(kind, text if before == paragraph else PARAGRAPH + text)


def approval_notice(tool: str) -> str:
    """What clients see of a call that needs approval, which they have no form for."""
    return f"The tool {tool} waits for approval, in the console or through another protocol."


class ChatEvents:
    """Encodes the records of one run as chunks, and collects the answer.

    Args:
        run_id: the run.
        model: the agent as the client called it.
        is_stream: whether chunks are encoded, or only the answer is collected.
        include_usage: whether the usage follows the last chunk.
        cut: messages that a crash has cut off already. Others repeat them.
        failed: the error that reports a failed run.
    """

    keep_alive = KEEP_ALIVE

    def __init__(
        self,
        run_id: RunId,
        model: str,
        *,
        is_stream: bool = True,
        include_usage: bool = False,
        cut: Container[MessageId] = (),
        failed: type[RunFailed] = RunFailed,
    ) -> None:
        self.is_over = False
        self.completion: Completion | None = None
        """The answer, once the run is over."""
        self.failure: RunFailed | None = None
        """Why there is none."""
        self.calls: list[ToolCall] = []
        self._run_id, self._model = run_id, model
        self._is_stream, self._include_usage, self._failed = is_stream, include_usage, failed
        self._shown = ShownRun(left_out=cut)
        self._texts: dict[TextKind, list[str]] = {"content": [], "reasoning_content": []}
        self._texts_before: dict[TextKind, int] = {}
        """How many texts there were before the current message."""
        self._created = -1
        self._head = b""
        """A chunk up to its delta."""
        self._tail = b""
        """A chunk after its delta, if it is not the last one."""
        self._block: tuple[str, int] | None = None
        self._delta = b""
        """The chunk of a piece of that block, up to the text."""

    def feed(self, record: Record) -> bytes:
        """Encode the next record; empty if the client is not sent anything for it."""
        if type(record) is Piece and self._block == (record.message_id, record.index):
            return b"%b%b}%b" % (self._delta, encode_json(record.text), self._tail)
        if isinstance(record, LoggedEvent):
            match record.event:
                case RunStarted(run_id=run_id) if run_id == self._run_id:
                    return self._begin(int(record.at.timestamp()))
                case RunStopped(run_id=run_id) as stopped if run_id == self._run_id:
                    return self._end(stopped)
                case MessageOpened(loop="root"):
                    self._texts_before = {kind: len(texts) for kind, texts in self._texts.items()}
                case MessageClosed(loop="root", status="cut") if not self._is_stream:
                    return self._drop_message()
        if self._created < 0:
            return b""
        shown = self._shown.feed(record)
        self._block = None
        if isinstance(shown, ToolCall):
            return self._call(shown)
        if shown is None:
            return b""
        if not self._is_stream:
            self._texts[shown.kind].append(shown.text)
            return b""
        if type(record) is Piece:
            self._block = (record.message_id, record.index)
            self._delta = b'%b{"%b":' % (self._head, shown.kind.encode())
        return self._chunk({shown.kind: shown.text})

    def close(self, error: Exception) -> bytes:
        """End a stream whose run has not ended. Clients cannot resume it, and would take its end for the answer's."""
        if self.is_over:
            return b""
        if isinstance(error, Unauthenticated):
            return _error_frame(error)
        if isinstance(error, RESUMABLE):
            return self._fail(RunFailed("unavailable", INCOMPLETE))
        if isinstance(error, SessionNotFound):
            return self._fail(RunFailed("not_found", "The session was deleted"))
        return self._fail(RunFailed("server_error", "The server failed"))

    def _begin(self, created: int) -> bytes:
        self._created = created
        usage = b',"usage":null' if self._include_usage else b""
        facts = {"id": f"chatcmpl-{ids.bare(self._run_id)}", "object": "chat.completion.chunk", "created": created}
        facts |= {"model": self._model, "service_tier": "default", "system_fingerprint": None}
        self._head = b'data: %b,"choices":[{"index":0,"delta":' % encode_json(facts)[:-1]
        self._tail = b',"logprobs":null,"finish_reason":null}]%b}\n\n' % usage
        return self._chunk({"role": "assistant", "content": ""})

    def _drop_message(self) -> bytes:
        """Take the words of the current message out of an answer that is one body."""
        for kind, before in self._texts_before.items():
            del self._texts[kind][before:]
            if not before:
                self._shown.begin_again(kind)
        return b""

    def _call(self, call: ToolCall) -> bytes:
        index = len(self.calls)
        self.calls.append(call)
        begin = msgspec.structs.replace(call, function=msgspec.structs.replace(call.function, arguments=""))
        return self._chunk({"tool_calls": [{"index": index, **msgspec.to_builtins(begin)}]}) + self._chunk(
            {"tool_calls": [{"index": index, "function": {"arguments": call.function.arguments}}]}
        )

    def _chunk(self, delta: core.JsonObject) -> bytes:
        if not self._is_stream:
            return b""
        return b"%b%b%b" % (self._head, encode_json(delta), self._tail)

    def _end(self, stopped: RunStopped) -> bytes:
        if self._created < 0 or stopped.reason not in FINISH_REASONS:
            return self._fail(failure_of(stopped, "messages"))
        self.is_over = True
        is_called = stopped.reason == "tool_use" and self.calls
        finish_reason: FinishReason = "tool_calls" if is_called else FINISH_REASONS[stopped.reason]
        tokens = stopped.usage
        usage = ChatUsage(
            prompt_tokens=tokens.input_tokens,
            completion_tokens=tokens.output_tokens,
            total_tokens=tokens.input_tokens + tokens.output_tokens,
            prompt_tokens_details=PromptDetails(cached_tokens=tokens.cached_tokens),
            completion_tokens_details=CompletionDetails(reasoning_tokens=tokens.reasoning_tokens),
        )
        if self._is_stream:
            last = self._chunk({}).replace(b'"finish_reason":null', b'"finish_reason":"%b"' % finish_reason.encode())
            return last + (self._usage_chunk(usage) if self._include_usage else b"") + DONE
        content, thinking = ("".join(self._texts[kind]) for kind in ("content", "reasoning_content"))
        message = AnswerMessage(
            content=None if is_called and not content else content,
            reasoning_content=thinking or msgspec.UNSET,
            tool_calls=tuple(self.calls) or msgspec.UNSET,
        )
        self.completion = Completion(
            id=f"chatcmpl-{ids.bare(self._run_id)}",
            created=self._created,
            model=self._model,
            choices=(Choice(message=message, finish_reason=finish_reason),),
            usage=usage,
        )
        return b""

    def _usage_chunk(self, usage: ChatUsage) -> bytes:
        facts = self._head.partition(b'"choices"')[0]
        return b'%b"choices":[],"usage":%b}\n\n' % (facts, encode_json(usage))

    def _fail(self, failure: RunFailed) -> bytes:
        if type(failure) is RunFailed:
            failure = self._failed(failure.code, str(failure))
        self.is_over, self.failure = True, failure
        return _error_frame(failure)


def _error_frame(error: Exception) -> bytes:
    """What ends a stream with an error."""
    body = wire.ErrorBody(error_facts(ERRORS.to_response(error)))
    return b"data: %b\n\n%b" % (encode_json(body), DONE)
