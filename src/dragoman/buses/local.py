"""The bus of a server that is alone: a call within the process."""

from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class LocalBus:
    """`Bus` in one process. A hint is heard at once, by those who subscribe at that moment.

    What a subscriber raises is logged: it reaches neither who published nor those who hear it after.
    """

    deltas_group: str | None = "here"
    """See `Bus.words`."""

    def __init__(self) -> None:
        self._handlers: dict[str, list[Callable[[str], None]]] = {}

    def publish(self, subject: str, payload: str) -> None:
        """Send a payload to every subscriber of the subject, on all servers. Never waits and never raises."""
        for heard in tuple(self._handlers.get(subject, ())):
            try:
                heard(payload)
            except Exception:  # the root of what a hint sets off; a payload may be words, so it is not logged
                log.exception("a hint was not heard", subject=subject)

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
