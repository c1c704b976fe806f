"""A person who approves a call of a sub-agent sees that call with its arguments, on every protocol."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.aap.client import Session, call, grant, script
from tests.protocols.agentscope.client import AgentScopeClient
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient, new_thread, run_input
from tests.requirements import requirement
from tests.servers import AppServer, running_server

Json = Any
QUESTION = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}
PAY = script({"fork": {"description": "dig", "script": [call("stamp", text="5 €"), {"say": "{result}"}]}})
ASK = script({"fork": {"description": "dig", "script": [{"ask": QUESTION}, {"say": "so {answer}"}]}})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path) as started:
        yield started


async def waiting_thread(server: AppServer, play: str) -> tuple[RunServiceClient, str, list[dict[str, Json]]]:
    """A thread of the run service that waits, and the events of its run."""
    service, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
    await service.submit(run_input(thread, play))
    return service, thread, [frame.event for frame in await service.events(thread, "r-1")]


@requirement("runs:answers:sub-agent")
async def test_the_run_service_shows_the_call_and_continues_with_its_own_id(server: AppServer) -> None:
    service, thread, events = await waiting_thread(server, PAY)
    (started,) = [each for each in events if each["type"] == "TOOL_CALL_START" and each["toolCallName"] == "stamp"]
    (args,) = [each for each in events if each["type"] == "TOOL_CALL_ARGS" and each["toolCallName"] == "stamp"]
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    assert args["args"] == {"text": "5 €"}
    assert (interrupt["toolCallId"], interrupt["message"]) == (
        started["toolCallId"],
        'Allow the call of stamp(text="5 €")?',
    )
    agent = next(each["toolCallId"] for each in events if each.get("toolCallName") == "Agent")
    for wrong in ({"callId": agent, "granted": True}, {"callId": started["toolCallId"], "result": "FORGED"}):
        assert (await service.post(f"/runs/{thread}/answers", {"answers": [wrong]})).status == 422
    granted = {"callId": started["toolCallId"], "granted": True}
    accepted = await service.post(f"/runs/{thread}/answers", {"answers": [granted]})
    assert accepted.status == 202
    after = [frame.event for frame in await service.events(thread, accepted.json["taskId"])]
    results = [(each["tool_name"], each["result"]) for each in after if each["type"] == "TOOL_CALL_RESULT"]
    assert results == [("stamp", "stamped 5 €"), ("Agent", "stamped 5 €")]


@requirement("runs:answers:sub-agent")
async def test_the_run_service_shows_the_question_and_refuses_a_grant(server: AppServer) -> None:
    service, thread, events = await waiting_thread(server, ASK)
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    assert (interrupt["reason"], interrupt["message"]) == ("input_required", "Which? (a, b)")
    answer = {"callId": interrupt["toolCallId"], "granted": True}
    assert (await service.post(f"/runs/{thread}/answers", {"answers": [answer]})).status == 422


@requirement("aap:meeting:sub-agent-waits", "aap:meeting:question-granted")
@pytest.mark.parametrize(("play", "name"), [(PAY, "stamp"), (ASK, "AskUserQuestion")])
async def test_a_grant_that_names_the_sub_agent_approves_nothing(server: AppServer, play: str, name: str) -> None:
    _, thread, events = await waiting_thread(server, play)
    session = Session(server.aap_client("alice"), thread)
    (pending,) = (await session.info())["_meta"]["pending"]
    assert pending["name"] == name
    agent = next(each["toolCallId"] for each in events if each.get("toolCallName") == "Agent")
    refused = await session.post([grant(agent)])
    assert (refused.status, refused.json["code"]) == (400, "invalid_request")
    assert pending["toolCallId"] in refused.json["error"]
    assert (await session.info())["_meta"]["pending"] == [pending]


@requirement("ag-ui-b:subagents:suspended")
@pytest.mark.parametrize("version", ["1.0", None])
async def test_ag_ui_clients_of_every_version_see_the_call_with_its_arguments(
    server: AppServer, version: str | None
) -> None:
    endpoint = Endpoint(server.connection, server.key("alice"))
    body = an_input(PAY, version=version)
    (interrupt,) = (await endpoint.run(body)).events[-1]["outcome"]["interrupts"]
    assert interrupt["message"] == 'Allow the call of stamp(text="5 €")?'


@requirement("agentscope:types:sub-agent")
async def test_the_agent_api_sends_the_call_with_its_arguments(server: AppServer) -> None:
    end = await AgentScopeClient(server.connection, server.key("alice")).run(PAY)
    request = end["output"][1]["content"][0]["data"]
    assert (request["name"], json.loads(request["arguments"])) == ("stamp", {"text": "5 €"})


@requirement("aap:meeting:sub-agent-waits")
async def test_a_call_of_a_sub_agent_is_still_shown_after_a_restart(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        _, thread, _ = await waiting_thread(server, PAY)
        await server.restart()
        session = Session(server.aap_client("alice"), thread)
        (pending,) = (await session.info())["_meta"]["pending"]
        assert (pending["name"], pending["input"]) == ("stamp", {"text": "5 €"})
        end = await session.run([grant(pending["toolCallId"])], "delta")
        assert [each.name for each in end.calls] == ["Agent"]
        assert list(end.results.values()) == ["stamped 5 €", "stamped 5 €"]
