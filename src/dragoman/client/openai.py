"""The client codec for OpenAI's API: Responses, Conversations and Models. Pure: requests out, values in.

A session is a conversation of the server. Servers without Conversations keep no history, so each request repeats it, as
their own clients do. `owned_by` of the models identifies Dragoman servers, which accept a repeated request once and ask
questions as calls.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote
from uuid import UUID

import msgspec

from dragoman.client.codec import Request, SessionConfig, SessionHandle, TurnInput, TypedRequest, require_unset
from dragoman.client.decoding import decode_error_body, decode_json, error_message
from dragoman.client.errors import RequestRefused, make_refusal
from dragoman.client.events import Agent, SessionInfo
from dragoman.client.openai_items import to_input_items, to_seed_items
from dragoman.client.openai_turn import OpenAiTurn
from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import SessionId
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.protocols.openai import ids

BASE = "/v1"
PAGE_ITEMS = 100
MAX_SEED_ITEMS = 20
"""Items that one request adds to a conversation."""
RUNNING = ("queued", "in_progress")


class _Model(msgspec.Struct, frozen=True):
    id: str
    owned_by: str | None = None
    name: str | None = None
    description: str | None = None


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...]


class _Conversation(msgspec.Struct, frozen=True):
    id: str
    created_at: float = 0
    metadata: dict[str, str] | None = None


class ItemPage(msgspec.Struct, frozen=True):
    """A page of a conversation's items."""

    data: list[JsonObject]
    last_id: str | None = None
    has_more: bool = False


class ResponseState(msgspec.Struct, frozen=True):
    """A response as it stands, as far as the client needs it."""

    id: str
    status: str | None = None


