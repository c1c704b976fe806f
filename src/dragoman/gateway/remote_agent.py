"""An agent that runs on another server, served here on all protocols."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Unpack, get_args
from urllib.parse import urlsplit

import msgspec

from dragoman.adapters.base import FrameworkAgent, WrapperOptions
from dragoman.adapters.run_info import RunInfo, value_for
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.serving import is_agent_name
from dragoman.client.connection import Timeouts
from dragoman.client.errors import ClientError
from dragoman.client.transports import ClientProtocol
from dragoman.core.agent import AgentError, Run
from dragoman.core.events import StopReason
from dragoman.core.principal import HOPS_HEADER
from dragoman.gateway.conversion import to_option
from dragoman.gateway.remote_play import OnLost, Play
from dragoman.gateway.remote_server import TITLES, RemoteServer

Headers = Mapping[str, str] | Callable[[RunInfo], Any]

MAX_HOPS = 8
"""How many servers may pass a request on, one to the next."""
MAX_STEPS = 1000
"""The default of `max_steps`: the remote server has a limit of its own."""
TIMEOUTS = Timeouts(idle_s=300.0, reconnect_s=15.0)
"""The default. Servers that are no Dragoman may be silent while a tool runs."""
KEY_VARIABLE = "REMOTE_AGENT_KEY"
"""The environment variable with the API key for remote agents that are named on the command line."""


# Large: it has the 13 members of every framework's agent.
class RemoteAgent(FrameworkAgent):
    """An agent that runs on another server.

    Args:
        protocol: what the server speaks: `aap`, `ag-ui`, `agentscope`, `blade`, `openai` (Responses),
            `openai-chat`, `a2a` or `run-service`.
        url: where: for AG-UI the agent's endpoint, for A2A its address or that of its card, else the server's address,
            with a path if the protocol is not mounted where Dragoman mounts it.
        agent: the agent's name on that server; by default its first one.
        key: an API key, sent as a bearer token.
        headers: further headers, or a function (async or not) of `RunInfo` that returns those of a run.
        timeouts: time limits for connecting, for silence, and for restoring a lost connection.
        on_lost: what happens to a run whose connection is lost for good, or that a crash of this server interrupted,
            where the protocol cannot resume: `fail` ends it with an error, `retry` sends its message again, to a new
            remote session. Answers of a user are never sent twice.
        wrapper_options: see `WrapperOptions`. The name defaults to that of the variable.

    Raises:
        DeclarationError: the protocol or the URL is not valid.
        TypeError: an option does not exist.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        url: str,
        *,
        agent: str = "",
        key: str | None = None,
        headers: Headers = {},  # noqa: B006  # never changed
        timeouts: Timeouts = TIMEOUTS,
        on_lost: OnLost = "fail",
        **wrapper_options: Unpack[WrapperOptions],
    ) -> None:
        if protocol not in TITLES:
            raise DeclarationError(
                f"expected one of the protocols {', '.join(TITLES)} for a remote agent, got {protocol!r}"
            )
        if on_lost not in get_args(OnLost):
            raise DeclarationError(f"on_lost must be one of {', '.join(get_args(OnLost))}, got {on_lost!r}")
        self._is_named = wrapper_options.get("name") is not None
        options: WrapperOptions = {
            "name": "remote",
            "max_steps": MAX_STEPS,
            "client_tools": protocol not in ("blade", "a2a"),
            **wrapper_options,
        }
        super().__init__(
            self,
            own_name=None,
            own_description=None,
            own=("agent", "key", "headers", "timeouts", "on_lost"),
            **options,
        )
        try:
            address = urlsplit(url)
        except ValueError as error:
            raise DeclarationError(f"a remote agent needs its server's address: {error}") from error
        if "@" in address.netloc:  # addresses are shown and logged
            raise DeclarationError("a remote agent's address has no password in it: use key=… or headers=…")
        if address.query or address.fragment:  # which are not sent
            raise DeclarationError("a remote agent's address has no query or fragment: use key=… or headers=…")
        try:
            self._server = RemoteServer(self.name, protocol, url, key, timeouts, is_endpoint=not agent)
        except ClientError as error:
            raise DeclarationError(f"a remote agent needs its server's address: {error}") from error
        self._agent = agent
        self._headers = headers
        self._on_lost: OnLost = on_lost
        self._description = ""

    def name_after(self, variable: str) -> None:
        """Take the name of the variable that holds the agent, unless it has a name."""
        if not self._is_named and is_agent_name(variable):
            self._is_named = True
            self._spec = msgspec.structs.replace(self._spec, name=variable)
            self._server.name = variable

    def parts(self) -> Iterable[object]:
        """None: the agents that it consists of run on the remote server."""
        return ()

    def describe(self) -> str:
        """What is known about the remote agent, for the server's start."""
        return f"{TITLES[self._server.protocol]} at {self._server.url}, {self._description}"

    def status(self) -> str:
        """Whether its server is asked: `available`, `unavailable`, or `probing` after it was unavailable."""
        return self._server.status()

    async def start(self) -> None:
        """Ask the remote server what it can do. One that does not answer is served all the same."""
        await self._ask(self._headers if isinstance(self._headers, Mapping) else None)

    async def _ask(self, headers: Mapping[str, str] | None) -> None:
        """Ask the remote server what it can do. Without headers, those of a run may be needed."""
        found, self._description = await self._server.find_agent(self._agent, headers)
        if found is not None:
            if self._server.protocol.startswith("openai"):  # which has no default model
                self._agent = found.name
            self._spec = msgspec.structs.replace(
                self._spec,
                title=self._spec.title or found.title or None,
                description=self._spec.description or found.description or None,
                options=self._spec.options or tuple(map(to_option, found.options)),
            )
            self._server.option_names = frozenset(option.name for option in found.options)

    def _needs_model(self) -> bool:
        is_known = self._agent or self._server.has_answered
        return not is_known and self._server.protocol.startswith("openai")

    async def close(self) -> None:
        """Close the connections. Runs continue on the remote server."""
        await self._server.close()

    async def play(self, run: Run) -> StopReason | None:
        """Answer the input, or continue where the log ends."""
        hops = run.metadata.hops + 1
        if hops > MAX_HOPS:
            raise AgentError("too_many_hops", f"{MAX_HOPS} servers have passed this request on: they form a loop")
        headers = {**await value_for(self._headers, RunInfo.of(run)), HOPS_HEADER: str(hops)}
        if self._needs_model() and self._server.status() != "unavailable":
            await self._ask(headers)  # it was down when this server started, or shows its models only to users
        return await Play(run, self._server, self._agent, headers, self._on_lost).play()


def from_location(location: str) -> RemoteAgent:
    """The remote agent of `NAME=PROTOCOL+URL`. Raises DeclarationError."""
    name, _, address = location.partition("=")
    if address.startswith(("http://", "https://")):
        raise DeclarationError(f"expected the protocol before the address, such as {name}=ag-ui+http://HOST/PATH")
    protocol, _, url = address.partition("+")
    return RemoteAgent(protocol, url, name=name, key=os.environ.get(KEY_VARIABLE))  # type: ignore[arg-type]  # checked there
