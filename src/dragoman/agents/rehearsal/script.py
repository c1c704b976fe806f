"""Scripts of the rehearsal agent: read out of a user's message and checked whole, before anything is played. Pure.

A script is a list of steps, cut here into segments: a segment is one model step, the things it says and does and the
calls that end it. So as many segments are done as the history holds assistant messages since the script.
"""

import re
from collections.abc import Callable, Iterable, Sequence
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
from dragoman.core.agent import AgentError
from dragoman.core.answers import Questions
from dragoman.core.content import Data, Image, Json, JsonObject, StreamedBlockKind, Usage
from dragoman.core.events import PlanStep, PlanUpdated
from dragoman.core.tools import ASK_USER_QUESTION, FORK

MAX_BURST_DELTAS = 16 * 1024
"""Deltas of one burst: it is emitted without giving way to anybody, so it has to have an end."""

# --- how it is written ------------------------------------------------------------------------------------------------


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


_Property = Literal["time_zone", "client_time", "model", "user", "mode"]


class _StepSource(msgspec.Struct, forbid_unknown_fields=True):
    """A step as it is written: one of these fields; `size` and `every_ms` may stand beside `say` and `think`."""

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
    script: list[_StepSource] | UnsetType = UNSET


class _AnyMessage(msgspec.Struct):
    """The same with steps of any shape, to find out what is wrong with them."""

    script: Json = UNSET


_MESSAGE: msgspec.json.Decoder[_Message] = msgspec.json.Decoder(_Message)
_ANY_MESSAGE: msgspec.json.Decoder[_AnyMessage] = msgspec.json.Decoder(_AnyMessage)
_SCRIPT_PREFIX = '{"script"'


class _ScriptError(Exception):
    """What is wrong with a script."""


def _question_step(arguments: JsonObject) -> End:
    try:
        msgspec.convert(arguments, Questions)
    except msgspec.ValidationError as error:
        raise _ScriptError(str(error)) from error
    return End((RequestedCall(ASK_USER_QUESTION, arguments),))


def _fork_step(fork: _Fork) -> End:
    _convert_steps(fork.script)
    return End((RequestedCall(FORK, {"description": fork.description, "script": fork.script}),))


def _end_step(is_true: bool) -> End:
    if not is_true:
        raise _ScriptError("it is true or not there")
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
    "usage": lambda usage: Usage(usage.input_tokens, usage.output_tokens),
    "recall": Recall,
    "option": SayOption,
    "props": SayMetadata,
    "starts": SayStartCount,
    "wait_ms": Wait,
    "step": _end_step,
    "stop": Stop,
    "fail": lambda fault: Crash(fault) if isinstance(fault, str) else fault,
}
"""What a step means, by its name; `say` and `think` alone have fields beside them."""
_BLOCK_KINDS: dict[str, StreamedBlockKind] = {"say": "text", "think": "thinking"}
_STEP_NAMES = (*_BLOCK_KINDS, *_STEP_BUILDERS)
_EXTRA_FIELDS = ("size", "every_ms")

# --- reading ----------------------------------------------------------------------------------------------------------

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
    """What a user's message makes the agent play.

    Raises:
        AgentError: `bad_script`; the message names the step, counted from 1.
    """
    beginning = text.lstrip()
    if beginning[:1] == "{":
        script = _decode_script(beginning)
        if script is not None:
            return script
    said = text.strip()
    known = _BUILTIN_SCRIPTS.get(said.lower())
    if known is not None:
        return known
    sum_of = _ADD_PATTERN.fullmatch(said)
    if sum_of is not None:
        terms = {"a": int(sum_of[1]), "b": int(sum_of[2])}
        return (Segment((), End((RequestedCall("add", terms),))), Segment((BlockStep("text", "The sum is {result}."),)))
    return (Segment((BlockStep("text", f"You said: {text}"),)),)


