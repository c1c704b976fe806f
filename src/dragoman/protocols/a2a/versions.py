"""The two versions and the two bindings: how an exchange is read and written. Pure.

Version 0.3 has other names for the same things, so it is a translation of names and nothing else. It is spoken over
JSON-RPC only, and by clients that name no version.
Source: A2A 1.0, "Versioning" and appendix A; A2A 0.3.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from dragoman.core.content import Json, JsonObject
from dragoman.core.refusals import Unauthenticated
from dragoman.protocols.a2a import wire
from dragoman.protocols.a2a.errors import ERRORS, VersionNotSupported, http_error
from dragoman.protocols.kit.frames import encode_json
from dragoman.protocols.kit.json_rpc import ErrorMessage, RequestId, ResultMessage, RpcError

Kind = Literal["task", "message", "statusUpdate", "artifactUpdate"]
METHODS: Mapping[str, str] = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
"""The methods of version 0.3, and their names in 1.0."""
_KINDS: Mapping[Kind, str] = {
    "task": "task",
    "message": "message",
    "statusUpdate": "status-update",
    "artifactUpdate": "artifact-update",
}
_NO_ACCESS = -32000
"""Of JSON-RPC's codes for servers: A2A has none for this."""
_TEXT = "\x00"
"""Stands for the text in the template of a frame."""


def is_old(version: str | None, *, binding: Literal["JSON-RPC", "HTTP+JSON"]) -> bool:
    """Whether a request is in version 0.3, by its `A2A-Version`. Minor versions of 1 are compatible.

    Raises:
        VersionNotSupported: it is in another version, or in none over HTTP+JSON.
    """
    major, _, minor = (version or "0.3").strip().partition(".")
    if major == "1" and (not minor or minor.replace(".", "").isdecimal()):
        return False
    if major == "0" and minor.partition(".")[0] == "3" and binding == "JSON-RPC":
        return True
    named = f"version {version[:20]!r} is not served" if version else "A2A-Version is missing"
    served = "1.0 and 0.3" if binding == "JSON-RPC" else "1.0"
    raise VersionNotSupported(f"{named} over {binding}: send the header A2A-Version: 1.0 (served: {served})")


class Codec(NamedTuple):
    """How the answers of one exchange are written.

    Attributes:
        is_rpc: in JSON-RPC's envelope.
        is_old: with the names of version 0.3.
        request_id: of the JSON-RPC request.
        is_stream: the method answers with a stream.
    """

    is_rpc: bool = False
    is_old: bool = False
    request_id: RequestId | None = None
    is_stream: bool = False

    def result(self, value: object, kind: Kind | None = None, *, is_wrapped: bool = False) -> object:
        """An answer: a task, for example. Where 1.0 wraps a value, its kind is the member's name."""
        if self.is_old and kind is not None:
            value = downgrade_value(value, kind)
        elif is_wrapped:
            value = {kind: value}
        return ResultMessage(id=self.request_id, result=value) if self.is_rpc else value

    def frame(self, value: object, kind: Kind, position: bytes) -> bytes:
        """An event of a stream."""
        body = encode_json(self.result(value, kind, is_wrapped=True))
        return b"id: %b\ndata: %b\n\n" % (position, body)

    def no_access_frame(self, error: Unauthenticated) -> bytes:
        """The end of a stream that its client may no longer read."""
        if self.is_rpc:
            failed = RpcError(code=_NO_ACCESS, message=str(error))
            return b"data: %b\n\n" % encode_json(ErrorMessage(id=self.request_id, error=failed))
        return b"event: error\ndata: %b\n\n" % encode_json(http_error(ERRORS.to_response(error)))

    def text_template(self, update: wire.ArtifactUpdate) -> tuple[bytes, bytes]:
        """What precedes and follows the text of a frame with one part of text."""
        part = msgspec.structs.replace(update.artifact.parts[0], text=_TEXT)
        artifact = msgspec.structs.replace(update.artifact, parts=(part,))
        frame = self.frame(msgspec.structs.replace(update, artifact=artifact), "artifactUpdate", b"")
        head, _, tail = frame.removeprefix(b"id: ").rpartition(encode_json(_TEXT))
        return head, tail


# --- the names of version 0.3 -----------------------------------------------------------------------------------------


def downgrade_value(value: object, kind: Kind) -> JsonObject:
    """A value of 1.0 with the names of 0.3."""
    plain: JsonObject = _renamed(msgspec.to_builtins(value))
    if kind == "statusUpdate":
        plain["final"] = plain["status"]["state"] not in ("submitted", "working")
    return {"kind": _KINDS[kind], **plain}


def _renamed(value: Json, name: str = "") -> Json:
    if isinstance(value, list | tuple):
        return [_renamed(each, name) for each in value]
    if name == "state":
        return value.removeprefix("TASK_STATE_").lower().replace("_", "-")
    if name == "role":
        return value.removeprefix("ROLE_").lower()
    if name == "metadata" or not isinstance(value, dict):
        return value
    if name == "parts":
        return _old_part(value)
    found = {key: _renamed(each, key) for key, each in value.items()}
    return {"kind": "message", **found} if name in ("message", "history") else found


def _old_part(part: JsonObject) -> JsonObject:
    metadata = {"metadata": part["metadata"]} if "metadata" in part else {}
    if "text" in part:
        return {"kind": "text", "text": part["text"], **metadata}
    if "data" in part:
        data = part["data"] if isinstance(part["data"], dict) else {"value": part["data"]}
        return {"kind": "data", "data": data, **metadata}
    names = {"raw": "bytes", "url": "uri", "mediaType": "mimeType", "filename": "name"}
    return {"kind": "file", "file": {new: part[each] for each, new in names.items() if each in part}, **metadata}


def upgrade_params(params: Json) -> Json:
    """The parameters of a method of 0.3 with the names of 1.0. What has another shape is left for the check of 1.0."""
    if not isinstance(params, dict):
        return params
    found = dict(params)
    message, configuration = params.get("message"), params.get("configuration")
    if isinstance(message, dict):
        role, parts = message.get("role"), message.get("parts")
        found["message"] = {
            **message,
            "role": f"ROLE_{role.upper()}" if role in ("user", "agent") else role,
            "parts": [_new_part(each) for each in parts] if isinstance(parts, list) else parts,
        }
    if isinstance(configuration, dict):
        changed = {**configuration, "returnImmediately": configuration.get("blocking") is False}
        changed["taskPushNotificationConfig"] = configuration.get("pushNotificationConfig")
        found["configuration"] = changed
    return found


def _new_part(part: Json) -> Json:
    """A part with the names of 1.0. Older clients leave `kind` out, or call it `type`."""
    file = part.get("file") if isinstance(part, dict) else None
    if not isinstance(file, dict):
        return part
    names = {"bytes": "raw", "uri": "url", "mimeType": "mediaType", "name": "filename"}
    return {new: file[each] for each, new in names.items() if each in file}
