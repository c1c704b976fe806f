"""AAP's routes for the OpenAPI document. The types are those that decode and encode."""

from typing import Literal

import msgspec

from dragoman.protocols.aap import wire
from dragoman.protocols.kit.openapi import BODY_ERRORS, Parameter, ResponseSpec, RouteDescriber


class AapError(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every error. Some codes bring further members (section 16)."""

    error: str
    code: str


_AAP = RouteDescriber(tag="AAP v3", error_body=AapError)
_IDEMPOTENCY_KEY = Parameter(
    name="Idempotency-Key",
    location="header",
    description="The same key with the same body returns the first response again, for 24 hours.",
)
_STREAM = ResponseSpec(
    description="`delta` and `message` mode: server-sent events from `turn_start` to `turn_stop`.",
    media_type="text/event-stream",
)
_TURN_ERRORS = {409: "A turn is running, or the idempotency key was used with another request."}

ROUTES = (
    _AAP.route("GET", "/meta", "List the agents", ResponseSpec(description="Version and agents.", body=wire.Meta)),
    _AAP.route(
        "POST",
        "/sessions",
        "Create a session",
        ResponseSpec(description="Its id.", body=wire.PostSessionsResponse),
        {**BODY_ERRORS, **_TURN_ERRORS},
        status=201,
        description="Stores it, with a history if one is given. Runs nothing.",
        body=wire.PostSessions,
        body_example={"agent": {"name": "assistant"}},
        parameters=(_IDEMPOTENCY_KEY,),
    ),
    _AAP.route(
        "GET",
        "/sessions",
        "List the caller's sessions, newest first",
        ResponseSpec(description="A page.", body=wire.Sessions),
        {400: "The cursor or the limit is invalid."},
        parameters=(
            Parameter(name="after", location="query", description="`next` of the page before."),
            Parameter(name="limit", location="query", description="1 to 200; 50 by default.", type=int),
        ),
    ),
    _AAP.route(
        "GET",
        "/sessions/{session}",
        "Get a session's settings and state",
        ResponseSpec(description="The session, with secrets masked.", body=wire.SessionInfo),
    ),
    _AAP.route(
        "DELETE",
        "/sessions/{session}",
        "Delete a session and everything in it",
        ResponseSpec(description="The session is gone; a running turn was stopped."),
        status=204,
    ),
    _AAP.route(
        "GET",
        "/sessions/{session}/history",
        "Get a session's messages",
        ResponseSpec(description="The messages.", body=wire.History),
        {400: "The type is invalid."},
        parameters=(
            Parameter(
                name="type",
                location="query",
                description="`compacted`: the last summary and the messages after it.",
                type=Literal["full", "compacted"],
                is_required=True,
            ),
        ),
    ),
    _AAP.route(
        "POST",
        "/sessions/{session}/turns",
        "Send messages or answers, and get the agent's turn",
        (ResponseSpec(description="`none` mode: the whole turn.", body=wire.TurnResponse), _STREAM),
        {**BODY_ERRORS, **_TURN_ERRORS},
        description="The turn continues if the client disconnects; `/events` resumes its stream.",
        body=wire.PostTurn,
        body_example={"stream": "delta", "messages": [{"role": "user", "content": "Hello!"}]},
        parameters=(_IDEMPOTENCY_KEY,),
    ),
    _AAP.route(
        "GET",
        "/sessions/{session}/events",
        "Resume a turn's stream, or watch the session",
        _STREAM,
        {400: "The position is not one of this session."},
        description="Our extension. Without `Last-Event-ID` and `turn` it follows the session from now on.",
        parameters=(
            Parameter(name="Last-Event-ID", location="header", description="The `id` of the last event received."),
            Parameter(name="turn", location="query", description="A turn's id; the newest by default."),
            Parameter(
                name="stream",
                location="query",
                description="The stream mode; by default the one that the turn was started with.",
                type=Literal["delta", "message"],
            ),
        ),
    ),
    _AAP.route(
        "POST",
        "/sessions/{session}/stop",
        "Stop the running turn",
        ResponseSpec(description="Whether a turn was running.", body=wire.StopResponse),
        description="Our extension. The turn ends with `error` and the code `cancelled`, and keeps what it has.",
    ),
)
