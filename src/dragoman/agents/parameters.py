"""Derive a JSON Schema from a function's parameters, and validate a model's arguments against them. Pure.

Types come from the annotations, through msgspec. Descriptions come from `Annotated` (a string or `msgspec.Meta`) or
from the `Args` section of the docstring.
"""

import inspect
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, get_type_hints

import msgspec

from dragoman.core.agent import ToolContext, ToolFailed
from dragoman.core.content import Json, JsonObject
from dragoman.core.time_zones import EVENT_TIME_ZONE, is_zone

REFS = "#/$defs/{name}"
MAX_VALUE_CHARS = 80
ZONE_HINT = "expected an IANA name such as Europe/Berlin"

TypeHint = Any
"""An annotation: a type or a form from `typing`."""

_ERROR_PATH = re.compile(r" - at `(key in )?(?P<path>[^`]*)`$")
_PATH_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|(?P<any>\[\.\.\.\])")


class DeclarationError(ValueError):
    """A tool or an agent is declared incorrectly. The message is meant for its author."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter that models see. `schema` includes its description."""

    name: str
    type: TypeHint
    schema: JsonObject
    is_required: bool


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """A function's parameters. `context` is the name of the one that receives the `ToolContext`, if there is one."""

    items: tuple[Parameter, ...]
    definitions: JsonObject
    context: str | None

    def schema(self) -> JsonObject:
        """The JSON Schema of the arguments object."""
        schema: JsonObject = {
            "type": "object",
            "properties": {each.name: each.schema for each in self.items},
            "required": [each.name for each in self.items if each.is_required],
            "additionalProperties": False,
        }
        if self.definitions:
            schema["$defs"] = self.definitions
        return schema

    def read(self, arguments: JsonObject) -> dict[str, Any]:
        """Convert a model's arguments to the function's types.

        Raises:
            ToolFailed: an argument is not valid; the message lists all faults, so that a model can correct them.
        """
        values: dict[str, Any] = {}
        faults: list[str] = []
        for parameter in self.items:
            if parameter.name not in arguments:
                if parameter.is_required:
                    faults.append(f"{parameter.name}: missing")
                continue
            try:
                values[parameter.name] = _convert(arguments[parameter.name], parameter.type)
            except msgspec.ValidationError as error:
                faults.append(_describe_fault(parameter, arguments[parameter.name], str(error)))
        zone = values.get(EVENT_TIME_ZONE)
        if isinstance(zone, str) and not is_zone(zone):
            faults.append(f"{EVENT_TIME_ZONE}: unknown time zone, got {_format_value(zone)}; {ZONE_HINT}")
        known = {parameter.name for parameter in self.items}
        names = ", ".join(parameter.name for parameter in self.items) or "none"
        faults += [f"{name}: unknown argument (known arguments: {names})" for name in arguments if name not in known]
        if faults:
            raise ToolFailed("; ".join(faults))
        return values


class FunctionSignature(msgspec.Struct, frozen=True, kw_only=True):
    """A function's signature and description. `returns` is the annotation of its result; UNSET if there is none."""

    description: str
    parameters: Parameters
    returns: TypeHint


def read_function(function: Callable[..., Any], name: str) -> FunctionSignature:
    """Read a function's signature, annotations and docstring.

    Raises:
        DeclarationError: a parameter has no annotation, has a type that JSON cannot represent, or cannot be passed by
            name.
    """
    hints = _hints(function, name)
    description, argument_docs = read_docstring(inspect.getdoc(_annotated_callable(function)) or "")
    context: str | None = None
    model_parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise DeclarationError(f"tool {name}: parameter {parameter.name!r} cannot be passed by name")
        if parameter.name not in hints:
            hint = " (for a method, pass `tool(object.method)`)" if parameter.name == "self" else ""
            raise DeclarationError(f"tool {name}: parameter {parameter.name!r} has no type annotation{hint}")
        if hints[parameter.name] is ToolContext:
            context = parameter.name
        else:
            model_parameters.append(parameter)
    schemas, definitions = _schemas(name, [(each.name, hints[each.name]) for each in model_parameters])
    items = tuple(
        Parameter(
            name=parameter.name,
            type=hints[parameter.name],
            schema=_with_description(schema, parameter, hints[parameter.name], argument_docs.get(parameter.name)),
            is_required=parameter.default is inspect.Parameter.empty,
        )
        for parameter, schema in zip(model_parameters, schemas, strict=True)
    )
    parameters = Parameters(items=items, definitions=definitions, context=context)
    return FunctionSignature(description=description, parameters=parameters, returns=hints.get("return", msgspec.UNSET))


