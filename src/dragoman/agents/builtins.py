"""The two tools that every agent may have: a question to the person, and a task for a sub-agent. Pure.

The engine knows what to do about their calls; here stands what a model is told of them, and what it may send.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from dragoman.core.agent import ToolContext, ToolFailed
from dragoman.core.content import Call, Json, JsonObject
from dragoman.core.tools import ASK_USER_QUESTION, FORK, AgentSpec, ServerTool, ToolPolicy, ToolSpec

UNPARSED_ARGUMENTS = "_unreadable"
"""The argument under which a call keeps arguments that were no JSON object: no tool takes it."""


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A choice of a question."""

    label: Annotated[str, Meta(min_length=1, description="what the person sees and picks, a few words")]
    description: Annotated[str, Meta(description="what it means")] = ""


class Question(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A question to the person."""

    question: Annotated[str, Meta(min_length=1)]
    options: Annotated[tuple[Choice, ...], Meta(description="the choices; the person may always answer freely")] = ()
    header: Annotated[str, Meta(description="one or two words over the question")] = ""
    multi_select: Annotated[bool, Meta(description="whether several choices may be picked")] = False


class Questions(msgspec.Struct, frozen=True):
    """The arguments of `AskUserQuestion`."""

    questions: Annotated[tuple[Question, ...], Meta(min_length=1)]


def ask_spec() -> ToolSpec:
    """What a model is told of the question tool."""
    (_,), definitions = msgspec.json.schema_components([Questions], ref_template="#/$defs/{name}")
    schema = definitions.pop("Questions")
    return ToolSpec(
        name=ASK_USER_QUESTION,
        description="Ask the user one or more questions, with choices, and wait for the answers. "
        "Use it when you cannot go on without a decision that is the user's.",
        parameters={**schema, "$defs": definitions},
    )


def fork_spec(agents: Sequence[AgentSpec]) -> ToolSpec:
    """What a model is told of its sub-agents."""
    lines = [f"- {agent.name}: {agent.description or agent.title or 'no description'}" for agent in agents]
    return ToolSpec(
        name=FORK,
        description="Give a task to another agent and get its answer. It sees nothing of this conversation: "
        "say everything that it needs to know in the task. The agents:\n" + "\n".join(lines),
        parameters={
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": [agent.name for agent in agents]},
                "task": {"type": "string", "description": "the whole task, in words"},
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
    """The task of a call; None when it makes no sense."""
    try:
        return msgspec.convert(call.input, Task)
    except msgspec.ValidationError:
        return None


def check_builtin(name: str, arguments: JsonObject, agents: Sequence[AgentSpec]) -> None:
    """Check a model's arguments for a built-in tool. Raises ToolFailed, in words that the model can act on."""
    try:
        if name == ASK_USER_QUESTION:
            msgspec.convert(arguments, Questions)
            return
        task = msgspec.convert(arguments, Task)
    except msgspec.ValidationError as error:
        raise ToolFailed(str(error).replace("`", "")) from error
    names = [agent.name for agent in agents]
    if task.agent not in names:
        raise ToolFailed(f"there is no agent {task.agent!r}; there are: {', '.join(names)}")


class RejectedCallTool:
    """A tool that comes with a call which must not reach the tool that it names: it fails with the reason."""

    def __init__(self, name: str, reason: str) -> None:
        self._reason = reason
        self.declaration = ServerTool(
            spec=ToolSpec(name=name, description="", parameters={"type": "object"}), policy=ToolPolicy(exposed=False)
        )
        """See `RunnableTool.declaration`."""

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """See `RunnableTool.run`."""
        raise ToolFailed(self._reason)
