"""Tools made from typed Python functions.

A tool remains a function: it can be called, tested and imported as before. It gains a specification (name, description,
JSON Schema of the arguments), a policy, and `run`, which the engine calls with a model's arguments.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, get_args, overload

import msgspec

from dragoman.agents.options import reject_unknown_options
from dragoman.agents.parameters import DeclarationError, TypeHint, read_function
from dragoman.agents.worker_threads import run_in_thread
from dragoman.core.agent import NeedsApproval, ToolContext, ToolFailed
from dragoman.core.content import Block, InputBlock, Json, JsonObject, Text
from dragoman.core.tools import OnRestart, ServerTool, ToolPolicy, ToolSpec

P = ParamSpec("P")
R = TypeVar("R")


ApprovalRule = Callable[[JsonObject, ToolContext], bool | Awaitable[bool]]
"""Whether a call with these arguments needs the user's approval."""


class ToolOptions(TypedDict, total=False):
    """The keyword arguments of `tool`. Those that `ToolPolicy` has too are part of the tool's policy."""

    name: str | None
    """Defaults to the function's name."""
    title: str | None
    """Display name."""
    description: str | None
    """For models; defaults to the docstring up to its first section."""
    exposed: bool
    """Whether clients find the tool in the list of tools and can enable it. A hidden tool is always available."""
    internal: bool
    """Whether clients see neither the tool nor its calls and results. It is always available."""
    needs_approval: bool | ApprovalRule
    """Whether the user must approve each call, or a function that says so for the arguments of a call."""
    reads_only: bool
    """Whether the tool changes nothing, so that it may also be used in planning mode."""
    idempotent: bool
    """Whether a call may be repeated after a server crash; the same as `on_restart="repeat"`."""
    on_restart: OnRestart | None
    """What happens to a call that was running when the server died; `fail` by default."""
    timeout_s: float
    """A call that takes longer fails; 120 by default."""
    retries: int
    """How often a call runs again whose tool raised an exception or took too long; 0 by default. `ToolFailed` is a
    result, and is not retried."""
    retry_delay_s: float
    """Seconds before the first retry, 1 by default. It doubles with each further one, up to a minute."""


class FunctionTool(Generic[P, R]):
    """A tool that is a function. Created by `tool`."""

    function: Callable[P, R]
    """The wrapped function."""

    def __init__(self, function: Callable[P, R], **options: Unpack[ToolOptions]) -> None:
        reject_unknown_options("tool", options, ToolOptions.__annotations__)
        if isinstance(function, FunctionTool):  # an existing tool under another name or policy
            function = function.function
        name = options.get("name") or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise DeclarationError("a function without a name needs tool(name=…)")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise DeclarationError(f"tool {name}: a tool must return its result, not yield it")
        policy = _policy(f"tool {name}", options)
        description = options.get("description")
        rule = options.get("needs_approval")
        update_wrapper(self, function)
        self.function = function
        self._approval_rule = rule if callable(rule) else None
        self._signature = read_function(function, name)
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # of a callable object
        )
        self.declaration = ServerTool(
            spec=ToolSpec(
                name=name,
                description=self._signature.description if description is None else inspect.cleandoc(description),
                parameters=self._signature.parameters.schema(),
                title=options.get("title"),
            ),
            policy=policy,
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
            NeedsApproval: the tool's rule says that the user must approve this call.
        """
        values = self._signature.parameters.read(arguments)
        if self._approval_rule is not None and not context.granted:
            needed = self._approval_rule(arguments, context)
            if await needed if inspect.isawaitable(needed) else needed:
                raise NeedsApproval
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


def _policy(owner: str, options: ToolOptions) -> ToolPolicy:
    """The policy in a tool's options. Raises DeclarationError if it is not valid."""
    on_restart = options.get("on_restart") or ("repeat" if options.get("idempotent") else "fail")
    if options.get("idempotent") and on_restart != "repeat":
        raise DeclarationError(f"idempotent=True requires on_restart='repeat', got {on_restart!r}")
    if on_restart not in get_args(OnRestart):
        raise DeclarationError(f"{owner}: on_restart must be repeat, fail or ask, got {on_restart!r}")
    given = {name: value for name, value in options.items() if name in ToolPolicy.__struct_fields__}
    if callable(options.get("needs_approval")):
        given["needs_approval"] = False  # the tool itself asks
    policy = msgspec.structs.replace(ToolPolicy(), **{**given, "on_restart": on_restart})
    if policy.timeout_s <= 0:
        raise DeclarationError(f"{owner}: timeout_s must be greater than 0, got {policy.timeout_s!r}")
    if policy.retries < 0 or policy.retry_delay_s < 0:
        raise DeclarationError(f"{owner}: retries and retry_delay_s must not be negative")
    if policy.internal and (options.get("needs_approval") or on_restart == "ask"):
        raise DeclarationError(f"{owner}: users cannot be asked about calls of an internal tool, which they do not see")
    return policy


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a typed function a tool: `@tool`, or `@tool(needs_approval=True)`.

    Args:
        function: async or not, with an annotation for each parameter. A parameter annotated `ToolContext` receives the
            context and is hidden from models.
        options: see `ToolOptions`.

    Raises:
        DeclarationError: the function cannot be a tool; the message says why.
        TypeError: an option does not exist.
    """

    def make(decorated: Callable[P, R]) -> FunctionTool[P, R]:
        return FunctionTool(decorated, **options)

    if function is not None:
        return make(function)
    reject_unknown_options("tool", options, ToolOptions.__annotations__)
    _policy("tool", options)
    return make
