"""The agents of this server."""

from collections.abc import Collection, Mapping

from dragoman.core.agent import Agent, KeepsSessionData


class ServedAgents:
    """Agents by their names and aliases.

    Args:
        agents: the agents by name.
        default: the name of the one that answers where a client names none.
    """

    def __init__(self, agents: Mapping[str, Agent], default: str) -> None:
        self.default = default
        self.by_name = dict(agents)
        self._names = {alias: name for name, agent in agents.items() for alias in agent.spec.aliases}
        self._with_session_data = {name for name, agent in agents.items() if isinstance(agent, KeepsSessionData)}

    def find(self, name: str) -> Agent | None:
        """The agent with a name or an alias; None if it is not served here."""
        return self.by_name.get(self._names.get(name, name))

    def may_keep_session_data(self, name: str) -> bool:
        """Whether an agent keeps data of its sessions outside the log. One that is not served here may."""
        name = self._names.get(name, name)
        return name in self._with_session_data or name not in self.by_name

    def names_and_aliases(self) -> Collection[str]:
        """Everything by which an agent is found."""
        return (*self.by_name, *self._names)
