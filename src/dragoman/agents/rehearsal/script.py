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
    SIZE,
    Asked,
    Burst,
    Crash,
    Emit,
    End,
    Fail,
    Milliseconds,
    Recall,
    Script,
    Segment,
    Show,
    ShowCard,
    Step,
    Stop,
    TellOption,
    TellProperty,
    TellStarts,
    Wait,
    Words,
)
from dragoman.core.agent import AgentError
from dragoman.core.answers import Questions
from dragoman.core.content import Data, Growing, Image, Json, JsonObject, Usage
from dragoman.core.events import PlanShown, PlanStep
from dragoman.core.tools import ASK, FORK

BURST_MOST = 16 * 1024
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


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """A step as it is written: one of these fields; `size` and `every_ms` may stand beside `say` and `think`."""

    say: str | tuple[str, ...] | UnsetType = UNSET
    think: str | tuple[str, ...] | UnsetType = UNSET
    size: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    every_ms: Milliseconds | UnsetType = UNSET
    emit: Emit | UnsetType = UNSET
    burst: Annotated[int, Meta(ge=0, le=BURST_MOST)] | UnsetType = UNSET
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
    script: list[_Written] | UnsetType = UNSET


class _AnyMessage(msgspec.Struct):
    """The same with steps of any shape, to find out what is wrong with them."""

    script: Json = UNSET


_MESSAGE: msgspec.json.Decoder[_Message] = msgspec.json.Decoder(_Message)
_ANY_MESSAGE: msgspec.json.Decoder[_AnyMessage] = msgspec.json.Decoder(_AnyMessage)
_BEGINNING = '{"script"'


class _Bad(Exception):
    """What is wrong with a script."""


def _ask(arguments: JsonObject) -> End:
    try:
        msgspec.convert(arguments, Questions)
    except msgspec.ValidationError as error:
        raise _Bad(str(error)) from error
    return End((Asked(ASK, arguments),))


def _fork(fork: _Fork) -> End:
    _convert(fork.script)
    return End((Asked(FORK, {"description": fork.description, "script": fork.script}),))


def _end(is_true: bool) -> End:
    if not is_true:
        raise _Bad("it is true or not there")
    return End()


_MEANINGS: dict[str, Callable[[Json], Step | End | Stop]] = {
    "emit": lambda emit: emit,
    "burst": Burst,
    "image": lambda url: Show(Image(url)),
    "data": lambda data: Show(Data(data)),
    "call": lambda call: End((Asked(call.name, call.input),)),
    "calls": lambda calls: End(tuple(Asked(call.name, call.input) for call in calls), is_many=True),
    "tool": lambda tool: End((Asked(tool.name, tool.input, tool.output),)),
    "mcp": lambda tool: End((Asked(tool.name, tool.input, tool.output, tool.server),)),
    "ask": _ask,
    "fork": _fork,
    "plan": lambda plan: PlanShown(status=plan.status, steps=plan.steps),
    "card": ShowCard,
    "usage": lambda usage: Usage(usage.input_tokens, usage.output_tokens),
    "recall": Recall,
    "option": TellOption,
    "props": TellProperty,
    "starts": TellStarts,
    "wait_ms": Wait,
    "step": _end,
    "stop": Stop,
    "fail": lambda fault: Crash(fault) if isinstance(fault, str) else fault,
}
"""What a step means, by its name; `say` and `think` alone have fields beside them."""
_SPOKEN: dict[str, Growing] = {"say": "text", "think": "thinking"}
_KINDS = (*_SPOKEN, *_MEANINGS)
_BESIDE = ("size", "every_ms")

# --- reading ----------------------------------------------------------------------------------------------------------

_ADD = re.compile(r"add\s+([+-]?[0-9]{1,300})\s+and\s+([+-]?[0-9]{1,300})", re.IGNORECASE)
_WHICH = {
    "question": "Which environment?",
    "header": "Deploy",
    "options": [{"label": "staging"}, {"label": "production"}],
}
_KNOWN: dict[str, Script] = {
    "hello": (Segment((Words("text", "Hello! I am the rehearsal agent."),)),),
    "ask me": (
        Segment((), End((Asked(ASK, {"questions": [_WHICH]}),))),
        Segment((Words("text", "You chose {answer}."),)),
    ),
    "think": (Segment((Words("thinking", "Let me think."), Words("text", "Done thinking."))),),
    "recall": (Segment((Recall("user"),)),),
}


