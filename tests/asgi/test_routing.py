"""StreamGuard: a protocol's event streams end when their key is revoked, and nothing else does."""

import asyncio
from collections.abc import Callable

import pytest
from starlette.routing import BaseRoute, Mount, Route, Router

from dragoman.asgi import routing
from dragoman.asgi.routing import PathRouter, StreamGuard
from dragoman.asgi.security import Message, Receive, Send
from dragoman.core.ids import UserId
from dragoman.core.principal import Principal
from dragoman.engine.instrumentation.metrics import STREAMS_OPEN

ANN = Principal(user=UserId("ann"), scopes=frozenset({"use"}))
STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]
OPEN = STREAMS_OPEN.labels(protocol="test")


class ManualAuthenticator:
    """An authenticator whose keys the test revokes."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    async def authenticate(self, header: str | None, address: str) -> Principal:
        return ANN

    def on_revoked(self, principal: Principal, callback: Callable[[], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)


async def no_body() -> Message:
    return {"type": "http.disconnect"}


class SentMessages:
    """The messages that were sent, and an event that is set by each."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.was_sent = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)
        self.was_sent.set()


async def endless(scope: Message, receive: Receive, send: Send) -> None:
    """A stream that sends one frame and then waits forever."""
    scope["principal"] = ANN
    await send({"type": "http.response.start", "status": 200, "headers": STREAM})
    await send({"type": "http.response.body", "body": b"event: x\n\n", "more_body": True})
    await asyncio.get_running_loop().create_future()


def request() -> Message:
    return {"type": "http", "path": "/"}


async def test_a_stream_ends_whole_when_its_key_is_revoked() -> None:
    keys, sent = ManualAuthenticator(), SentMessages()
    async with asyncio.timeout(60):
        task = asyncio.create_task(StreamGuard(endless, "test", keys)(request(), no_body, sent))
        await sent.was_sent.wait()
        await asyncio.sleep(0)
        assert OPEN.value == 1
        keys.callbacks[0]()
        await task
    assert [message.get("body") for message in sent.messages] == [None, b"event: x\n\n", b""]
    assert sent.messages[-1]["more_body"] is False
    assert (OPEN.value, keys.callbacks) == (0, [])


async def test_a_stream_that_is_cancelled_for_another_reason_is_cancelled() -> None:
    keys, sent = ManualAuthenticator(), SentMessages()
    task = asyncio.create_task(StreamGuard(endless, "test", keys)(request(), no_body, sent))
    await sent.was_sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (OPEN.value, keys.callbacks) == (0, [])


async def test_a_stream_that_swallows_the_first_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "RECANCEL_DELAY_S", 0.001)
    keys, sent, swallowed = ManualAuthenticator(), SentMessages(), 0

    async def stubborn(scope: Message, receive: Receive, send: Send) -> None:
        nonlocal swallowed
        scope["principal"] = ANN
        await send({"type": "http.response.start", "status": 200, "headers": STREAM})
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    async with asyncio.timeout(60):
        task = asyncio.create_task(StreamGuard(stubborn, "test", keys)(request(), no_body, sent))
        await sent.was_sent.wait()
        await asyncio.sleep(0)
        keys.callbacks[0]()
        await task
    assert (swallowed, OPEN.value) == (3, 0)


async def test_a_key_revoked_before_the_stream_began_ends_it_at_once() -> None:
    class RevokedBefore(ManualAuthenticator):
        def on_revoked(self, principal: Principal, callback: Callable[[], None]) -> Callable[[], None]:
            callback()
            return lambda: None

    sent = SentMessages()
    async with asyncio.timeout(60):
        await StreamGuard(endless, "test", RevokedBefore())(request(), no_body, sent)
    assert sent.messages[0]["type"] == "http.response.start"
    assert sent.messages[-1]["more_body"] is False


async def test_a_response_that_is_no_stream_is_not_tied_to_its_key() -> None:
    keys, sent = ManualAuthenticator(), SentMessages()

    async def plain(scope: Message, receive: Receive, send: Send) -> None:
        scope["principal"] = ANN
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        assert (keys.callbacks, OPEN.value) == ([], 0)
        await send({"type": "http.response.body", "body": b"{}"})

    await StreamGuard(plain, "test", keys)(request(), no_body, sent)
    assert len(sent.messages) == 2


async def test_a_websocket_at_a_protocols_path_is_closed_and_reaches_no_protocol() -> None:
    async def unreached(scope: Message, receive: Receive, send: Send) -> None:
        raise AssertionError("this protocol takes no WebSockets")

    sent = SentMessages()
    await StreamGuard(unreached, "test", ManualAuthenticator())({"type": "websocket", "path": "/"}, no_body, sent)
    assert sent.messages == [{"type": "websocket.close", "code": 1008}]


# --- PathRouter -------------------------------------------------------------------------------------------------------


def labelled(name: str) -> StreamGuard:
    """A guarded app that answers with its name and the root path that it sees."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": f"{name} at {scope.get('root_path', '')}".encode()})

    return StreamGuard(app, "test", ManualAuthenticator())


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/aap/v3/sessions", b"aap at /aap/v3"),
        ("/process", b"agentscope at "),
        ("/process/task/1", b"agentscope at "),
        ("/api/chats", b"blade at /api"),
        ("/api/stop", b"agentscope at "),
    ],
)
async def test_a_path_leads_to_the_protocol_that_claims_it(path: str, answer: bytes) -> None:
    agentscope = labelled("agentscope")
    routes: list[BaseRoute] = [
        Mount("/aap/v3", app=labelled("aap")),
        *(Route(path, agentscope) for path in ("/process", "/process/{rest:path}", "/api/stop")),
        Mount("/api", app=labelled("blade")),
    ]
    router, sent = PathRouter(Router()), SentMessages()
    router.set_routes(routes)
    await router({"type": "http", "path": path}, no_body, sent)
    assert sent.messages[-1]["body"] == answer
