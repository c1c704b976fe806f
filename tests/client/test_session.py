"""The library's API: client tools, callbacks, answers, stopping, resuming, errors."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from dragoman import tool
from dragoman.client import (
    Allow,
    AsyncClient,
    Choice,
    Client,
    ClientCall,
    ClientError,
    Deny,
    Ended,
    NotFound,
    Permission,
    Question,
    RequestRefused,
    Result,
    RunFailed,
    Text,
    TimedOut,
    Timeouts,
    Tool,
    ToolCall,
    ToolResult,
    Unauthorized,
    Unreachable,
    Unsupported,
)
from dragoman.client.pending import UnmatchedAnswer
from dragoman.client.transports import ClientProtocol
from dragoman.core.agent import ToolContext
from tests.client.cutting_proxy import cutting_proxy
from tests.conversations import call, calls, script
from tests.servers import SocketServer, running_socket_server

ALL: list[ClientProtocol] = ["aap", "ag-ui", "agentscope", "blade", "openai"]
WITH_TOOLS: list[ClientProtocol] = ["aap", "ag-ui", "agentscope", "openai"]
STAMP = script(call("stamp", text="x"), {"say": "so: {result}"})
FOREVER = script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})


def paint(colour: str, coats: int = 1) -> str:
    """Paint it.

    Args:
        colour: any colour.
        coats: the number of coats.
    """
    return f"{coats} of {colour}"


@tool(name="mix")
async def mixed(colours: list[str], context: ToolContext) -> dict[str, Any]:
    """Mix colours."""
    if not context.call_id:
        raise ValueError("no call")
    return {"mixed": "+".join(colours)}


def spill() -> str:
    """Spill it."""
    raise RuntimeError("all over the floor")


# --- client tools -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", WITH_TOOLS)
async def test_client_tools_run_concurrently_and_their_results_are_sent(client: AsyncClient) -> None:
    session = await client.create("rehearsal", tools=[paint, mixed, spill])
    prompt_calls = calls(
        ("paint", {"colour": "red"}), ("mix", {"colours": ["a", "b"]}), ("spill", {}), ("paint", {"c": 1})
    )
    reply = await session.ask(script(prompt_calls, {"say": "{results}"}))
    results = [event.text for event in reply.events if isinstance(event, ToolResult)]
    assert results == [
        "1 of red",
        '{"mixed":"a+b"}',
        "Tool execution failed: all over the floor",
        "Tool execution failed: colour: missing; c: unknown argument (known arguments: colour, coats)",
    ]
    assert reply.text == ", ".join(results)
    assert [each.name for each in reply.calls] == ["paint", "mix", "spill", "paint"]
    assert [type(event) for event in reply.events if isinstance(event, Ended)] == [Ended]


@pytest.mark.parametrize("protocol", WITH_TOOLS)
async def test_a_call_of_a_declared_tool_waits_for_its_result(client: AsyncClient) -> None:
    session = await client.create("rehearsal", tools=[Tool(name="paint", parameters={"type": "object"})])
    ended = (await session.ask(script(call("paint", colour="red"), {"say": "{result}"}))).end
    [pending] = ended.pending
    assert pending == ClientCall(call_id=pending.call_id, name="paint", arguments={"colour": "red"})
    assert (ended.reason, session.pending) == ("tool_use", ended.pending)
    assert (await session.answer(Result(call_id=pending.call_id, text="dry")).reply()).text == "dry"
    assert session.pending == ()


@pytest.mark.parametrize("protocol", ["aap", "ag-ui", "openai"])
async def test_a_client_that_opens_a_session_can_answer_with_its_own_tools(client: AsyncClient) -> None:
    maker = await client.create("rehearsal", tools=[Tool(name="paint", parameters={"type": "object"})])
    await maker.ask(script(call("paint", colour="red"), {"say": "{result}"}))
    session = await client.open(maker.id, agent="rehearsal", tools=[paint])
    assert session.pending == maker.pending
    reply = await session.answer().reply()
    assert (reply.text, reply.end.reason) == ("1 of red", "end_turn")


# --- permissions and questions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ALL)
@pytest.mark.parametrize(
    ("decision", "result"),
    [
        (True, "stamped x"),
        (Allow(), "stamped x"),
        (False, "Tool call denied"),
        (Deny(reason="not today"), "Tool call denied: not today"),
    ],
    ids=["yes", "allow", "no", "deny"],
)
async def test_a_callback_decides_about_a_permission(client: AsyncClient, decision: Any, result: str) -> None:
    requests: list[Permission] = []

    def decide(permission: Permission) -> Any:
        requests.append(permission)
        return decision

    session = await client.create("rehearsal", on_permission=decide)
    reply = await session.ask(STAMP)
    assert [(each.name, each.arguments) for each in requests] == [("stamp", {"text": "x"})]
    kinds = [type(event) for event in reply.events if not isinstance(event, Text)]
    assert kinds == [ToolCall, Permission, ToolResult, Ended]
    assert reply.text == f"so: {result}"


@pytest.mark.parametrize("protocol", ["ag-ui", "blade"])
async def test_a_tool_that_is_always_allowed_is_not_asked_about_again(client: AsyncClient) -> None:
    requests: list[str] = []

    async def decide(permission: Permission) -> Allow:
        requests.append(permission.name)
        return Allow(always=True)

    session = await client.create("rehearsal", on_permission=decide)
    await session.ask(STAMP)
    assert (await session.ask(STAMP)).text == "so: stamped x"
    assert requests == ["stamp"]


@pytest.mark.parametrize("protocol", ["blade"])
async def test_permissions_can_be_answered_one_by_one_over_blade(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    prompt_calls = calls(("stamp", {"text": "x"}), ("stamp", {"text": "y"}), ("stamp", {"text": "z"}))
    ended = (await session.ask(script(prompt_calls, {"say": "{results}"}))).end
    first, second, third = ended.pending
    assert [each.arguments for each in (first, second, third) if isinstance(each, Permission)] == [
        {"text": "x"},
        {"text": "y"},
        {"text": "z"},
    ]
    ended = (await session.answer(Allow(call_id=second.call_id)).reply()).end
    assert (ended.reason, ended.pending, session.pending) == ("tool_use", (first, third), (first, third))
    assert (await session.info()).pending == (first, third)
    reply = await session.answer(Deny(call_id=third.call_id), Allow(call_id=first.call_id)).reply()
    assert (reply.text, reply.end.pending) == ("stamped x, stamped y, Tool call denied", ())


@pytest.mark.parametrize("protocol", ALL)
async def test_a_callback_that_returns_none_leaves_the_run_waiting_for_an_answer(client: AsyncClient) -> None:
    session = await client.create("rehearsal", on_permission=lambda permission: None)
    ended = (await session.ask(STAMP)).end
    assert (ended.reason, [type(each) for each in ended.pending]) == ("tool_use", [Permission])
    with pytest.raises(UnmatchedAnswer, match="Choice without a call_id must fit exactly one pending call, it fits 0"):
        await session.answer(Choice.of("a")).reply()
    with pytest.raises(UnmatchedAnswer, match=r"expected Allow\(\), Deny\(\), .*, got True"):
        await session.answer(True).reply()  # type: ignore[arg-type]  # valid as a callback's return value only
    with pytest.raises(UnmatchedAnswer, match="no pending call has the id nothing"):
        await session.answer(Allow(call_id="nothing")).reply()
    assert (await session.answer(Allow()).reply()).text == "so: stamped x"


@pytest.mark.parametrize("protocol", ALL)
@pytest.mark.parametrize(
    ("returned", "chosen"),
    [
        ("production", "production"),
        (["staging"], "staging"),
        ("the cellar", "the cellar"),
        (Choice.of(custom="none"), "none"),
    ],
    ids=["label", "labels", "free-text", "choice"],
)
async def test_a_callback_answers_a_question(client: AsyncClient, returned: Any, chosen: str) -> None:
    requests: list[Question] = []

    async def choose(question: Question) -> Any:
        requests.append(question)
        return returned

    session = await client.create("rehearsal", on_question=choose)
    reply = await session.ask("ask me")
    assert [[option.label for option in each.questions[0].options] for each in requests] == [["staging", "production"]]
    assert reply.text == f"You chose {chosen}."
    assert [type(event) for event in reply.events if not isinstance(event, Text)] == [Question, Ended]


@pytest.mark.parametrize("protocol", ["aap"])
async def test_a_callback_that_raises_ends_the_iteration_and_the_session_stays_pending(client: AsyncClient) -> None:
    def decide(permission: Permission) -> bool:
        raise LookupError("nobody there")

    session = await client.create("rehearsal", on_permission=decide)
    with pytest.raises(LookupError, match="nobody there"):
        await session.ask(STAMP)
    assert [type(each) for each in (await session.info()).pending] == [Permission]


# --- stopping and resuming --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ALL)
async def test_a_stopped_run_ends_as_cancelled(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    async with session.run(FOREVER) as run:
        events = [await anext(run)]
        assert await session.stop()
        events += [event async for event in run]
    assert (events[0], events[-1].reason if isinstance(events[-1], Ended) else None) == (Text(text="one"), "cancelled")


@pytest.mark.parametrize("protocol", ALL)
async def test_stopping_says_whether_there_was_anything_to_stop(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    await session.ask("hello")
    assert await session.stop() is False
    await session.ask(STAMP)
    assert await session.stop() is True
    assert await session.stop() is False


@pytest.mark.parametrize("protocol", ["ag-ui"])
async def test_an_answer_to_a_call_that_another_client_stopped_ends_as_cancelled(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    await session.ask(STAMP)
    assert await (await client.open(session.id, agent="rehearsal")).stop()
    assert (await session.answer(Allow()).reply()).end.reason == "cancelled"


@pytest.mark.parametrize("protocol", ALL)
async def test_a_run_continues_when_its_task_is_cancelled_until_it_is_stopped(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    run = session.run(FOREVER)
    assert await anext(run) == Text(text="one")
    reading = asyncio.create_task(run.reply())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await session.stop() is True


@pytest.mark.parametrize("protocol", ALL)
async def test_another_client_resumes_a_run_from_its_start(client: AsyncClient, socket_server: SocketServer) -> None:
    session = await client.create("rehearsal")
    await session.ask("hello")
    run = session.run(FOREVER)
    assert await anext(run) == Text(text="one")
    await run.aclose()
    other = AsyncClient(socket_server.connection.url, key=socket_server.key("alice_phone"), protocol=client.protocol)
    async with other:
        again = await other.open(session.id, agent="rehearsal")
        async with again.resume() as resumed:
            assert await anext(resumed) == Text(text="one")
            await again.stop()
            last = [event async for event in resumed][-1]
    assert isinstance(last, Ended)
    assert last.reason == "cancelled"


@pytest.mark.parametrize("protocol", ALL)
async def test_resuming_a_finished_run_yields_its_events_again(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    first = await session.ask("add 1 and 2" if client.protocol != "aap" else "think")
    again = await (await client.open(session.id, agent="rehearsal")).resume().reply()
    assert (again.text, again.thinking) == (first.text, first.thinking)
    assert [each.name for each in again.calls] == [each.name for each in first.calls]
    assert again.end.reason == first.end.reason == "end_turn"


@pytest.mark.parametrize("protocol", ["aap"])
async def test_a_run_that_exceeds_its_time_limit_continues_on_the_server(
    socket_server: SocketServer, protocol: ClientProtocol
) -> None:
    url, key = socket_server.connection.url, socket_server.key("alice")
    async with AsyncClient(url, key=key, protocol=protocol, timeouts=Timeouts(run_s=600)) as client:
        session = await client.create("rehearsal")
        run = session.run(FOREVER)
        assert await anext(run) == Text(text="one")
        run._deadline = asyncio.get_running_loop().time()  # ten minutes have passed
        with pytest.raises(TimedOut, match=r"the run took longer than 600 s; it continues on the server"):
            await anext(run)
        assert (await session.info()).status == "running"
        await session.stop()


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "count"), [("aap", 52), ("blade", 102)])
async def test_sessions_are_listed_newest_first_over_all_pages(
    tmp_path: Path, protocol: ClientProtocol, count: int
) -> None:
    async with (
        running_socket_server(tmp_path) as server,
        AsyncClient(server.connection.url, key=server.key("alice"), protocol=protocol) as client,
    ):
        created = [(await client.create("rehearsal")).id for _ in range(count)]
        assert [info.id async for info in client.sessions()] == created[::-1]
        await (await client.open(created[0])).delete()
        with pytest.raises(NotFound):
            await client.open(created[0])


@pytest.mark.parametrize("protocol", ["aap", "blade", "openai"])
async def test_a_session_whose_deletion_was_not_acknowledged_is_deleted_once(
    socket_server: SocketServer, protocol: ClientProtocol
) -> None:
    cut_after: list[int] = []
    async with (
        cutting_proxy(socket_server.connection.url, lambda: cut_after.pop(0) if cut_after else None) as proxy,
        AsyncClient(proxy.url, key=socket_server.key("alice"), protocol=protocol) as client,
    ):
        session = await client.create("rehearsal")
        await proxy.close()  # so that the next request takes a new connection
        cut_after.append(0)
        await session.delete()
        assert cut_after == []
        with pytest.raises(NotFound):
            await session.delete()


async def test_a_session_is_the_same_through_every_protocol(socket_server: SocketServer) -> None:
    url, key = socket_server.connection.url, socket_server.key("alice")
    session_id, replies = "", []
    for protocol in ALL:
        async with AsyncClient(url, key=key, protocol=protocol) as client:
            if not session_id:
                session_id = (await client.create("rehearsal")).id
            session = await client.open(session_id, agent="rehearsal")
            assert session.id == session_id
            replies.append((await session.ask(f"over {protocol}")).text)
            if protocol != "agentscope":
                history = await session.history()
                assert [each.text for each in history if each.role == "assistant"] == replies
    assert replies == [f"You said: over {protocol}" for protocol in ALL]


@pytest.mark.parametrize("protocol", ALL)
async def test_images_are_sent_from_paths(client: AsyncClient, tmp_path: Path) -> None:
    path = tmp_path / "dot.png"
    path.write_bytes(bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"))
    session = await client.create("rehearsal")
    reply = await session.ask("look", images=[path])
    assert reply.end.reason == "end_turn"
    async with AsyncClient(client.url, key=client.key) as reader:
        history = await (await reader.open(session.id)).history()
    [_, image] = history[0].blocks
    assert image.url.startswith("data:image/png;base64,iVBORw0K")  # type: ignore[union-attr]  # or the test fails


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ALL)
async def test_a_failed_run_raises_only_from_ask_and_reply(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    prompt = script({"say": "half"}, {"fail": "internal details"})
    with pytest.raises(RunFailed) as failed:
        await session.ask(prompt)
    assert failed.value.reply.text == "half"
    events = [event async for event in session.run(prompt)]
    assert isinstance(events[-1], Ended)
    assert events[-1].reason == "error"
    assert events[-1].problem is not None


@pytest.mark.parametrize("protocol", ALL)
async def test_a_wrong_key_is_unauthorized(socket_server: SocketServer, protocol: ClientProtocol) -> None:
    async with AsyncClient(socket_server.connection.url, key="wrong", protocol=protocol) as client:
        with pytest.raises(Unauthorized) as refused:
            await (await client.create("rehearsal")).ask("hello")
    assert (refused.value.status, refused.value.may_retry) == (401, False)


@pytest.mark.parametrize("protocol", ALL)
async def test_an_unreachable_address_is_reported_at_once(protocol: ClientProtocol) -> None:
    async with AsyncClient("http://127.0.0.1:9", key="k", protocol=protocol) as client:
        async with asyncio.timeout(60):
            with pytest.raises(Unreachable) as unreachable:
                await (await client.create("rehearsal")).ask("hello")
    assert unreachable.value.may_retry


async def test_a_refusal_has_the_servers_status_and_code(socket_server: SocketServer) -> None:
    async with AsyncClient(socket_server.connection.url, key=socket_server.key("alice")) as client:
        with pytest.raises(RequestRefused) as refused:
            await client.create("rehearsal", server_tools=["nothing_like_it"])
        assert (refused.value.status, refused.value.code) == (400, "unknown_tool")
        with pytest.raises(Unsupported, match="the server has no agent 'nobody'"):
            await client.create("nobody")


@pytest.mark.parametrize(
    ("protocol", "operation", "message"),
    [
        ("ag-ui", "sessions", "AG-UI cannot list threads; AAP can list the same sessions"),
        ("ag-ui", "trust", "AG-UI cannot select or trust tools"),
        ("ag-ui", "delete", "AG-UI cannot delete a thread"),
        ("agentscope", "sessions", "the Agent API cannot list sessions"),
        ("agentscope", "history", "the Agent API has no history"),
        ("agentscope", "delete", "the Agent API cannot delete a session"),
        ("openai", "sessions", "OpenAI's API cannot list conversations; AAP can list the same sessions"),
        ("openai", "trust", "OpenAI's API cannot select or trust tools"),
        ("blade", "tools", "Blade has no client tools"),
        ("blade", "trust", "Blade cannot select or trust tools"),
    ],
)
async def test_an_operation_that_a_protocol_lacks_is_unsupported(
    client: AsyncClient, operation: str, message: str
) -> None:
    async def attempt() -> None:
        match operation:
            case "sessions":
                await anext(client.sessions())
            case "trust":
                await client.create("rehearsal", trusted_tools=["add"])
            case "tools":
                await client.create("rehearsal", tools=[paint])
            case "history":
                await (await client.create("rehearsal")).history()
            case "delete":
                await (await client.create("rehearsal")).delete()

    with pytest.raises(Unsupported, match=message):
        await attempt()


# --- the blocking client ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ALL)
async def test_the_blocking_client_yields_the_same_events(
    socket_server: SocketServer, protocol: ClientProtocol
) -> None:
    def program() -> None:
        callback_threads: list[str] = []

        def decide(permission: Permission) -> bool:
            callback_threads.append(threading.current_thread().name)
            return True

        with Client(socket_server.connection.url, key=socket_server.key("alice"), protocol=protocol) as client:
            session = client.create("rehearsal", on_permission=decide)
            events = list(session.run(STAMP))
            assert [type(event) for event in events if not isinstance(event, Text)] == [
                ToolCall,
                Permission,
                ToolResult,
                Ended,
            ]
            assert callback_threads == [threading.current_thread().name]
            assert session.ask("hello").text == "Hello! I am the rehearsal agent."
            with session.run(FOREVER) as run:
                assert next(run) == Text(text="one")
                session.stop()
                assert [event.reason for event in run if isinstance(event, Ended)] == ["cancelled"]
            again = client.open(session.id, agent="rehearsal")
            assert again.resume().reply().end.reason in ("cancelled", "end_turn")

    await asyncio.to_thread(program)


def test_a_client_can_be_closed_twice_and_then_raises() -> None:
    with Client("http://127.0.0.1:9") as client:
        client.close()
    with pytest.raises(ClientError, match="the client is closed"):
        client.agents()


async def test_after_ctrl_c_in_an_approval_the_run_waits_and_a_new_message_can_be_sent(
    socket_server: SocketServer,
) -> None:
    """The program leaves the run without an answer. The next message cancels the call that waits."""

    def decide(permission: Permission) -> bool:
        raise KeyboardInterrupt

    def program() -> None:
        with Client(socket_server.connection.url, key=socket_server.key("alice")) as client:
            session = client.create("rehearsal", on_permission=decide)
            with pytest.raises(KeyboardInterrupt), session.run(STAMP) as run:
                list(run)
            assert [type(each) for each in session.info().pending] == [Permission]
            assert session.ask("hello").text == "Hello! I am the rehearsal agent."

    await asyncio.to_thread(program)


async def test_an_interrupted_wait_loses_nothing(socket_server: SocketServer) -> None:
    """Like Ctrl-C in a terminal program: the wait raises KeyboardInterrupt, and iterating again continues."""

    def program() -> None:
        calls_made = 0

        def decide(permission: Permission) -> bool:
            nonlocal calls_made
            calls_made += 1
            if calls_made == 1:
                raise KeyboardInterrupt
            return True

        with Client(socket_server.connection.url, key=socket_server.key("alice")) as client:
            run = client.create("rehearsal", on_permission=decide).run(STAMP)
            with pytest.raises(KeyboardInterrupt):
                list(run)
            assert [event.text for event in run if isinstance(event, Text)] == ["so: stamped x"]
            assert calls_made == 2

    await asyncio.to_thread(program)
