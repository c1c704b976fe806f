"""Sessions whose stored data cannot be decoded are logged and counted, wherever the damage is found."""

import structlog

from dragoman.core.refusals import SessionUnreadable
from dragoman.engine.instrumentation.metrics import SESSIONS_UNREADABLE

log = structlog.get_logger(__name__)


def report_unreadable(error: SessionUnreadable) -> None:
    """Log and count one attempt to read such a session. Call on the event loop."""
    SESSIONS_UNREADABLE.inc()
    log.error("session cannot be read", session_id=error.session_id, reason=error.reason)
