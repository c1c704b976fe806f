"""Answers that a crash cut off, a user stopped, or an error ended: every reader can tell them from complete ones."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.conversations import script
from tests.protocols.agui.endpoint import Endpoint
from tests.protocols.agui.official_clients import VERSIONS, OfficialClients, Version, check, user
from tests.protocols.agui.run_service import RunServiceClient, new_thread, run_input
from tests.requirements import requirement
from tests.servers import AppServer, ServerProcess, SocketServer, server_process

Json = Any
CUT = {"dragoman": {"interrupted": True, "cut": True}}
STOPPED = {"dragoman": {"interrupted": True}}
FAILED = {"dragoman": {"failed": True}}


@requirement("runs:history:incomplete", "ag-ui-b:history:incomplete")
async def test_after_a_kill_the_cut_words_are_marked_and_their_repetition_is_not(tmp_path: Path) -> None:
    thread = new_thread()
    async with server_process(tmp_path) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        await alice.submit(
            run_input(thread, script({"say": "Once "}, {"wait_ms": 1000}, {"say": "upon a time"}), "r-1")
        )
        async with alice.watch(thread) as watch:
            await watch.until("TEXT_MESSAGE_CONTENT")
            await server.crash()
        alice = RunServiceClient(server.connection, server.key("alice"))
        frames = await alice.events(thread, "r-1")
        ends = [frame.event for frame in frames if frame.type == "TEXT_MESSAGE_END"]
        assert [(each["answer"], each["status"], each.get("metadata")) for each in ends] == [
            ("Once ", "partial_success", CUT),
            ("Once upon a time", "success", None),
        ]
        listed = (await alice.history(thread))["messages"][1:]
        assert [(each["id"], each["content"]) for each in listed] == [
            (each["messageId"], each["answer"]) for each in ends
        ]
        assert [(each.get("status"), each.get("metadata")) for each in listed] == [
            ("partial_success", CUT),
            (None, None),
        ]
        hydrated = (await Endpoint(server.connection, server.key("alice")).messages(thread))[1:]
        assert [each.get("metadata") for each in hydrated] == [CUT, None]


@requirement("ag-ui-b:history:incomplete", "ag-ui-b:branch:retry", "ag-ui-b:hydrate:as-live")
async def test_official_clients_see_the_cut_words_marked_when_they_ask_again_and_after_a_reload(
    clients: OfficialClients, tmp_path: Path
) -> None:
    async with server_process(tmp_path) as server:
        key = server.key("alice")
        live = [await clients.open(each, rehearsal(server), thread=str(uuid4()), key=key) for each in VERSIONS]
        for agent in live:
            await agent.say(user(script({"say": "Once "}, {"wait_ms": 600_000})))
        running = [agent.begin() for agent in live]
        for agent in live:
            await agent.wait_for_text("Once ")
        await server.crash()
        broken = [await each for each in running]
        assert all(each.failed for each in broken)
        for agent, shown in zip(live, broken, strict=True):
            again, new = [
                await clients.open(agent.version, rehearsal(server), thread=agent.thread, key=key, messages=messages)
                for messages in (shown.messages, None)
            ]
            asking = again.begin()
            await again.wait_for_text("Once ")
            await Endpoint(server.connection, key).request("POST", f"rehearsal/stop/{agent.thread}")
            asked, reloaded = check(await asking).messages[1:], check(await new.run()).messages[1:]
            assert [each["content"] for each in asked] == ["Once ", "Once "]
            assert asked[0] == reloaded[0]
            assert [each["metadata"] for each in reloaded] == [CUT, STOPPED]
    clients.console.clear()  # a client says there that its connection broke


def rehearsal(server: ServerProcess) -> str:
    return f"{server.connection.url}/ag-ui/rehearsal"


@requirement("ag-ui-b:history:incomplete")
async def test_reasoning_that_a_kill_cut_off_is_followed_by_a_marked_empty_message(tmp_path: Path) -> None:
    thread = new_thread()
    async with server_process(tmp_path) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        await alice.submit(run_input(thread, script({"think": "hm"}, {"wait_ms": 1000}, {"say": "done"}), "r-1"))
        async with alice.watch(thread) as watch:
            await watch.until("REASONING_MESSAGE_CONTENT")
            await server.crash()
        alice = RunServiceClient(server.connection, server.key("alice"))
        await alice.events(thread, "r-1")
        hydrated = (await Endpoint(server.connection, server.key("alice")).messages(thread))[1:]
        shown = [(each["role"], each["content"], each.get("metadata")) for each in hydrated]
        assert shown == [
            ("reasoning", "hm", None),
            ("assistant", "", CUT),
            ("reasoning", "hm", None),
            ("assistant", "done", None),
        ]


@requirement("runs:history:incomplete", "ag-ui-b:history:incomplete")
async def test_a_failed_and_a_stopped_answer_are_marked(app_server: AppServer) -> None:
    alice, thread = RunServiceClient(app_server.connection, app_server.key("alice")), new_thread()
    await alice.play(thread, script({"say": "half"}, {"fail": "internal"}))
    await alice.submit(run_input(thread, script({"say": "never "}, {"wait_ms": 600_000}), "r-2"))
    async with alice.watch(thread, "?runId=r-2") as watch:
        await watch.until("TEXT_MESSAGE_CONTENT")
        await alice.post(f"/runs/{thread}/cancel?runId=r-2", b"")
        await watch.until("RUN_FINISHED")
    await alice.play(thread, "hello", "r-3")
    answers = [each for each in (await alice.history(thread))["messages"] if each["role"] == "assistant"]
    assert [(each.get("status"), each.get("metadata")) for each in answers] == [
        ("failed", FAILED),
        ("partial_success", STOPPED),
        (None, None),
    ]
    hydrated = await Endpoint(app_server.connection, app_server.key("alice")).messages(thread)
    assert [each.get("metadata") for each in hydrated if each["role"] == "assistant"] == [FAILED, STOPPED, None]


@requirement("ag-ui-b:branch:retry", "ag-ui-b:clients:no-warnings")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_retry_replaces_the_failed_words_in_the_client(
    agui_clients: OfficialClients, socket_server: SocketServer, version: Version
) -> None:
    url, key = f"{socket_server.connection.url}/ag-ui/rehearsal", socket_server.key("alice")
    agent = await agui_clients.open(version, url, thread=str(uuid4()), key=key)
    check(await agent.send_and_run("hello"))
    await agent.say(user(script({"say": "half"}, {"step": True}, {"say": "and half"}, {"fail": "internal"})))
    first = check(await agent.run())
    again = check(await agent.run())
    kept = len(first.messages) - 2
    assert [each["role"] for each in again.messages] == [each["role"] for each in first.messages]
    assert again.messages[:kept] == first.messages[:kept]
    assert not {each["id"] for each in again.messages[kept:]} & {each["id"] for each in first.messages[kept:]}