def _annotated_callable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The object that has the annotations and the docstring: for a callable object, its `__call__`."""
    if inspect.isroutine(function):
        return function
    method = type(function).__call__
    return method if isinstance(method, Callable) else function  # type: ignore[arg-type]  # mypy: Callable is not a class


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(_annotated_callable(function), include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise DeclarationError(f"tool {name}: cannot evaluate the annotations: {error}") from error


def _schemas(name: str, parameters: Sequence[tuple[str, Any]]) -> tuple[tuple[JsonObject, ...], JsonObject]:
    for parameter, hint in parameters:  # one by one, so that the error can name the parameter
        try:
            msgspec.json.schema_components([hint])
        except (TypeError, ValueError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise DeclarationError(
                f"tool {name}: the type of parameter {parameter!r} cannot be represented in JSON: {reason}"
            ) from error
    return msgspec.json.schema_components([hint for _, hint in parameters], ref_template=REFS)


def _with_description(
    schema: JsonObject, parameter: inspect.Parameter, hint: TypeHint, doc_text: str | None
) -> JsonObject:
    """The schema with the parameter's description and default."""
    metadata: tuple[object, ...] = getattr(hint, "__metadata__", ())  # of Annotated
    description = next((each for each in metadata if isinstance(each, str)), doc_text)
    schema = dict(schema)
    if parameter.name == EVENT_TIME_ZONE:
        description = description or "The IANA time zone of the event, such as Europe/Berlin"
    if "description" not in schema and description:
        schema["description"] = description
    if parameter.default is not inspect.Parameter.empty:
        with suppress(TypeError):  # a default that JSON cannot represent is left out
            schema["default"] = msgspec.to_builtins(parameter.default)
    return schema


# --- values -----------------------------------------------------------------------------------------------------------


def _convert(value: Json, hint: TypeHint) -> object:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        converted = _with_integers(value)  # JSON Schema treats 5.0 as an integer
        if converted == value and json.dumps(converted) == json.dumps(value):
            raise
        return msgspec.convert(converted, hint)


def _with_integers(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_integers(each) for each in value]
    if isinstance(value, dict):
        return {key: _with_integers(each) for key, each in value.items()}
    return value


def _describe_fault(parameter: Parameter, value: Json, message: str) -> str:
    """The message of msgspec, with the path of the value by parameter name, and with the value itself."""
    path, faulty_value = parameter.name, value
    match = _ERROR_PATH.search(message)
    if match is not None:
        message = message[: match.start()]
        for step in _PATH_STEP.finditer(match["path"].removeprefix("$")):
            faulty_value = _value_at(faulty_value, step)
            path += step[0]
    message = message[:1].lower() + message[1:].replace("`", "")
    if message.startswith("invalid enum value") and path == parameter.name and "enum" in parameter.schema:
        message = f"expected one of {', '.join(map(_format_value, parameter.schema['enum']))}"
    if message.startswith("object "):  # a missing or unknown field: the message names it
        return f"{path}: {message}"
    message = re.sub(r", got \S+$", "", message)
    if faulty_value is msgspec.UNSET:
        return f"{path}: {message}"
    return f"{path}: {message}, got {_format_value(faulty_value)}"


def _value_at(value: Json, step: re.Match[str]) -> Json:
    if step["name"] is not None:
        return value.get(step["name"], msgspec.UNSET) if isinstance(value, dict) else msgspec.UNSET
    if step["index"] is not None and isinstance(value, list) and int(step["index"]) < len(value):
        return value[int(step["index"])]
    return msgspec.UNSET


def _format_value(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"


# --- docstrings -------------------------------------------------------------------------------------------------------

_ARGS = {"args:", "arguments:", "parameters:"}
_SECTIONS = {"returns:", "return:", "yields:", "raises:", "example:", "examples:", "note:", "notes:", "source:"}
_ARGUMENT = re.compile(r"(?P<name>\*{0,2}\w+)\s*(\([^)]*\))?:\s*(?P<text>.*)")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The text before the first section of a Google-style docstring, and the entries of its `Args` section by name."""
    description: list[str] = []
    arguments: dict[str, list[str]] = {}
    section, current, indent = "", "", 0
    for line in inspect.cleandoc(text).splitlines():
        heading = line.strip().lower()
        if not line.startswith(" ") and heading in _ARGS | _SECTIONS:
            section = "args" if heading in _ARGS else "other"
            current, indent = "", 0
        elif section == "":
            description.append(line)
        elif section == "args" and heading:
            depth = len(line) - len(line.lstrip())
            argument = _ARGUMENT.match(line.strip())
            if argument is not None and depth > 0 and (indent == 0 or depth <= indent):
                indent, current = depth, argument["name"].lstrip("*")
                arguments[current] = [argument["text"]]
            elif current:
                arguments[current].append(line.strip())
    return "\n".join(description).strip(), {name: " ".join(lines).strip() for name, lines in arguments.items()}
