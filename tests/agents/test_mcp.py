"""MCP servers as tools: processes based on the official SDK, over stdio and streamable HTTP."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, McpServer, ToolContext, ToolFailed, agent, tool
from dragoman.agents import serving
from dragoman.agents.mcp import StartFailed
from dragoman.agents.parameters import DeclarationError
from dragoman.core.content import UNPARSED_ARGUMENTS, Image, Text
from dragoman.core.ids import UserId
from dragoman.core.tools import ServerTool, ToolPolicy, ToolSpec
from tests.agents.agent_harness import DEADLINE_S, ScriptedModel, agent_harness, call
from tests.agents.test_tool import Context

PROGRAM = str(Path(__file__).with_name("mcp_program.py"))
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="
SLOW_S = 60.0
"""Time for a process to import the SDK on a busy machine."""


def program(folder: Path, **options: Any) -> McpServer:
    return McpServer.stdio("program", sys.executable, PROGRAM, "stdio", env={"NOTES": str(folder / "notes")}, **options)


@asynccontextmanager
async def started(server: McpServer) -> AsyncIterator[McpServer]:
    async with asyncio.timeout(SLOW_S):
        await server.start()
    try:
        yield server
    finally:
        await server.aclose()


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[McpServer]:
    """One server for all tests that do not change it."""
    async with started(program(tmp_path_factory.mktemp("mcp"))) as server:
        yield server


async def run(server: McpServer, name: str, /, **arguments: object) -> object:
    found = {tool.declaration.spec.name: tool for tool in server.tools}
    async with asyncio.timeout(SLOW_S):
        return await found[name].run(arguments, Context())


def children() -> set[int]:
    """The child processes of this process."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == os.getpid():
            found.add(int(path.parent.name))
    return found


# --- what the tools are -----------------------------------------------------------------------------------------------


async def test_a_servers_tools_are_declared_with_their_label(shared: McpServer) -> None:
    declared = {tool.declaration.spec.name: tool.declaration for tool in shared.tools}
    add = declared["add"]
    assert add == ServerTool(
        spec=ToolSpec(name="add", title="Add", description="Add two integers.", parameters=add.spec.parameters),
        policy=ToolPolicy(),
        server="program",
    )
    assert add.spec.parameters["required"] == ["a", "b"]
    assert declared["weather"].policy.on_restart == "repeat", "the server declares it as read-only"
    assert declared["dotted_name"].spec.name == "dotted_name", "models do not accept dots in names"


@pytest.mark.slow
async def test_options_select_tools_and_set_their_policy(tmp_path: Path) -> None:
    server = program(
        tmp_path,
        tools=["add", "weather"],
        prefix="p_",
        exposed=False,
        needs_approval=["add"],
        idempotent=["add"],
        timeout_s=7,
    )
    async with started(server):
        declared = {tool.declaration.spec.name: tool.declaration.policy for tool in server.tools}
        assert declared == {
            "p_add": ToolPolicy(exposed=False, needs_approval=True, on_restart="repeat", timeout_s=7),
            "p_weather": ToolPolicy(exposed=False, timeout_s=7),
        }
        assert await run(server, "p_add", a=1, b=2) == 3
    assert server.tools == ()


def test_an_unknown_option_of_a_server_is_refused_with_the_known_ones() -> None:
    known = "exposed, idempotent, internal, needs_approval, optional, prefix, timeout_s, tools"
    message = f"MCP server far: unknown option 'expose' (known options: {known})"
    with pytest.raises(TypeError, match=rf"^{re.escape(message)}$"):
        McpServer.http("far", "http://127.0.0.1:9/mcp", expose=False)  # type: ignore[call-arg]  # that is the point


async def test_a_string_instead_of_a_list_of_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="expected a list of tool names, got the string 'add'"):
        async with started(program(tmp_path, needs_approval="add")):
            pass


# --- what they give ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("add", {"a": 1, "b": 2}, 3),
        ("weather", {"place": "Rome"}, {"place": "Rome", "degrees": 21.5}),
        ("forecast", {}, ["sun", "rain"]),
        ("picture", {}, (Text("Here:"), Image(PIXEL))),
        ("dotted_name", {}, "odd"),
        ("environment", {"name": "OPENAI_API_KEY"}, "unset"),
    ],
)
async def test_results_are_values_or_blocks(
    shared: McpServer, monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, object], expected: object
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-server")
    assert await run(shared, name, **arguments) == expected


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("fail", {}, "it rained"),
        ("add", {"a": "x"}, r"(?s)validation error.*a.*integer.*b.*required"),
        ("add", {UNPARSED_ARGUMENTS: "{"}, "the arguments are not a JSON object"),
    ],
)
async def test_failures_have_the_servers_message(
    shared: McpServer, name: str, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ToolFailed, match=message):
        await run(shared, name, **arguments)


