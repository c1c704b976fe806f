"""One run more than a user may have at a time is refused, by each protocol in its own terms; nothing is left behind."""

import json
from pathlib import Path

from tests.conversations import script
from tests.protocols.a2a.client import A2aClient, message
from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.endpoint_streams import running
from tests.protocols.agui.run_service import RunServiceClient, new_thread, run_input
from tests.protocols.aisdk.client import Pages
from tests.protocols.aisdk.client import user as page_message
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.protocols.every_protocol import for_every_protocol
from tests.protocols.openai.client import OpenAiClient
from tests.requirements import requirement
from tests.servers import running_server, running_socket_server

SLOW = script({"say": "one"}, {"wait_ms": 600_000})


async def session_count(alice: AapClient) -> int:
    return len((await alice.get("/sessions")).json["sessions"])


@requirement("ag-ui-b:transport:http-errors")
async def test_in_the_ag_ui_endpoint_it_is_429_and_makes_no_thread(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_runs_per_user=1) as server:
        alice = Endpoint(server.connection, server.key("alice"))
        async with running(alice, an_input(SLOW)):
            refused = await alice.run(an_input("hello"))
            assert (refused.status, refused.json["code"]) == (429, "rate_limited")
            assert int(refused.headers["retry-after"]) > 0
            assert await session_count(server.aap_client("alice")) == 1


@requirement("runs:errors:problem", "runs:submit:refused-leaves-nothing")
async def test_in_the_run_service_it_is_a_429_problem_for_a_direct_and_for_a_queued_run(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_runs_per_user=2) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        thread = new_thread()
        first = await alice.post("/runs", run_input(thread, SLOW, "r-1"))
        assert first.headers["ratelimit-policy"] == '"user-runs";q=2;qu="runs"'
        assert first.headers["ratelimit"] == '"user-runs";r=1'
        await alice.submit(run_input(thread, "next", "r-2"))
        for body in (run_input(thread, "late", "r-3"), run_input(new_thread(), "late")):
            refused = await alice.post("/runs", body)
            assert (refused.status, refused.json["code"]) == (429, "AGENT_RATE_LIMITED")
            assert refused.headers["ratelimit"] == '"user-runs";r=0'
            assert int(refused.headers["retry-after"]) > 0
        assert await session_count(server.aap_client("alice")) == 1
        assert (await alice.post("/runs", run_input(thread, "next", "r-2"))).status == 202, "it was accepted before"
        await alice.post(f"/runs/{thread}/cancel?runId=r-1", b"")
        await alice.events(thread, "r-2")
        await alice.submit(run_input(thread, "late", "r-3"))


@requirement("openai:request:nothing-stored")
async def test_in_openais_api_it_is_429_and_makes_no_session(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_runs_per_user=1) as server:
        alice = OpenAiClient(server.connection, server.key("alice"))
        begun = await alice.respond(SLOW, background=True)
        for path in ("/responses", "/responses/compact"):
            refused = await alice.request("POST", path, {"model": "rehearsal", "input": "hello"})
            assert (refused.status, refused.json["error"]["code"]) == (429, "rate_limit_exceeded")
            assert int(refused.headers["retry-after"]) > 0
        await alice.post(f"/responses/{begun['id']}/cancel", {})
        assert (await alice.respond("hello"))["status"] == "completed"


@requirement("ai-sdk:request:limits")
async def test_in_the_ai_sdk_it_is_429_and_makes_no_chat(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_runs_per_user=1) as server:
        alice = Pages(server.connection, server.key("alice"))
        running = await alice.open("POST", "", {"id": "busy", "messages": [page_message(SLOW, "u1")]})
        await running.chunk()
        refused = await alice.post("more", page_message("hello", "u1"))
        assert (refused.status, refused.code) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) > 0
        assert await session_count(server.aap_client("alice")) == 1
        await alice.request("POST", "/busy/stop")
        await running.read()


@requirement("blade:chats:refused")
async def test_in_blade_it_is_acknowledged_and_announced_as_rate_limited(tmp_path: Path) -> None:
    async with running_socket_server(tmp_path, max_runs_per_user=1) as server:
        alice = RestClient(url_of(server), server.key("alice"))
        busy, idle = await alice.session(), await alice.session()
        async with socket_client(alice.url, alice.key) as tab:
            await tab.call("chat:send", {"session_id": busy, "message": SLOW})
            refused = await tab.call("chat:send", {"session_id": idle, "message": "hello"})
            assert (refused["status"], refused["code"]) == ("error", "rate_limited")
            (_, announced) = (await tab.until("system:error"))[-1]
            assert (announced["code"], announced["session_id"]) == ("rate_limited", idle)
            assert await alice.messages(idle) == []
            await tab.call("chat:stop", {"session_id": busy})
            await tab.send(idle, "hello")


@requirement("a2a:errors:table", "a2a:send:fields")
async def test_over_a2a_it_is_429_and_makes_no_task(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_runs_per_user=1) as server:
        alice = A2aClient(server.connection, server.key("alice"))
        begun = await alice.send(SLOW, more={"configuration": {"returnImmediately": True}})
        refused = await alice.request("SendMessage", {"message": message("hello")})
        assert (refused.status, json.loads(refused.body)["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert int(refused.headers["retry-after"]) > 0
        assert (await alice.list())["totalSize"] == await session_count(server.aap_client("alice")) == 1
        await alice.cancel(begun["id"])


TESTS = for_every_protocol(
    {
        "agui": test_in_the_ag_ui_endpoint_it_is_429_and_makes_no_thread,
        "run_service": test_in_the_run_service_it_is_a_429_problem_for_a_direct_and_for_a_queued_run,
        "openai": test_in_openais_api_it_is_429_and_makes_no_session,
        "ai_sdk": test_in_the_ai_sdk_it_is_429_and_makes_no_chat,
        "blade": test_in_blade_it_is_acknowledged_and_announced_as_rate_limited,
        "a2a": test_over_a2a_it_is_429_and_makes_no_task,
    },
    without={
        "aap": "in aap/test_extensions.py",
        "agentscope": "in agentscope/test_refusals.py",
        "mcp": "in mcp/test_calls.py",
    },
)
