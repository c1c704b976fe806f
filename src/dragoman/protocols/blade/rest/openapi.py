"""Blade's memories, keys, schedules, links and archives as data, for the server's OpenAPI document."""

from typing import Any

import msgspec

from dragoman.core.content import JsonObject
from dragoman.protocols.blade.rest import keys, sharing
from dragoman.protocols.blade.wire import memories, schedules
from dragoman.protocols.blade.wire.chat import SessionDetail, Turn
from dragoman.protocols.kit.openapi import Answer, Method, Parameter, Route

TAG = "Blade"


class Problem(msgspec.Struct, frozen=True):
    """Every error's body."""

    detail: str


class Done(msgspec.Struct, frozen=True, omit_defaults=True):
    """It was done; of a batch, to so many."""

    ok: bool
    count: int | None = None


class Revoked(msgspec.Struct, frozen=True):
    """A link that shows nothing any more."""

    revoked: bool


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive holds, and in sentences what an import leaves out."""

    intent: str
    turn_count: int
    created_at: str | None
    format_version: int
    warnings: list[str]


_ERRORS = {
    401: "no key, or none that is known",
    404: "there is no such thing, or it is another user's",
    422: "the request is wrong; `detail` names the field first",
    429: "too much for now; `Retry-After` says when to come again",
    503: "the server stops, or its store takes no writes; `Retry-After`",
}
_CHANGES = {403: "the key may only read, or the session is another user's", 413: "too large", 415: "no JSON"}
_STATE = {409: "not in this state"}


def route(
    method: Method,
    path: str,
    summary: str,
    body: Any = None,  # noqa: ANN401  # a type, as msgspec takes it
    *,
    takes: Any = None,  # noqa: ANN401
    example: JsonObject | None = None,
    status: int = 200,
    media_type: str = "application/json",
    asks: dict[str, str] | None = None,
    is_open: bool = False,
) -> Route:
    """A route, with the errors that its kind may have."""
    told = {**_ERRORS, **(_CHANGES if method != "GET" else {}), **(_STATE if path.startswith("/scheduled") else {})}
    places = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return Route(
        method=method,
        path=path,
        summary=summary,
        tag=TAG,
        body=takes,
        body_example=example,
        parameters=[
            *(Parameter(name=name, place="path", description=f"the {name}'s id") for name in places),
            *(Parameter(name=name, place="query", description=about) for name, about in (asks or {}).items()),
        ],
        answers={
            status: Answer(description=summary, body=body, media_type=media_type),
            **{code: Answer(description=words, body=Problem) for code, words in sorted(told.items())},
        },
        is_open=is_open,
    )


_PAGE = {"limit": "how many", "offset": "how many to pass over"}
_FILTERS = {
    "keyword": "part of the content or the topic, in any case and script",
    "skill_name": "exactly this skill",
    "type": "`feedback` or `experience`",
    "record_type": "`memory` or `skill_comment`",
    "scope": "exactly this scope",
    "owner": "exactly this owner",
    "topic": "exactly this topic",
    "status": "`enabled`, `disabled` or `superseded`",
}
_SPAN = {"from": "the first moment, with an offset", "to": "the moment after the last, at most 366 days later"}
_TIMES = {"cron": "the expression", "timezone": "else your own", "count": "1 to 50; else 5"}
_MEMORY, _TASK, _KEY = "/memories/{memory}", "/scheduled-tasks/{task}", "/user/api-keys/{key}"
_Info, _Changed = memories.MemoryInfo, memories.ChangedMemory
_Task = schedules.TaskInfo

ROUTES = (
    route("POST", "/memories", "Write a memory", _Info, takes=_Changed, example={"content": "likes tea"}, status=201),
    route("GET", "/memories", "Memories that fit, newest first", memories.MemoryPage, asks={**_FILTERS, **_PAGE}),
    route(
        "POST", "/memories/batch", "Delete, disable or enable memories", Done, takes=memories.MemoryBatch,
        example={"action": "disable", "ids": [1]},
    ),
    route("GET", _MEMORY, "A memory", _Info),
    route("PUT", _MEMORY, "Change a memory", _Info, takes=_Changed, example={"topic": "taste"}),
    route(
        "PATCH", _MEMORY, "Disable or enable a memory", _Info, takes=memories.SwitchedMemory,
        example={"disabled": True},
    ),
    route("DELETE", _MEMORY, "Remove a memory for good", Done),
    route("GET", "/user/api-keys", "Your API keys, masked", list[keys.KeyInfo]),
    route(
        "POST", "/user/api-keys", "Make an API key; it is told only here", keys.NewKey, takes=keys.NamedKey,
        example={"name": "laptop"}, status=201,
    ),
    route("GET", _KEY, "An API key, masked", keys.KeyInfo),
    route("PATCH", _KEY, "Rename an API key", keys.KeyInfo, takes=keys.NamedKey, example={"name": "phone"}),
    route("DELETE", _KEY, "Revoke an API key", status=204),
    route(
        "POST", "/scheduled-tasks", "Make a scheduled task", _Task, takes=schedules.NewTask, status=201,
        example={"title": "Report", "prompt": "Write it", "cron": "0 9 * * mon-fri", "timezone": "Europe/Berlin"},
    ),
    route("GET", "/scheduled-tasks", "Your scheduled tasks", list[_Task]),
    route(
        "GET", "/scheduled-tasks/calendar", "When they are due", list[schedules.CalendarEntry], asks=_SPAN
    ),
    route(
        "GET", "/scheduled-tasks/preview", "The next times of an expression", schedules.Preview, asks=_TIMES
    ),
    route("GET", _TASK, "A scheduled task", _Task),
    route(
        "PATCH", _TASK, "Change a scheduled task", _Task, takes=schedules.ChangedTask,
        example={"cron": "0 10 * * *"},
    ),
    route("DELETE", _TASK, "Remove a scheduled task", status=204),
    route("POST", f"{_TASK}/start", "Switch a scheduled task on", _Task),
    route("POST", f"{_TASK}/stop", "Switch a scheduled task off", _Task),
    route("GET", f"{_TASK}/runs", "Its runs, newest first", list[schedules.TaskRun], asks=_PAGE),
    route(
        "POST", "/sessions/{session}/share", "Make a link that shows a session", sharing.ShareInfo,
        takes=sharing.NewShare, example={"ttl_seconds": 3600},
    ),
    route("DELETE", "/sessions/{session}/share/{token}", "Revoke a link", Revoked),
    route("GET", "/share/{token}", "The turns of the session that a link shows", list[Turn], is_open=True),
    route("GET", "/sessions/{session}/export", "A session as a ZIP archive", media_type="application/zip"),
    route("POST", "/sessions/preview-import", "What an archive holds; a form with `file`", Preview),
    route("POST", "/sessions/import", "A new session from an archive; a form with `file`", SessionDetail),
)  # fmt: skip
