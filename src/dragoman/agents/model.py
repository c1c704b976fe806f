"""Agents that have a model: `Agent`, the object of the public API. How they play stands in `model_loop`."""

from collections.abc import Sequence

from dragoman.agents.base import ModelResolver, ServableAgent, ToolLike, capabilities_of
from dragoman.agents.compaction import Compactor, find_last_cut_index
from dragoman.agents.model_loop import Instructions, ModelLoop
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.window import tokens_of_all
from dragoman.core import agent as contract
from dragoman.core.content import JsonObject, Message
from dragoman.core.events import StopReason
from dragoman.core.tools import Capabilities, Option
from dragoman.ports import Model


class Agent(ServableAgent):
    """A model with tools.

    Args:
        name: how clients call it.
        model: `embedded`, `PROVIDER:NAME`, or a `Model`; None: the server's default.
        tools: functions, tool objects, MCP servers.
        instructions: what ranks above the conversation, or a function that gives it before each call of the model.
        options: what clients may set for a session.
        subagents: agents that the model can give tasks to.
        ask_user: the model can ask the person questions.
        client_tools: applications may bring tools of their own.
        images: users may send pictures; without it a model is never sent one.
        history: clients may read the session's history.
        capabilities: all of that in detail, in place of the three flags.
        max_steps: calls of the model in one run.
        max_tokens: of one answer.
        max_run_tokens: that all calls of the model in one run may use together.
        max_messages: that are sent to the model; when there are more, the older ones are summed up.
        context_window: tokens that the model takes, where that is not known.
        parameters: for the model, by their OpenAI names.
        title: for people.
        description: for people, and for agents that have this one as a sub-agent.
        version: semantic.
        aliases: further names.
        resumable: a run goes on after a crash of the server; else it ends as interrupted.
        memory: the model is told what is remembered of the user, and may write memories down, in sessions that do not
            say themselves; None: where the protocol has memory on (Blade).

    Raises:
        Misdeclared: something here is no tool, or no number that makes sense.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | Model | None = None,
        tools: Sequence[ToolLike] = (),
        instructions: Instructions = "",
        options: Sequence[Option] = (),
        subagents: Sequence[contract.Agent] = (),
        ask_user: bool = False,
        client_tools: bool = False,
        images: bool = False,
        history: bool = False,
        capabilities: Capabilities | None = None,
        max_steps: int = 25,
        max_tokens: int | None = None,
        max_run_tokens: int | None = None,
        max_messages: int = 400,
        context_window: int | None = None,
        parameters: JsonObject | None = None,
        title: str | None = None,
        description: str | None = None,
        version: str = "0.1.0",
        aliases: Sequence[str] = (),
        resumable: bool = True,
        memory: bool | None = None,
    ) -> None:
        limits = {
            "max_steps": max_steps,
            "max_tokens": max_tokens,
            "max_run_tokens": max_run_tokens,
            "context_window": context_window,
        }
        for limit, value in limits.items():
            if value is not None and value < 1:
                raise DeclarationError(f"agent {name}: {limit} is at least 1, got {value}")
        if max_messages < 2:
            raise DeclarationError(f"agent {name}: max_messages is at least 2, got {max_messages}")
        super().__init__(
            name,
            title=title,
            description=description,
            version=version,
            aliases=aliases,
            tools=tools,
            options=options,
            subagents=subagents,
            ask_user=ask_user,
            capabilities=capabilities_of(capabilities, client_tools=client_tools, images=images, history=history),
            max_steps=max_steps,
            resumable=resumable,
            memory=memory,
        )
        self.model_name = model if isinstance(model, str) else str(getattr(model, "name", None) or "")
        """What the model is called, in requests and in the history; of the default model, from `bind` on."""
        self.instructions = instructions
        self.max_tokens = max_tokens
        self.max_run_tokens = max_run_tokens
        self.max_messages = max_messages
        self.context_window = context_window
        self.parameters: JsonObject = parameters or {}
        self._model_argument = model
        self._model = None if model is None or isinstance(model, str) else model

    def bind(self, resolve: ModelResolver, default: str = "embedded") -> None:
        """See `ServableAgent.bind`."""
        super().bind(resolve, default)
        if self._model_argument is None or isinstance(self._model_argument, str):
            self.model_name = self._model_argument or default
            self._model = resolve(self.model_name)

    async def summarize(self, messages: Sequence[Message], previous_summary: str | None) -> contract.Summary | None:
        """See `Summing.sum_up`."""
        place = find_last_cut_index(messages)
        if self._model is None or place is None:
            return None
        budget = self.context_window or self._model.context_window or tokens_of_all(messages)
        return await Compactor(self._model, self.model_name).summarize(messages, place, previous_summary, budget)

    async def play(self, run: contract.Run) -> StopReason | None:
        """See `Agent.play`."""
        if self._model is None:
            raise RuntimeError(f"agent {self.name} has no model yet: the server gives it one with `bind`")
        return await ModelLoop(self, self._model, run).play()
