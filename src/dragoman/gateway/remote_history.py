"""What a remote session knows of ours: how one begins, and what each turn repeats."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from dragoman.client import events as remote
from dragoman.client.agui_seeds import seed_messages
from dragoman.client.codec import SessionConfig, SessionHandle, UserInput
from dragoman.client.openai_chat import to_seed_messages
from dragoman.client.openai_items import to_seed_items
from dragoman.client.transport import Transport
from dragoman.core.agent import Run
from dragoman.core.content import JsonObject, Message, SystemMessage
from dragoman.core.ids import ROOT, MessageId
from dragoman.gateway.conversion import to_history, to_user_input, with_transcript
from dragoman.gateway.remote_server import RemoteServer
from dragoman.gateway.remote_session import Link, split_at_sending

CONTEXT_MESSAGES = 500
"""The messages of a session that a new remote session gets. Servers have limits, ours of 1,000."""
_SEEDED: Final = frozenset({"aap", "ag-ui", "openai", "openai-chat"})
"""The protocols in which a session can begin with a history."""
_SEED_ENCODERS: Mapping[str, Callable[[Iterable[remote.Message]], list[JsonObject]]] = {
    "ag-ui": seed_messages,
    "openai": to_seed_items,
    "openai-chat": to_seed_messages,
}
"""The protocols in which each turn repeats the history, unless the server is known to keep it."""
_MAX_MESSAGE_CHARS: Mapping[str, int] = {"run-service": 10_000}
"""How long a message may be, by protocol."""


class RemoteHistory:
    """The history of our session, for the remote one.

    Args:
        run: our run.
        server: the remote server.
        transport: the connections for the run.
        agent: the agent's name there; empty for its first.
    """

    def __init__(self, run: Run, server: RemoteServer, transport: Transport, agent: str) -> None:
        self._run = run
        self._transport = transport
        self._agent = agent
        self._protocol = server.protocol
        self._option_names = server.option_names
        self.needs_transcript = server.protocol not in _SEEDED
        """Whether a new session's first message contains the conversation so far."""

    async def messages(self, count: int = CONTEXT_MESSAGES) -> Sequence[Message]:
        """Our messages, oldest first, beginning with the summary of those before."""
        if self._run.loop != ROOT:
            return await self._run.turn()
        messages = await self._run.context(count)
        summary = await self._run.summary() if count >= CONTEXT_MESSAGES else None
        return messages if summary is None else (SystemMessage(id=MessageId(""), content=summary), *messages)

    def is_resent(self, handle: SessionHandle) -> bool:
        """Whether each turn repeats the history."""
        return self._protocol in _SEED_ENCODERS and not handle.server_keeps_history

    def keeps_messages(self, handle: SessionHandle) -> bool:
        """Whether the remote server may know the messages by the IDs that it gave them, and store others as new."""
        return self._protocol == "ag-ui" and not handle.server_keeps_history

    def takes_messages(self, handle: SessionHandle) -> bool:
        """Whether the remote session can continue with a message.

        It cannot if its messages are no longer known, or if it is a graph's that waits: the graph would take the next
        message as the value of its interrupt.
        """
        if any(each.is_graph for each in handle.graph_interrupts):
            return False
        return bool(handle.messages) or not self.keeps_messages(handle)

    async def messages_for(self, handle: SessionHandle) -> Sequence[Message]:
        """The history that a turn needs which has no message."""
        return await self.messages(CONTEXT_MESSAGES if self.is_resent(handle) else 1)

    async def sent_input(self, link: Link) -> tuple[Sequence[Message], UserInput]:
        """The history at the time when the newest turn was sent, and the message that it sent."""
        newer = len(await self._run.turn())
        history, messages = split_at_sending(await self.messages(CONTEXT_MESSAGES + newer), link)
        return history, to_user_input(messages)

    def configure(self, handle: SessionHandle, history: Sequence[Message]) -> None:
        """Give an existing session the application's tools and, if it is sent with each turn, the history."""
        tools = tuple(self._run.offered_tools())
        if tools != handle.tools:
            handle.tools, handle.has_unsent_tools = tools, True
        if self.is_resent(handle) and not (handle.messages and self.keeps_messages(handle)):
            handle.messages = _SEED_ENCODERS[self._protocol](to_history(history))

    def with_transcript(self, history: Sequence[Message], user_input: UserInput) -> UserInput:
        """A new session's first message."""
        if not self.needs_transcript:
            return user_input
        return with_transcript(to_history(history), user_input, max_chars=_MAX_MESSAGE_CHARS.get(self._protocol))

    async def new_session(self, history: Sequence[Message], attempt: int) -> SessionHandle:
        """Begin a remote session with what our user sees, as far as that is not in its first message.

        Args:
            history: our messages.
            attempt: counts the sessions of this run.
        """
        known = self._option_names
        config = SessionConfig(
            agent=self._agent,
            tools=tuple(self._run.offered_tools()),
            declared_approval=self._protocol == "aap",
            options={name: value for name, value in self._run.options.items() if name in known and value},
            history=() if self.needs_transcript else to_history(history),
        )
        return await self._transport.create(config, f"{self._run.run_id}-{attempt}")
