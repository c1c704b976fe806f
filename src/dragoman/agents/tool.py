"""Tools out of typed Python functions.

A tool is still the function that it was: it can be called, tested and imported as such. What is added is its face
(name, description, JSON Schema of the arguments), its policy, and `run`, which the engine calls with what a model sent.
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
    """A tool that is a function. Made by `tool`."""

    function: Callable[P, R]
    """The function itself."""

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
        if isinstance(function, FunctionTool):  # a tool again, under another name or policy
            function = function.function
        name = name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise DeclarationError("a function without a name of its own needs one: tool(name=…)")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise DeclarationError(f"tool {name}: a tool returns its result, it cannot yield it")
        if timeout_s <= 0:
            raise DeclarationError(f"tool {name}: timeout_s is a number of seconds greater than 0, got {timeout_s!r}")
        if on_restart not in get_args(OnRestart):
            raise DeclarationError(f"tool {name}: on_restart is repeat, fail or ask, got {on_restart!r}")
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
        """See `RunnableTool.declaration`."""

    @property
    def name(self) -> str:
        """How models and clients call it."""
        return self.declaration.spec.name

    @property
    def returns(self) -> TypeHint:
        """The annotation of the function's result; UNSET if there is none."""
        return self._signature.returns

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def bind_arguments(self, *args: object, **kwargs: object) -> dict[str, object]:
        """Arguments as the function could be called with them, by name. Raises TypeError: it takes no such ones."""
        return dict(inspect.signature(self.function).bind_partial(*args, **kwargs).arguments)

    def check(self, arguments: JsonObject) -> None:
        """Check a model's arguments. Raises ToolFailed, with all that is wrong."""
        self._signature.parameters.read(arguments)

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """See `RunnableTool.run`. A function that is not async runs in a thread, which a cancellation leaves behind.

        Raises:
            ToolFailed: the arguments do not fit, or the function ended in a way that must not end the server.
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
            raise ToolFailed("it cancelled itself") from error  # something that it awaited was cancelled
        except BaseException as error:  # SystemExit, KeyboardInterrupt: of a tool they are a failure like others
            raise ToolFailed(f"{type(error).__name__}: {error}") from error
        return self._encode_result(value)

    def _encode_result(self, value: Any) -> Json:  # noqa: ANN401  # whatever a user's function returns
        """The result as JSON or as blocks."""
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
            raise ToolFailed(f"the tool {self.name} returned a {type(value).__name__} that is no JSON") from error


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
    """Make a tool of a typed function: `@tool`, or `@tool(needs_approval=True)`.

    Args:
        function: async or not, with an annotation for each parameter. One annotated `ToolContext` receives the context
            and is not shown to models.
        name: the function's name, if not given.
        title: for people.
        description: for models; the docstring up to its first section, if not given.
        exposed: clients see it and switch it on; a hidden tool always runs, unseen and unasked.
        needs_approval: the user is asked before each call.
        reads_only: it changes nothing, so that it may also be used while the agent only plans.
        idempotent: may be run again when the server died while it ran; the same as `on_restart="repeat"`.
        on_restart: what becomes of a call that was running when the server died; `fail` by default.
        timeout_s: a call that takes longer fails.

    Raises:
        Misdeclared: the function cannot be a tool; the message says why.
    """
    if idempotent and on_restart not in (None, "repeat"):
        raise DeclarationError(
            f"an idempotent tool is repeated after a restart, so that on_restart={on_restart!r} is wrong"
        )
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
