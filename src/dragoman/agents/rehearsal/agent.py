"""The rehearsal agent: it has no model, and plays what the user's message says.

It makes everything happen that can happen in a run, always the same way, for tests, benchmarks and demonstrations. It
is an ordinary agent over `core.agent`: nothing in the engine knows it. What it has played is read off the history.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import repeat
from time import monotonic

from msgspec import UNSET

from dragoman.agents.rehearsal.script import is_script, parse_fork_script, parse_script
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
from dragoman.agents.rehearsal.tools import StartLog, tools
from dragoman.core.agent import Agent, AgentError, Run, RunnableTool, Summary, ToolContext
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
    FORK,
    AgentSpec,
    Capabilities,
    Option,
    SecretOption,
    SelectOption,
    ServerTool,
    TextOption,
    ToolPolicy,
    ToolSpec,
)

CHARACTERS_PER_TOKEN = 4
SUMMARY_CHARS_PER_MESSAGE = 32
"""Characters of each message that a summary holds."""
LONG_DELTA = "x" * 1000
_PLACEHOLDER = re.compile(r"\{(result|results|answer)\}")

OPTIONS: tuple[Option, ...] = (
    TextOption(name="greeting", default="Hello!", title="Greeting"),
    SelectOption(name="style", options=("plain", "loud"), default="plain", title="Style"),
    TextOption(name="language", default="English", title="Language"),
    SecretOption(name="token", title="Token"),
)


def _now() -> datetime:
    return datetime.now(UTC)


def rehearsal(starts: StartLog, now: Callable[[], datetime] = _now) -> Agent:
    """The agent that declares everything.

    Args:
        starts: where the slow tool notes its starts.
        now: the time, aware of its zone.
    """
    capabilities = Capabilities(
        history_full=True, history_compacted=True, client_tools=True, image_http=True, image_data=True
    )
    return _agent("rehearsal", tools(starts, now, are_exposed=True), starts, options=OPTIONS, capabilities=capabilities)


def rehearsal_bare(starts: StartLog, now: Callable[[], datetime] = _now) -> Agent:
    """The same player, which declares nothing. Its tools are there but hidden, so that every script plays through."""
    return _agent("rehearsal-bare", tools(starts, now, are_exposed=False), starts)


def _agent(
    name: str,
    its_tools: Sequence[RunnableTool],
    starts: StartLog,
    *,
    options: tuple[Option, ...] = (),
    capabilities: Capabilities | None = None,
) -> "RehearsalAgent":
    spec = AgentSpec(
        name=name,
        version="1.0.0",
        title="Rehearsal",
        description="Plays what the message says, without a model.",
        tools=tuple(tool.declaration for tool in its_tools),
        options=options,
        capabilities=capabilities or Capabilities(),
        builtins=frozenset({ASK_USER_QUESTION, FORK}),
    )
    return RehearsalAgent(spec, {tool.declaration.spec.name: tool for tool in its_tools}, starts)


class RehearsalAgent:
    """See `core.agent.Agent`."""

    def __init__(
        self, spec: AgentSpec, its_tools: Mapping[str, RunnableTool], starts: StartLog, fork: Script | None = None
    ) -> None:
        self.spec = spec
        self._tools = its_tools
        self._starts = starts
        self._fork = fork

    def tool(self, name: str) -> RunnableTool | None:
        """See `Agent.tool`."""
        return self._tools.get(name)

    def child(self, call: Call) -> Agent | None:
        """The player of a fork's script."""
        script = parse_fork_script(call.input)
        return None if script is None else RehearsalAgent(self.spec, self._tools, self._starts, script)

    async def summarize(self, messages: Sequence[Message], previous_summary: str | None) -> Summary | None:
        """See `Summing.sum_up`: the first words of each message."""
        if len(messages) < 2:
            return None
        texts = [text_of(message.content) for message in messages]
        text = " | ".join(filter(None, [previous_summary, *(each[:SUMMARY_CHARS_PER_MESSAGE] for each in texts[:-1])]))
        kept = _tokens(len(texts[-1]))
        return Summary(
            text=text,
            keep_from=messages[-1].id,
            tokens_before=kept + sum(_tokens(len(each)) for each in texts[:-1]),
            tokens_after=kept + _tokens(len(text)),
        )

    async def play(self, run: Run) -> StopReason | None:
        """Play on from where the history ends.

        Raises:
            AgentError: `bad_script`, before anything is played; or what the script says.
        """
        turn = await run.turn()
        script = self._fork
        if script is None:
            if not turn or not isinstance(turn[0], UserMessage):
                return None  # answers to the calls of a seeded history, in which nobody ever said anything
            script = parse_script(text_of(turn[0].content))
        return await _ScriptPlayer(run, script, turn, self.spec, self._starts).play_remaining()


