"""Blade's sessions, turns and branches as data, for the server's OpenAPI document."""

from typing import Any

import msgspec

from dragoman.core.content import JsonObject
from dragoman.protocols.blade.rest import replays
from dragoman.protocols.blade.rest.openapi import route
from dragoman.protocols.blade.wire import sessions as told
from dragoman.protocols.blade.wire.chat import SessionDetail, Turn
from dragoman.protocols.kit.openapi import Route


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All entries of all branches, and what else a model reads."""

    nodes: list[told.Node]
    system_prompt_tokens: int
    tools_tokens: int
    tokenizer_model: str


class Rewound(msgspec.Struct, frozen=True, kw_only=True):
    """What left the messages, and the text that began it."""

    session_id: str
    checkpoint_id: str
    leaf_entry_id: str | None
    removed_turn_ids: list[str]
    message: str


class CheckedOut(msgspec.Struct, frozen=True, kw_only=True):
    """The turns up to a checkpoint."""

    checkpoint_id: str
    position: str
    turns: list[Turn]


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """The entry with which the branch ends that is active now."""

    session_id: str
    leaf_entry_id: str


class CompactedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What was summed up."""

    status: str
    compaction_id: str
    archived_count: int
    tokens_before: int
    tokens_after: int
    saved_ratio: float
    trigger: str


_ONE = "/sessions/{session}"
_PAGE = {"limit": "how many", "offset": "how many to pass over"}
_SEARCH = {"q": "text in the title or in what was said, in any case and script", **_PAGE}


def _changes(part: str, summary: str, takes: Any, example: JsonObject, body: Any = SessionDetail) -> Route:  # noqa: ANN401
    return route("PUT" if part == "env" else "PATCH", f"{_ONE}/{part}", summary, body, takes=takes, example=example)


def _at(part: str, summary: str, body: Any, takes: Any = told.AtCheckpoint) -> Route:  # noqa: ANN401  # types
    return route("POST", f"{_ONE}/{part}", summary, body, takes=takes, example={"checkpoint_id": "cp_4"})


ROUTES = (
    route("GET", "/health", "Whether the server answers", dict[str, str], is_open=True),
    route("GET", "/version", "The level of Blade that is served", JsonObject, is_open=True),
    route("GET", "/config", "What is switched on", JsonObject, is_open=True),
    route("GET", "/config/models", "The models that can be named", JsonObject),
    route("GET", "/auth/me", "Who the key belongs to", JsonObject),
    route("GET", "/solutions", "The agents that are served", JsonObject),
    route("GET", "/solutions/{solution}/biz-roles", "The variants of an agent", JsonObject),
    route("POST", "/sessions", "Make a session", told.Created, takes=told.CreateSession, example={"intent": "a task"}),
    route("GET", "/sessions", "Your sessions, pinned ones first", told.SessionPage, asks=_SEARCH),
    route("GET", _ONE, "A session", SessionDetail),
    route("PATCH", _ONE, "Rename a session", SessionDetail, takes=told.Rename, example={"intent": "another task"}),
    route("DELETE", _ONE, "Delete a session", dict[str, bool]),
    _changes("env", "Replace a session's variables", told.Environment, {"env": {"NAME": "value"}}),
    _changes("pin", "Pin a session", told.Pin, {"pinned": True}),
    _changes("sharing", "Let others read a session", told.Sharing, {"shared": True}, dict[str, bool]),
    _changes("memory", "Switch memory", told.Remembering, {"memory_enabled": False}, dict[str, bool]),
    route("GET", f"{_ONE}/messages", "The turns of the active branch", list[Turn], asks=_PAGE),
    route("GET", f"{_ONE}/history", "All entries of all branches", History),
    route("GET", f"{_ONE}/context-stats", "How full the context is, estimated", JsonObject),
    route("POST", f"{_ONE}/compact", "Sum the older part up", CompactedSession),
    route("GET", f"{_ONE}/checkpoints", "Where a session can go back to", list[told.Checkpoint]),
    _at("rewind", "Go back to before a message of the user", Rewound),
    _at("checkout", "Look at a session as it was", CheckedOut, told.Checkout),
    _at("switch-branch", "Go on in the branch of a checkpoint", Switched),
    route("GET", f"{_ONE}/replay/preview", "Whether a session can be shown again", replays.ReplayPreview),
    route(
        "POST",
        f"{_ONE}/replay",
        "Show a session again, in a new one",
        told.Created,
        takes=replays.StartReplay,
        example={"speed": 2},
    ),
    _changes(
        "replay",
        "Change a replay's speed, or leave it",
        replays.ChangeReplay,
        {"speed": 5},
        replays.Replaying,
    ),
    route(
        "POST",
        "/sessions/tokenize/prompt",
        "Estimate the tokens of a text",
        JsonObject,
        takes=told.TokenizePrompt,
        example={"prompt": "hello"},
    ),
    route(
        "POST",
        "/sessions/tokenize/messages",
        "Estimate the tokens of messages",
        JsonObject,
        takes=told.TokenizeMessages,
        example={"messages": ["hello"]},
    ),
)
