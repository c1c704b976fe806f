"""Makes the root loop of a run ready for its agent: with options, budgets, shared state, answers and memories."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dragoman.core.agent import AgentError
from dragoman.core.content import UserMessage, text_of
from dragoman.core.events import EncryptedValue, MemoriesInjected, MessageAdded, SessionSettings
from dragoman.core.ids import ROOT, RunId
from dragoman.core.memories import Memory, is_enabled, memory_instructions, to_memory_use
from dragoman.core.tools import AgentSpec
from dragoman.engine.runs.replays import Replays, is_replay
from dragoman.engine.runs.run_context import LoopRun, LoopServices
from dragoman.engine.services.memories import MemoryService, MemoryTool
from dragoman.engine.services.served_agents import ServedAgents
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.engine.sessions.kept_values import KeptValues
from dragoman.engine.sessions.live_session import LiveSession


class LoopSetup:
    """Makes root loops ready. Those of sub-agents are made in `forks`, from the loop above."""

    def __init__(
        self,
        *,
        agents: ServedAgents,
        decrypt_secret: Callable[[str], str],
        replays: Replays,
        kept_values: Callable[[LiveSession], KeptValues],
        memories: MemoryService | None,
        budgets: TokenBudgets,
    ) -> None:
        self._agents = agents
        self._decrypt_secret = decrypt_secret
        self._replays = replays
        self._kept_values = kept_values
        self._memories = memories
        self._budgets = budgets

    async def root(self, live: LiveSession, run_id: RunId, services: LoopServices, *, after_crash: bool) -> LoopRun:
        """The root loop of a run, ready for its agent to start or continue.

        Raises:
            AgentError: the agent is no longer served.
        """
        agent = self._agents.find(live.state.agent)
        if agent is None:
            raise AgentError("agent_gone", f"agent {live.state.agent!r} is no longer served")
        is_live = not is_replay(live.state)
        run = LoopRun(
            live,
            run_id,
            agent if is_live else self._replays.player_for(agent),
            services,
            loop=ROOT,
            options=effective_options(agent.spec, live.state.settings, self._decrypt_secret),
            kept_values=self._kept_values(live),
            after_crash=after_crash,
        )
        if is_live:
            run.budget = await self._budgets.for_run(live.state.owner, run.metadata.key_id)
        run.state = await services.history.shared_state(live)
        if live.state.calls:
            await run.restore_answers()
            await services.calls.settle(run)
        if not (live.state.calls and run.recorded()):  # else after their results
            add_pending_inputs(live, run_id)
        if self._memories is not None and is_live and is_enabled(live.state.settings.memory_enabled, agent.spec.memory):
            run.memory_tool = MemoryTool(self._memories)
            run.memories = memory_instructions(await _load_memories(self._memories, run, services))
        return run


def add_pending_inputs(live: LiveSession, run_id: RunId) -> None:
    """Add the messages to the history that were sent together with answers, once the calls have their results."""
    if live.state.run is not None and live.state.run.pending_inputs:
        live.append([MessageAdded(message=each) for each in live.state.run.pending_inputs], run_id)


async def _load_memories(service: MemoryService, run: LoopRun, services: LoopServices) -> Sequence[Memory]:
    """The memories that the agent gets: the same for the whole run, even after a crash."""
    live, active = run.live, run.live.state.run
    ids = None if active is None else active.memories
    if ids is None:
        turn = await services.history.turn(live, ROOT)
        message = next((text_of(each.content) for each in turn if isinstance(each, UserMessage)), "")
        chosen = await service.choose(run.user, message, [tool.spec.name for tool in run.agent.spec.tools])
        run.append((MemoriesInjected(memories=tuple(map(to_memory_use, chosen))),))
        ids = tuple(each.id for each in chosen)
    return await service.recall(run.run_id, run.user, ids)


def effective_options(
    spec: AgentSpec, settings: SessionSettings, decrypt_secret: Callable[[str], str]
) -> Mapping[str, str]:
    """The agent's effective options: the session's values, else the declared defaults. Secrets are in plain text."""
    options = {option.name: option.default for option in spec.options}
    for name, value in settings.options.items():
        if name in options:
            options[name] = decrypt_secret(value.ciphertext) if isinstance(value, EncryptedValue) else value
    return MappingProxyType(options)
