"""The operations of A2A, whichever binding calls them: from a method's parameters to its answer."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.content import Json
from dragoman.core.json_memory import JsonEncoder
from dragoman.core.principal import Principal
from dragoman.core.stream import Cursor
from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.protocols.a2a import wire
from dragoman.protocols.a2a.errors import (
    ExtendedCardNotConfigured,
    InvalidParams,
    PushNotificationNotSupported,
    TaskNotFound,
    UnsupportedOperation,
)
from dragoman.protocols.a2a.streams import TaskFrames, TaskWaiter, parse_position
from dragoman.protocols.a2a.tasks import FoundTask, Tasks
from dragoman.protocols.a2a.translate import TaskFold
from dragoman.protocols.a2a.versions import Codec
from dragoman.protocols.kit.access import AdmitStream
from dragoman.protocols.kit.body import header
from dragoman.protocols.kit.connection import while_connected
from dragoman.protocols.kit.runs import SessionStreams
from dragoman.protocols.kit.sse import fixed_stream

MEDIA_TYPE = "application/a2a+json"
_ENCODER = JsonEncoder()
Operation = Callable[..., Awaitable[Response]]


class Caller(NamedTuple):
    """Who asks which agent, and how the answer is written."""

    request: Request
    principal: Principal
    spec: AgentSpec
    codec: Codec


class Operations:
    """The operations on an engine's agents. Each takes its caller, and parameters as they were sent.

    With `is_query` the parameters are strings of a query.
    """

    def __init__(self, engine: Engine, admit_stream: AdmitStream) -> None:
        self._engine = engine
        self._streams = SessionStreams(engine, admit_stream)
        self._tasks = Tasks(engine)
        self.methods: Mapping[str, Operation] = {
            "SendMessage": self.send,
            "SendStreamingMessage": self.stream,
            "GetTask": self.get,
            "ListTasks": self.list_tasks,
            "CancelTask": self.cancel,
            "SubscribeToTask": self.subscribe,
            "CreateTaskPushNotificationConfig": self.push,
            "GetTaskPushNotificationConfig": self.push,
            "ListTaskPushNotificationConfigs": self.push,
            "DeleteTaskPushNotificationConfig": self.push,
            "GetExtendedAgentCard": self.extended_card,
        }
        """The operations by the names of JSON-RPC."""

    async def send(self, caller: Caller, params: Json, *, is_query: bool = False) -> Response:
        """Take a message, and answer with its task."""
        async with AsyncExitStack() as stack:
            task, request = await self._send(caller, params, stack)
            waiter = TaskWaiter(task.fold)
            if not (request.configuration.return_immediately or waiter.is_over):
                await self._streams.read(
                    caller.request, task.session, task.cursor, waiter, is_new_run=not task.is_repeated
                )
                if waiter.is_deleted:
                    raise TaskNotFound
            shown = task.fold.task(history_length=request.configuration.history_length)
            return _respond(caller.codec.result(shown, "task", is_wrapped=True), caller.codec)

    async def stream(self, caller: Caller, params: Json, *, is_query: bool = False) -> Response:
        """Take a message, and follow its task."""
        async with AsyncExitStack() as stack:
            task, request = await self._send(caller, params, stack)
            length = request.configuration.history_length
            return await self._follow(caller, task, is_counted=task.is_repeated, history_length=length)

    async def _send(
        self, caller: Caller, params: Json, stack: AsyncExitStack
    ) -> tuple[FoundTask, wire.SendMessageRequest]:
        caller.principal.require("use")
        request = self._convert(caller, params, wire.SendMessageRequest)
        return await self._tasks.send(caller.principal.user, caller.spec, request, stack), request

    async def _follow(
        self,
        caller: Caller,
        task: FoundTask,
        *,
        is_counted: bool,
        from_rest: bool = False,
        history_length: int | None = None,
    ) -> Response:
        """Follow a task with a stream that begins with the task as it is."""
        frames = TaskFrames(task.fold, caller.codec)
        first = frames.snapshot(task.cursor, history_length)
        if task.fold.is_over or (task.fold.phase == "asking" and not from_rest):
            return fixed_stream(first)
        return await self._streams.open(
            caller.principal, task.session, task.cursor, frames, before=first, is_new_run=not is_counted
        )

    async def subscribe(self, caller: Caller, params: Json, *, is_query: bool = False) -> Response:
        """Follow a task: from now on, or after the event that the client has seen last."""
        request = self._convert(caller, params, wire.TaskRequest, is_query=is_query)
        async with AsyncExitStack() as stack:
            task = await self._tasks.find(caller.principal.user, caller.spec, request.id, stack)
            seen = header(caller.request.scope, b"last-event-id")
            if seen is not None:
                return await self._resume(caller, task, seen)
            if task.fold.is_over:
                raise UnsupportedOperation("the task is over: get it, or send Last-Event-ID to read its events")
            return await self._follow(
                caller, task, is_counted=True, from_rest=True, history_length=request.history_length
            )

    async def _resume(self, caller: Caller, task: FoundTask, seen: str) -> Response:
        position = parse_position(seen)
        if position is None or position > task.session.durable_cursor:
            raise InvalidParams("Last-Event-ID must be the id of an event of this task", "Last-Event-ID")
        frames = TaskFrames(TaskFold(task.fold.task_id, task.session.state), caller.codec, seen=position)
        return await self._streams.open(caller.principal, task.session, Cursor(task.first_seq - 1), frames, before=b"")

    async def get(self, caller: Caller, params: Json, *, is_query: bool = False) -> Response:
        """Show a task."""
        request = self._convert(caller, params, wire.TaskRequest, is_query=is_query)
        async with AsyncExitStack() as stack:
            task = await self._tasks.find(caller.principal.user, caller.spec, request.id, stack)
            shown = task.fold.task(history_length=request.history_length)
        return _respond(caller.codec.result(shown, "task"), caller.codec)

    async def cancel(self, caller: Caller, params: Json, *, is_query: bool = False) -> Response:
        """Stop a task."""
        caller.principal.require("use")
        request = self._convert(caller, params, wire.TaskRequest)
        async with AsyncExitStack() as stack:
            task = await self._tasks.cancel(caller.principal.user, caller.spec, request.id, stack)
        return _respond(caller.codec.result(task.fold.task(), "task"), caller.codec)

    async def list_tasks(self, caller: Caller, params: Json, *, is_query: bool = False) -> Response:
        """List tasks."""
        request = self._convert(caller, params, wire.ListTasksRequest, is_query=is_query)
        page = await while_connected(caller.request, self._tasks.page(caller.principal.user, caller.spec, request))
        if not page.tasks:
            self._engine.agent(caller.spec.name)  # raises AgentNotFound
        return _respond(caller.codec.result(page), caller.codec)

    async def extended_card(self, caller: Caller, params: Json, *, is_query: bool = False) -> Response:
        """There is none."""
        raise ExtendedCardNotConfigured

    async def push(self, caller: Caller, params: Json, *, is_query: bool = False) -> Response:
        """There are no push notifications."""
        raise PushNotificationNotSupported

    def _convert(self, caller: Caller, params: Json, kind: type[wire.T], *, is_query: bool = False) -> wire.T:
        """The parameters of a method. `tenant` may repeat the agent's name."""
        found = wire.convert_request(params, kind, is_query=is_query)
        if isinstance(params, dict) and params.get("tenant") not in (None, "", caller.spec.name):
            raise InvalidParams("tenants are not supported: each agent has an address of its own", "tenant")
        return found


def _respond(value: object, codec: Codec) -> Response:
    return Response(_ENCODER.encode(value), 200, media_type="application/json" if codec.is_rpc else MEDIA_TYPE)
