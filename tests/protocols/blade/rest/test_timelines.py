"""The timeline of a run: what it did and when, at any age, for who may read its session."""

from typing import Any

from tests.conversations import call, script
from tests.protocols.blade.client import RestClient, socket_client
from tests.requirements import requirement

Json = Any


async def run_of(alice: RestClient, session: str) -> str:
    return str((await alice.messages(session))[-1]["chat_run_id"])


@requirement("blade:timelines:runs")
async def test_a_timeline_has_the_runs_model_calls_tools_sub_agents_and_waits_of_a_turn(alice: RestClient) -> None:
    session = await alice.session()
    path = f"sessions/{session}"
    below = {"fork": {"description": "Count", "script": [call("add", a=2, b=2), {"say": "It is {result}."}]}}
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "hello")
        await socket.send(session, script({"think": "Hm."}, call("stamp", text="a"), below, {"say": "Done."}))
        paused = (await alice.messages(session))[-1]
        waiting = await alice.get(f"{path}/runs/{paused['chat_run_id']}")
        [stamp] = waiting["calls"]
        assert (stamp["kind"], stamp["waits"][0]["ended_at"], stamp["ended_at"]) == ("permission", None, None)
        question = paused["tool_calls"][0]["pending_question_ref"]["child_tool_call_id"]
        answer = {"tool_call_id": question, "selections": {"0": [0]}, "custom": {}}
        await socket.send(session, "", askuser_answer=answer)
        await socket.send(session, "bye")
    turns = await alice.messages(session)
    timeline = await alice.get(f"{path}/runs/{paused['chat_run_id']}")
    assert [(each["reason"], each["protocol"]) for each in timeline["runs"]] == [
        ("tool_use", "blade"),
        ("end_turn", "blade"),
    ]
    own = {each["chat_run_id"] for each in timeline["runs"]}
    shown = [each for each in turns if each["chat_run_id"] in own and each["role"] == "assistant"]
    assert [(each["turn_id"], each["usage"]) for each in timeline["steps"]] == [
        (each["turn_id"], each["usage"]) for each in shown
    ]
    assert timeline["steps"][0]["blocks"][0]["content"] == "Hm."
    stamp, fork, add = timeline["calls"]
    assert (stamp["tool_name"], stamp["arguments"], stamp["result"]) == ("stamp", {"text": "a"}, "stamped a")
    [wait] = stamp["waits"]
    assert (wait["kind"], wait["granted"]) == ("permission", True)
    assert stamp["opened_at"] <= wait["ended_at"] <= stamp["started_at"] <= stamp["ended_at"]
    assert (fork["kind"], fork["outcome"], add["parent_fork_tool_call_id"]) == ("fork", "done", fork["tool_call_id"])
    later = await alice.get(f"{path}/runs/{[*own][1]}")
    assert later == timeline, "a run that only answers calls belongs to the turn of its question"

    last = timeline["steps"][-1]
    given = await alice.get(f"{path}/runs/{paused['chat_run_id']}/steps/{last['turn_id']}")
    assert given["summary"] is None
    assert [each["role"] for each in given["messages"]] == [
        *("user", "assistant"),
        *("user", "assistant", "tool", "assistant", "tool"),
    ]
    assert [block["type"] for block in given["messages"][3]["blocks"]] == ["thinking", "tool_use"]
    inner = next(each for each in timeline["steps"] if each["parent_fork_tool_call_id"] is not None)
    below_given = await alice.get(f"{path}/runs/{paused['chat_run_id']}/steps/{inner['turn_id']}")
    assert below_given["messages"] == [], "the task of a sub-agent is in the arguments of its call"


@requirement("blade:timelines:access")
async def test_a_timeline_is_only_for_who_may_read_the_session_and_a_run_is_found_in_its_own(
    alice: RestClient, bob: RestClient
) -> None:
    session, other = await alice.session(), await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "hello")
    run = await run_of(alice, session)
    path = f"sessions/{session}/runs/{run}"
    step = (await alice.get(path))["steps"][0]["turn_id"]
    for client, name in ((bob, path), (bob, f"{path}/steps/{step}"), (alice, f"sessions/{other}/runs/{run}")):
        assert (await client.request("GET", name)).status == 404
    for name in (f"sessions/{session}/runs/chat_none", f"{path}/steps/turn_none"):
        assert (await alice.request("GET", name)).status == 404
    await alice.request("PATCH", f"sessions/{session}/sharing", {"shared": True})
    assert await bob.get(path) == await alice.get(path)
    own = await bob.session()
    assert (await bob.request("GET", f"sessions/{own}/runs/{run}")).status == 404
