"""The agents of this server."""

from collections.abc import Collection, Mapping

from dragoman.core.agent import Agent


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

    def find(self, name: str) -> Agent | None:
        """The agent with a name or an alias; None if it is not served here."""
        return self.by_name.get(self._names.get(name, name))

    def names_and_aliases(self) -> Collection[str]:
        """Everything by which an agent is found."""
        return (*self.by_name, *self._names)
