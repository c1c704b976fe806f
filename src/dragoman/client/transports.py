"""The ways to a server: for each protocol one `Door`, which the sessions above use without knowing which it is."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

from dragoman.client.aap import AapFace
from dragoman.client.agentscope import AgentScopeFace
from dragoman.client.agui import AguiFace
from dragoman.client.blade import BASE, BladeFace
from dragoman.client.blade_transport import BladeDoor
from dragoman.client.codec import Face, Given, Talk, Wanted
from dragoman.client.connection import Link, Timeouts
from dragoman.client.errors import ClientError, Refused, Unsupported
from dragoman.client.events import Agent, Event, Message, SessionInfo

ProtocolName = Literal["aap", "ag-ui", "agentscope", "blade"]


class Door(Protocol):
    """One protocol of one server."""

    async def close(self) -> None:
        """Close all connections."""

    async def agents(self) -> tuple[Agent, ...]:
        """What the server offers."""

    async def create(self, wanted: Wanted, once: str) -> Talk:
        """Make a session."""

    async def open(self, session_id: str, wanted: Wanted) -> Talk:
        """Go on with a session. Raises NotFound."""

    async def look(self, talk: Talk) -> SessionInfo:
        """A session as it is now."""

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """A page of the list, and where the next begins; empty at the end."""

    async def history(self, talk: Talk) -> tuple[Message, ...]:
        """All messages."""

    async def delete(self, talk: Talk) -> None:
        """End the session and all of it."""

    async def stop(self, talk: Talk) -> None:
        """Stop the run."""

    def play(self, talk: Talk, given: Given) -> AsyncGenerator[Event, None]:
        """One exchange, to its `Ended`."""

    def resume(self, talk: Talk) -> AsyncGenerator[Event, None]:
        """The newest exchange from its start."""


class HttpDoor:
    """A protocol over HTTP and server-sent events."""

    def __init__(self, link: Link, face: Face) -> None:
        self._link = link
        self._face = face
        self._knows_agents = False

    async def close(self) -> None:
        """See `Door.close`."""
        await self._link.close()

    async def agents(self) -> tuple[Agent, ...]:
        """See `Door.agents`."""
        found = await self._link.ask(self._face.agents())
        self._knows_agents = True
        return found

    async def create(self, wanted: Wanted, once: str) -> Talk:
        """See `Door.create`."""
        await self._learn()
        try:
            made = self._face.create(wanted, once)
        except Unsupported:
            if not self._face.needs_agents:
                raise
            await self.agents()  # it may have come since
            made = self._face.create(wanted, once)
        return made if isinstance(made, Talk) else await self._link.ask(made)

    async def open(self, session_id: str, wanted: Wanted) -> Talk:
        """See `Door.open`."""
        await self._learn()
        talk = Talk(id=session_id, agent=wanted.agent, tools=wanted.tools)
        return self._face.open(await self.look(talk), wanted)

    async def look(self, talk: Talk) -> SessionInfo:
        """See `Door.look`."""
        shown = self._face.look(talk)
        return shown if isinstance(shown, SessionInfo) else await self._link.ask(shown)

    async def sessions(self, after: str) -> tuple[tuple[SessionInfo, ...], str]:
        """See `Door.sessions`."""
        return await self._link.ask(self._face.sessions(after))

    async def history(self, talk: Talk) -> tuple[Message, ...]:
        """See `Door.history`."""
        return await self._link.ask(self._face.history(talk))

    async def delete(self, talk: Talk) -> None:
        """See `Door.delete`."""
        await self._link.ask(self._face.delete(talk))

    async def stop(self, talk: Talk) -> None:
        """See `Door.stop`."""
        try:
            await self._link.ask(self._face.stop(talk))
        except Refused as error:
            if error.status not in (404, 405) or error.code.endswith("_not_found"):
                raise
            raise Unsupported("this server has no way to stop a run over this protocol", status=error.status) from error

    def play(self, talk: Talk, given: Given) -> AsyncGenerator[Event, None]:
        """See `Door.play`."""
        return self._link.play(self._face.turn(talk, given, uuid4().hex), self._face.confirm(talk))

    def resume(self, talk: Talk) -> AsyncGenerator[Event, None]:
        """See `Door.resume`."""
        return self._link.play(self._face.rejoin(talk), self._face.confirm(talk))

    async def _learn(self) -> None:
        if self._face.needs_agents and not self._knows_agents:
            await self.agents()


def door_of(protocol: ProtocolName, url: str, key: str | None, timeouts: Timeouts) -> Door:
    """The way to that server. Raises ClientError: the address is none, or there is no such protocol."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.netloc:
        raise ClientError(f"an address such as http://127.0.0.1:8000 was expected, got {url!r}")
    origin, path = f"{address.scheme}://{address.netloc}", address.path.rstrip("/")
    face: Face
    match protocol:
        case "aap":
            face = AapFace(path) if path else AapFace()
        case "ag-ui":
            face = AguiFace(path)
        case "agentscope":
            face = AgentScopeFace(path) if path else AgentScopeFace()
        case "blade":
            rest = BladeFace(f"{path}/api" if path else BASE)
            return BladeDoor(Link(origin, key, rest, timeouts), rest, origin + path, key)
        case _:
            raise ClientError(f"a protocol was expected (aap, ag-ui, agentscope, blade), got {protocol!r}")
    return HttpDoor(Link(origin, key, face, timeouts), face)
