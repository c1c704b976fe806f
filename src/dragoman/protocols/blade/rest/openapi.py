"""Blade's memories, keys, schedules, links and archives as data, for the server's OpenAPI document."""

from typing import Any

import msgspec

from dragoman.core.content import JsonObject
from dragoman.protocols.blade.rest import keys, sharing
from dragoman.protocols.blade.wire import memories, schedules
from dragoman.protocols.blade.wire.chat import SessionDetail, Turn
from dragoman.protocols.kit.openapi import Method, Parameter, ResponseSpec, Route

TAG = "Blade"


class Problem(msgspec.Struct, frozen=True):
    """Every error's body."""

    detail: str


class OperationResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """It was done; of a batch, to so many."""

    ok: bool
    count: int | None = None


class RevokeResult(msgspec.Struct, frozen=True):
    """A link that shows nothing any more."""

    revoked: bool


class ImportPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds, and in sentences what an import leaves out."""

    intent: str
    turn_count: int
    created_at: str | None
    format_version: int
    warnings: list[str]


_COMMON_ERRORS = {
    401: "no key, or none that is known",
    404: "there is no such thing, or it is another user's",
    422: "the request is wrong; `detail` names the field first",
    429: "too much for now; `Retry-After` says when to come again",
    503: "the server stops, or its store takes no writes; `Retry-After`",
}
_WRITE_ERRORS = {403: "the key may only read, or the session is another user's", 413: "too large", 415: "no JSON"}
_STATE_ERRORS = {409: "not in this state"}


def route(
    method: Method,
    path: str,
    summary: str,
    response_body: Any = None,  # noqa: ANN401  # a type, as msgspec takes it
    *,
    request_body: Any = None,  # noqa: ANN401
    example: JsonObject | None = None,
    status: int = 200,
    media_type: str = "application/json",
    query: dict[str, str] | None = None,
    is_open: bool = False,
) -> Route:
    """A route, with the errors that its kind may have."""
    told = {
        **_COMMON_ERRORS,
        **(_WRITE_ERRORS if method != "GET" else {}),
        **(_STATE_ERRORS if path.startswith("/scheduled") else {}),
    }
    places = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return Route(
        method=method,
        path=path,
        summary=summary,
        tag=TAG,
        body=request_body,
        body_example=example,
        parameters=[
            *(Parameter(name=name, location="path", description=f"the {name}'s id") for name in places),
            *(Parameter(name=name, location="query", description=about) for name, about in (query or {}).items()),
        ],
        responses={
            status: ResponseSpec(description=summary, body=response_body, media_type=media_type),
            **{code: ResponseSpec(description=words, body=Problem) for code, words in sorted(told.items())},
        },
        is_public=is_open,
    )


_PAGE_QUERY = {"limit": "how many", "offset": "how many to pass over"}
_MEMORY_QUERY = {
    "keyword": "part of the content or the topic, in any case and script",
    "skill_name": "exactly this skill",
    "type": "`feedback` or `experience`",
    "record_type": "`memory` or `skill_comment`",
    "scope": "exactly this scope",
    "owner": "exactly this owner",
    "topic": "exactly this topic",
    "status": "`enabled`, `disabled` or `superseded`",
}
_CALENDAR_QUERY = {
    "from": "the first moment, with an offset",
    "to": "the moment after the last, at most 366 days later",
}
_PREVIEW_QUERY = {"cron": "the expression", "timezone": "else your own", "count": "1 to 50; else 5"}
_MEMORY, _TASK, _KEY = "/memories/{memory}", "/scheduled-tasks/{task}", "/user/api-keys/{key}"
_MemoryInfo, _MemoryBody = memories.MemoryInfo, memories.MemoryBody
_TaskInfo = schedules.TaskInfo

ROUTES = (
    route(
        "POST",
        "/memories",
        "Write a memory",
        _MemoryInfo,
        request_body=_MemoryBody,
        example={"content": "likes tea"},
        status=201,
    ),
    route(
        "GET",
        "/memories",
        "Memories that fit, newest first",
        memories.MemoryPage,
        query={**_MEMORY_QUERY, **_PAGE_QUERY},
    ),
    route(
        "POST",
        "/memories/batch",
        "Delete, disable or enable memories",
        OperationResult,
        request_body=memories.MemoryBatchBody,
        example={"action": "disable", "ids": [1]},
    ),
    route("GET", _MEMORY, "A memory", _MemoryInfo),
    route("PUT", _MEMORY, "Change a memory", _MemoryInfo, request_body=_MemoryBody, example={"topic": "taste"}),
    route(
        "PATCH",
        _MEMORY,
        "Disable or enable a memory",
        _MemoryInfo,
        request_body=memories.MemorySwitchBody,
        example={"disabled": True},
    ),
    route("DELETE", _MEMORY, "Remove a memory for good", OperationResult),
    route("GET", "/user/api-keys", "Your API keys, masked", list[keys.KeyInfo]),
    route(
        "POST",
        "/user/api-keys",
        "Make an API key; it is told only here",
        keys.CreatedKey,
        request_body=keys.KeyBody,
        example={"name": "laptop"},
        status=201,
    ),
    route("GET", _KEY, "An API key, masked", keys.KeyInfo),
    route("PATCH", _KEY, "Rename an API key", keys.KeyInfo, request_body=keys.KeyBody, example={"name": "phone"}),
    route("DELETE", _KEY, "Revoke an API key", status=204),
    route(
        "POST",
        "/scheduled-tasks",
        "Make a scheduled task",
        _TaskInfo,
        request_body=schedules.NewTask,
        status=201,
        example={"title": "Report", "prompt": "Write it", "cron": "0 9 * * mon-fri", "timezone": "Europe/Berlin"},
    ),
    route("GET", "/scheduled-tasks", "Your scheduled tasks", list[_TaskInfo]),
    route(
        "GET", "/scheduled-tasks/calendar", "When they are due", list[schedules.CalendarEntry], query=_CALENDAR_QUERY
    ),
    route(
        "GET",
        "/scheduled-tasks/preview",
        "The next times of an expression",
        schedules.SchedulePreview,
        query=_PREVIEW_QUERY,
    ),
    route("GET", _TASK, "A scheduled task", _TaskInfo),
    route(
        "PATCH",
        _TASK,
        "Change a scheduled task",
        _TaskInfo,
        request_body=schedules.TaskChanges,
        example={"cron": "0 10 * * *"},
    ),
    route("DELETE", _TASK, "Remove a scheduled task", status=204),
    route("POST", f"{_TASK}/start", "Switch a scheduled task on", _TaskInfo),
    route("POST", f"{_TASK}/stop", "Switch a scheduled task off", _TaskInfo),
    route("GET", f"{_TASK}/runs", "Its runs, newest first", list[schedules.TaskRun], query=_PAGE_QUERY),
    route(
        "POST",
        "/sessions/{session}/share",
        "Make a link that shows a session",
        sharing.ShareInfo,
        request_body=sharing.NewShare,
        example={"ttl_seconds": 3600},
    ),
    route("DELETE", "/sessions/{session}/share/{token}", "Revoke a link", RevokeResult),
    route("GET", "/share/{token}", "The turns of the session that a link shows", list[Turn], is_open=True),
    route("GET", "/sessions/{session}/export", "A session as a ZIP archive", media_type="application/zip"),
    route("POST", "/sessions/preview-import", "What an archive holds; a form with `file`", ImportPreview),
    route("POST", "/sessions/import", "A new session from an archive; a form with `file`", SessionDetail),
)
