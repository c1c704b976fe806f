"""The client codec for A2A over JSON-RPC. Pure: requests out, values in.

A session is a context. Its id is proposed by the client and settled by the server's first answer. Requests go to the
address that the client was created with, at the path that the agent's card names.
"""

import mimetypes
from collections.abc import Iterable, Mapping
from typing import TypeVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

import msgspec

from dragoman.client.a2a_rpc import Rpc, RpcAnswer
from dragoman.client.a2a_turn import A2aTurn, Artifact, Task, lengths_of, text_of
from dragoman.client.codec import (
    SETTINGS,
    Request,
    SessionConfig,
    SessionHandle,
    TurnInput,
    TypedRequest,
    UserInput,
    require_unset,
)
from dragoman.client.decoding import decode_error_body, decode_json, error_message
from dragoman.client.errors import RequestRefused, Unsupported, make_refusal
from dragoman.client.events import (
    Agent,
    Allow,
    Answer,
    Choice,
    Deny,
    Message,
    Result,
    Text,
)
from dragoman.client.pending import choice_to_json
from dragoman.core.content import JsonObject

Value = TypeVar("Value")
BASE = "/a2a"
ANSWERS = "urn:dragoman:a2a:answers:1"
PAGE_TASKS = 100


class _Interface(msgspec.Struct, frozen=True, rename="camel"):
    url: str = ""
    protocol_binding: str = ""
    protocol_version: str = ""


class _OldInterface(msgspec.Struct, frozen=True):
    url: str = ""
    transport: str = ""


class _Extension(msgspec.Struct, frozen=True):
    uri: str = ""


class _Capabilities(msgspec.Struct, frozen=True):
    streaming: bool | None = False
    extensions: tuple[_Extension, ...] | None = None


class Card(msgspec.Struct, frozen=True, rename="camel"):
    """What the client needs of an agent's card."""

    name: str = ""
    description: str = ""
    version: str = ""
    supported_interfaces: tuple[_Interface, ...] = ()
    url: str = ""
    """Of an agent that speaks 0.3, as are the following."""
    protocol_version: str = ""
    preferred_transport: str = "JSONRPC"
    additional_interfaces: tuple[_OldInterface, ...] | None = None
    capabilities: _Capabilities = _Capabilities()

    @property
    def is_dragoman(self) -> bool:
        """Whether a repeated message is taken once, and calls can be answered by their ids."""
        return any(each.uri == ANSWERS for each in self.capabilities.extensions or ())

    @property
    def rpc(self) -> Rpc:
        """The interface to use. Raises Unsupported if the agent has none that the client speaks."""
        old = [_OldInterface(self.url, self.preferred_transport), *(self.additional_interfaces or ())]
        interfaces = [
            *self.supported_interfaces,
            *(_Interface(each.url, each.transport, self.protocol_version) for each in old if each.url),
        ]
        for version in ("1.", "0.3"):
            for each in interfaces:
                if each.protocol_binding == "JSONRPC" and each.protocol_version.startswith(version):
                    return Rpc(_path_of(each.url), is_old=version == "0.3")
        found = ", ".join(f"{each.protocol_binding} {each.protocol_version}" for each in interfaces)
        raise Unsupported(f"expected an agent with A2A 1.0 or 0.3 over JSON-RPC, {self.name!r} has {found or 'none'}")


def _path_of(url: str) -> str:
    """The path of an address in a card. Raises Unsupported: any other text could change the host of requests."""
    try:
        path = urlsplit(url).path or "/"
    except ValueError:
        path = ""
    if not path.startswith("/"):
        raise Unsupported(
            f"expected a card with the address of its agent, such as https://host/path, got {url[:200]!r}"
        )
    return path


class TaskPage(msgspec.Struct, frozen=True, rename="camel"):
    """A page of a context's tasks, newest status first."""

    tasks: tuple[Task, ...] = ()
    next_page_token: str | None = None


