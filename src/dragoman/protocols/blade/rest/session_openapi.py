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

    nodes: list[told.HistoryNode]
    system_prompt_tokens: int
    tools_tokens: int
    tokenizer_model: str


class RewindResult(msgspec.Struct, frozen=True, kw_only=True):
    """What left the messages, and the text that began it."""

    session_id: str
    checkpoint_id: str
    leaf_entry_id: str | None
    removed_turn_ids: list[str]
    message: str


class CheckoutResult(msgspec.Struct, frozen=True, kw_only=True):
    """The turns up to a checkpoint."""

    checkpoint_id: str
    position: str
    turns: list[Turn]


class SwitchBranchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The entry with which the branch ends that is active now."""

    session_id: str
    leaf_entry_id: str


class CompactResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was summed up."""

    status: str
    compaction_id: str
    archived_count: int
    tokens_before: int
    tokens_after: int
    saved_ratio: float
    trigger: str


_SESSION = "/sessions/{session}"
_PAGE_QUERY = {"limit": "how many", "offset": "how many to pass over"}
_SEARCH_QUERY = {"q": "text in the title or in what was said, in any case and script", **_PAGE_QUERY}


def _update_route(
    part: str, summary: str, request_body: type, example: JsonObject, response_body: type = SessionDetail
) -> Route:
    return route(
        "PUT" if part == "env" else "PATCH",
        f"{_SESSION}/{part}",
        summary,
        response_body,
        request_body=request_body,
        example=example,
    )


def _checkpoint_route(part: str, summary: str, response_body: Any, request_body: Any = told.CheckpointRequest) -> Route:  # noqa: ANN401  # types
    return route(
        "POST",
        f"{_SESSION}/{part}",
        summary,
        response_body,
        request_body=request_body,
        example={"checkpoint_id": "cp_4"},
    )


ROUTES = (
    route("GET", "/health", "Whether the server answers", dict[str, str], is_open=True),
    route("GET", "/version", "The level of Blade that is served", JsonObject, is_open=True),
    route("GET", "/config", "What is switched on", JsonObject, is_open=True),
    route("GET", "/config/models", "The models that can be named", JsonObject),
    route("GET", "/auth/me", "Who the key belongs to", JsonObject),
    route("GET", "/solutions", "The agents that are served", JsonObject),
    route("GET", "/solutions/{solution}/biz-roles", "The variants of an agent", JsonObject),
    route(
        "POST",
        "/sessions",
        "Make a session",
        told.CreatedSession,
        request_body=told.CreateSession,
        example={"intent": "a task"},
    ),
    route("GET", "/sessions", "Your sessions, pinned ones first", told.SessionPage, query=_SEARCH_QUERY),
    route("GET", _SESSION, "A session", SessionDetail),
    route(
        "PATCH",
        _SESSION,
        "Rename a session",
        SessionDetail,
        request_body=told.Rename,
        example={"intent": "another task"},
    ),
    route("DELETE", _SESSION, "Delete a session", dict[str, bool]),
    _update_route("env", "Replace a session's variables", told.Environment, {"env": {"NAME": "value"}}),
    _update_route("pin", "Pin a session", told.Pin, {"pinned": True}),
    _update_route("sharing", "Let others read a session", told.Sharing, {"shared": True}, dict[str, bool]),
    _update_route("memory", "Switch memory", told.MemorySetting, {"memory_enabled": False}, dict[str, bool]),
    route("GET", f"{_SESSION}/messages", "The turns of the active branch", list[Turn], query=_PAGE_QUERY),
    route("GET", f"{_SESSION}/history", "All entries of all branches", History),
    route("GET", f"{_SESSION}/context-stats", "How full the context is, estimated", JsonObject),
    route("POST", f"{_SESSION}/compact", "Sum the older part up", CompactResult),
    route("GET", f"{_SESSION}/checkpoints", "Where a session can go back to", list[told.Checkpoint]),
    _checkpoint_route("rewind", "Go back to before a message of the user", RewindResult),
    _checkpoint_route("checkout", "Look at a session as it was", CheckoutResult, told.Checkout),
    _checkpoint_route("switch-branch", "Go on in the branch of a checkpoint", SwitchBranchResult),
    route("GET", f"{_SESSION}/replay/preview", "Whether a session can be shown again", replays.ReplayPreview),
    route(
        "POST",
        f"{_SESSION}/replay",
        "Show a session again, in a new one",
        told.CreatedSession,
        request_body=replays.StartReplay,
        example={"speed": 2},
    ),
    _update_route(
        "replay",
        "Change a replay's speed, or leave it",
        replays.ChangeReplay,
        {"speed": 5},
        replays.ReplayResult,
    ),
    route(
        "POST",
        "/sessions/tokenize/prompt",
        "Estimate the tokens of a text",
        JsonObject,
        request_body=told.TokenizePrompt,
        example={"prompt": "hello"},
    ),
    route(
        "POST",
        "/sessions/tokenize/messages",
        "Estimate the tokens of messages",
        JsonObject,
        request_body=told.TokenizeMessages,
        example={"messages": ["hello"]},
    ),
)