@pytest.mark.slow
async def test_calls_run_in_parallel_and_the_server_is_notified_of_a_cancelled_one(tmp_path: Path) -> None:
    notes: asyncio.Queue[str] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        notes.put_nowait((await reader.read()).decode())
        writer.close()

    listening = await asyncio.start_unix_server(take, tmp_path / "notes")
    async with started(program(tmp_path)) as server:
        waiting = asyncio.create_task(run(server, "wait"))
        assert await asyncio.wait_for(notes.get(), DEADLINE_S) == "waiting"
        assert await run(server, "add", a=1, b=2) == 3
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await asyncio.wait_for(notes.get(), DEADLINE_S) == "cancelled"
        assert await run(server, "add", a=2, b=2) == 4
    listening.close()


# --- when it dies -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_call_fails_when_the_server_dies_and_the_next_one_restarts_it(tmp_path: Path) -> None:
    async with started(program(tmp_path)) as server:
        with pytest.raises(
            ToolFailed,
            match="lost the connection to the MCP server program; the tool may or may not have had an effect",
        ):
            await run(server, "die")
        assert await run(server, "add", a=1, b=2) == 3


@pytest.mark.slow
async def test_an_idempotent_call_is_retried_once(tmp_path: Path) -> None:
    async with started(program(tmp_path)) as server:
        assert await run(server, "die_once", mark=str(tmp_path / "mark")) == "alive"


@pytest.mark.slow
async def test_a_server_that_dies_between_two_calls_is_restarted(tmp_path: Path) -> None:
    before = children()
    async with started(program(tmp_path)) as server:
        (process,) = children() - before
        os.kill(process, signal.SIGKILL)
        (connection,) = server._connections.values()
        await asyncio.wait_for(connection._stream_ended.wait(), DEADLINE_S)
        assert await run(server, "add", a=1, b=2) == 3
    assert children() == before, "no process is left behind"


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (McpServer.stdio("gone", "/no/such/program"), r"^MCP server gone: .*(No such file|not find)"),
        (McpServer.stdio("mute", sys.executable, "-c", "pass"), r"^MCP server mute: .*[Cc]onnection closed"),
        (McpServer.http("far", "http://127.0.0.1:9/mcp"), r"^MCP server far: "),
    ],
)
async def test_an_unavailable_server_fails_the_start_with_the_reason(server: McpServer, message: str) -> None:
    with pytest.raises(StartFailed, match=message):
        async with asyncio.timeout(SLOW_S):
            await server.start()
    assert server.tools == ()


@asynccontextmanager
async def refusing_server(head: bytes) -> AsyncIterator[str]:
    """A web server that answers every request with the same response; its address."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + head + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            b"401 Unauthorized",
            "HTTP 401 Unauthorized: the server requires credentials, or rejects those in its headers",
        ),
        (b"503 Service Unavailable", "HTTP 503 Service Unavailable"),
    ],
)
async def test_an_error_status_is_named(head: bytes, message: str) -> None:
    async with refusing_server(head) as address:
        with pytest.raises(StartFailed, match=f"^MCP server far: {message}$"):
            async with asyncio.timeout(SLOW_S):
                await McpServer.http("far", address).start()


async def test_an_optional_server_that_is_down_does_not_stop_the_start() -> None:
    gone = McpServer.stdio("gone", "/no/such/program", optional=True)
    agent = Agent("assistant", model=ScriptedModel(), tools=[gone, local])
    async with asyncio.timeout(SLOW_S):
        await serving.start([agent])
    serving.check([agent])
    assert [each.spec.name for each in agent.spec.tools] == ["local"]
    await serving.close([agent])


@tool
async def local() -> str:
    """Be here."""
    return "here"


@pytest.mark.slow
async def test_a_missing_tool_fails_the_start(tmp_path: Path) -> None:
    before = children()
    with pytest.raises(StartFailed, match=r"^MCP server program has no tool divide, multiply$"):
        async with started(program(tmp_path, tools=["add", "multiply", "divide"])):
            pass
    assert children() == before


async def test_without_the_extra_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dragoman.agents.mcp.find_spec", lambda name: None)
    with pytest.raises(StartFailed, match=r"make run EXTRAS=mcp"):
        await program(tmp_path).start()


@pytest.mark.slow
async def test_agents_share_a_server_and_the_last_one_stops_it(tmp_path: Path) -> None:
    before = children()
    server = program(tmp_path)
    one, two = Agent("one", model=ScriptedModel(), tools=[server]), Agent("two", tools=[server], subagents=[])
    over = Agent("over", model=ScriptedModel(), subagents=[one, two])
    assert list(one.spec.tools) == []
    async with asyncio.timeout(SLOW_S):
        await serving.start([over, two])
        assert len(children() - before) == 1
        assert {declared.server for declared in one.spec.tools} == {"program"}
        await two.close()
        assert await run(server, "add", a=1, b=2) == 3
        await over.close()
    assert children() == before
    assert one.spec.tools == ()


@pytest.mark.slow
async def test_a_failed_start_closes_what_was_already_started(tmp_path: Path) -> None:
    before = children()
    broken = Agent("broken", tools=[program(tmp_path), McpServer.stdio("gone", "/no/such/program")])
    with pytest.raises(StartFailed, match="MCP server gone"):
        async with asyncio.timeout(SLOW_S):
            await serving.start([Agent("fine", tools=[program(tmp_path)]), broken])
    assert children() == before


# --- together with agents ---------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_agents_call_mcp_tools_and_wait_for_approval(tmp_path: Path) -> None:
    server = program(tmp_path, needs_approval=["add"])
    model = ScriptedModel([call("add", a=1, b=2), call("add", raw="{")], "Three.")
    modelled = Agent("modelled", model=model, tools=[server])

    @agent(tools=[server])
    async def direct(run: Any) -> AsyncIterator[str]:
        weather = await run.call("weather", place="Rome")
        yield f"{weather['degrees']} degrees"

    await serving.start([modelled, direct])
    try:
        async with agent_harness(tmp_path, modelled, direct) as harness:
            session = await harness.session("modelled")
            assert await session.send_and_wait("1 + 2?") == "tool_use"
            assert await session.allow() == "end_turn"
            session = await harness.session("direct")
            assert await session.send_and_wait("Rome?") == "end_turn"
            assert (await session.summary_lines())[-1] == "assistant: 21.5 degrees"
    finally:
        await serving.close([modelled, direct])
    assert model.read()[-2:] == [
        "tool: 3",
        "tool: Tool execution failed: the arguments are not a JSON object; call the tool again with valid JSON",
    ]


# --- HTTP -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def http_program(port: int) -> AsyncIterator[int]:
    """Run the program on a port; 0 is any free port. Early connections wait until it is ready."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        found: int = listening.getsockname()[1]
        number = str(listening.fileno())
        process = await asyncio.create_subprocess_exec(
            sys.executable, PROGRAM, "http", number, pass_fds=[listening.fileno()]
        )
    try:
        yield found
    finally:
        process.kill()
        await process.wait()