def parse_fork_script(arguments: JsonObject) -> Script | None:
    """The script of a sub-agent; None when the arguments of its call are no such thing."""
    try:
        return _convert_steps(msgspec.convert(arguments, _Fork).script)
    except (msgspec.ValidationError, _ScriptError, RecursionError):
        return None


def is_script(text: str) -> bool:
    """Whether a message is a script, a bad one included."""
    beginning = text.lstrip()
    if beginning[:1] != "{":
        return False
    try:
        return _decode_script(beginning) is not None
    except AgentError:
        return True


def _decode_script(text: str) -> Script | None:
    """The script that a text is; None when it is just a text."""
    try:
        written = _MESSAGE.decode(text).script
        return None if written is UNSET else _segments(_build_step(*each) for each in enumerate(written, start=1))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # which of its steps is at fault, and whether it is a script at all, is found out more slowly
    except _ScriptError as error:
        raise AgentError("bad_script", str(error)) from error
    return _decode_with_diagnosis(text)


def _decode_with_diagnosis(text: str) -> Script | None:
    try:
        script = _ANY_MESSAGE.decode(text).script
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        if not text.startswith(_SCRIPT_PREFIX):
            return None
        raise AgentError("bad_script", f"the script is no JSON: {error}") from error
    if not isinstance(script, list):
        if not text.startswith(_SCRIPT_PREFIX):
            return None
        raise AgentError("bad_script", "the script is no array of steps")
    try:
        return _convert_steps(script)
    except _ScriptError as error:
        raise AgentError("bad_script", str(error)) from error
    except RecursionError as error:
        raise AgentError("bad_script", "sub-agents are nested too deeply") from error


def _convert_steps(script: Sequence[Json]) -> Script:
    """Check steps one by one, so that the first bad one can be named. Raises _Bad."""
    return _segments(_build_step(number, _decode_step(number, step)) for number, step in enumerate(script, start=1))


def _decode_step(number: int, step: Json) -> _StepSource:
    if not isinstance(step, dict):
        raise _ScriptError(f"step {number}: it is no object")
    _reject_unknown_fields(number, step)
    try:
        return msgspec.convert(step, _StepSource)
    except msgspec.ValidationError as error:
        raise _ScriptError(f"step {number}: {error}") from error


def _reject_unknown_fields(number: int, step: JsonObject) -> None:
    unknown = [name for name in step if name not in _STEP_NAMES and name not in _EXTRA_FIELDS]
    if not unknown:
        return
    kinds = [name for name in step if name in _STEP_NAMES]
    if kinds:
        raise _ScriptError(f"step {number}: `{kinds[0]}` has no field `{unknown[0]}` beside it")
    raise _ScriptError(f"step {number}: there is no step `{unknown[0]}`")


def _segments(written: Iterable[Step | End | Stop]) -> Script:
    """Cut steps into model steps. All are read, but those behind a step that ends the run are left out."""
    segments: list[Segment] = []
    steps: list[Step] = []
    stop: Stop | None = None
    is_over = False
    for step in written:
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


def _build_step(number: int, step: _StepSource) -> Step | End | Stop:
    kinds = [kind for kind in _STEP_NAMES if getattr(step, kind) is not UNSET]
    if len(kinds) != 1:
        raise _ScriptError(
            f"step {number}: it takes one effect, not {' and '.join(f'`{kind}`' for kind in kinds) or 'none'}"
        )
    kind = kinds[0]
    value = getattr(step, kind)
    if kind in _BLOCK_KINDS:
        return BlockStep(_BLOCK_KINDS[kind], value, step.size or DEFAULT_DELTA_CHARS, step.every_ms or 0)
    if step.size is not UNSET or step.every_ms is not UNSET:
        raise _ScriptError(
            f"step {number}: `{kind}` has no field `{'every_ms' if step.size is UNSET else 'size'}` beside it"
        )
    try:
        return _STEP_BUILDERS[kind](value)
    except _ScriptError as error:
        raise _ScriptError(f"step {number}: `{kind}`: {error}") from error
