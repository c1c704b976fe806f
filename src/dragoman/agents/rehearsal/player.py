"""Runs a rehearsal script in one loop of one run. The history shows which of its steps have already run."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from itertools import repeat
from time import monotonic

import msgspec
from msgspec import UNSET

from dragoman.agents.rehearsal.script import is_script
from dragoman.agents.rehearsal.steps import (
    DEFAULT_DELTA_CHARS,
    BlockStep,
    Burst,
    Crash,
    Emit,
    End,
    Fail,
    Recall,
    RequestedCall,
    SayMetadata,
    SayOption,
    SayStartCount,
    Script,
    ShowBlock,
    ShowCard,
    Step,
    Wait,
)
from dragoman.agents.rehearsal.tools import StartLog
from dragoman.core.agent import AgentError, Run, RunnableTool, ToolContext
from dragoman.core.answers import answer_text, compact_json
from dragoman.core.content import (
    AssistantMessage,
    Call,
    Json,
    JsonObject,
    Message,
    StreamedBlockKind,
    SystemMessage,
    Text,
    Thinking,
    ToolMessage,
    Usage,
    UserMessage,
    text_of,
)
from dragoman.core.events import PlanUpdated, StopReason
from dragoman.core.tools import (
    ASK_USER_QUESTION,
    WRITE_MEMORY,
    AgentSpec,
    SecretOption,
    ServerTool,
    ToolPolicy,
    ToolSpec,
)

CHARACTERS_PER_TOKEN = 4
CONTEXT_WINDOW = 200_000
"""What the agent reports as its model's context window."""
LONG_DELTA = "x" * 1000
_MEMORY_LINE = re.compile(r"^- \[\d+\] (.*)$", re.MULTILINE)
"""A memory in a run's instructions."""
_PLACEHOLDER = re.compile(r"\{(result|results|answer)\}")


class ScriptPlayer:
    """Runs a script, beginning after the model steps that the turn already contains."""

    def __init__(self, run: Run, script: Script, turn: Sequence[Message], spec: AgentSpec, starts: StartLog) -> None:
        self._run = run
        self._script = script
        self._spec = spec
        self._starts = starts
        self._request_message_id = turn[0].id if turn and isinstance(turn[0], UserMessage) else None
        self._placeholder_values: dict[str, str] = {}
        """The values of `{result}`, `{results}` and `{answer}`."""
        self._has_calls = False
        """Whether a step `calls` has run. From then on only such steps set `{results}`."""
        self._input_chars = sum(map(count_characters, turn))
        self._output_chars = 0
        self._has_open_step = False
        """Whether the current model step has a block."""
        self._usage: Usage | None = None
        results = {message.call_id: message for message in turn if isinstance(message, ToolMessage)}
        answers = [message for message in turn if isinstance(message, AssistantMessage)]
        for segment, answer in zip(script, answers, strict=False):
            if segment.end is not None:
                self._store_results(
                    segment.end, [results[call.call_id] for call in answer.calls() if call.call_id in results]
                )
        self._remaining = script[len(answers) :]
        """Empty if the server died between the last step and the end of the run."""

    async def play_remaining(self) -> StopReason | None:
        """Run the remaining segments."""
        for segment in self._remaining:
            for step in segment.steps:
                await self._play_step(step)
            if segment.end is not None:
                await self._end_step(segment.end)
            elif self._has_open_step or self._usage is not None:
                await self._end_step(End())
        return self._script[-1].stop

    async def _play_step(self, step: Step) -> None:
        match step:
            case BlockStep(kind=kind, text=text, size=size, every_ms=every_ms):
                deltas = _split(self._fill(text), size) if isinstance(text, str) else map(self._fill, text)
                await self._emit_block(kind, deltas, every_ms)
            case Emit(text=text, count=count, every_ms=every_ms):
                await self._emit_block("text", _numbered_texts(text, count), every_ms)
            case Burst(count=count):
                await self._emit_burst(count)
            case ShowBlock(block=block):
                self._run.add(block)
                self._has_open_step = True
            case ShowCard(card=card):
                self._run.card(card)
                self._has_open_step = True
            case PlanUpdated():
                self._run.plan(step)
            case Usage():
                self._usage = step
            case Wait(ms=ms):
                await asyncio.sleep(ms / 1000)
            case Crash(text=text):
                raise RuntimeError(self._fill(text))
            case Fail(code=code, message=message):
                raise AgentError(code, message)
            case _:
                await self._emit_block("text", _split(await self._information(step), DEFAULT_DELTA_CHARS), 0)

    async def _emit_block(self, kind: StreamedBlockKind, deltas: Iterable[str], every_ms: float) -> None:
        """Stream a block. Between deltas this waits only if the script or the run requires it."""
        run, pacer = self._run, _Pacer(every_ms / 1000) if every_ms else None
        remaining = iter(deltas)
        written = 0
        for delta in remaining:
            if pacer is not None:
                await pacer.wait()
            if delta:
                run.add(Text(delta) if kind == "text" else Thinking(delta))
                self._has_open_step = True
                written = len(delta)
                break
        emit = run.emit if kind == "text" else run.think
        for delta in remaining:  # benchmarks measure this loop
            if pacer is not None:
                await pacer.wait()
            written += len(delta)
            if emit(delta):
                await run.drain()
        self._output_chars += written

    async def _emit_burst(self, count: int) -> None:
        if not count:
            return
        run = self._run
        run.add(Text(LONG_DELTA))
        for text in repeat(LONG_DELTA, count - 1):
            run.emit(text)  # the return value is ignored: a burst does not yield to other tasks
        self._has_open_step = True
        self._output_chars += count * len(LONG_DELTA)
        await run.drain()

    async def _information(self, step: Recall | SayOption | SayMetadata | SayStartCount) -> str:
        """The text of a step that reports something about the session or the run."""
        match step:
            case Recall(what=what):
                return " | ".join(await self._recall(what)) or "none"
            case SayOption(name=name):
                option = self._run.options.get(name)
                if isinstance(self._spec.option(name), SecretOption):
                    return f"set({len(option)})" if option else "unset"
                return "none" if option is None else option
            case SayMetadata(name="time_zone"):
                return self._run.time_zone
            case SayMetadata(name=name):
                metadata = self._run.metadata
                value = msgspec.to_builtins(metadata).get(name, metadata.protocol.get(name))
                if value is None:
                    return "none"
                return value if isinstance(value, str) and name != "client_time" else compact_json(value)
            case SayStartCount(tag=tag):
                return str(await asyncio.to_thread(self._starts.count, tag))

    async def _recall(self, what: str) -> list[str]:
        """Texts of the session, oldest first, or the memories that the run received."""
        if what == "memory":
            return [match[1] for match in _MEMORY_LINE.finditer(self._run.memories)]
        own = self._run.metadata.instructions if what == "system" else None
        texts: list[str] = [own] if own else []
        async for message in self._run.history():
            if what == "system" and isinstance(message, SystemMessage):
                texts.append(message.content)
            elif what == "user" and isinstance(message, UserMessage) and message.id != self._request_message_id:
                text = text_of(message.content)
                if text and not is_script(text):
                    texts.append(text)
        texts.reverse()
        return texts

    async def _end_step(self, end: End) -> None:
        for call in end.calls:
            tool: RunnableTool | None = None if call.output is UNSET else _ScriptedTool(call)
            if call.name == WRITE_MEMORY and tool is None:
                tool = self._run.memory_tool
            self._run.call(call.name, call.input, tool=tool)
            self._output_chars += len(compact_json(call.input))
        written, self._output_chars = self._output_chars, 0
        usage = self._usage or Usage(
            input_tokens=estimate_tokens(self._input_chars), output_tokens=estimate_tokens(written)
        )
        self._usage, self._has_open_step = None, False
        results = await self._run.end_step(usage=usage, context_window=CONTEXT_WINDOW)
        self._input_chars += written + sum(map(count_characters, results))
        self._store_results(end, results)

    def _store_results(self, end: End, results: Sequence[ToolMessage]) -> None:
        """Set the placeholders for later texts."""
        if not results:
            return
        texts = [_result_text(result) for result in results]
        self._placeholder_values["result"] = texts[-1]
        if end.is_many or not self._has_calls:
            self._placeholder_values["results"] = ", ".join(texts)
        self._has_calls |= end.is_many
        for result in results:
            if result.name == ASK_USER_QUESTION:
                self._placeholder_values["answer"] = answer_text(result)

    def _fill(self, text: str) -> str:
        """Replace placeholders that have a value."""
        if "{" not in text:
            return text
        return _PLACEHOLDER.sub(lambda match: self._placeholder_values.get(match[1], match[0]), text)


