"""What all areas of the API share: settings, headers of answers, errors, pages of lists."""

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.inputs import DisconnectPolicy
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.kit.body import json_response
from dragoman.protocols.kit.decoding import parse_whole_number
from dragoman.protocols.kit.endpoints import ApiDescription, Endpoint, Handlers, query
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.openapi import BODY_ERRORS, COMMON_ERRORS
from dragoman.protocols.kit.router import Handler
from dragoman.protocols.openai import wire
from dragoman.protocols.openai.errors import InvalidParameter, error_facts
from dragoman.protocols.openai.items import SessionItems, with_content

REQUEST_ID = "x-request-id"
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 100


class OpenAiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The protocol's settings.

    Args:
        body_limit: bytes of a request's body.
        on_disconnect: what happens to a run whose client disconnects while nobody else reads it.
        keep_days: how long sessions with one response are kept, which no list shows.
        socket_limit_s: seconds after which a WebSocket takes no further response.
        session_headers: headers in which chat applications name their chats.
        wait_hours: how long a session that is not stored waits for the results of the application's tools.
    """

    body_limit: int = 16 * 1024 * 1024
    on_disconnect: DisconnectPolicy = "cancel"
    keep_days: int = 30
    wait_hours: int = 24
    socket_limit_s: float = 3600.0
    session_headers: tuple[str, ...] = ("X-OpenWebUI-Chat-Id",)


class OpenAiHandlers(Handlers):
    """Base of the handlers of one area. Their answers have the headers that official clients show."""

    def bind(self, declared: Endpoint, handler: Callable[..., Awaitable[object]]) -> Handler:
        """The function that answers a request with a handler."""
        inner = super().bind(declared, handler)

        async def respond(request: Request) -> Response:
            started_at = time.perf_counter()
            response = await inner(request)
            response.headers[REQUEST_ID] = _new_request_id()
            if response.headers.get("content-type") == "application/json":
                response.headers["openai-processing-ms"] = str(int((time.perf_counter() - started_at) * 1000))
            return response

        return respond


_NOT_TO_REPEAT = ("idempotency_key_reused", "insufficient_quota", "outcome_unknown")
"""Errors with a status that official clients repeat within seconds, in vain, or with a second effect."""


def write_error(error: ErrorResponse) -> Response:
    """Write an error in OpenAI's form."""
    facts = error_facts(error)
    headers = {**error.headers, REQUEST_ID: _new_request_id()}
    if facts.code in _NOT_TO_REPEAT or (error.status == 500 and "code" in error.facts):
        headers["x-should-retry"] = "false"
    return json_response(wire.ErrorBody(facts), error.status, headers)


def _new_request_id() -> str:
    return f"req_{secrets.token_hex(16)}"


PAGING = (
    query("limit", f"1 to {MAX_PAGE_SIZE}; {DEFAULT_PAGE_SIZE} by default.", int),
    query("order", "`desc`, the newest first, by default.", Literal["asc", "desc"]),
    query("after", "The id of the last item of the page before."),
)


async def page(
    engine: Engine, session: SessionView, items: SessionItems, listed: Sequence[wire.Item], request: Request
) -> wire.Page[wire.Item]:
    """A page of some of a session's items, which are given oldest first. Raises InvalidParameter."""
    size = parse_whole_number(request.query_params.get("limit", str(DEFAULT_PAGE_SIZE)), 1, MAX_PAGE_SIZE)
    if size is None:
        raise InvalidParameter("invalid_value", f"expected a number from 1 to {MAX_PAGE_SIZE}", "limit")
    order, after = request.query_params.get("order", "desc"), request.query_params.get("after")
    if order not in ("asc", "desc"):
        raise InvalidParameter("invalid_value", "expected asc or desc", "order")
    ordered = list(listed) if order == "asc" else list(reversed(listed))
    names = [item.id for item in ordered]
    if after is not None and after not in names:
        raise InvalidParameter("invalid_value", "expected the id of an item of this list", "after")
    start = 0 if after is None else names.index(after) + 1
    data = await with_attachments(engine, session, items, ordered[start : start + size])
    return wire.Page(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=start + len(data) < len(ordered),
    )


async def with_attachments(
    engine: Engine, session: SessionView, items: SessionItems, shown: Sequence[wire.Item]
) -> tuple[wire.Item, ...]:
    """Some of a session's items with large images and files as they were sent."""
    whole: list[wire.Item] = []
    for item in shown:
        if (sent := items.with_media.get(item.id)) is not None:
            (message,) = await engine.attachments.restore(session.state.session_id, [sent])
            item = with_content(item, message)
        whole.append(item)
    return tuple(whole)


DESCRIPTION = ApiDescription(
    "OpenAI",
    wire.ErrorBody,
    errors=COMMON_ERRORS,
    body_errors={**BODY_ERRORS, 409: "The conversation is busy, or the idempotency key belongs to another request."},
)
