"""How remote agents are declared: in a file, on the command line, and what is refused."""

import asyncio
import gc
import re
import runpy
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest
import uvicorn
from structlog.testing import capture_logs

from dragoman import RemoteAgent
from dragoman.agents.parameters import DeclarationError
from dragoman.client import AsyncClient
from dragoman.client.codec import SessionHandle
from dragoman.client.connection import Timeouts
from dragoman.client.transports import ClientProtocol
from dragoman.gateway.breaker import CircuitBreaker
from dragoman.gateway.remote_server import RemoteServer
from dragoman.server.loading import LoadError, as_agent, load, load_all
from tests.servers import Listener, running_socket_server

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "remote_agents"


async def test_the_example_is_served_and_says_at_start_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = runpy.run_path(str(EXAMPLES / "agui_server.py"))["app"]
    listener = Listener(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    connection = await listener.start()
    try:
        monkeypatch.setenv("PARROT_URL", f"{connection.url}/agent")
        (parrot,) = load(str(EXAMPLES / "gateway.py"))
        assert isinstance(parrot, RemoteAgent)
        async with running_socket_server(tmp_path, agents=[parrot], rehearsal=False) as server:
            assert parrot.describe() == f"AG-UI at {connection.url}/agent, which does not say what it can do"
            async with AsyncClient(server.connection.url, key=server.key("alice"), protocol="openai") as client:
                session = await client.create("parrot")
                assert (await session.ask("hello")).text == "alice said: hello"
                assert (await session.ask("again")).text == "alice said: hello, then again"
            headers = {"Authorization": f"Bearer {server.key('alice')}"}
            async with httpx2.AsyncClient(base_url=server.connection.url, headers=headers) as http:
                assert [each["name"] for each in (await http.get("/aap/v3/meta")).json()["agents"]] == ["parrot"]
    finally:
        await listener.stop()


async def test_the_example_of_an_a2a_agent_is_served_by_its_location(tmp_path: Path) -> None:
    app = runpy.run_path(str(EXAMPLES / "a2a_server.py"))["app"]
    listener = Listener(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
    connection = await listener.start()
    try:
        agents = load(f"barista=a2a+{connection.url}")
        async with (
            running_socket_server(tmp_path, agents=agents, rehearsal=False) as server,
            AsyncClient(server.connection.url, key=server.key("alice")) as client,
        ):
            (barista,) = await client.agents()
            assert (barista.name, barista.description) == ("barista", "Brings hot drinks")
            session = await client.create("barista", on_question=lambda question: "tea")
            assert (await session.ask("hello")).text == "Here is your tea."
    finally:
        await listener.stop()


async def test_the_example_in_the_docs_is_an_agent() -> None:
    page = (EXAMPLES.parent.parent / "docs" / "remote-agents.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(from dragoman .*?)```", page, re.DOTALL)
    assert block is not None
    names: dict[str, object] = {}
    exec(block[1], names)  # our own page
    weather = as_agent(names["weather"], "weather")
    assert weather is not None
    assert (weather.spec.name, [option.name for option in weather.spec.options]) == ("weather", ["token"])


def test_an_agent_is_named_after_its_variable_unless_it_has_a_name() -> None:
    unnamed = as_agent(RemoteAgent("aap", "http://127.0.0.1:9"), "weather")
    named = as_agent(RemoteAgent("aap", "http://127.0.0.1:9", name="sun"), "weather")
    assert [each.spec.name for each in (unnamed, named) if each is not None] == ["weather", "sun"]


def test_a_location_on_the_command_line_is_a_remote_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMOTE_AGENT_KEY", "sk-1")
    locations = [f"{name}={name}+http://127.0.0.1:9/path" for name in get_args(ClientProtocol)]
    agents = load_all(["a.b=ag-ui+http://127.0.0.1:9/agent", *locations])
    assert [each.spec.name for each in agents] == ["a.b", *get_args(ClientProtocol)]
    assert all(isinstance(each, RemoteAgent) for each in agents)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (
            "weather=smtp+http://127.0.0.1:9",
            "a2a, run-service for a remote agent, got 'smtp'",
        ),
        (
            "weather=http://me:secret@127.0.0.1",
            "weather: expected the protocol before the address, such as weather=ag-ui+http",
        ),
        ("weather=aap+http://", "a remote agent needs its server's address"),
        ("weather=aap+http://[::1", "a remote agent needs its server's address"),
        ("weather=aap+http://me:secret@127.0.0.1", "a remote agent's address has no password in it"),
        ("weather=openai+https://127.0.0.1/v1?api_key=secret", "a remote agent's address has no query or fragment"),
        ("weather=aap+http://127.0.0.1/#secret", "a remote agent's address has no query or fragment"),
        ("weather=aap+ftp://127.0.0.1", "no such file"),
    ],
)
def test_a_location_that_cannot_be_served_is_refused(location: str, expected: str) -> None:
    with pytest.raises(LoadError) as refused:
        load(location)
    assert expected in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_a_stop_that_fails_unexpectedly_is_logged_and_no_exception_is_lost() -> None:
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))
    server = RemoteServer("weather", "aap", "http://127.0.0.1:9", None, Timeouts())
    with capture_logs() as logs:
        server.stop_later(server.transport, SessionHandle(id="\ud800", agent=""))  # no path can contain it
        await server.close()
    gc.collect()
    assert ([each["event"] for each in logs], lost) == (["remote run not stopped"], [])


def test_an_unknown_rule_or_option_is_refused() -> None:
    with pytest.raises(DeclarationError) as refused:
        RemoteAgent("aap", "http://127.0.0.1:9", on_lost="pray")  # type: ignore[arg-type]  # what is tested
    assert str(refused.value) == "on_lost must be one of fail, retry, got 'pray'"
    with pytest.raises(TypeError):
        RemoteAgent("aap", "http://127.0.0.1:9", color="blue")  # type: ignore[call-arg]  # what is tested


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_request_through_when_its_time_is_over() -> None:
    now = 0.0
    breaker = CircuitBreaker(2, 10.0, lambda: now)
    breaker.record_failure()
    breaker.record_success()
    breaker.record_failure()
    assert (breaker.state, breaker.allows_request()) == ("closed", True)
    breaker.record_failure()
    assert (breaker.state, breaker.allows_request(), breaker.wait_s) == ("open", False, 10.0)
    now = 10.0
    assert (breaker.state, breaker.allows_request(), breaker.allows_request()) == ("half_open", True, False)
    breaker.record_failure()
    assert breaker.state == "open"
    now = 20.0
    assert breaker.allows_request()
    breaker.release()
    assert breaker.allows_request()
    breaker.record_success()
    assert (breaker.state, breaker.allows_request()) == ("closed", True)
