"""Conversations over HTTP. A conversation is a session; before its first response it is a draft without an agent."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import Request

from dragoman.core.content import Json, Message
from dragoman.core.events import SettingsChange
from dragoman.core.history import messages_of
from dragoman.core.refusals import SessionUnreadable
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.kit.app import principal_of
from dragoman.protocols.kit.body import read_json_body
from dragoman.protocols.kit.endpoints import endpoint
from dragoman.protocols.kit.error_paths import paths_in_request
from dragoman.protocols.kit.errors import MethodNotAllowed
from dragoman.protocols.openai import ids, inputs, wire
from dragoman.protocols.openai.errors import InvalidParameter, ItemNotFound
from dragoman.protocols.openai.handlers import PAGING, OpenAiHandlers, OpenAiOptions, page, with_attachments
from dragoman.protocols.openai.items import SessionItems
from dragoman.protocols.openai.requests import Metadata, convert, decode_object, parse_items
from dragoman.protocols.openai.runs import Runs
from dragoman.protocols.openai.sessions import is_draft

MAX_NEW_ITEMS = 20
_EXAMPLE = {"metadata": {"topic": "demo"}}


class NewConversation(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /conversations`."""

    items: Json = None
    metadata: Metadata = {}


class NewItems(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /conversations/ID/items`."""

    items: Json


class ConversationHandlers(OpenAiHandlers):
    """The conversations."""

    def __init__(self, engine: Engine, runs: Runs, options: OpenAiOptions) -> None:
        self._engine = engine
        self._runs = runs
        self._options = options

    @endpoint("POST", "/conversations", body=NewConversation, example=_EXAMPLE)
    async def create(self, request: Request) -> wire.Conversation:
        """Create a conversation. Its first response decides which agent it has."""
        body = decode_object(await read_json_body(request, self._options.body_limit) or b"{}")
        seeds = {} if not body.get("items") else self._seeds(body["items"], {})
        owner, labels = principal_of(request).user, _metadata(body)
        with paths_in_request("items", messages=seeds):
            draft = await self._runs.new_sessions.create_draft(owner, labels=labels, seeds=tuple(seeds.values()))
        return _conversation(draft)

    @endpoint("GET", "/conversations/{conversation}")
    async def conversation(self, request: Request) -> wire.Conversation:
        """Get a conversation."""
        async with self._session(request) as session:
            return _conversation(session)

    @endpoint("POST", "/conversations/{conversation}", body=NewConversation, example=_EXAMPLE)
    async def update(self, request: Request) -> wire.Conversation:
        """Replace a conversation's metadata."""
        async with self._session(request) as session:
            metadata = _metadata(decode_object(await read_json_body(request, self._options.body_limit)))
            await self._engine.change(session, SettingsChange(labels=metadata))
            return _conversation(session)

    @endpoint("DELETE", "/conversations/{conversation}")
    async def delete(self, request: Request) -> wire.DeletedConversation:
        """Delete a conversation and everything in it."""
        owner, name = principal_of(request).user, request.path_params["conversation"]
        try:
            session_id = (await self._runs.find_conversation(owner, name)).state.session_id
        except SessionUnreadable as error:
            session_id = error.session_id
        await self._engine.delete_by_name(owner, session_id)
        return wire.DeletedConversation(name)

    @endpoint("GET", "/conversations/{conversation}/items", parameters=PAGING)
    async def items(self, request: Request) -> wire.Page[wire.Item]:
        """List the items of a conversation's active branch."""
        async with self._session(request) as session:
            items = await self._items(session)
            return await page(self._engine, session, items, items.all(), request)

    @endpoint("GET", "/conversations/{conversation}/items/{item}")
    async def item(self, request: Request) -> wire.Item:
        """Get an item of a conversation."""
        async with self._session(request) as session:
            items = await self._items(session)
            found = [item for item in items.all() if item.id == request.path_params["item"]]
            if not found:
                raise ItemNotFound
            return (await with_attachments(self._engine, session, items, found))[0]

    @endpoint("DELETE", "/conversations/{conversation}/items/{item}")
    async def delete_item(self, request: Request) -> wire.Conversation:
        """Refused: items stay, because what follows depends on them."""
        raise MethodNotAllowed(
            ("GET",),
            "an item cannot be deleted, because what follows depends on it: delete the conversation, or continue an"
            " earlier response with previous_response_id, which hides what followed",
        )

    @endpoint(
        "POST",
        "/conversations/{conversation}/items",
        body=NewItems,
        example={"items": [{"role": "user", "content": "Hello!"}]},
    )
    async def add_items(self, request: Request) -> wire.Page[wire.Item]:
        """Add items to a conversation that has no response yet."""
        async with self._session(request) as session:
            body = decode_object(await read_json_body(request, self._options.body_limit))
            earlier = messages_of(await self._engine.history.shown_events(session))
            seeds = self._seeds(body.get("items"), inputs.open_calls_of(earlier))
            if not is_draft(session):
                message = "items cannot be added to a conversation that has responses"
                raise InvalidParameter("conversation_has_responses", message)
            before = len((await self._items(session)).all())
            with paths_in_request("items", messages=seeds):
                await self._engine.add_seeds(session, tuple(seeds.values()))
            items = await self._items(session)
            added = await with_attachments(self._engine, session, items, items.all()[before:])
        return wire.Page(data=added, first_id=added[0].id, last_id=added[-1].id, has_more=False)

    # --- inside ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _session(self, request: Request) -> AsyncIterator[SessionView]:
        name = request.path_params["conversation"]
        session = await self._runs.find_conversation(principal_of(request).user, name)
        with self._engine.lease(session):
            yield session

    def _seeds(self, value: Json, open_calls: Mapping[str, str]) -> Mapping[str, Message]:
        items = parse_items(value, "items")
        if len(items) > MAX_NEW_ITEMS:
            message = f"expected at most {MAX_NEW_ITEMS} items, got {len(items)}"
            raise InvalidParameter("too_many_items", message, "items")
        seeds = inputs.seeds_from(items, self._engine.ids.new, open_calls=open_calls, name="items")
        if not seeds:
            raise InvalidParameter("nothing_new", "expected messages", "items")
        return seeds

    async def _items(self, session: SessionView) -> SessionItems:
        """The items of the active branch, without large images and files."""
        items = SessionItems(session.state)
        for logged in await self._engine.history.shown_events(session):
            items.feed(logged)
        return items


def _metadata(body: dict[str, Json]) -> dict[str, str]:
    metadata: dict[str, str] = convert(body.get("metadata") or {}, Metadata, "metadata")
    return metadata


def _conversation(session: SessionView) -> wire.Conversation:
    state = session.state
    return wire.Conversation(
        id=ids.conversation_id(state.session_id),
        created_at=int(state.created_at.timestamp()),
        metadata=state.settings.labels,
    )
