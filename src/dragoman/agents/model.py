"""Agents that have a model: `Agent`, the class of the public API. `model_loop` runs them."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Unpack

import msgspec

from dragoman.agents.base import ModelResolver, ServableAgent
from dragoman.agents.compaction import Compactor, find_last_cut_index
from dragoman.agents.model_loop import Instructions, ModelLoop
from dragoman.agents.options import AgentOptions
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.window import tokens_of_all
from dragoman.core import agent as contract
from dragoman.core.content import JsonObject, Message
from dragoman.core.events import StopReason
from dragoman.ports.models import Model


class Agent(ServableAgent):
    """A model with tools.

    Args:
        name: the name that clients use.
        model: `embedded`, `PROVIDER:NAME` or a `Model`. None: the server's default model.
        instructions: the system prompt, or a function that returns it before each model call.
        max_tokens: maximum number of tokens in one answer.
        max_run_tokens: maximum number of tokens that all model calls of one run may use together.
        max_messages: maximum number of messages sent to the model; older ones are summarized.
        context_window: the model's context window in tokens, if the server does not know it.
        parameters: model parameters by their OpenAI names.
        agent_options: see `AgentOptions`.

    Raises:
        DeclarationError: a tool or a limit is not valid.
        TypeError: an option does not exist.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | Model | None = None,
        instructions: Instructions = "",
        max_tokens: int | None = None,
        max_run_tokens: int | None = None,
        max_messages: int = 400,
        context_window: int | None = None,
        parameters: JsonObject | None = None,
        **agent_options: Unpack[AgentOptions],
    ) -> None:
        super().__init__(name, **agent_options)
        limits = {
            "max_steps": (self.spec.max_steps, 1),
            "max_tokens": (max_tokens, 1),
            "max_run_tokens": (max_run_tokens, 1),
            "max_messages": (max_messages, 2),
            "context_window": (context_window, 1),
        }
        for limit, (value, least) in limits.items():
            if value is not None and value < least:
                raise DeclarationError(f"agent {name}: {limit} must be at least {least}, got {value}")
        self.model_name = model if isinstance(model, str) else str(getattr(model, "name", None) or "")
        """The model's name in requests and in the history. For the default model it is set by `bind`."""
        self.instructions = instructions
        self.max_tokens = max_tokens
        self.max_run_tokens = max_run_tokens
        self.max_messages = max_messages
        self.context_window = context_window
        self.parameters: JsonObject = parameters or {}
        self._model_argument = model
        self._model = None if model is None or isinstance(model, str) else model

    def bind(self, resolve: ModelResolver, default: str = "embedded") -> None:
        """Give the agent and its sub-agents their models. The server calls this before the first run."""
        super().bind(resolve, default)
        if self._model_argument is None or isinstance(self._model_argument, str):
            self.model_name = self._model_argument or default
            self._model = resolve(self.model_name)
        self._describe_model()

    def _describe_model(self) -> None:
        """Declare the model's name, and only those images and files that it can get."""
        declared = self._base_spec.capabilities
        images = getattr(self._model, "accepts_images", True)
        self._base_spec = msgspec.structs.replace(
            self._base_spec,
            model=_without_address(self.model_name),
            uses_embedded_model=self.model_name == "embedded",
            capabilities=msgspec.structs.replace(
                declared,
                image_http=declared.image_http and images,
                image_data=declared.image_data and images,
                files=declared.files and getattr(self._model, "accepts_files", True),
            ),
        )
        self._collect_tools()

    async def summarize(self, messages: Sequence[Message], previous_summary: str | None) -> contract.Summary | None:
        """Summarize all but the newest messages with the agent's model; None if there is nothing to summarize."""
        cut_index = find_last_cut_index(messages)
        if self._model is None or cut_index is None:
            return None
        budget = self.context_window or self._model.context_window or tokens_of_all(messages)
        return await Compactor(self._model, self.model_name).summarize(messages, cut_index, previous_summary, budget)

    async def play(self, run: contract.Run) -> StopReason | None:
        """Run the loop of model calls and tool calls."""
        if self._model is None:
            raise RuntimeError(f"agent {self.name} has no model: `bind` has not been called")
        return await ModelLoop(self, self._model, run).play()


def _without_address(model_name: str) -> str:
    """A model's name for clients: without the address of its server, or the folder of its weights."""
    provider, _, path = model_name.partition(":")
    if provider == "embedded" and path:
        return f"embedded:{PurePath(path).name}"
    return model_name.partition("@")[0]
