"""JSON-RPC 2.0, as far as protocols share it: the messages of a server, and the ids of requests. Pure."""

from typing import Annotated, Any, Literal

import msgspec

from dragoman.core.content import Json
from dragoman.protocols.kit.decoding import decode_json

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603

RequestId = int | Annotated[str, msgspec.Meta(max_length=1024)]
"""The id of a request. Longer ones are refused: an id is repeated in every frame of a stream."""


class RpcError(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Why a request failed."""

    code: int
    message: str
    data: Json = msgspec.UNSET


class ErrorMessage(msgspec.Struct, kw_only=True):
    """The answer to a request that failed. The id is null if the request could not be read."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId | None
    error: RpcError


class ResultMessage(msgspec.Struct, kw_only=True):
    """The answer to a request."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId | None
    result: Any


def readable_id(body: bytes) -> RequestId | None:
    """The id of a JSON message that is no request, so that its error can name it.

    Source: JSON-RPC 2.0, "Response object": the id is null only if it cannot be detected.
    """
    message = decode_json(body)
    try:
        return msgspec.convert(message.get("id"), RequestId | None) if isinstance(message, dict) else None
    except msgspec.ValidationError:
        return None
