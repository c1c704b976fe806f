"""Tools made from functions: specifications for models, arguments of functions, and results."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from dragoman.agents.parameters import DeclarationError, read_docstring
from dragoman.agents.tool import FunctionTool, ToolOptions, tool
from dragoman.core.agent import ToolContext, ToolFailed
from dragoman.core.content import Data, Image, Json, JsonObject, Text
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.tools import ServerTool, ToolPolicy, ToolSpec

DEADLINE_S = 60


class Context:
    """A `ToolContext`."""

    def __init__(self) -> None:
        self.session_id = SessionId("s-1")
        self.run_id = RunId("r-1")
        self.call_id = CallId("c-1")
        self.user = UserId("alice")
        self.options: Mapping[str, str] = {"unit": "km"}
        self.metadata = RunMetadata()
        self.granted = False
        self.answer: str | None = None
        self.answers: Sequence[Sequence[str]] = ()
        self.time_zone = "UTC"
        self.elapsed_s = 0.0
        self.is_settled = False
        self.attached: Json = None

    def attach(self, private: Json) -> None:
        self.attached = private

    async def keep(self, writes: Mapping[str, bytes | None]) -> None:
        raise AssertionError("no tool of these tests keeps anything")

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        raise AssertionError("no tool of these tests keeps anything")


async def run(called: FunctionTool[..., Any], **arguments: object) -> object:
    async with asyncio.timeout(DEADLINE_S):
        return await called.run(arguments, Context())


class Place(msgspec.Struct):
    lat: float
    lon: float


# --- specifications ---------------------------------------------------------------------------------------------------


def test_a_tools_specification_comes_from_the_functions_signature() -> None:
    @tool
    def find(
        what: Annotated[str, "the thing"],
        where: Place,
        most: Annotated[int, Meta(ge=1, le=50)] = 10,
        kind: Literal["shop", "office"] | None = None,
    ) -> list[str]:
        """Find places.

        Looks near a point.

        Args:
            what: not used, because the annotation has a description.
            most: how many, at most,
                of all that are found.

        Returns:
            Names.
        """
        return [f"{what} {where.lat} {most} {kind}"]

    assert find.declaration == ServerTool(
        spec=ToolSpec(
            name="find",
            description="Find places.\n\nLooks near a point.",
            parameters={
                "type": "object",
                "properties": {
                    "what": {"type": "string", "description": "the thing"},
                    "where": {"$ref": "#/$defs/Place"},
                    "most": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 50,
                        "description": "how many, at most, of all that are found.",
                        "default": 10,
                    },
                    "kind": {"anyOf": [{"enum": ["office", "shop"]}, {"type": "null"}], "default": None},
                },
                "required": ["what", "where"],
                "additionalProperties": False,
                "$defs": {
                    "Place": {
                        "title": "Place",
                        "type": "object",
                        "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                        "required": ["lat", "lon"],
                    }
                },
            },
        )
    )


def test_the_options_of_a_tool_set_its_policy_and_its_texts() -> None:
    @tool(
        name="wipe-disk",
        title="Wipe a disk",
        description="""
        Wipes.
          Really.
        """,
        exposed=False,
        needs_approval=True,
        on_restart="ask",
        timeout_s=5,
    )
    def wipe() -> None: ...

    assert (wipe.name, wipe.declaration.spec.title) == ("wipe-disk", "Wipe a disk")
    assert wipe.declaration.spec.description == "Wipes.\n  Really."
    assert wipe.declaration.policy == ToolPolicy(exposed=False, needs_approval=True, on_restart="ask", timeout_s=5)


def test_an_idempotent_tool_is_repeated_after_a_restart_and_others_fail() -> None:
    @tool(idempotent=True)
    def look() -> None: ...

    @tool
    def act() -> None: ...

    assert (look.declaration.policy.on_restart, act.declaration.policy.on_restart) == ("repeat", "fail")
    with pytest.raises(DeclarationError, match="requires on_restart='repeat', got 'ask'"):
        tool(idempotent=True, on_restart="ask")


def test_a_tool_is_still_callable_as_a_function() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert (add(3), add(3, b=4), vars(add)["__name__"], add.__doc__) == (5, 7, "add", "Add.")


def test_the_context_is_passed_but_hidden_from_models() -> None:
    @tool
    def where(context: ToolContext, unit: str | None = None) -> str:
        return f"{context.user} {unit or context.options['unit']}"

    assert list(where.declaration.spec.parameters["properties"]) == ["unit"]
    assert asyncio.run(run(where)) == "alice km"


def no_annotation(a):  # type: ignore[no-untyped-def]  # that is the point
    return a


def many(*values: int) -> int:
    return sum(values)


def by_place(a: int, /) -> int:
    return a


def no_json(a: complex) -> complex:
    return a


def unknown(a: "Nowhere") -> int:  # type: ignore[name-defined]  # noqa: F821  # that is the point
    return a  # type: ignore[no-any-return]  # as above


def yields(a: int):  # type: ignore[no-untyped-def]  # the annotation would hide nothing
    yield a


class Shelf:
    def put(self, book: str) -> str:
        """Put a book on it."""
        return f"{book} on {type(self).__name__}"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_annotation, "tool no_annotation: parameter 'a' has no type annotation"),
        (many, "tool many: parameter 'values' cannot be passed by name"),
        (by_place, "tool by_place: parameter 'a' cannot be passed by name"),
        (
            no_json,
            (
                "tool no_json: the type of parameter 'a' cannot be represented in JSON: "
                "type <class 'complex'> is not supported"
            ),
        ),
        (unknown, "tool unknown: cannot evaluate the annotations: name 'Nowhere' is not defined"),
        (yields, "tool yields: a tool must return its result, not yield it"),
        (
            Shelf.put,
            "tool put: parameter 'self' has no type annotation (for a method, pass `tool(object.method)`)",
        ),
        (lambda: 1, "a function without a name needs tool(name=…)"),
    ],
)
def test_an_invalid_tool_function_is_refused_with_the_reason(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        tool(function)
    assert str(refused.value) == message


def test_a_bound_method_and_a_callable_object_can_be_tools() -> None:
    class Counter:
        """Counts."""

        async def __call__(self, step: int) -> int:
            """Count on."""
            return step + 1

    put = tool(Shelf().put)
    count = tool(name="count")(Counter())
    assert (put.name, put.declaration.spec.description, count.declaration.spec.description) == (
        "put",
        "Put a book on it.",
        "Count on.",
    )
    assert asyncio.run(run(put, book="Emma")) == "Emma on Shelf"
    assert asyncio.run(run(count, step=1)) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("", {})),
        ("Only words: no sections.", ("Only words: no sections.", {})),
        (
            "X.\n\nArgs:\n  a (int): one\n  *b: two:\n    and more\n\nRaises:\n  c: no",
            ("X.", {"a": "one", "b": "two: and more"}),
        ),
        ("X.\n\nReturns:\n  y\n\nArguments:\n    a: b\n    that goes on", ("X.", {"a": "b that goes on"})),
    ],
)
def test_google_style_docstrings_are_parsed(text: str, expected: tuple[str, dict[str, str]]) -> None:
    assert read_docstring(text) == expected


# --- what functions are given -----------------------------------------------------------------------------------------


@dataclass
class Order:
    kind: str
    packs: list[int]
    by: date | None = None


@tool
def order(order: Order, size: Annotated[float, Meta(gt=0)], unit: Literal["kg", "g"] = "kg") -> str:
    return f"{order.kind} {order.packs} {order.by} {size!r} {unit}"


async def test_arguments_are_converted_to_the_types_of_the_function() -> None:
    assert await run(order, order={"kind": "kale", "packs": [1, 2.0], "by": "2026-03-01"}, size=3) == (
        "kale [1, 2] 2026-03-01 3.0 kg"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "order: missing; size: missing"),
        (
            {"order": {"kind": "kale", "packs": ["x"]}, "size": -1.5, "unit": "lb", "who": 1},
            (
                'order.packs[0]: expected int, got "x"; size: expected float > 0.0, got -1.5; '
                'unit: expected one of "g", "kg", got "lb"; who: unknown argument (known arguments: order, size, unit)'
            ),
        ),
        ({"order": "kale", "size": 1}, 'order: expected object, got "kale"'),
        ({"order": {"kind": "kale"}, "size": 1}, "order: object missing required field packs"),
        (
            {"order": {"kind": "k", "packs": [], "by": "soon"}, "size": 1},
            'order.by: invalid RFC3339 encoded date, got "soon"',
        ),
        (
            {"order": {"kind": "k" * 100, "packs": 1.5}, "size": None},
            "order.packs: expected array, got 1.5; size: expected float, got null",
        ),
    ],
)
async def test_all_invalid_arguments_are_reported_together(arguments: JsonObject, message: str) -> None:
    with pytest.raises(ToolFailed) as refused:
        await run(order, **arguments)
    assert str(refused.value) == message
    with pytest.raises(ToolFailed):
        order.check(arguments)


async def test_a_float_without_a_fraction_is_an_integer_and_others_are_not() -> None:
    @tool
    def double(a: int) -> int:
        return a * 2

    assert await run(double, a=21.0) == 42
    with pytest.raises(ToolFailed, match=r"^a: expected int, got 21\.5$"):
        await run(double, a=21.5)
    with pytest.raises(ToolFailed, match=r"^a: expected int, got true$"):
        await run(double, a=True)


# --- results ----------------------------------------------------------------------------------------------------------


def giving(value: object) -> FunctionTool[[], object]:
    @tool
    def give() -> object:
        return value

    return give


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("words", "words"),
        (5, 5),
        (None, None),
        (Place(1, 2), {"lat": 1.0, "lon": 2.0}),
        ([Order("k", [1])], [{"kind": "k", "packs": [1], "by": None}]),
        ({1: {2}}, {"1": [2]}),
        (Image("https://a.example/x.png"), (Image("https://a.example/x.png"),)),
        (["Look:", Data({"a": 1})], (Text("Look:"), Data({"a": 1}))),
    ],
)
async def test_results_are_json_or_blocks(value: object, expected: object) -> None:
    assert await run(giving(value)) == expected


@pytest.mark.parametrize("value", [object(), 1j, [object()]])
async def test_a_result_that_json_cannot_represent_is_a_failure(value: object) -> None:
    with pytest.raises(
        ToolFailed, match=rf"^the tool give returned a {type(value).__name__} that cannot be converted to JSON$"
    ):
        await run(giving(value))


class Ended(BaseException):
    """A base exception like SystemExit, but one that pytest does not act on."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("now"), Ended("x")])