class _ScriptedTool:
    """The tool of a step `tool` or `mcp`. It is no more there after a crash: what it returns stands in the script."""

    def __init__(self, call: RequestedCall) -> None:
        self.declaration = ServerTool(
            spec=ToolSpec(name=call.name, description="", parameters={"type": "object"}),
            policy=ToolPolicy(exposed=False),
            server=call.server,
        )
        self._output = call.output

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """See `RunnableTool.run`."""
        return self._output


class _ScriptPlayer:
    """One playing of a script, in one loop of one run."""

    def __init__(self, run: Run, script: Script, turn: Sequence[Message], spec: AgentSpec, starts: StartLog) -> None:
        self._run = run
        self._script = script
        self._spec = spec
        self._starts = starts
        self._request_message_id = turn[0].id if turn and isinstance(turn[0], UserMessage) else None
        self._placeholder_values: dict[str, str] = {}
        """What stands for `{result}`, `{results}` and `{answer}`."""
        self._has_calls = False
        """Whether a step `calls` was played: from then on `{results}` are those of such steps alone."""
        self._input_chars = sum(map(count_characters, turn))
        self._output_chars = 0
        self._has_open_step = False
        """Whether the model step has a block."""
        self._usage: Usage | None = None
        self._completed_segments = self._restore_results(turn)

    def _restore_results(self, turn: Sequence[Message]) -> int:
        """Take the results of the steps that were played, and count them."""
        results = {message.call_id: message for message in turn if isinstance(message, ToolMessage)}
        played = [message for message in turn if isinstance(message, AssistantMessage)]
        for segment, message in zip(self._script, played, strict=False):
            if segment.end is not None:
                self._store_results(
                    segment.end, [results[call.call_id] for call in message.calls() if call.call_id in results]
                )
        return len(played)

    async def play_remaining(self) -> StopReason | None:
        """Play what is left."""
        if self._completed_segments >= len(
            self._script
        ):  # the last step was said, but the server died before the run ended
            return self._script[-1].stop
        for segment in self._script[self._completed_segments :]:
            for step in segment.steps:
                await self._step(step)
            if segment.end is not None:
                await self._end(segment.end)
            elif self._has_open_step or self._usage is not None:
                await self._end(End())
        return self._script[-1].stop

    # --- steps ----------------------------------------------------------------------------------------------------

    async def _step(self, step: Step) -> None:
        match step:
            case BlockStep(kind=kind, every_ms=every_ms):
                await self._emit_block(kind, self._deltas(step), every_ms)
            case Emit(text=text, count=count, every_ms=every_ms):
                await self._emit_block("text", _numbered_texts(text, count), every_ms)
            case Burst(count=count):
                await self._burst(count)
            case Wait(ms=ms):
                await asyncio.sleep(ms / 1000)
            case Usage():
                self._usage = step
            case Crash(text=text):
                raise RuntimeError(self._fill_placeholders(text))
            case Fail(code=code, message=message):
                raise AgentError(code, message)
            case ShowBlock() | ShowCard() | PlanUpdated():
                self._show(step)
            case _:
                await self._emit_block("text", _split(await self._step_text(step), DEFAULT_DELTA_CHARS), 0)

    def _deltas(self, step: BlockStep) -> Iterable[str]:
        if isinstance(step.text, str):
            return _split(self._fill_placeholders(step.text), step.size)
        return [self._fill_placeholders(text) for text in step.text]

    async def _emit_block(self, kind: StreamedBlockKind, deltas: Iterable[str], every_ms: float) -> None:
        """Say a block. Between deltas this waits only where the script or the run asks for it."""
        run, rhythm = self._run, _Pacer(every_ms / 1000) if every_ms else None
        left = iter(deltas)
        for first in left:
            if rhythm is not None:
                await rhythm.next()
            if first:
                run.add(Text(first) if kind == "text" else Thinking(first))
                self._has_open_step = True
                self._output_chars += len(first)
                break
        grow = run.emit if kind == "text" else run.think
        written = 0
        if rhythm is None:
            for delta in left:
                written += len(delta)
                if grow(delta):
                    await run.drain()
        else:
            for delta in left:
                await rhythm.next()
                written += len(delta)
                if grow(delta):
                    await run.drain()
        self._output_chars += written

    async def _burst(self, count: int) -> None:
        if not count:
            return
        run = self._run
        run.add(Text(LONG_DELTA))
        for text in repeat(LONG_DELTA, count - 1):
            run.emit(text)  # whatever it says: nobody else has a turn before the burst is over
        self._has_open_step = True
        self._output_chars += count * len(LONG_DELTA)
        await run.drain()

    def _show(self, step: ShowBlock | ShowCard | PlanUpdated) -> None:
        match step:
            case ShowBlock(block=block):
                self._run.add(block)
                self._has_open_step = True
            case ShowCard(card=card):
                self._run.card(card)
            case PlanUpdated():
                self._run.plan(step)

    async def _step_text(self, step: Recall | SayOption | SayMetadata | SayStartCount) -> str:
        match step:
            case Recall(what=what):
                return " | ".join(await self._recall(what)) or "none"
            case SayOption(name=name):
                return self._option(name)
            case SayMetadata(name="time_zone"):
                return self._run.time_zone
            case SayMetadata(name=name):
                value = self._run.metadata.get(name)
                if value is None:
                    return "none"
                return value if isinstance(value, str) and name != "client_time" else compact_json(value)
            case SayStartCount(tag=tag):
                return str(await asyncio.to_thread(self._starts.count, tag))

    async def _recall(self, what: str) -> list[str]:
        """Texts of the session, oldest first. Memories are none: no run is given any."""
        found: list[str] = []
        if what == "memory":
            return found
        async for message in self._run.history():
            if what == "system" and isinstance(message, SystemMessage):
                found.append(message.content)
            elif what == "user" and isinstance(message, UserMessage) and message.id != self._request_message_id:
                text = text_of(message.content)
                if text and not is_script(text):
                    found.append(text)
        found.reverse()
        return found

    def _option(self, name: str) -> str:
        value = self._run.options.get(name)
        if isinstance(self._spec.option(name), SecretOption):
            return f"set({len(value)})" if value else "unset"
        return "none" if value is None else value

    # --- ends of model steps --------------------------------------------------------------------------------------

    async def _end(self, end: End) -> None:
        for asked in end.calls:
            tool = None if asked.output is UNSET else _ScriptedTool(asked)
            self._run.call(asked.name, asked.input, tool=tool)
            self._output_chars += len(compact_json(asked.input))
        written, self._output_chars = self._output_chars, 0
        usage = self._usage or Usage(input_tokens=_tokens(self._input_chars), output_tokens=_tokens(written))
        self._usage, self._has_open_step = None, False
        results = await self._run.end_step(usage=usage)
        self._input_chars += written + sum(map(count_characters, results))
        self._store_results(end, results)

    def _store_results(self, end: End, results: Sequence[ToolMessage]) -> None:
        """Keep what later texts may speak of."""
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

    def _fill_placeholders(self, text: str) -> str:
        """The text with results in their places; a place for which there is nothing stays."""
        if "{" not in text:
            return text
        return _PLACEHOLDER.sub(lambda place: self._placeholder_values.get(place[1], place[0]), text)