class OpenAiCodec:
    """The codec for a server that mounts the API at the path `base`."""

    def __init__(self, base: str = BASE) -> None:
        self._base = base.rstrip("/")
        self.is_dragoman = False
        """Whether the server is known to be a Dragoman server."""

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """List the server's agents, or its models."""

        def decode(body: bytes) -> tuple[Agent, ...]:
            models = decode_json(body, _Models, "a list of models").data
            self.is_dragoman = any(each.owned_by == "dragoman" for each in models)
            return tuple(
                Agent(name=each.id, title=each.name or "", description=each.description or "") for each in models
            )

        return TypedRequest(self._get("/models"), decode)

    # --- conversations ----------------------------------------------------------------------------------------------

    def create(self, session_config: SessionConfig) -> TypedRequest[SessionHandle]:
        """Create a conversation, with the first items of its history. It gets its agent from its first response."""
        items = seed_items(session_config)[:MAX_SEED_ITEMS]
        body: JsonObject = {"metadata": dict(session_config.labels)}
        if items:
            body["items"] = items

        def decode(response: bytes) -> SessionHandle:
            created = decode_json(response, _Conversation, "a conversation")
            return SessionHandle(
                id=_to_session_id(created.id),
                agent=session_config.agent,
                tools=session_config.tools,
                server_keeps_history=True,
            )

        return TypedRequest(self._post("/conversations", body, is_idempotent=True), decode)

    def add_items(self, handle: SessionHandle, items: Sequence[JsonObject]) -> TypedRequest[None]:
        """Add items to a conversation that has no response yet."""
        return TypedRequest(self._post(f"{_conversation_path(handle)}/items", {"items": list(items)}), lambda _: None)

    def session_info(self, handle: SessionHandle) -> TypedRequest[SessionInfo]:
        """Fetch a conversation, without what waits in it."""

        def decode(body: bytes) -> SessionInfo:
            found = decode_json(body, _Conversation, "a conversation")
            created_at = datetime.fromtimestamp(found.created_at, UTC).isoformat() if found.created_at else ""
            return SessionInfo(id=handle.id, agent=handle.agent, labels=found.metadata or {}, created_at=created_at)

        return TypedRequest(self._get(_conversation_path(handle)), decode)

    def newest_items(self, handle: SessionHandle) -> TypedRequest[ItemPage]:
        """Fetch the newest items of a conversation, newest first."""
        return self._items(handle, "order=desc")

    def items(self, handle: SessionHandle, after: str) -> TypedRequest[ItemPage]:
        """Fetch a page of a conversation's items, oldest first."""
        return self._items(handle, f"order=asc&after={quote(after, safe='')}" if after else "order=asc")

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """Delete a conversation and everything in it."""
        path = self._base + _conversation_path(handle)
        return TypedRequest(Request(method="DELETE", path=path, is_idempotent=True), lambda _: None)

    # --- responses --------------------------------------------------------------------------------------------------

    def turn(self, handle: SessionHandle, turn_input: TurnInput, idempotency_key: str) -> OpenAiTurn:
        """Start a response: in the background of a conversation, or with the whole history as its input."""
        items = to_input_items(handle, turn_input, closes_calls=not self.is_dragoman)
        body: JsonObject = {"stream": True}
        if handle.agent:
            body["model"] = handle.agent
        if handle.server_keeps_history:
            body |= {"input": items, "conversation": _to_conversation_id(handle.id), "background": True}
        else:
            body |= {"input": [*handle.messages, *items], "store": False}
        tools: list[JsonObject] = [
            {
                "type": "function",
                "name": each.name,
                "description": each.description,
                "parameters": {"type": "object", "properties": {}, **each.parameters},
                "strict": False,
            }
            for each in handle.tools
        ]
        if self.is_dragoman:
            tools.append({"type": "function", "name": ASK_USER_QUESTION})  # asks for questions as calls, not as text
        if tools:
            body["tools"] = tools
        return OpenAiTurn(handle, self._post("/responses", body, idempotency_key), self._base, items)

    def resume(self, handle: SessionHandle, response_id: str) -> OpenAiTurn:
        """Read a response from its start."""
        return OpenAiTurn(handle, self._get(f"/responses/{quote(response_id, safe='')}?stream=true"), self._base)

    def response(self, response_id: str) -> TypedRequest[ResponseState]:
        """Fetch a response."""
        return TypedRequest(self._get(f"/responses/{quote(response_id, safe='')}"), _decode_response)

    def cancel(self, response_id: str) -> TypedRequest[ResponseState]:
        """Stop a response."""
        path = f"{self._base}/responses/{quote(response_id, safe='')}/cancel"
        return TypedRequest(Request(method="POST", path=path, is_idempotent=True), _decode_response)

    def idempotency_probe(self) -> TypedRequest[bool]:
        """Find out whether the server supports `Idempotency-Key`: Dragoman servers do."""
        models = self.agents()

        def decode(body: bytes) -> bool:
            models.decode(body)
            return self.is_dragoman

        return TypedRequest(models.request, decode)

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """Decode an error response. Some servers send plain text, or the message alone."""
        payload = decode_error_body(body, "error")
        error = payload.get("error")
        fields: Mapping[str, Json] = error if isinstance(error, dict) else {**payload, "message": error}
        return make_refusal(
            status,
            str(fields.get("code") or ""),
            error_message(fields.get("message"), payload.get("message"), payload.get("detail")),
            body=body,
            request_id=headers.get("x-request-id", ""),
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _items(self, handle: SessionHandle, query: str) -> TypedRequest[ItemPage]:
        request = self._get(f"{_conversation_path(handle)}/items?limit={PAGE_ITEMS}&{query}")
        return TypedRequest(request, lambda body: decode_json(body, ItemPage, "a list of items"))

    def _get(self, path: str) -> Request:
        return Request(method="GET", path=self._base + path, is_idempotent=True)

    def _post(self, path: str, body: JsonObject, idempotency_key: str = "", *, is_idempotent: bool = False) -> Request:
        headers = {"Content-Type": "application/json"}
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        return Request(
            method="POST",
            path=self._base + path,
            body=msgspec.json.encode(body),
            headers=headers,
            is_idempotent=is_idempotent,
        )


def seed_items(session_config: SessionConfig) -> list[JsonObject]:
    """The history that a session begins with. Raises Unsupported if the configuration has what the API lacks."""
    advice = "OpenAI's API cannot select or trust tools, or set options or a title; AAP can"
    require_unset(session_config, "server_tools", "trusted_tools", "options", "title", advice=advice)
    return to_seed_items(session_config.history)


def response_of(item: JsonObject) -> str:
    """The response that an item of a Dragoman server belongs to; empty if its ID has another form."""
    run_id = ids.run_of(str(item.get("id") or ""))
    return "" if run_id is None else ids.response_id(run_id)


def _decode_response(body: bytes) -> ResponseState:
    return decode_json(body, ResponseState, "a response")


def _conversation_path(handle: SessionHandle) -> str:
    return f"/conversations/{quote(_to_conversation_id(handle.id), safe='')}"


def _to_session_id(conversation_id: str) -> str:
    """The session's ID: on a Dragoman server the UUID that every protocol accepts."""
    return ids.session_of(conversation_id) or conversation_id


def _to_conversation_id(session_id: str) -> str:
    try:
        return ids.conversation_id(SessionId(str(UUID(session_id))))
    except ValueError:
        return session_id
