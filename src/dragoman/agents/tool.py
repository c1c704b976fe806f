"""Tools made from typed Python functions.

A tool remains a function: it can be called, tested and imported as before. It gains a specification (name, description,
JSON Schema of the arguments), a policy, and `run`, which the engine calls with a model's arguments.
"""

import asyncio
import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, get_args, overload

import msgspec

from dragoman.agents.parameters import DeclarationError, TypeHint, read_function
from dragoman.agents.worker_threads import run_in_thread
from dragoman.core.agent import ToolContext, ToolFailed
from dragoman.core.content import Block, InputBlock, Json, JsonObject, Text
from dragoman.core.tools import OnRestart, ServerTool, ToolPolicy, ToolSpec

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TIMEOUT_S = 120.0


class FunctionTool(Generic[P, R]):
    """A tool that is a function. Created by `tool`."""

    function: Callable[P, R]
    """The wrapped function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        exposed: bool = True,
        needs_approval: bool = False,
        reads_only: bool = False,
        on_restart: OnRestart = "fail",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        if isinstance(function, FunctionTool):  # an existing tool under another name or policy
            function = function.function
        name = name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise DeclarationError("a function without a name needs tool(name=…)")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise DeclarationError(f"tool {name}: a tool must return its result, not yield it")
        if timeout_s <= 0:
            raise DeclarationError(f"tool {name}: timeout_s must be greater than 0, got {timeout_s!r}")
        if on_restart not in get_args(OnRestart):
            raise DeclarationError(f"tool {name}: on_restart must be repeat, fail or ask, got {on_restart!r}")
        update_wrapper(self, function)
        self.function = function
        self._signature = read_function(function, name)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # of a callable object
        )
        self.declaration = ServerTool(
            spec=ToolSpec(
                name=name,
                description=self._signature.description if description is None else inspect.cleandoc(description),
                parameters=self._signature.parameters.schema(),
                title=title,
            ),
            policy=ToolPolicy(
                exposed=exposed,
                needs_approval=needs_approval,
                reads_only=reads_only,
                on_restart=on_restart,
                timeout_s=timeout_s,
            ),
        )

    @property
    def name(self) -> str:
        """The name that models and clients use."""
        return self.declaration.spec.name

    @property
    def returns(self) -> TypeHint:
        """The annotation of the function's return value; UNSET if there is none."""
        return self._signature.returns

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def bind_arguments(self, *args: object, **kwargs: object) -> dict[str, object]:
        """The arguments of a call of the function, by name. Raises TypeError if the function does not accept them."""
        return dict(inspect.signature(self.function).bind_partial(*args, **kwargs).arguments)

    def check(self, arguments: JsonObject) -> None:
        """Check a model's arguments. Raises ToolFailed, which lists all faults."""
        self._signature.parameters.read(arguments)

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """Call the function with a model's arguments.

        A function that is not async runs in a thread, which continues if the call is cancelled.

        Raises:
            ToolFailed: the arguments are not valid, or the function raised an exception that must not end the server,
                such as SystemExit.
        """
        values = self._signature.parameters.read(arguments)
        if self._signature.parameters.context is not None:
            values[self._signature.parameters.context] = context
        function: Callable[..., Any] = self.function

        def call() -> object:
            return function(**values)

        try:
            value = call() if self._is_async else await run_in_thread(call)
            if inspect.isawaitable(value):
                value = await value
        except (Exception, GeneratorExit):
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ToolFailed("it cancelled itself") from error  # something that the function awaited was cancelled
        except BaseException as error:  # SystemExit, KeyboardInterrupt: in a tool they are ordinary failures
            raise ToolFailed(f"{type(error).__name__}: {error}") from error
        return self._encode_result(value)

    def _encode_result(self, value: Any) -> Json:  # noqa: ANN401  # a user's function may return anything
        """Convert the result to JSON or blocks."""
        if isinstance(value, str):
            return value
        if isinstance(value, InputBlock):
            return (value,)
        if isinstance(value, (list, tuple)) and any(isinstance(each, Block) for each in value):
            blocks = tuple(Text(each) if isinstance(each, str) else each for each in value)
            if all(isinstance(each, InputBlock) for each in blocks):
                return blocks
        try:
            return msgspec.to_builtins(value, str_keys=True)
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolFailed(
                f"the tool {self.name} returned a {type(value).__name__} that cannot be converted to JSON"
            ) from error


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    exposed: bool = True,
    needs_approval: bool = False,
    reads_only: bool = False,
    idempotent: bool = False,
    on_restart: OnRestart | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    exposed: bool = True,
    needs_approval: bool = False,
    reads_only: bool = False,
    idempotent: bool = False,
    on_restart: OnRestart | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a typed function a tool: `@tool`, or `@tool(needs_approval=True)`.

    Args:
        function: async or not, with an annotation for each parameter. A parameter annotated `ToolContext` receives the
            context and is hidden from models.
        name: defaults to the function's name.
        title: display name.
        description: for models; defaults to the docstring up to its first section.
        exposed: whether clients see the tool and can enable it. A hidden tool is always available.
        needs_approval: whether the user must approve each call.
        reads_only: whether the tool changes nothing, so that it may also be used in plan mode.
        idempotent: whether a call may be repeated after a server crash; the same as `on_restart="repeat"`.
        on_restart: what happens to a call that was running when the server died; `fail` by default.
        timeout_s: a call that takes longer fails.

    Raises:
        DeclarationError: the function cannot be a tool; the message says why.
    """
    if idempotent and on_restart not in (None, "repeat"):
        raise DeclarationError(f"idempotent=True requires on_restart='repeat', got {on_restart!r}")
    make = partial(
        FunctionTool[P, R],
        name=name,
        title=title,
        description=description,
        exposed=exposed,
        needs_approval=needs_approval,
        reads_only=reads_only,
        on_restart="repeat" if idempotent else on_restart or "fail",
        timeout_s=timeout_s,
    )
    return make if function is None else make(function)
