"""The memory that clients' connections use. It belongs to a server, which gives it to all that receives and sends."""

from dragoman.engine.services.limits import MemoryBudget
from dragoman.engine.services.unread_responses import UnreadResponses


class ConnectionMemory:
    """Limits the memory of a server's connections.

    Args:
        requests_bytes: for requests that arrive or are being decoded.
        responses_bytes: for responses that clients have not read.
    """

    def __init__(self, requests_bytes: int = 128 * 1024 * 1024, responses_bytes: int = 256 * 1024 * 1024) -> None:
        self.requests = MemoryBudget(requests_bytes)
        self.responses = UnreadResponses(responses_bytes)
