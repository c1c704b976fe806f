"""The ids of responses, items, conversations and calls: functions of the log, which lead back to it. Pure.

    resp_RUN    msg_RUN_0    mcpr_RUN_CALL    call_RUN_CALL    conv_SESSION

RUN and SESSION are UUIDs without dashes, CALL is one in base64. No index leads from an item or a call to its session.
"""

import base64
import binascii
import re
import uuid

from dragoman.core.ids import CallId, RunId, SessionId

_ID = re.compile(r"(?:resp|msg|rs|fc|fco|mcp|mcpa|mcpr|call)_(?P<run>[0-9a-f]{32})(?:_(?P<rest>[A-Za-z0-9_-]{1,24}))?")
_CONVERSATION = re.compile(r"conv_([0-9a-f]{32})")
_UUID_LENGTH = 36


def bare(identifier: str) -> str:
    """A UUID without dashes."""
    return identifier.replace("-", "")


def response_id(run_id: str) -> str:
    """The id of a run's response."""
    return f"resp_{bare(run_id)}"


def conversation_id(session_id: SessionId) -> str:
    """The id of a session as a conversation."""
    return f"conv_{bare(session_id)}"


def call_id(run_id: RunId | None, call: CallId, prefix: str = "call") -> str:
    """The id of a call that a run made. A call from a client's history keeps the client's id."""
    if run_id is None or len(call) != _UUID_LENGTH:
        return call
    encoded = base64.urlsafe_b64encode(uuid.UUID(call).bytes).decode().rstrip("=")
    return f"{prefix}_{bare(run_id)}_{encoded}"


def run_of(identifier: str) -> RunId | None:
    """The run that an id of a response, an item or a call leads to; None if the id has another form."""
    match = _ID.fullmatch(identifier)
    return None if match is None else RunId(str(uuid.UUID(match["run"])))


def call_of(identifier: str) -> CallId:
    """The core's id of the call with this id."""
    match = _ID.fullmatch(identifier)
    try:
        decoded = base64.b64decode((match["rest"] or "") + "==", b"-_", validate=True) if match else b""
    except binascii.Error:
        decoded = b""
    return CallId(str(uuid.UUID(bytes=decoded)) if len(decoded) == 16 else identifier)  # of a UUID


def session_of(identifier: str) -> SessionId | None:
    """The session that a conversation's id names; None if the id has another form."""
    match = _CONVERSATION.fullmatch(identifier)
    return None if match is None else SessionId(str(uuid.UUID(match[1])))
