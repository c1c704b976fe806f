"""The client codec for the AG-UI run service. Pure: requests out, values in; `agui_turn` decodes the events.

A run is submitted with one request, and its events are read with others, from any position. The server keeps the
history.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode
from uuid import uuid4

import msgspec

from dragoman.client.agui_turn import AguiTurn
from dragoman.client.codec import (
    SETTINGS,
    Request,
    SessionConfig,
    SessionHandle,
    TypedRequest,
    UserInput,
    require_unset,
)
from dragoman.client.decoding import decode_error_body, decode_flag, decode_json, error_message
from dragoman.client.errors import ClientError, RequestRefused, Unsupported, make_refusal
from dragoman.client.events import (
    Allow,
    Answer,
    Choice,
    ClientCall,
    Deny,
    Event,
    Image,
    Message,
    Notice,
    Result,
    SessionInfo,
    Text,
)
from dragoman.client.pending import choice_to_json
from dragoman.client.sse import Frame, FrameReader
from dragoman.core.content import JsonObject

BASE = "/api/v1/agent"
DEFAULT_AGENT = "worker"
"""The agent type that stands for the server's first agent."""
IDLE_LIMIT_S = 3600
"""The silence after which the server ends a stream: the longest that it accepts."""
RUNNING = ("queued", "running")


class RunStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a run."""

    run_id: str
    status: str = ""


class _Accepted(msgspec.Struct, frozen=True, rename="camel"):
    run_id: str


class _Uploaded(msgspec.Struct, frozen=True):
    url: str


class _Attachment(msgspec.Struct, frozen=True):
    url: str = ""


class _HistoryMessage(msgspec.Struct, frozen=True):
    role: str
    id: str = ""
    content: str = ""
    attachments: tuple[_Attachment, ...] = ()
    status: str = "success"


class Day(msgspec.Struct, frozen=True, rename="camel"):
    """One day of a thread."""

    day: str | None = None
    has_more: bool = False
    messages: tuple[_HistoryMessage, ...] = ()


class _Thread(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str
    title: str = ""
    agent_type: str = msgspec.field(name="agent_type", default="")
    status: str = ""
    created_at: str = ""
    updated_at: str = ""


class _Threads(msgspec.Struct, frozen=True):
    threads: tuple[_Thread, ...] = ()
    next: str | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str = ""
    ui_schema: JsonObject | None = None


class RunServiceTurn:
    """The events of one run, each once: a new connection continues after the last one's id."""

    can_resume = True

    def __init__(self, handle: SessionHandle, path: str) -> None:
        self._path = path
        self._last_event_id = ""
        self._events = AguiTurn(handle, self.request, ())
        self.is_over = False

    @property
    def request(self) -> Request:
        """The request for the events that have not been read."""
        headers = {"Last-Event-ID": self._last_event_id} if self._last_event_id else {}
        return Request(method="GET", path=self._path, headers=headers, is_idempotent=True)

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """Decode a stream that has arrived as a whole."""
        return [event for frame in FrameReader().feed(body) for event in self.feed(frame)]

    def feed(self, frame: Frame) -> Sequence[Event]:
        """Decode one frame of the stream."""
        events = self._events.feed(frame)
        self._last_event_id = frame.id or self._last_event_id
        self.is_over = self._events.is_over
        if b'"ui_schema"' in frame.data:
            card = decode_json(frame.data, _Event, "an event of the run service").ui_schema
            if card is not None:
                return (Notice(kind="dragoman.ui_schema", content=card), *events)
        return events


