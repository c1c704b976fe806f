"""Tasks: a turn that a client polls instead of waiting for its stream.

A task is what a user's message began. Its id is that of the run, so every turn is a task, also one of another protocol.
Source: the extension `io.modelcontextprotocol/tasks` (SEP-2663).
"""

from contextlib import AsyncExitStack

from dragoman.core.content import JsonObject
from dragoman.core.ids import RunId, parse_session_id
from dragoman.core.stream import Cursor
from dragoman.engine.engine import Engine
from dragoman.protocols.mcp import wire
from dragoman.protocols.mcp.errors import InvalidParams, MissingCapability
from dragoman.protocols.mcp.forms import input_requests, may_ask
from dragoman.protocols.mcp.options import McpOptions
from dragoman.protocols.mcp.translate import TurnSummary, task_of, turn_result
from dragoman.protocols.mcp.turns import FollowedTurn, Turns
from dragoman.protocols.mcp.wire import MethodRequest


class Tasks:
    """The tasks of an engine."""

    def __init__(self, engine: Engine, options: McpOptions, turns: Turns) -> None:
        self._engine = engine
        self._options = options
        self._turns = turns

    async def get(self, request: MethodRequest) -> JsonObject:
        """A task as it is now: with its result if it is over, or with forms for what waits."""
        async with AsyncExitStack() as stack:
            turn = await self._find(request, stack)
            summary = await self._fold(turn)
            state = turn.session.state
            waiting = list(state.waiting_calls()) if summary.phase == "asking" and state.run is None else []
            asked = [each for each in waiting if request.client.has_forms and may_ask(each, self._options.approvals)]
            if forms := input_requests(asked, state.agent):
                return {**task_of(summary, "input_required"), "inputRequests": forms}
            if summary.phase == "running" or (summary.phase == "asking" and not waiting):
                return {**task_of(summary, "working"), "statusMessage": summary.progress}
            if summary.is_cancelled:
                return task_of(summary, "cancelled")
            result = turn_result(summary, state.session_id, pending=waiting, approve_at=self._options.public_url or "")
            return {**task_of(summary, "completed"), "result": {"resultType": "complete", **result}}

    async def update(self, request: MethodRequest) -> JsonObject:
        """Answer what waits. Answers to anything else are ignored."""
        request.principal.require("use")
        async with AsyncExitStack() as stack:
            turn = await self._find(request, stack)
            await self._turns.apply_responses(request.principal, turn, request.params.get("inputResponses"))
        return {}

    async def cancel(self, request: MethodRequest) -> JsonObject:
        """Stop a task. Nothing happens if it is over."""
        request.principal.require("use")
        async with AsyncExitStack() as stack:
            await self._turns.stop(await self._find(request, stack))
        return {}

    async def _find(self, request: MethodRequest, stack: AsyncExitStack) -> FollowedTurn:
        """The turn of a task.

        Raises:
            MissingCapability: the client does not know tasks.
            InvalidParams: there is no such task, or it belongs to another user.
        """
        task_id = request.params.get("taskId")
        if not request.client.has_tasks:
            raise MissingCapability({"extensions": {wire.TASKS: {}}})
        run_id = RunId(parse_session_id(task_id) or "") if isinstance(task_id, str) else RunId("")
        turn = await self._turns.find(request.principal, run_id, stack) if run_id else None
        if turn is None or turn.run_id != run_id:
            raise InvalidParams("there is no such task")
        return turn

    async def _fold(self, turn: FollowedTurn) -> TurnSummary:
        summary, up_to = TurnSummary(turn.run_id), turn.session.durable_cursor
        with self._engine.follow(turn.session, Cursor(turn.first_seq - 1)) as reader:
            while reader.cursor < up_to and not summary.is_over:
                for record in await reader.next():
                    summary.feed(record)
        return summary
