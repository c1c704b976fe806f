"""The header by which a client says that its requests have all messages that it shows."""

from starlette.types import Scope

from dragoman.protocols.kit.body import header
from dragoman.protocols.kit.endpoints import request_header

MESSAGE_HISTORY = request_header(
    "X-Message-History",
    "`complete`: requests have all messages that the client shows, so that a message with a new ID replaces what it"
    " does not show any more.",
)
"""The header's entry in the OpenAPI document."""


def sends_all_messages(scope: Scope) -> bool:
    """Whether a client says that its request has all messages that it shows."""
    return (header(scope, b"x-message-history") or "").lower() == "complete"