class _Pacer:
    """Moments with a pause between them, on a schedule of their own: what a moment is late does not move the next."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next = monotonic()

    async def next(self) -> None:
        """Wait for the next moment."""
        self._next += self._interval_s
        await asyncio.sleep(max(0.0, self._next - monotonic()))


def count_characters(message: Message) -> int:
    """How long a message is for a model: its texts, its thinking, and the arguments of its calls as compact JSON."""
    if isinstance(message.content, str):
        return len(message.content)
    count = 0
    for block in message.content:
        if isinstance(block, Text | Thinking):
            count += len(block.text)
        elif isinstance(block, Call):
            count += len(compact_json(block.input))
    return count


def _tokens(count: int) -> int:
    return -(-count // CHARACTERS_PER_TOKEN)


def _split(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _numbered_texts(text: str, count: int) -> Iterable[str]:
    """The text so many times, with its number in the places for it. The loop over this is what benchmarks measure."""
    places = text.count("{i}") + text.count("{i3}")
    if not places:
        return repeat(text, count)
    form = text.replace("%", "%%").replace("{i3}", "%03d").replace("{i}", "%d")
    return map(form.__mod__, zip(*[range(count)] * places, strict=True))


def _result_text(result: ToolMessage) -> str:
    """A result in words: what consists of texts as text, all else as compact JSON."""
    content = result.content
    if isinstance(content, str) or all(isinstance(block, Text) for block in content):
        return text_of(content)
    return compact_json(content)
