"""The built-in tools: a question to the user, a task for a sub-agent; sleep and background tasks of function agents.

The engine handles the calls of the first two. This module describes them to models and checks their arguments.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from dragoman.core.agent import ToolContext, ToolFailed
from dragoman.core.content import Call, Json, JsonObject
from dragoman.core.ids import SessionId
from dragoman.core.refusals import AgentNotFound, Invalid
from dragoman.core.schedules import BackgroundTask
from dragoman.core.tools import ASK_USER_QUESTION, FORK, SLEEP, START, AgentSpec, ServerTool, ToolPolicy, ToolSpec


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer that the user can pick."""

    label: Annotated[str, Meta(min_length=1, description="what the user sees and picks, a few words")]
    description: Annotated[str, Meta(description="what it means")] = ""


class Question(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A question to the user."""

    question: Annotated[str, Meta(min_length=1)]
    options: Annotated[tuple[Choice, ...], Meta(description="the choices; the user may always answer freely")] = ()
    header: Annotated[str, Meta(description="one or two words above the question")] = ""
    multi_select: Annotated[bool, Meta(description="whether several choices may be picked")] = False


class Questions(msgspec.Struct, frozen=True):
    """The arguments of `AskUserQuestion`."""

    questions: Annotated[tuple[Question, ...], Meta(min_length=1)]


def ask_spec() -> ToolSpec:
    """The specification of the question tool, for models."""
    (_,), definitions = msgspec.json.schema_components([Questions], ref_template="#/$defs/{name}")
    schema = definitions.pop("Questions")
    return ToolSpec(
        name=ASK_USER_QUESTION,
        description="Ask the user one or more questions, with choices, and wait for the answers. "
        "Use it when you cannot continue without a decision by the user.",
        parameters={**schema, "$defs": definitions},
    )


def fork_spec(agents: Sequence[AgentSpec]) -> ToolSpec:
    """The specification of the tool that starts a sub-agent, for models."""
    lines = [f"- {agent.name}: {agent.description or agent.title or 'no description'}" for agent in agents]
    return ToolSpec(
        name=FORK,
        description="Give a task to another agent and get its answer. It cannot see this conversation: "
        "put everything that it needs to know into the task. The agents:\n" + "\n".join(lines),
        parameters={
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": [agent.name for agent in agents]},
                "task": {"type": "string", "description": "the complete task, in plain language"},
            },
            "required": ["agent", "task"],
            "additionalProperties": False,
        },
    )


class Task(msgspec.Struct, frozen=True):
    """The arguments of `Agent`."""

    agent: Annotated[str, Meta(min_length=1)]
    task: Annotated[str, Meta(min_length=1)]


def parse_task(call: Call) -> Task | None:
    """The arguments of a call of `Agent`; None if they are not valid."""
    try:
        return msgspec.convert(call.input, Task)
    except msgspec.ValidationError:
        return None


def check_builtin(name: str, arguments: JsonObject, agents: Sequence[AgentSpec]) -> None:
    """Check a model's arguments for a built-in tool.

    Raises:
        ToolFailed: the arguments are not valid; the message tells the model how to correct them.
    """
    try:
        if name == ASK_USER_QUESTION:
            msgspec.convert(arguments, Questions)
            return
        task = msgspec.convert(arguments, Task)
    except msgspec.ValidationError as error:
        raise ToolFailed(str(error).replace("`", "")) from error
    names = [agent.name for agent in agents]
    if task.agent not in names:
        raise ToolFailed(f"unknown agent {task.agent!r}; available agents: {', '.join(names)}")


class RejectedCallTool:
    """Takes the place of the named tool for a call that must not reach it, and fails with the reason."""

    def __init__(self, name: str, reason: str) -> None:
        self._reason = reason
        self.declaration = ServerTool(
            spec=ToolSpec(name=name, description="", parameters={"type": "object"}), policy=ToolPolicy(exposed=False)
        )

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """Fail with the reason."""
        raise ToolFailed(self._reason)


MAX_SLEEP_S = 366 * 24 * 3600.0
"""The longest sleep."""


class SleepTool:
    """Waits until `seconds` have passed since the call was made, whatever crashes come in between."""

    declaration = ServerTool(
        spec=ToolSpec(name=SLEEP, description="", parameters={"type": "object"}),
        policy=ToolPolicy(exposed=False, internal=True, on_restart="repeat", timeout_s=2 * MAX_SLEEP_S),
    )

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """Wait for what is left."""
        await asyncio.sleep(max(0.0, arguments["seconds"] - context.elapsed_s))
        return ""


SLEEP_TOOL = SleepTool()

TaskStarter = Callable[[BackgroundTask], Awaitable[SessionId]]
"""Starts a background task, once however often it is called, and returns the task's session."""


class StartTool:
    """Starts work in the background. Its arguments are those of the built-in tool `Agent`."""

    declaration = ServerTool(
        spec=ToolSpec(name=START, description="", parameters={"type": "object"}),
        policy=ToolPolicy(exposed=False, internal=True, on_restart="repeat"),
    )

    def __init__(self, start: TaskStarter) -> None:
        self._start = start

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """Start the task. Raises ToolFailed if its agent is not served, or too many tasks led to it."""
        task = BackgroundTask(
            task_id=context.call_id,
            user=context.user,
            reports_to=context.session_id,
            agent=arguments["agent"],
            prompt=arguments["task"],
            depth=context.metadata.task_depth + 1,
        )
        try:
            return await self._start(task)
        except (AgentNotFound, Invalid) as error:
            raise ToolFailed(str(error)) from error