class _ScriptedTool:
    """The tool of a step `tool` or `mcp`: it returns the output that the script gives. It does not survive a crash."""

    def __init__(self, call: RequestedCall) -> None:
        self.declaration = ServerTool(
            spec=ToolSpec(name=call.name, description="", parameters={"type": "object"}),
            policy=ToolPolicy(exposed=False),
            server=call.server,
        )
        self._output = call.output

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """Return the scripted output."""
        return self._output


class _Pacer:
    """Waits on an absolute schedule, so that a late tick does not delay the following ones."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next_at = monotonic()

    async def wait(self) -> None:
        """Wait for the next tick."""
        self._next_at += self._interval_s
        await asyncio.sleep(max(0.0, self._next_at - monotonic()))


def count_characters(message: Message) -> int:
    """The length of a message for a model: text, thinking, and the arguments of calls as compact JSON."""
    if isinstance(message.content, str):
        return len(message.content)
    count = 0
    for block in message.content:
        if isinstance(block, Text | Thinking):
            count += len(block.text)
        elif isinstance(block, Call):
            count += len(compact_json(block.input))
    return count


def estimate_tokens(characters: int) -> int:
    """Tokens of a text with that many characters, rounded up."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def _split(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _numbered_texts(text: str, count: int) -> Iterable[str]:
    """The text `count` times, each with its index in place of `{i}` and `{i3}`. Fast, because benchmarks measure it."""
    placeholders = text.count("{i}") + text.count("{i3}")
    if not placeholders:
        return repeat(text, count)
    template = text.replace("%", "%%").replace("{i3}", "%03d").replace("{i}", "%d")
    return map(template.__mod__, zip(*[range(count)] * placeholders, strict=True))


def _result_text(result: ToolMessage) -> str:
    """A result as text: text blocks joined, anything else as compact JSON."""
    content = result.content
    if isinstance(content, str) or all(isinstance(block, Text) for block in content):
        return text_of(content)
    return compact_json(content)
