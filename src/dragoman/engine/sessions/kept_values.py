"""The values that an agent keeps with its session, as one run writes and reads them.

A private value that is too large for the log is kept too, in parts, and its message has a reference to it:

    dragoman.private/DIGEST/NUMBER   a part of its JSON
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec
import structlog

from dragoman.core.agent import AgentError
from dragoman.core.content import AssistantMessage, Json, Message, ToolMessage, encode_json, is_too_deep
from dragoman.core.kept import check_kept
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.log import EventLog

PRIVATE_PREFIX = "dragoman.private/"
_REFERENCE = "dragoman_private"
"""The only member of a reference to a private value: its digest."""

log = structlog.get_logger(__name__)

SIZE_CHECKS = 64
"""The size of a session's values is read from the store whenever this fraction of the limit has been written."""


class KeepLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much agents may keep, in bytes."""

    value_bytes: int = 16 * 1024 * 1024
    """One value."""
    session_bytes: int = 256 * 1024 * 1024
    """All values of a session."""
    private_bytes: int = 4 * 1024 * 1024
    """The private value of one message that is stored in the log, as JSON; a larger one is kept."""


class KeptValues:
    """The kept values of one session during one run, all its loops included."""

    __slots__ = ("_live", "_log", "_size", "_written", "limits")

    def __init__(self, log: EventLog, live: LiveSession, limits: KeepLimits) -> None:
        self.limits = limits
        self._log = log
        self._live = live
        self._size: int | None = None
        """The size of the session's values when the store was asked last."""
        self._written = 0
        """Bytes written since. A value that is written again counts twice until the store is asked again."""

    async def keep(self, writes: Mapping[str, bytes | None], *, durable: bool = True) -> None:
        """Write values; see `core.agent.Run.keep`."""
        size = check_kept(writes, self.limits.value_bytes)
        limit = self.limits.session_bytes
        if (self._size or 0) + self._written + size > limit:
            raise AgentError("kept_limit", "The agent keeps too much for this session")
        self._written += size
        # nothing is awaited before: the events of this moment are in the same commit
        await self._live.keep(writes, durable=durable)
        is_due = self._written > limit // SIZE_CHECKS
        if is_due:
            self._written = 0
            await self._live.until_kept()  # the store counts only what is durable
        if is_due or self._size is None:
            self._size = await self._log.kept_size(self._live.state.session_id)

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        """Read values; see `core.agent.Run.kept`."""
        await self._live.until_kept()
        return await self._log.kept(self._live.state.session_id, below, after, limit)

    async def store_private(self, value: Json) -> Json | msgspec.UnsetType:
        """Store a private value. Returns what its message has: the value, a reference, or UNSET if it has none.

        Raises:
            TypeError: the value is no JSON.
        """
        if value is None:
            return msgspec.UNSET
        if is_too_deep(value):
            log.warning("private value not stored", session_id=self._live.state.session_id, reason="nested too deeply")
            return msgspec.UNSET
        encoded = encode_json(value)
        if len(encoded) <= self.limits.private_bytes:
            return value
        digest, size = sha256(encoded).hexdigest(), self.limits.value_bytes
        parts = {
            f"{PRIVATE_PREFIX}{digest}/{start // size:08}": encoded[start : start + size]
            for start in range(0, len(encoded), size)
        }
        try:
            await self.keep(parts, durable=False)
        except AgentError as error:
            log.warning(
                "private value not stored",
                session_id=self._live.state.session_id,
                bytes=len(encoded),
                reason=error.message,
            )
            return msgspec.UNSET
        return {_REFERENCE: digest}

    async def restore_private(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages with their private values in place of references."""
        if not any(map(_private_digest, messages)):
            return messages
        return [await self._restore_one(each) for each in messages]

    async def _restore_one(self, message: Message) -> Message:
        digest = _private_digest(message)
        if digest is None:
            return message
        encoded, after = bytearray(), None
        while parts := await self.kept(f"{PRIVATE_PREFIX}{digest}/", after=after, limit=16):
            encoded += b"".join(parts.values())
            after = list(parts)[-1]
        private = msgspec.json.decode(encoded) if encoded else msgspec.UNSET
        return msgspec.structs.replace(message, private=private)


def _private_digest(message: Message) -> str | None:
    """The digest of a private value that is kept outside the message."""
    if not isinstance(message, AssistantMessage | ToolMessage):
        return None
    private = message.private
    if not isinstance(private, dict) or len(private) != 1:
        return None
    digest = private.get(_REFERENCE)
    return digest if isinstance(digest, str) else None
