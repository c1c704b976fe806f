"""The server of a remote agent: its address, what it can do, and whether it can be reached."""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from dragoman.adapters.base import count
from dragoman.client.codec import SessionHandle
from dragoman.client.connection import Timeouts
from dragoman.client.errors import ClientError, InvalidResponse, RequestRefused, Unauthorized, Unsupported
from dragoman.client.events import Agent
from dragoman.client.transport import Transport
from dragoman.client.transports import ClientProtocol, create_transport
from dragoman.engine.instrumentation.metrics import REMOTE_AVAILABLE
from dragoman.gateway.breaker import CircuitBreaker

BREAKER_FAILURES, BREAKER_OPEN_S = 3, 15.0
"""A server that could not be reached so many times in a row is not asked for so many seconds."""
PROBE_TIMEOUT_S = 5.0
"""How long a server may take to say what it can do, and to stop a run."""
MAX_ERROR_CHARS = 1_000
"""How much is shown of an error's text that another server has sent."""
TITLES: Mapping[ClientProtocol, str] = {
    "aap": "AAP",
    "ag-ui": "AG-UI",
    "agentscope": "the Agent API",
    "blade": "Blade",
    "openai": "OpenAI Responses",
    "openai-chat": "Chat Completions",
    "a2a": "A2A",
    "run-service": "the run service",
}
_STATUS = {"closed": "available", "half_open": "probing", "open": "unavailable"}

log = structlog.get_logger(__name__)


def error_text(error: Exception) -> str:
    """What logs and clients see of an error. A refusal of credentials often repeats parts of them: it is not shown."""
    if isinstance(error, Unauthorized):
        return "the remote server refused the credentials"
    return str(error)[:MAX_ERROR_CHARS]


class RemoteServer:
    """One server over one protocol. Raises ClientError if the URL is not valid.

    Args:
        name: the name of our agent.
        protocol: what the server speaks.
        url: its address.
        key: sent as a bearer token.
        timeouts: time limits.
        is_endpoint: see `create_transport`.
    """

    def __init__(
        self,
        name: str,
        protocol: ClientProtocol,
        url: str,
        key: str | None,
        timeouts: Timeouts,
        *,
        is_endpoint: bool = False,
    ) -> None:
        self.name = name
        """The name of our agent, for logs and metrics."""
        self.protocol: ClientProtocol = protocol
        self.url = url
        self.transport: Transport = create_transport(protocol, url, key, timeouts, is_endpoint=is_endpoint)
        self.option_names: frozenset[str] = frozenset()
        """The options of the remote agent, as far as they are known."""
        self.has_answered = False
        """Whether it has answered the question what it can do."""
        self._breaker: CircuitBreaker | None = None
        self._stops: dict[str, asyncio.Task[None]] = {}
        """Stops on their way, by remote session."""

    @property
    def breaker(self) -> CircuitBreaker:
        """The circuit breaker."""
        if self._breaker is None:
            self._breaker = CircuitBreaker(BREAKER_FAILURES, BREAKER_OPEN_S, asyncio.get_running_loop().time)
        return self._breaker

    def status(self) -> str:
        """Whether the server is asked: `available`, `unavailable`, or `probing` after it was unavailable."""
        return "available" if self._breaker is None else _STATUS[self._breaker.state]

    def record(self, *, reached: bool) -> None:
        """Note whether the server could be reached."""
        if reached:
            self.breaker.record_success()
        else:
            self.breaker.record_failure()
        REMOTE_AVAILABLE.labels(agent=self.name).set(self.breaker.state == "closed")

    async def find_agent(self, name: str, headers: Mapping[str, str] | None) -> tuple[Agent | None, str]:
        """Ask the server for an agent, by default its first. Returns it, if it is known, and what to say about it.

        Args:
            name: the agent's name, or nothing.
            headers: the headers of every request. None if they depend on the run, as credentials of users do.
        """
        REMOTE_AVAILABLE.labels(agent=self.name).set(self.status() == "available")
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                transport = self.transport.with_headers(headers) if headers else self.transport
                agents = await transport.agents()
            self.has_answered = True
        except (ClientError, TimeoutError) as error:
            if self._does_not_say(error):
                self.has_answered = True
                return None, "which does not say what it can do"
            if headers is None and isinstance(error, Unauthorized):
                return None, "which says what it can do only to users with credentials"
            is_final = isinstance(error, RequestRefused) and not isinstance(error, Unauthorized) and error.status < 500
            self.has_answered = is_final  # it has no such request
            reason = error_text(error) or f"no answer within {PROBE_TIMEOUT_S:g} s"
            log.warning("remote server cannot be reached", agent=self.name, url=self.url, error=reason)
            return None, f"which could not be asked what it can do: {reason}"
        found = next((each for each in agents if name in ("", each.name)), None)
        if found is None:
            return None, f"which has no agent {name!r}; its agents: {', '.join(each.name for each in agents) or 'none'}"
        tools = [count(len(found.tools), "tool")] if found.tools else []
        return found, ", ".join([f"agent {found.name}", *tools])

    def _does_not_say(self, error: Exception) -> bool:
        """Whether there is no such request. AG-UI has none, but Dragoman servers answer one below the endpoint."""
        if self.protocol == "ag-ui" and isinstance(error, RequestRefused | InvalidResponse):
            return not isinstance(error, Unauthorized)
        return isinstance(error, Unsupported)

    def stop_later(self, transport: Transport, handle: SessionHandle) -> None:
        """Stop the run of a session, without waiting for it."""
        task = asyncio.create_task(self._stop(transport, msgspec.structs.replace(handle)))
        self._stops[handle.id] = task
        task.add_done_callback(lambda _: self._stops.pop(handle.id, None))

    async def wait_for_stop(self, session_id: str) -> None:
        """Wait until a stop in this session has arrived: it would stop the next run."""
        if (task := self._stops.get(session_id)) is not None:
            await asyncio.wait((task,))

    async def _stop(self, transport: Transport, handle: SessionHandle) -> None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await transport.stop(handle)
        except Unsupported:
            pass  # the end of the connection stops it, where anything does
        except (ClientError, TimeoutError) as error:
            log.warning("remote run not stopped", agent=self.name, session=handle.id, error=error_text(error))
        except Exception:  # a task's root; no run depends on it
            log.exception("remote run not stopped", agent=self.name, session=handle.id)

    async def close(self) -> None:
        """Close the connections. Runs continue on the server."""
        if self._stops:
            await asyncio.wait(self._stops.values())
        await self.transport.close()
