"""The identifiers of the domain, created and parsed in one place. Pure: time and randomness are passed in.

The server's ids are UUIDs of version 7 (RFC 9562): they sort by creation time, and 72 bits are random.
"""

import re
from typing import NewType

SessionId = NewType("SessionId", str)
RunId = NewType("RunId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
LoopId = NewType("LoopId", str)
UserId = NewType("UserId", str)
KeyId = NewType("KeyId", str)

ROOT = LoopId("root")
"""The loop of the session's own agent; every other loop is a sub-agent's."""

_FORK = "fork:"
_UUID = re.compile("[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def uuid7(unix_ms: int, tail: int) -> str:
    """Write a UUID of version 7 in its canonical form, lower case with dashes.

    Args:
        unix_ms: milliseconds since 1970, less than 2**48.
        tail: 72 bits; of two ids in the same millisecond, the one with the greater tail sorts later.
    """
    return uuid7_head(unix_ms) + uuid7_tail(f"{tail:018x}")


def uuid7_head(unix_ms: int) -> str:
    """The first part of `uuid7`, up to the version."""
    return f"{unix_ms >> 16:08x}-{unix_ms & 0xFFFF:04x}-7"


def uuid7_tail(digits: str) -> str:
    """The rest, from 18 hexadecimal digits. The variant needs two bits, and two more are not used."""
    return f"{digits[:3]}-8{digits[3:6]}-{digits[6:]}"


def parse_session_id(text: str) -> SessionId | None:
    """Parse a session id as clients write it: 8-4-4-4-12 hexadecimal digits in any case.

    Anything else (braces, `urn:uuid:`, no dashes, the nil UUID) can only be a name and returns None.
    Source: shared rules, 1.
    """
    if _UUID.fullmatch(text) is None or text.strip("0-") == "":
        return None
    return SessionId(text.lower())


def fork_loop(call_id: CallId) -> LoopId:
    """The loop of the sub-agent that a call started."""
    return LoopId(f"{_FORK}{call_id}")


def forking_call(loop: LoopId) -> CallId | None:
    """The call that started the sub-agent of a loop; None for the root loop. The inverse of `fork_loop`."""
    return CallId(loop.removeprefix(_FORK)) if loop.startswith(_FORK) else None
