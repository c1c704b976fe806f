"""AAP's routes as data, for the server's OpenAPI document. The types are those that decode and encode."""

from typing import Any, Literal

import msgspec

from dragoman.protocols.aap import wire
from dragoman.protocols.kit.openapi import Parameter, ResponseSpec, Route


class AapError(msgspec.Struct, frozen=True, kw_only=True):
    """Every error's body. Some codes bring further keys along (section 16)."""

    error: str
    code: str


_SESSION = Parameter(name="id", location="path", description="the session's id")
_IDEMPOTENCY_KEY = Parameter(
    name="Idempotency-Key",
    location="header",
    description="the same key with the same body within 24 hours returns the first response again",
)
_STREAM = ResponseSpec(
    description="`delta` and `message` mode: server-sent events from `turn_start` to `turn_stop`",
    media_type="text/event-stream",
)
_ERRORS = {
    401: "no key, or an unknown one",
    403: "the key lacks the scope",
    404: "there is no such object, or it belongs to another user",
    429: "a limit is reached; `Retry-After` says when to try again",
    503: "the server is stopping, or its store is unavailable; see `Retry-After`",
}
_BODY_ERRORS = {
    400: "the request is invalid; `code` says why",
    413: "the body is too large",
    415: "the body is not declared as JSON",
}
_TURN_ERRORS = {409: "a turn is running, or the idempotency key was used with another request"}


def _answers(success: dict[int, Any], *more: dict[int, str]) -> dict[int, Any]:
    descriptions = {status: text for each in (_ERRORS, *more) for status, text in each.items()}
    errors = {status: ResponseSpec(description=text, body=AapError) for status, text in descriptions.items()}
    return success | dict(sorted(errors.items()))


ROUTES = (
    Route(
        method="GET",
        path="/meta",
        summary="The agents that are served",
        tag="AAP v3",
        responses=_answers({200: ResponseSpec(description="version and agents", body=wire.Meta)}),
    ),
    Route(
        method="POST",
        path="/sessions",
        summary="Open a session",
        description="Makes and stores it, with a history if one is given; runs nothing.",
        tag="AAP v3",
        body=wire.PostSessions,
        body_example={"agent": {"name": "assistant"}},
        parameters=(_IDEMPOTENCY_KEY,),
        responses=_answers(
            {201: ResponseSpec(description="its id", body=wire.PostSessionsResponse)}, _BODY_ERRORS, _TURN_ERRORS
        ),
    ),
    Route(
        method="GET",
        path="/sessions",
        summary="The caller's sessions, newest first",
        tag="AAP v3",
        parameters=(
            Parameter(name="after", location="query", description="`next` of the page before"),
            Parameter(name="limit", location="query", description="1 to 200; else 50", type=int),
        ),
        responses=_answers(
            {200: ResponseSpec(description="a page", body=wire.Sessions)}, {400: "the cursor or limit is wrong"}
        ),
    ),
    Route(
        method="GET",
        path="/sessions/{id}",
        summary="A session's settings and state",
        tag="AAP v3",
        parameters=(_SESSION,),
        responses=_answers({200: ResponseSpec(description="the session; secrets are masked", body=wire.SessionInfo)}),
    ),
    Route(
        method="DELETE",
        path="/sessions/{id}",
        summary="Delete a session and everything of it",
        tag="AAP v3",
        parameters=(_SESSION,),
        responses=_answers({204: ResponseSpec(description="it is gone; a running turn was stopped")}),
    ),
    Route(
        method="GET",
        path="/sessions/{id}/history",
        summary="A session's messages",
        tag="AAP v3",
        parameters=(
            _SESSION,
            Parameter(
                name="type",
                location="query",
                description="`compacted`: since the last summary, which stands for what was before",
                type=Literal["full", "compacted"],
                is_required=True,
            ),
        ),
        responses=_answers(
            {200: ResponseSpec(description="the messages", body=wire.History)}, {400: "the type is wrong"}
        ),
    ),
    Route(
        method="POST",
        path="/sessions/{id}/turns",
        summary="Send messages or answers, and get the agent's turn",
        description="The turn goes on when the client leaves; `/events` brings the rest.",
        tag="AAP v3",
        body=wire.PostTurn,
        body_example={"stream": "delta", "messages": [{"role": "user", "content": "Hello!"}]},
        parameters=(_SESSION, _IDEMPOTENCY_KEY),
        responses=_answers(
            {200: (ResponseSpec(description="`none` mode: the whole turn", body=wire.TurnResponse), _STREAM)},
            _BODY_ERRORS,
            _TURN_ERRORS,
        ),
    ),
    Route(
        method="GET",
        path="/sessions/{id}/events",
        summary="Go on with a turn's stream, or watch the session",
        description="An addition of ours. Without `Last-Event-ID` and `turn` it follows the session from now on.",
        tag="AAP v3",
        parameters=(
            _SESSION,
            Parameter(name="Last-Event-ID", location="header", description="the `id` of the last event that was seen"),
            Parameter(name="turn", location="query", description="a turn's id; else the newest"),
            Parameter(
                name="stream",
                location="query",
                description="the mode to tell it in; else as it was asked for",
                type=Literal["delta", "message"],
            ),
        ),
        responses=_answers({200: _STREAM}, {400: "the position is none of this session's"}),
    ),
    Route(
        method="POST",
        path="/sessions/{id}/stop",
        summary="Stop the running turn",
        description="An addition of ours. The turn ends with `error` and the code `cancelled`, and keeps what it has.",
        tag="AAP v3",
        parameters=(_SESSION,),
        responses=_answers({200: ResponseSpec(description="whether something was running", body=wire.StopResponse)}),
    ),
)
