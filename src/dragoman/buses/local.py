"""The bus of a single server: calls within the process."""

from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class LocalBus:
    """`Bus` in one process. A payload is delivered at once to the current subscribers.

    Exceptions of a handler are logged, and affect neither the publisher nor other subscribers.
    """

    deltas_group: str | None = "here"
    """None: there are no other servers."""

    def __init__(self) -> None:
        self._handlers: dict[str, list[Callable[[str], None]]] = {}

    def publish(self, subject: str, payload: str) -> None:
        """Send a payload to every subscriber of the subject, on all servers. Never waits and never raises."""
        for heard in tuple(self._handlers.get(subject, ())):
            try:
                heard(payload)
            except Exception:  # the root of a handler; the payload may be users' text, so it is not logged
                log.exception("hint handler failed", subject=subject)

    def subscribe(self, subject: str, handler: Callable[[str], None]) -> Callable[[], None]:
        """Call `handler` with each payload. Returns a function that ends the subscription."""
        self._handlers.setdefault(subject, []).append(handler)

        def end() -> None:
            listeners = self._handlers.get(subject, [])
            if handler in listeners:
                listeners.remove(handler)
            if not listeners:
                self._handlers.pop(subject, None)

        return end
