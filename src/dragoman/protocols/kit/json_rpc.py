"""What protocols on JSON-RPC 2.0 share. Pure."""

from typing import Any, TypeVar

import msgspec

from dragoman.protocols.kit.decoding import decode_json

T = TypeVar("T")


def readable_id(body: bytes, kind: type[T] | Any) -> T | None:  # noqa: ANN401  # any type that msgspec knows
    """The id of a JSON message that is no request, so that its error can name it; None if there is no id of that type.

    Source: JSON-RPC 2.0, "Response object": the id is null only if it cannot be detected.
    """
    message = decode_json(body)
    try:
        found: T | None = msgspec.convert(message.get("id"), kind) if isinstance(message, dict) else None
    except msgspec.ValidationError:
        return None
    return found