def read(text: str) -> Script:
    """What a user's message makes the agent play.

    Raises:
        AgentError: `bad_script`; the message names the step, counted from 1.
    """
    beginning = text.lstrip()
    if beginning[:1] == "{":
        script = _read_script(beginning)
        if script is not None:
            return script
    said = text.strip()
    known = _KNOWN.get(said.lower())
    if known is not None:
        return known
    sum_of = _ADD.fullmatch(said)
    if sum_of is not None:
        terms = {"a": int(sum_of[1]), "b": int(sum_of[2])}
        return (Segment((), End((Asked("add", terms),))), Segment((Words("text", "The sum is {result}."),)))
    return (Segment((Words("text", f"You said: {text}"),)),)


def read_fork(arguments: JsonObject) -> Script | None:
    """The script of a sub-agent; None when the arguments of its call are no such thing."""
    try:
        return _convert(msgspec.convert(arguments, _Fork).script)
    except (msgspec.ValidationError, _Bad, RecursionError):
        return None


def is_script(text: str) -> bool:
    """Whether a message is a script, a bad one included."""
    beginning = text.lstrip()
    if beginning[:1] != "{":
        return False
    try:
        return _read_script(beginning) is not None
    except AgentError:
        return True


def _read_script(text: str) -> Script | None:
    """The script that a text is; None when it is just a text."""
    try:
        written = _MESSAGE.decode(text).script
        return None if written is UNSET else _segments(_meaning(*each) for each in enumerate(written, start=1))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # which of its steps is at fault, and whether it is a script at all, is found out more slowly
    except _Bad as error:
        raise AgentError("bad_script", str(error)) from error
    return _read_slowly(text)


def _read_slowly(text: str) -> Script | None:
    try:
        script = _ANY_MESSAGE.decode(text).script
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        if not text.startswith(_BEGINNING):
            return None
        raise AgentError("bad_script", f"the script is no JSON: {error}") from error
    if not isinstance(script, list):
        if not text.startswith(_BEGINNING):
            return None
        raise AgentError("bad_script", "the script is no array of steps")
    try:
        return _convert(script)
    except _Bad as error:
        raise AgentError("bad_script", str(error)) from error
    except RecursionError as error:
        raise AgentError("bad_script", "sub-agents are nested too deeply") from error


def _convert(script: Sequence[Json]) -> Script:
    """Check steps one by one, so that the first bad one can be named. Raises _Bad."""
    return _segments(_meaning(number, _written(number, step)) for number, step in enumerate(script, start=1))


def _written(number: int, step: Json) -> _Written:
    if not isinstance(step, dict):
        raise _Bad(f"step {number}: it is no object")
    _only_known(number, step)
    try:
        return msgspec.convert(step, _Written)
    except msgspec.ValidationError as error:
        raise _Bad(f"step {number}: {error}") from error


def _only_known(number: int, step: JsonObject) -> None:
    unknown = [name for name in step if name not in _KINDS and name not in _BESIDE]
    if not unknown:
        return
    kinds = [name for name in step if name in _KINDS]
    if kinds:
        raise _Bad(f"step {number}: `{kinds[0]}` has no field `{unknown[0]}` beside it")
    raise _Bad(f"step {number}: there is no step `{unknown[0]}`")


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


def _meaning(number: int, step: _Written) -> Step | End | Stop:
    kinds = [kind for kind in _KINDS if getattr(step, kind) is not UNSET]
    if len(kinds) != 1:
        raise _Bad(f"step {number}: it takes one effect, not {' and '.join(f'`{kind}`' for kind in kinds) or 'none'}")
    kind = kinds[0]
    value = getattr(step, kind)
    if kind in _SPOKEN:
        return Words(_SPOKEN[kind], value, step.size or SIZE, step.every_ms or 0)
    if step.size is not UNSET or step.every_ms is not UNSET:
        raise _Bad(f"step {number}: `{kind}` has no field `{'every_ms' if step.size is UNSET else 'size'}` beside it")
    try:
        return _MEANINGS[kind](value)
    except _Bad as error:
        raise _Bad(f"step {number}: `{kind}`: {error}") from error
