"""A2A's JSON-RPC, in version 1.0 and with the names of 0.3. Pure."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from dragoman.client.codec import Request
from dragoman.client.decoding import decode_json
from dragoman.client.errors import ClientError, InvalidResponse, make_refusal
from dragoman.core.content import Json, JsonObject
from dragoman.protocols.a2a.versions import METHODS, downgrade_value

Value = TypeVar("Value")
TASK_NOT_FOUND, TASK_NOT_CANCELABLE, UNSUPPORTED_OPERATION = -32001, -32002, -32004
METHOD_NOT_FOUND, VERSION_NOT_SUPPORTED = -32601, -32009
_STATUSES = {TASK_NOT_FOUND: 404, -32603: 500}
_OLD_METHODS = {new: old for old, new in METHODS.items()}
_MEMBERS = {
    "task": "task",
    "message": "message",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}
"""The member of an answer in 1.0, by the kind of a value in 0.3."""


class RpcError(msgspec.Struct, frozen=True):
    """Why a request failed."""

    code: int = 0
    message: str = ""

    def to_refusal(self, body: bytes) -> ClientError:
        """The exception for it."""
        message = self.message or f"the server answered with the error {self.code}"
        return make_refusal(_STATUSES.get(self.code, 400), str(self.code), message, body=body, request_id="")


class RpcAnswer(msgspec.Struct, frozen=True):
    """An answer, or an event of a stream."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: RpcError | None = None


class Rpc(msgspec.Struct, frozen=True):
    """The interface of one agent: where it is, and whether it speaks 0.3."""

    path: str
    is_old: bool = False

    def request(
        self, method: str, params: JsonObject, *, is_idempotent: bool = True, headers: Mapping[str, str] | None = None
    ) -> Request:
        """A request, by the names of 1.0."""
        version = {} if self.is_old else {"A2A-Version": "1.0"}
        if self.is_old:
            method = _OLD_METHODS[method]
            params = {
                key: downgrade_value(each, "message") if key == "message" else each for key, each in params.items()
            }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return Request(
            method="POST",
            path=self.path,
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json", **version, **(headers or {})},
            is_idempotent=is_idempotent,
        )

    def result(self, answer: RpcAnswer, kind: type[Value], *, is_wrapped: bool = False) -> Value:
        """The value of an answer. 0.3 wraps nothing, but names the kind."""
        if not self.is_old:
            return decode_json(bytes(answer.result), kind, "an answer of A2A 1.0")
        value = _new_names(msgspec.json.decode(answer.result))
        if is_wrapped and isinstance(value, dict):
            value = {_MEMBERS.get(str(value.get("kind")), ""): value}
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise InvalidResponse(f"expected an answer of A2A 0.3: {error}") from error


def _new_names(value: Json, name: str = "") -> Json:
    """A value of 0.3 with the names of 1.0."""
    if isinstance(value, list):
        return [_new_names(each, name) for each in value]
    if name in ("state", "role"):
        return f"{'TASK_STATE' if name == 'state' else 'ROLE'}_{str(value).upper().replace('-', '_')}"
    if name in ("metadata", "data") or not isinstance(value, dict):
        return value
    if name == "parts" and isinstance(file := value.get("file"), dict):
        names = {"bytes": "raw", "uri": "url", "mimeType": "mediaType", "name": "filename"}
        return {new: file[each] for each, new in names.items() if each in file}
    return {key: _new_names(each, key) for key, each in value.items()}