async def test_a_tool_that_raises_system_exit_only_fails(error: BaseException, is_async: bool) -> None:
    def leave() -> None:
        raise error

    async def leave_later() -> None:
        raise error

    with pytest.raises(ToolFailed, match=f"^{type(error).__name__}: {error}$"):
        await run(tool(leave_later) if is_async else tool(leave))


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("no")])
async def test_a_tools_error_is_raised_from_its_thread(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises((ValueError, RuntimeError)) as raised:
        await run(tool(fail))
    assert raised.value is error or raised.value.__cause__ is error


async def test_a_cancellation_inside_a_tool_is_a_failure_but_cancelling_the_tool_is_not() -> None:
    started = asyncio.Event()

    @tool
    async def wait(for_ever: bool) -> None:
        if not for_ever:
            inner = asyncio.get_running_loop().create_future()
            inner.cancel()
            await inner
        started.set()
        await asyncio.Event().wait()

    with pytest.raises(ToolFailed, match="it cancelled itself"):
        await run(wait, for_ever=False)
    task = asyncio.create_task(run(wait, for_ever=True))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- threads ----------------------------------------------------------------------------------------------------------


async def test_blocking_functions_run_in_parallel_without_blocking_the_loop() -> None:
    both = threading.Barrier(2, timeout=DEADLINE_S)

    @tool
    def meet() -> str:
        both.wait()
        return threading.current_thread().name

    async with asyncio.timeout(DEADLINE_S):
        names = await asyncio.gather(run(meet), run(meet))
    assert set(names) == {"dragoman-tool"}


async def test_a_cancelled_call_returns_at_once_although_its_thread_continues() -> None:
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    @tool
    def block() -> None:
        started.set()
        may_end.wait(DEADLINE_S)
        ended.set()

    task = asyncio.create_task(run(block))
    await asyncio.to_thread(started.wait, DEADLINE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ended.is_set()
    may_end.set()
    assert await asyncio.to_thread(ended.wait, DEADLINE_S)


def test_every_member_of_the_policy_is_an_option_and_every_option_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
    options = ToolOptions.__annotations__
    assert [name for name in ToolPolicy.__struct_fields__ if name not in options] == []
    assert [name for name in options if f"`{name}`" not in page] == []
