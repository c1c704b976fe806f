"""The header `Idempotency-Key`."""

import hashlib

from starlette.requests import Request

from dragoman.core.refusals import Invalid
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.protocols.kit.body import header
from dragoman.protocols.kit.endpoints import request_header

MAX_KEY_LENGTH = 255

IDEMPOTENCY_KEY = request_header(
    "Idempotency-Key", "The same key with the same body returns the first response again, for at least 24 hours."
)
"""The header's entry in the OpenAPI document."""


def idempotency_key(request: Request, body: bytes, protocol: str) -> IdempotencyKey | None:
    """The key of a request, with a fingerprint of its path and body; None if it has none.

    Args:
        request: the request.
        body: as it was received.
        protocol: a key is one request's within its protocol.

    Raises:
        Invalid: the key is empty, or longer than `MAX_KEY_LENGTH`.
    """
    key = header(request.scope, b"idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise Invalid(f"Idempotency-Key must have 1 to {MAX_KEY_LENGTH} characters")
    fingerprint = hashlib.sha256(request.scope["path"].encode() + b"\n" + body).hexdigest()
    return IdempotencyKey(f"{protocol}:{key}", fingerprint)
