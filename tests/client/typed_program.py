"""A program that uses the client library, for strict type checkers. Never run."""

from collections.abc import Sequence
from typing import assert_never, assert_type

from dragoman.client import (
    Allow,
    AsyncClient,
    AsyncRun,
    AsyncSession,
    Choice,
    Client,
    ClientCall,
    Deny,
    Ended,
    Event,
    Image,
    Message,
    Notice,
    Permission,
    Question,
    Reply,
    Restarted,
    Result,
    Run,
    Session,
    SessionInfo,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)


def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def fetch(url: str) -> bytes:
    """Fetch a page."""
    return url.encode()


def allow(permission: Permission) -> bool:
    return permission.name == "add"


async def allow_later(permission: Permission) -> Allow | Deny:
    return Allow(always=True) if permission.arguments else Deny(reason="without arguments")


async def choose(question: Question) -> Choice | str | Sequence[str]:
    return question.questions[0].options[0].label


def describe(event: Event) -> str:
    match event:
        case Text(text=text) | Thinking(text=text) | ToolResult(text=text):
            return text
        case Image(url=url):
            return url
        case ToolCall(name=name) | Permission(name=name):
            return name
        case Question(questions=questions):
            return questions[0].question
        case Restarted(text=text):
            return text
        case Notice(kind=kind):
            return kind
        case Ended(reason=reason):
            return reason
        case _ as never:
            assert_never(never)


async def asynchronous() -> None:
    async with AsyncClient("http://127.0.0.1:8000", key="k", protocol="ag-ui") as client:
        session = await client.create("a", tools=[add, fetch], on_permission=allow, on_question=choose)
        assert_type(session, AsyncSession)
        run = session.run("hello", images=["a.png"])
        assert_type(run, AsyncRun)
        async for event in run:
            assert_type(describe(event), str)
        assert_type(await session.ask("hello"), Reply)
        assert_type(await session.history(), tuple[Message, ...])
        async for info in client.sessions():
            assert_type(info, SessionInfo)
        for request in session.pending:
            match request:
                case Permission():
                    await session.answer(Allow()).reply()
                case Question():
                    await session.answer(Choice.of("a", custom="b")).reply()
                case ClientCall(call_id=call_id):
                    await session.answer(Result(call_id=call_id, text="3")).reply()
                case _ as never:
                    assert_never(never)


def blocking() -> None:
    with Client("http://127.0.0.1:8000", protocol="blade") as client:
        session = client.open("id", on_permission=allow_later, on_question=lambda question: None)
        assert_type(session, Session)
        with session.run("hello") as run:
            assert_type(run, Run)
            for event in run:
                assert_type(describe(event), str)
        assert_type(session.ask("hello").text, str)
        session.stop()


def wrong() -> None:
    """Errors that a checker must find: for an error that it does not find, the ignore comment is unnecessary."""
    Client("http://127.0.0.1:8000", protocol="aap-v4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    client = Client("http://127.0.0.1:8000")
    session = client.create(on_permission=choose)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    session.answer("yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