@pytest.mark.slow
async def test_calls_over_http_work_again_after_the_server_returns() -> None:
    async with http_program(0) as port:
        server = McpServer.http("far", f"http://127.0.0.1:{port}/mcp", headers={"X-Key": "1"})
        async with asyncio.timeout(SLOW_S):
            await server.start()
        assert await run(server, "add", a=1, b=2) == 3
    with pytest.raises(ToolFailed, match="the MCP server far"):
        await run(server, "add", a=1, b=2)
    async with http_program(port):
        assert await run(server, "add", a=2, b=2) == 4
        await server.aclose()


async def offers(agent: Agent, name: str) -> None:
    """Wait until an agent has the tool of that name."""
    while agent.tool(name) is None:  # noqa: ASYNC110  # agents announce no changes: they are asked at every step
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_an_optional_server_that_comes_later_brings_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.agents.mcp.RETRY_DELAY_S", 0.05)
    async with http_program(0) as port:
        pass
    agent = Agent(
        "assistant",
        model=ScriptedModel(),
        tools=[McpServer.http("far", f"http://127.0.0.1:{port}/mcp", tools=["add"], optional=True)],
    )
    async with asyncio.timeout(SLOW_S):
        await serving.start([agent])
        assert agent.tool("add") is None
        async with http_program(port):
            await offers(agent, "add")
            assert [each.spec.name for each in agent.spec.tools] == ["add"]
            await serving.close([agent])


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_tools_that_a_server_adds_are_offered(tmp_path: Path, transport: str) -> None:
    async with AsyncExitStack() as stack:
        server = program(tmp_path)
        if transport == "http":
            port = await stack.enter_async_context(http_program(0))
            server = McpServer.http("far", f"http://127.0.0.1:{port}/mcp")
        agent = Agent("assistant", model=ScriptedModel(), tools=[server])
        async with asyncio.timeout(SLOW_S):
            await serving.start([agent])
            assert agent.tool("grown") is None
            assert await run(server, "grow") == "done"
            await offers(agent, "grown")
            assert await run(server, "grown") == "new"
            await serving.close([agent])


@pytest.mark.slow
async def test_each_user_has_headers_of_their_own() -> None:
    def headers(context: ToolContext) -> dict[str, str]:
        return {"Authorization": f"Bearer {context.user}"}

    async with http_program(0) as port:
        server = McpServer.http("far", f"http://127.0.0.1:{port}/mcp", user_headers=headers)
        async with started(server):
            token = next(each for each in server.tools if each.declaration.spec.name == "token")
            seen = []
            for name in ("ann", "bob", "ann"):
                context = Context()
                context.user = UserId(name)
                seen.append(await token.run({}, context))
    assert seen == ["Bearer ann", "Bearer bob", "Bearer ann"]
