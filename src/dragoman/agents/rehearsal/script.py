"""Parse the scripts of the rehearsal agent from user messages. A script is validated as a whole before it runs. Pure.

A script is a list of steps. They are grouped into segments: one segment is one model step, with its output and the
calls that end it. So the number of assistant messages since the script is the number of segments that have run.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dragoman.agents.rehearsal.steps import (
    DEFAULT_DELTA_CHARS,
    BlockStep,
    Burst,
    Crash,
    Emit,
    End,
    Fail,
    Milliseconds,
    Recall,
    RequestedCall,
    SayMetadata,
    SayOption,
    SayStartCount,
    Script,
    Segment,
    ShowBlock,
    ShowCard,
    Step,
    Stop,
    Wait,
)
from dragoman.agents.rehearsal.tour import TOUR, TOUR_MESSAGE
from dragoman.core.agent import AgentError
from dragoman.core.answers import Questions
from dragoman.core.content import Data, Image, Json, JsonObject, StreamedBlockKind, Usage
from dragoman.core.events import PlanStep, PlanUpdated
from dragoman.core.tools import ASK_USER_QUESTION, FORK

MAX_BURST_DELTAS = 16 * 1024
"""Maximum number of deltas of a burst. It does not yield to other tasks, so it must be bounded."""

# --- the JSON of a script ---------------------------------------------------------------------------------------------


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    input: JsonObject = {}


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    input: JsonObject = {}
    output: Json = None


class _Mcp(msgspec.Struct, forbid_unknown_fields=True):
    server: str
    name: str
    input: JsonObject = {}
    output: Json = None


class _Fork(msgspec.Struct, forbid_unknown_fields=True):
    description: str
    script: list[Json]


class _Plan(msgspec.Struct, forbid_unknown_fields=True):
    status: Literal["draft", "approved", "in_progress", "done"]
    steps: tuple[PlanStep, ...]


class _Usage(msgspec.Struct, forbid_unknown_fields=True):
    input_tokens: Annotated[int, Meta(ge=0)] = 0
    output_tokens: Annotated[int, Meta(ge=0)] = 0
    cached_tokens: Annotated[int, Meta(ge=0)] = 0
    reasoning_tokens: Annotated[int, Meta(ge=0)] = 0


_Property = Literal["time_zone", "client_time", "model", "user", "mode"]


class _StepSource(msgspec.Struct, forbid_unknown_fields=True):
    """A step in JSON: exactly one of these fields. `say` and `think` may also have `size` and `every_ms`."""

    say: str | tuple[str, ...] | UnsetType = UNSET
    think: str | tuple[str, ...] | UnsetType = UNSET
    size: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    every_ms: Milliseconds | UnsetType = UNSET
    emit: Emit | UnsetType = UNSET
    burst: Annotated[int, Meta(ge=0, le=MAX_BURST_DELTAS)] | UnsetType = UNSET
    image: str | UnsetType = UNSET
    data: JsonObject | UnsetType = UNSET
    call: _Call | UnsetType = UNSET
    calls: tuple[_Call, ...] | UnsetType = UNSET
    tool: _Tool | UnsetType = UNSET
    mcp: _Mcp | UnsetType = UNSET
    ask: JsonObject | UnsetType = UNSET
    fork: _Fork | UnsetType = UNSET
    plan: _Plan | UnsetType = UNSET
    card: JsonObject | UnsetType = UNSET
    usage: _Usage | UnsetType = UNSET
    recall: Literal["user", "system", "memory"] | UnsetType = UNSET
    option: str | UnsetType = UNSET
    props: _Property | UnsetType = UNSET
    starts: str | UnsetType = UNSET
    wait_ms: Milliseconds | UnsetType = UNSET
    step: bool | UnsetType = UNSET
    stop: Literal["max_tokens", "refusal"] | UnsetType = UNSET
    fail: str | Fail | UnsetType = UNSET


class _Message(msgspec.Struct):
    script: Json = UNSET


_MESSAGE: msgspec.json.Decoder[_Message] = msgspec.json.Decoder(_Message)
_SCRIPT_PREFIX = '{"script"'


class _ScriptError(Exception):
    """A script is not valid. The message says which step is at fault."""


def _question_step(arguments: JsonObject) -> End:
    try:
        msgspec.convert(arguments, Questions)
    except msgspec.ValidationError as error:
        raise _ScriptError(str(error)) from error
    return End((RequestedCall(ASK_USER_QUESTION, arguments),))


def _fork_step(fork: _Fork) -> End:
    _parse_steps(fork.script)
    return End((RequestedCall(FORK, {"description": fork.description, "script": fork.script}),))


def _end_step(is_true: bool) -> End:
    if not is_true:
        raise _ScriptError("must be true")
    return End()


_STEP_BUILDERS: dict[str, Callable[[Json], Step | End | Stop]] = {
    "emit": lambda emit: emit,
    "burst": Burst,
    "image": lambda url: ShowBlock(Image(url)),
    "data": lambda data: ShowBlock(Data(data)),
    "call": lambda call: End((RequestedCall(call.name, call.input),)),
    "calls": lambda calls: End(tuple(RequestedCall(call.name, call.input) for call in calls), is_many=True),
    "tool": lambda tool: End((RequestedCall(tool.name, tool.input, tool.output),)),
    "mcp": lambda tool: End((RequestedCall(tool.name, tool.input, tool.output, tool.server),)),
    "ask": _question_step,
    "fork": _fork_step,
    "plan": lambda plan: PlanUpdated(status=plan.status, steps=plan.steps),
    "card": ShowCard,
    "usage": lambda usage: Usage(**msgspec.structs.asdict(usage)),
    "recall": Recall,
    "option": SayOption,
    "props": SayMetadata,
    "starts": SayStartCount,
    "wait_ms": Wait,
    "step": _end_step,
    "stop": Stop,
    "fail": lambda fault: Crash(fault) if isinstance(fault, str) else fault,
}
"""Creates a step from its value, by its name. `say` and `think` are not here because they have more fields."""
_BLOCK_KINDS: dict[str, StreamedBlockKind] = {"say": "text", "think": "thinking"}
_STEP_NAMES = (*_BLOCK_KINDS, *_STEP_BUILDERS)
_EXTRA_FIELDS = ("size", "every_ms")

# --- parsing ----------------------------------------------------------------------------------------------------------

_ADD_PATTERN = re.compile(r"add\s+([+-]?[0-9]{1,300})\s+and\s+([+-]?[0-9]{1,300})", re.IGNORECASE)
_SAMPLE_QUESTION = {
    "question": "Which environment?",
    "header": "Deploy",
    "options": [{"label": "staging"}, {"label": "production"}],
}
_BUILTIN_SCRIPTS: dict[str, Script] = {
    "hello": (Segment((BlockStep("text", "Hello! I am the rehearsal agent."),)),),
    "ask me": (
        Segment((), End((RequestedCall(ASK_USER_QUESTION, {"questions": [_SAMPLE_QUESTION]}),))),
        Segment((BlockStep("text", "You chose {answer}."),)),
    ),
    "think": (Segment((BlockStep("thinking", "Let me think."), BlockStep("text", "Done thinking."))),),
    "recall": (Segment((Recall("user"),)),),
}


def parse_script(text: str) -> Script:
    """The script that a user message stands for.

    Raises:
        AgentError: `bad_script`; the message names the step at fault, counted from 1.
    """
    script = _decode_script(text)
    if script is not None:
        return script
    command = text.strip()
    if command.lower() == TOUR_MESSAGE:
        return _parse_steps(TOUR)
    if builtin := _BUILTIN_SCRIPTS.get(command.lower()):
        return builtin
    if match := _ADD_PATTERN.fullmatch(command):
        terms = {"a": int(match[1]), "b": int(match[2])}
        return (Segment((), End((RequestedCall("add", terms),))), Segment((BlockStep("text", "The sum is {result}."),)))
    return (Segment((BlockStep("text", f"You said: {text}"),)),)


def parse_fork_script(arguments: JsonObject) -> Script | None:
    """The script of a sub-agent; None if the arguments of its call are not valid."""
    try:
        return _parse_steps(msgspec.convert(arguments, _Fork).script)
    except (msgspec.ValidationError, _ScriptError, RecursionError):
        return None


def is_script(text: str) -> bool:
    """Whether a message is a script, valid or not."""
    try:
        return _decode_script(text) is not None
    except AgentError:
        return True


def _decode_script(text: str) -> Script | None:
    """The script that the text contains; None if the text is not a script.

    Raises:
        AgentError: `bad_script`.
    """
    text = text.lstrip()
    if text[:1] != "{":
        return None
    try:
        steps = _MESSAGE.decode(text).script
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = f"the script is not valid JSON: {error}"
    else:
        if isinstance(steps, list):
            try:
                return _parse_steps(steps)
            except _ScriptError as error:
                raise AgentError("bad_script", str(error)) from error
            except RecursionError as error:
                raise AgentError("bad_script", "sub-agents are nested too deeply") from error
        reason = "the script is not an array of steps"
    if text.startswith(_SCRIPT_PREFIX):
        raise AgentError("bad_script", reason)
    return None


def _parse_steps(script: Sequence[Json]) -> Script:
    """Group the steps into segments. Steps after one that ends the run are validated, but left out.

    Raises:
        _ScriptError: a step is not valid.
    """
    segments: list[Segment] = []
    steps: list[Step] = []
    stop: Stop | None = None
    is_over = False
    for number, source in enumerate(script, start=1):
        try:
            step = _parse_step(source)
        except (_ScriptError, msgspec.ValidationError) as error:
            raise _ScriptError(f"step {number}: {error}") from error
        if is_over:
            continue
        match step:
            case End():
                segments.append(Segment(tuple(steps), step))
                steps = []
            case Stop():
                stop, is_over = step, True
            case _:
                steps.append(step)
                is_over = isinstance(step, Crash | Fail)
    return (*segments, Segment(tuple(steps), stop=None if stop is None else stop.reason))


def _parse_step(source: Json) -> Step | End | Stop:
    if not isinstance(source, dict):
        raise _ScriptError("expected an object")
    kinds = [name for name in source if name in _STEP_NAMES]
    for name in source:
        if name not in _STEP_NAMES and name not in _EXTRA_FIELDS:
            raise _ScriptError(f"`{kinds[0]}` has no field `{name}`" if kinds else f"there is no step `{name}`")
    step = msgspec.convert(source, _StepSource)
    if len(kinds) != 1:
        raise _ScriptError(f"expected one effect, got {' and '.join(f'`{kind}`' for kind in kinds) or 'none'}")
    (kind,) = kinds
    value = getattr(step, kind)
    if kind in _BLOCK_KINDS:
        return BlockStep(_BLOCK_KINDS[kind], value, step.size or DEFAULT_DELTA_CHARS, step.every_ms or 0)
    if extra := next((name for name in source if name in _EXTRA_FIELDS), None):
        raise _ScriptError(f"`{kind}` has no field `{extra}`")
    try:
        return _STEP_BUILDERS[kind](value)
    except _ScriptError as error:
        raise _ScriptError(f"`{kind}`: {error}") from error
