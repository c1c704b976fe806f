"""The message bus between the parts of a server and between servers. Messages are hints and may be lost."""

from collections.abc import Callable
from typing import Protocol

MAX_HINT_BYTES = 7_900
"""Maximum payload of a hint."""
DELTAS_SUBJECT_PREFIX = "words"
"""First part of the subjects that carry users' text. A dot and the recipient's address follow."""
MAX_DELTAS_BYTES = 256 * 1024
"""Maximum payload on a subject that carries users' text."""


class Bus(Protocol):
    """Publish and subscribe for hints. A receiver always reads the store for the facts.

    Messages may be lost, repeated, delayed and reordered, and a publisher receives its own. Publish, subscribe and the
    handlers all run on the event loop. An exception in a handler is logged and affects nobody else.

    A payload has at most `MAX_HINT_BYTES` and never contains users' text, except on subjects that start with
    `DELTAS_SUBJECT_PREFIX`. These allow `MAX_DELTAS_BYTES` and are delivered unaltered to the servers that may read
    them, and to nobody else.
    """

    @property
    def deltas_group(self) -> str | None:
        """An identifier shared by all servers that can read each other's deltas. None: this bus does not carry them."""

    def publish(self, subject: str, payload: str) -> None:
        """Send a payload to every subscriber of the subject, on all servers. Never waits and never raises."""

    def subscribe(self, subject: str, handler: Callable[[str], None]) -> Callable[[], None]:
        """Call `handler` with each payload. Returns a function that ends the subscription."""