class RunServiceCodec:
    """The codec for the service at the path `base`."""

    def __init__(self, base: str = BASE) -> None:
        self._base = base.rstrip("/")

    # --- threads ----------------------------------------------------------------------------------------------------

    def create(self, session_config: SessionConfig) -> SessionHandle:
        """Make the handle of a new thread, which begins with its first message."""
        advice = "the run service cannot select or trust tools, or set options, a title, labels or a history; AAP can"
        require_unset(session_config, *SETTINGS, advice=advice)
        return SessionHandle(
            id=str(uuid4()),
            agent=session_config.agent or DEFAULT_AGENT,
            tools=session_config.tools,
            server_keeps_history=True,
        )

    def status(self, handle: SessionHandle, run_id: str = "") -> TypedRequest[RunStatus]:
        """Fetch what became of a run, by default of the newest."""
        query = f"?{urlencode({'runId': run_id})}" if run_id else ""
        return TypedRequest(
            self._get(f"{_thread_path(handle)}{query}"), lambda body: decode_json(body, RunStatus, "the state of a run")
        )

    def day(self, handle: SessionHandle, before: str) -> TypedRequest[Day]:
        """Fetch the newest day of a thread, or the one before a day."""
        query = {"threadId": handle.id} | ({"before": before} if before else {})
        return TypedRequest(
            self._get(f"/history?{urlencode(query)}"), lambda body: decode_json(body, Day, "a day of a thread")
        )

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """Fetch a page of the threads, and the next page's cursor."""

        def decode(body: bytes) -> tuple[tuple[SessionInfo, ...], str]:
            page = decode_json(body, _Threads, "a list of threads")
            return tuple(map(_to_session_info, page.threads)), page.next or ""

        return TypedRequest(self._get(f"/threads?{urlencode({'after': after})}" if after else "/threads"), decode)

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """Delete a thread and everything in it."""
        path = f"{self._base}/sessions/{quote(handle.id, safe='')}"
        return TypedRequest(Request(method="DELETE", path=path, is_idempotent=True), lambda _: None)

    # --- runs -------------------------------------------------------------------------------------------------------

    def submit(self, handle: SessionHandle, user_input: UserInput, run_id: str) -> TypedRequest[str]:
        """Submit a run, once for its id. Images are links of the server. Returns the run's id."""
        content: str | list[JsonObject] = user_input.text
        if user_input.images:
            text: list[JsonObject] = [{"type": "text", "text": user_input.text}] if user_input.text else []
            content = [*text, *({"type": "binary", "mimeType": "image/*", "url": url} for url in user_input.images)]
        body: JsonObject = {
            "threadId": handle.id,
            "runId": run_id,
            "messages": [{"id": f"{run_id}-user", "role": "user", "content": content}],
            "state": handle.state,
            "tools": [
                {"name": each.name, "description": each.description, "parameters": each.parameters}
                for each in handle.tools
            ],
            "context": handle.context,
            "forwardedProps": {"agent_type": handle.agent},
        }
        return TypedRequest(
            self._post("/runs", body, is_idempotent=True),
            lambda response: decode_json(response, _Accepted, "a receipt").run_id,
        )

    def answer(self, handle: SessionHandle, answers: Sequence[Answer]) -> TypedRequest[str]:
        """Answer what is pending. Returns the id of the run that continues."""
        is_client_call = {each.call_id: isinstance(each, ClientCall) for each in handle.pending}
        body = {"answers": [_to_answer(each, is_client_call.get(each.call_id, False)) for each in answers]}
        return TypedRequest(
            self._post(f"{_thread_path(handle)}/answers", body),
            lambda response: decode_json(response, _Accepted, "a receipt").run_id,
        )

    def cancel(self, handle: SessionHandle, run_id: str) -> TypedRequest[bool]:
        """Stop a run. Returns whether there was one."""
        path = f"{self._base}{_thread_path(handle)}/cancel?{urlencode({'runId': run_id})}"
        request = Request(method="POST", path=path, is_idempotent=True)
        return TypedRequest(request, lambda body: decode_flag(body, "accepted"))

    def turn(self, handle: SessionHandle, run_id: str) -> RunServiceTurn:
        """Read the events of a run from its start."""
        query = urlencode({"runId": run_id, "idle_limit": IDLE_LIMIT_S})
        return RunServiceTurn(handle, f"{self._base}{_thread_path(handle)}/events?{query}")

    def upload(self, handle: SessionHandle, url: str) -> TypedRequest[str]:
        """Upload the image in a `data:` URI. Returns the link to it. Raises ClientError."""
        head, _, encoded = url.partition(";base64,")
        kind = head.removeprefix("data:")
        try:
            content = b64decode(encoded, validate=True)
        except Base64Error as error:
            raise ClientError(f"expected an image in base64: {error}") from error
        boundary = uuid4().hex
        part = f"--{boundary}\r\nContent-Disposition: form-data; name="
        fields = (
            f'{part}"threadId"\r\n\r\n{handle.id}\r\n{part}"file"; filename="image"\r\nContent-Type: {kind}\r\n\r\n'
        )
        request = Request(
            method="POST",
            path=f"{self._base}/attachments",
            body=fields.encode() + content + f"\r\n--{boundary}--\r\n".encode(),
            headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
            is_idempotent=True,  # a second copy is deleted with the thread
        )
        return TypedRequest(request, lambda body: decode_json(body, _Uploaded, "an upload").url)

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """Decode an error response, a problem of RFC 9457."""
        problem = decode_error_body(body, "detail")
        message = error_message(problem.get("detail"))
        request_id = headers.get("x-request-id", "")
        return make_refusal(status, str(problem.get("code") or ""), message, body=body, request_id=request_id)

    def _get(self, path: str) -> Request:
        return Request(method="GET", path=self._base + path, is_idempotent=True)

    def _post(self, path: str, body: JsonObject, *, is_idempotent: bool = False) -> Request:
        return Request(
            method="POST",
            path=self._base + path,
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
            is_idempotent=is_idempotent,
        )


def _thread_path(handle: SessionHandle) -> str:
    return f"/runs/{quote(handle.id, safe='')}"


def _to_session_info(thread: _Thread) -> SessionInfo:
    return SessionInfo(
        id=thread.thread_id,
        agent=thread.agent_type,
        title=thread.title,
        status=thread.status,
        created_at=thread.created_at,
        updated_at=thread.updated_at,
    )


def to_messages(day: Day) -> tuple[Message, ...]:
    """The messages of a day: what the user sent and what the agent said, without tools and reasoning."""
    return tuple(
        Message(
            role="user" if each.role == "user" else "assistant",
            id=each.id,
            blocks=(
                *((Text(text=each.content),) if each.content else ()),
                *(Image(url=image.url) for image in each.attachments),
            ),
            interrupted=each.status == "partial_success",
        )
        for each in day.messages
    )


def _to_answer(answer: Answer, is_client_call: bool) -> JsonObject:
    call: JsonObject = {"callId": answer.call_id}
    match answer:
        case Allow(always=True):
            raise Unsupported("the run service cannot always allow a tool; AG-UI and Blade can, for the same session")
        case Allow():
            return {**call, "granted": True}
        case Deny(reason=reason) if is_client_call:
            return {**call, "error": reason or "Tool call denied"}
        case Deny(reason=reason):
            return {**call, "granted": False, **({"reason": reason} if reason else {})}
        case Choice():
            return {**call, **choice_to_json(answer)}
        case Result(images=images) if images:
            raise Unsupported("the run service accepts text as a tool's result, but no images")
        case Result(text=text):
            return {**call, "result": text}
