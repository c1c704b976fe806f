"""The rehearsal agent: it has no model and runs the script in the user's message.

Scripts can cause everything that can happen in a run, always in the same way, for tests, benchmarks and demonstrations.
It is an ordinary agent over `core.agent`; the engine has no special knowledge of it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from dragoman.agents.rehearsal.player import ScriptPlayer, estimate_tokens
from dragoman.agents.rehearsal.script import parse_fork_script, parse_script
from dragoman.agents.rehearsal.steps import Script
from dragoman.agents.rehearsal.tools import StartLog, tools
from dragoman.core.agent import Agent, Run, RunnableTool, Summary
from dragoman.core.content import Call, Message, UserMessage, text_of
from dragoman.core.events import StopReason
from dragoman.core.tools import (
    ASK_USER_QUESTION,
    FORK,
    AgentSpec,
    Capabilities,
    Option,
    SecretOption,
    SelectOption,
    TextOption,
)

SUMMARY_CHARS_PER_MESSAGE = 32
"""Maximum characters of each message in a summary."""

OPTIONS: tuple[Option, ...] = (
    TextOption(name="greeting", default="Hello!", title="Greeting"),
    SelectOption(name="style", options=("plain", "loud"), default="plain", title="Style"),
    TextOption(name="language", default="English", title="Language"),
    SecretOption(name="token", title="Token"),
)
STARTERS = ("Show me everything", "add 20 and 22", "ask me", "think")
CAPABILITIES = Capabilities(
    history_full=True, history_compacted=True, client_tools=True, image_http=True, image_data=True
)


def _now() -> datetime:
    return datetime.now(UTC)


def rehearsal(starts: StartLog, now: Callable[[], datetime] = _now) -> Agent:
    """The agent that declares every capability, option and tool.

    Args:
        starts: where the slow tool records its starts.
        now: returns the current time, with a time zone.
    """
    return _create(
        "rehearsal",
        tools(starts, now, are_exposed=True),
        starts,
        options=OPTIONS,
        capabilities=CAPABILITIES,
        starters=STARTERS,
    )


def rehearsal_bare(starts: StartLog, now: Callable[[], datetime] = _now) -> Agent:
    """The same agent without declarations. Its tools exist but are hidden, so that every script still works."""
    return _create(
        "rehearsal-bare",
        tools(starts, now, are_exposed=False),
        starts,
        title="Rehearsal, bare",
        description="The same agent, but it declares no tools, options or capabilities.",
    )


def _create(
    name: str,
    agent_tools: Sequence[RunnableTool],
    starts: StartLog,
    *,
    options: tuple[Option, ...] = (),
    capabilities: Capabilities | None = None,
    starters: tuple[str, ...] = (),
    title: str = "Rehearsal",
    description: str = "Does what your message tells it to, without a model.",
) -> "RehearsalAgent":
    spec = AgentSpec(
        name=name,
        version="1.0.0",
        title=title,
        description=description,
        tools=tuple(tool.declaration for tool in agent_tools),
        options=options,
        capabilities=capabilities or Capabilities(),
        builtins=frozenset({ASK_USER_QUESTION, FORK}),
        starters=starters,
    )
    return RehearsalAgent(spec, {tool.declaration.spec.name: tool for tool in agent_tools}, starts)


class RehearsalAgent:
    """An agent that runs scripts. With `fork` it is a sub-agent that runs that script."""

    def __init__(
        self, spec: AgentSpec, agent_tools: Mapping[str, RunnableTool], starts: StartLog, fork: Script | None = None
    ) -> None:
        self.spec = spec
        self._tools = agent_tools
        self._starts = starts
        self._fork = fork

    def tool(self, name: str) -> RunnableTool | None:
        """The tool of that name, exposed or hidden."""
        return self._tools.get(name)

    def child(self, call: Call) -> Agent | None:
        """The sub-agent that runs the script of a fork; None if the call is not valid."""
        script = parse_fork_script(call.input)
        return None if script is None else RehearsalAgent(self.spec, self._tools, self._starts, script)

    async def summarize(self, messages: Sequence[Message], previous_summary: str | None) -> Summary | None:
        """Summarize all but the last message by the beginning of each."""
        if len(messages) < 2:
            return None
        *older, newest = [text_of(message.content) for message in messages]
        text = " | ".join(filter(None, [previous_summary, *(each[:SUMMARY_CHARS_PER_MESSAGE] for each in older)]))
        newest_tokens = estimate_tokens(len(newest))
        replaced = older if previous_summary is None else [previous_summary, *older]
        return Summary(
            text=text,
            keep_from=messages[-1].id,
            tokens_before=newest_tokens + sum(estimate_tokens(len(each)) for each in replaced),
            tokens_after=newest_tokens + estimate_tokens(len(text)),
        )

    async def play(self, run: Run) -> StopReason | None:
        """Run the rest of the script, from where the history ends.

        Raises:
            AgentError: `bad_script`, before any step runs; or the error that the script asks for.
        """
        turn = await run.turn()
        script = self._fork
        if script is None:
            if not turn or not isinstance(turn[0], UserMessage):
                return None  # results for the calls of a seeded history that has no user message
            script = parse_script(text_of(turn[0].content))
        return await ScriptPlayer(run, script, turn, self.spec, self._starts).play_remaining()
