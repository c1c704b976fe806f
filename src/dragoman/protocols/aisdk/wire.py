"""The AI SDK on the wire: what `useChat` sends, and the answers beside the stream. Pure.

Source: specification of AI SDK, 1, 2, 9, 11.
"""

from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta as Limits

from dragoman.core.content import Json, JsonObject
from dragoman.protocols.kit.decoding import check_depth, decode_body

ClientVersion = Literal[5, 6, 7]
"""The major version of the client, as far as the stream depends on it."""
ID_LIMIT = 256
QUESTION_ID = r"^ask:[0-9]+:"
"""How the id of the part begins with a question that a tool asks while it runs; the call's id follows."""
MESSAGE_LIMIT = 10_000
"""Messages in one request."""
Id = Annotated[str, Limits(min_length=1, max_length=ID_LIMIT)]
Chunk = JsonObject
"""A chunk of the stream. Its `type` comes first; members without a value are left out, because clients reject null."""


class UIMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a page has it. Parts that the server does not know are left out."""

    id: Id
    role: Literal["system", "user", "assistant"]
    parts: tuple[JsonObject, ...]
    metadata: Json | msgspec.UnsetType = msgspec.UNSET


class ClientTool(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool that the page runs itself. `parameters` and `input_schema` are two names for its JSON Schema."""

    description: str = ""
    parameters: JsonObject | None = None
    input_schema: JsonObject | None = None


class NamedClientTool(ClientTool, frozen=True, kw_only=True):
    """A tool in a list."""

    name: str


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body that a transport sends.

    Args:
        id: the chat; a new one if absent.
        messages: the page's messages, all or the newest.
        message: one message, in place of `messages`.
        trigger: what the page asks for.
        message_id: the message that is edited, asked again, answered or replaced.
        tools: the page's own tools, by name or as a list.
        system: kept with the run, like `call_settings` and `config`; the agent does not obey them.
        call_settings: see `system`.
        config: see `system`.
    """

    id: Id | None = None
    messages: Annotated[tuple[UIMessage, ...], Limits(max_length=MESSAGE_LIMIT)] | None = None
    message: UIMessage | None = None
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    tools: dict[str, ClientTool] | tuple[NamedClientTool, ...] | None = None
    system: Json = None
    call_settings: Json = None
    config: Json = None

    def all_messages(self) -> tuple[UIMessage, ...]:
        """The messages of the request, oldest first."""
        return self.messages or (() if self.message is None else (self.message,))


class TitleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A chat's new title."""

    title: Annotated[str, Limits(min_length=1, max_length=1000)]


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there was something to stop."""

    stopped: bool


class Chat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A chat in a list. `id` is the page's name of it, or the session's id; times are RFC 3339 in UTC."""

    id: str
    session_id: str
    title: str | None
    created_at: str
    updated_at: str
    running: bool


class ShownMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message of a history, as `useChat({messages})` takes it."""

    id: str
    role: Literal["user", "assistant"]
    parts: list[JsonObject]
    metadata: Json | msgspec.UnsetType = msgspec.UNSET


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error for clients that ask for JSON. Others get the sentence as plain text; the code is also a header."""

    error: str
    code: str
    path: str | None = None


class DecodedRequest(NamedTuple):
    """A request, and what the application added to its body."""

    chat: ChatRequest
    extra: JsonObject


_REQUEST = msgspec.json.Decoder(ChatRequest)
_TITLE = msgspec.json.Decoder(TitleChange)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN = frozenset(ChatRequest.__struct_encode_fields__)


def decode_request(body: bytes) -> DecodedRequest:
    """Decode the body of a POST. Raises InvalidJson or InvalidBody."""
    chat = decode_body(_REQUEST, body)
    members = decode_body(_MEMBERS, body)
    extra = {name: msgspec.json.decode(value) for name, value in members.items() if name not in _KNOWN}
    for name, value in (*extra.items(), ("config", chat.config), ("system", chat.system)):
        check_depth(value, name[:80])
    return DecodedRequest(chat, extra)


def decode_title(body: bytes) -> str:
    """Decode the body of a PATCH. Raises InvalidJson or InvalidBody."""
    return decode_body(_TITLE, body).title


def client_version_of(version: str | None, default: ClientVersion) -> ClientVersion:
    """The version of a client that sends this value of `X-AI-SDK-Version`: the nearest supported one."""
    digits = (version or "").strip().partition(".")[0]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 9):
        return default
    return 5 if int(digits) <= 5 else 6 if int(digits) == 6 else 7


def question_id(call_id: str, answered_seq: int) -> str:
    """The id of the part with a tool's question. A tool that asks again, after an answer, gets another part."""
    return f"ask:{answered_seq}:{call_id}"
