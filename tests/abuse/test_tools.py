"""Tools that hang, fail, return wrong values or return too much. Cases 35 and 36, and the tools' part of case 20."""

import asyncio
import json
import os
import threading
from io import StringIO
from typing import Any

import pytest

from dragoman.core.answers import RESULT_LIMIT
from dragoman.server.app import Application
from tests.abuse import misbehaving_agents as wild
from tests.abuse.session_invariants import assert_session_consistent, results_by_call
from tests.protocols.aap.agents import ToolGates
from tests.protocols.aap.client import AapClient, Session, enabled_tools
from tests.servers import AppServer

Json = Any
CANARY = "canary-of-a-tool-51c0"
ALL = [tool.name for tool in wild.TOOLS if tool.declaration.policy.exposed]


async def using(aap: AapClient, name: str, /, **arguments: Json) -> tuple[Session, Json]:
    """Call a tool; return the session and the call's result."""
    session = await aap.create("tools", server_tools=enabled_tools(*ALL))
    turn = await session.run(f"{name} {json.dumps(arguments)}")
    assert turn.stop == "end_turn"
    (output,) = turn.results.values()
    return session, output


async def still_works(session: Session) -> None:
    """Check that the session is consistent and its next call works."""
    info = await session.info()
    assert info["_meta"]["status"] == "idle"
    assert [len(each) for each in results_by_call(await session.history()).values() if len(each) != 1] == []
    turn = await session.run('add {"a": 1, "b": 2}')
    assert (turn.stop, list(turn.results.values())) == ("end_turn", ["3"])


@pytest.mark.parametrize("tool", ["fail", "fail_in_a_thread"])
@pytest.mark.parametrize("kind", wild.RAISED)
async def test_whatever_a_tool_raises_fails_its_call_and_nothing_else(
    aap_client: AapClient, tool: str, kind: str
) -> None:
    session, output = await using(aap_client, tool, kind=kind)
    assert output.startswith("Tool execution failed: ")
    assert "Traceback" not in output
    assert len(output) <= RESULT_LIMIT + 100
    await still_works(session)


async def test_a_tool_that_cancels_its_own_task_fails_its_call_and_nothing_else(aap_client: AapClient) -> None:
    session, output = await using(aap_client, "cancel_itself")
    assert output.startswith("Tool execution failed: it ")
    await still_works(session)


@pytest.mark.parametrize("what", wild.RETURNED)
async def test_a_hundred_megabytes_are_cut_with_a_mark(aap_client: AapClient, what: str) -> None:
    session, output = await using(aap_client, "return_value", what=what)
    text = output if isinstance(output, str) else output[0]["text"]
    assert "[cut: " in text
    assert len(text) <= RESULT_LIMIT + 100
    await still_works(session)


@pytest.mark.parametrize("what", wild.NO_JSON)
async def test_a_value_without_a_json_form_fails_its_call_and_nothing_else(aap_client: AapClient, what: str) -> None:
    session, output = await using(aap_client, "return_value", what=what)
    assert output.startswith("Tool execution failed: ")
    await still_works(session)


@pytest.mark.parametrize("what", wild.ODD)
async def test_an_unusual_value_is_a_readable_result(aap_client: AapClient, what: str) -> None:
    session, output = await using(aap_client, "return_value", what=what)
    assert json.loads(json.dumps(output)) == output
    await still_works(session)


async def test_a_tool_that_hangs_fails_at_its_timeout(aap_client: AapClient) -> None:
    session, output = await using(aap_client, "hang")
    assert output == "Tool execution failed: it took longer than 0.05 s"
    await still_works(session)


async def test_a_thread_that_blocks_past_its_time_fails_its_call_and_blocks_nobody(aap_client: AapClient) -> None:
    session, output = await using(aap_client, "block_past_timeout", name="late")
    assert output == "Tool execution failed: it took longer than 0.05 s"
    await still_works(session)
    wild.BLOCKED["late"].set()


async def test_a_thread_that_blocks_blocks_no_other_session(aap_client: AapClient) -> None:
    blocked = await aap_client.create("tools", server_tools=enabled_tools(*ALL))
    released = wild.BLOCKED.setdefault("long", threading.Event())
    asking = asyncio.create_task(blocked.run('block {"name": "long"}'))
    session, output = await using(aap_client, "add", a=1, b=2)
    assert (output, asking.done()) == ("3", False)
    released.set()
    assert list((await asking).results.values()) == ["unblocked long"]
    await still_works(session)


async def test_a_process_that_a_tool_starts_inherits_no_socket(aap_client: AapClient) -> None:
    session, _ = await using(aap_client, "start_a_process")
    child = wild.CHILDREN.pop()
    try:
        places = [os.readlink(f"/proc/{child.pid}/fd/{each}") for each in os.listdir(f"/proc/{child.pid}/fd")]
        assert [place for place in places if place.startswith("socket:") or "dragoman.db" in place] == []
    finally:
        child.communicate()
    await still_works(session)


async def test_a_secret_in_a_tool_s_error_is_neither_logged_nor_in_the_session(
    app_server: AppServer, log_records: StringIO
) -> None:
    session = await app_server.aap_client("alice").create(
        "tools", server_tools=enabled_tools(*ALL), options={"secret": CANARY}
    )
    turn = await session.run("print_the_secret")
    assert turn.stop == "end_turn"
    assert CANARY not in log_records.getvalue()
    assert CANARY not in json.dumps(await session.info())


# --- stopped ----------------------------------------------------------------------------------------------------------


async def test_a_tool_is_cancelled_within_five_seconds_when_its_session_is_deleted(
    aap_client: AapClient, tool_gates: ToolGates
) -> None:
    session = await aap_client.create("tools", server_tools=enabled_tools(*ALL))
    reading = await session.open('wait_for_gate {"gate_name": "deleted-meanwhile"}')
    await tool_gates.entered("deleted-meanwhile")
    async with asyncio.timeout(60):
        assert (await session.delete()).status == 204
        await tool_gates.cancelled("deleted-meanwhile")
        assert (await reading.read_to_end())[-1].data["stopReason"] == "error"


async def test_a_stop_during_a_tool_cancels_the_tool_and_leaves_no_call_open(
    app_server: AppServer, tool_gates: ToolGates
) -> None:
    session = await app_server.aap_client("alice").create("wild", server_tools=enabled_tools(*ALL))
    wild.PLAYS["hold here"] = wild.parts_in_first_step(
        *wild.calls(wild.call("wait_for_gate", gate_name="stopped-meanwhile"))
    )
    reading = await session.open("hold here")
    await tool_gates.entered("stopped-meanwhile")
    app = app_server.connection.app
    assert isinstance(app, Application)
    async with app.engine.session(_owner(), _id(session)) as live, asyncio.timeout(60):
        stopped = await asyncio.gather(*(app.engine.stop_run(live) for _ in range(3)))
        await tool_gates.cancelled("stopped-meanwhile")
    assert any(stopped)
    frames = await reading.read_to_end()
    assert [frame.event for frame in frames][-2:] == ["tool_result", "turn_stop"]
    assert frames[-2].data["content"] == "Tool call cancelled while it ran: the run was stopped"
    await assert_session_consistent(session)


def _owner() -> Any:
    return "alice"


def _id(session: Session) -> Any:
    return session.id