class A2aCodec:
    """The codec for the agent at the path `base`, or for the agents of a Dragoman server if that is empty."""

    def __init__(self, base: str = "") -> None:
        self._base = base.removesuffix("/.well-known/agent-card.json")

    def card(self, agent: str) -> TypedRequest[Card]:
        """Fetch an agent's card; of the server's default agent if no name is given."""
        base = f"{BASE}/{quote(agent, safe='')}" if agent and not self._base else self._base
        request = Request(method="GET", path=f"{base}/.well-known/agent-card.json", is_idempotent=True)
        return TypedRequest(request, lambda body: decode_json(body, Card, "an agent card"))

    def create(self, session_config: SessionConfig) -> SessionHandle:
        """Make the handle of a new context. It begins with its first message."""
        advice = "A2A cannot select or trust tools, or set options, a title, labels or a history; AAP can"
        require_unset(session_config, *SETTINGS, advice=advice)
        if session_config.tools:
            raise Unsupported("A2A has no client tools; AAP, AG-UI, the Agent API and OpenAI's API have")
        return SessionHandle(id=str(uuid4()), agent=session_config.agent)

    def tasks(
        self, handle: SessionHandle, card: Card, *, page_token: str = "", page_size: int = 1
    ) -> TypedRequest[TaskPage]:
        """List the context's tasks, newest first."""
        params: JsonObject = {"contextId": handle.id, "pageSize": page_size, "includeArtifacts": True}
        if page_token:
            params["pageToken"] = page_token
        return TypedRequest(card.rpc.request("ListTasks", params), lambda body: _result(card, body, TaskPage))

    def task(self, card: Card, task_id: str) -> TypedRequest[Task]:
        """Fetch a task."""
        return TypedRequest(card.rpc.request("GetTask", {"id": task_id}), lambda body: _result(card, body, Task))

    def cancel(self, card: Card, task_id: str) -> TypedRequest[Task]:
        """Cancel a task."""
        return TypedRequest(card.rpc.request("CancelTask", {"id": task_id}), lambda body: _result(card, body, Task))

    def turn(self, handle: SessionHandle, card: Card, turn_input: TurnInput, message_id: str) -> A2aTurn:
        """Send a message, or answers to the task that waits."""
        message: JsonObject = {
            "messageId": message_id,
            "role": "ROLE_USER",
            "contextId": handle.id,
            "parts": _to_parts(handle, turn_input),
        }
        if not isinstance(turn_input, UserInput):
            message["taskId"] = handle.last_response_id
        method = "SendStreamingMessage" if card.capabilities.streaming else "SendMessage"
        request = card.rpc.request(method, {"message": message}, is_idempotent=False)
        return A2aTurn(handle, request, card.rpc, can_follow=card.is_dragoman)

    def follow(self, handle: SessionHandle, card: Card, task_id: str) -> A2aTurn:
        """Read a task, beyond what the handle says was emitted of it."""
        return A2aTurn(handle, None, card.rpc, task_id=task_id, can_follow=card.is_dragoman)

    def idempotency_probe(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Find out whether a message that may have arrived can be sent again."""
        card = self.card(handle.agent)
        return TypedRequest(card.request, lambda body: card.decode(body).is_dragoman)

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """Decode an error response."""
        payload = decode_error_body(body, "error")
        error = payload.get("error")
        fields = error if isinstance(error, dict) else {**payload, "message": payload.get("detail") or error}
        message = error_message(fields.get("message"))
        request_id = headers.get("x-request-id", "")
        return make_refusal(status, str(fields.get("status") or ""), message, body=body, request_id=request_id)


def to_agent(card: Card) -> Agent:
    """An agent, by its card."""
    return Agent(name=card.name, description=card.description, version=card.version)


def to_messages(task: Task) -> Iterable[Message]:
    """The messages of a task: what the user sent, then what the agent said."""
    for each in task.history or ():
        if each.role == "ROLE_USER" and each.text:
            yield Message(role="user", blocks=(Text(text=each.text),), id=each.message_id)
    for artifact in task.artifacts or ():
        if text := text_of(artifact.parts):
            is_cut = (artifact.metadata or {}).get("interrupted") is True
            blocks = (Text(text=text),)
            yield Message(role="assistant", blocks=blocks, id=artifact.artifact_id, interrupted=is_cut, cut=is_cut)


def emitted_lengths(artifacts: Iterable[Artifact]) -> dict[str, int]:
    """What a client knows that has read these artifacts."""
    return {key: length for each in artifacts for key, length in lengths_of(each).items()}


def _result(card: Card, body: bytes, kind: type[Value]) -> Value:
    answer = decode_json(body, RpcAnswer, "an answer over JSON-RPC")
    if answer.error is not None:
        raise answer.error.to_refusal(body)
    return card.rpc.result(answer, kind)


# --- client → wire ----------------------------------------------------------------------------------------------------


def _to_parts(handle: SessionHandle, turn_input: TurnInput) -> list[JsonObject]:
    if isinstance(turn_input, UserInput):
        parts: list[JsonObject] = [_image_part(url) for url in turn_input.images]
        return [{"text": turn_input.text}, *parts] if turn_input.text or not parts else parts
    if any(each.call_id == handle.last_response_id for each in turn_input):  # a question in words alone
        return [{"text": _words(handle, each)} for each in turn_input]
    return [{"data": {"answers": [_to_answer(each) for each in turn_input]}}]


def _to_answer(answer: Answer) -> JsonObject:
    match answer:
        case Allow(always=True):
            raise Unsupported("A2A cannot always allow a tool; AG-UI and Blade can, for the same session")
        case Allow(call_id=call_id):
            return {"callId": call_id, "granted": True}
        case Deny(call_id=call_id, reason=reason):
            return {"callId": call_id, "granted": False, **({"reason": reason} if reason else {})}
        case Choice(call_id=call_id):
            return {"callId": call_id, **choice_to_json(answer)}
        case Result(images=images) if images:
            raise Unsupported("A2A accepts text as a tool's result, but no images")
        case Result(call_id=call_id, text=text):
            return {"callId": call_id, "result": text}


def _words(handle: SessionHandle, answer: Answer) -> str:
    match answer:
        case Choice(selections=selections, custom=custom):
            return ", ".join([label for labels in selections.values() for label in labels] + list(custom.values()))
        case Deny(reason=reason):
            return reason or "no"
        case Result(text=text):
            return text
        case Allow():
            return "yes"


def _image_part(url: str) -> JsonObject:
    head, separator, raw = url.partition(";base64,")
    if separator:
        return {"raw": raw, "mediaType": head.removeprefix("data:")}
    return {"url": url, "mediaType": mimetypes.guess_type(urlsplit(url).path)[0] or "image/png"}
