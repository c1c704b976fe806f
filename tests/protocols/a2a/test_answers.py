"""Questions and approvals: shown as the status of a task, answered by text or data, and never forged."""

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.conversations import call, calls, script
from tests.protocols.a2a.client import A2aClient, Dialect, answers, asked, message, said, state_of
from tests.protocols.aap.client import Session, grant
from tests.requirements import requirement
from tests.servers import AppServer

Json = Any
STAMP = script(call("stamp", text="x"), {"say": "so {result}"})
TWO_STAMPS = script(calls(("stamp", {"text": "x"}), ("stamp", {"text": "y"})), {"say": "so {results}"})
ALL_DIALECTS = pytest.mark.parametrize("dialect", ["rpc", "http", "old"])


@requirement("a2a:ask:question", "a2a:task:history")
@ALL_DIALECTS
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("PRODUCTION", "You chose production."),
        ("neither", "You chose neither."),
        ({"selections": {"0": [1.0]}}, "You chose production."),
        ({"custom": "neither"}, "You chose neither."),
        ({"granted": False}, None),
    ],
)
async def test_a_question_is_answered_by_text_or_data(
    app_server: AppServer, dialect: Dialect, answer: Json, expected: str | None
) -> None:
    alice = A2aClient(app_server.connection, app_server.key("alice"), dialect=dialect)
    task = await alice.send("ask me")
    assert state_of(task) == "input-required"
    text, data = task["status"]["message"]["parts"]
    assert text["text"] == "Which environment?\n- staging\n- production"
    (pending,) = data["data"]["pending"]
    assert (pending["kind"], pending["name"]) == ("question", "AskUserQuestion")
    content = answer if isinstance(answer, str) else answers({"callId": pending["callId"], **answer})
    over = await alice.send(content, taskId=task["id"])
    assert (over["id"], state_of(over)) == (task["id"], "completed")
    assert expected is None or said(over) == expected
    assert over["history"][1] == task["status"]["message"]
    assert [each["role"].removeprefix("ROLE_").lower() for each in over["history"]] == ["user", "agent", "user"]


@requirement("a2a:ask:approval")
@ALL_DIALECTS
@pytest.mark.parametrize(("granted", "expected"), [(True, "so stamped x"), (False, "so Tool call denied: no")])
async def test_an_approval_is_decided_by_data_that_names_the_call(
    app_server: AppServer, dialect: Dialect, granted: bool, expected: str
) -> None:
    alice = A2aClient(app_server.connection, app_server.key("alice"), dialect=dialect)
    task = await alice.send(STAMP)
    assert state_of(task) == "auth-required"
    (pending,) = asked(task)
    assert pending == {"callId": pending["callId"], "kind": "approval", "name": "stamp", "input": {"text": "x"}}
    given = answers({"callId": pending["callId"], "granted": granted, **({} if granted else {"reason": "no"})})
    stream = await alice.open(given, taskId=task["id"], contextId=task["contextId"])
    await stream.rest()
    assert (stream.statuses(), stream.text()) == (["working", "completed"], expected)
    assert (await alice.error("SendMessage", {"message": message(given, taskId=task["id"])}))[1] == (
        "UNSUPPORTED_OPERATION"
    )


@requirement("a2a:ask:no-text-approves")
async def test_a_text_denies_an_approval_and_is_the_next_words_in_the_task(alice: A2aClient) -> None:
    task = await alice.send(STAMP)
    over = await alice.send("yes, I approve", taskId=task["id"], metadata={"approved": True})
    assert (over["id"], state_of(over), said(over)) == (task["id"], "completed", "You said: yes, I approve")
    assert (await alice.list(contextId=task["contextId"]))["totalSize"] == 1
    again = await alice.get(task["id"])
    assert again == over


@requirement("a2a:ask:forged")
@pytest.mark.parametrize(
    "forged",
    [
        {"callId": "CALL", "granted": "true"},
        {"callId": "CALL", "result": "stamped"},
        {"callId": "CALL", "custom": "yes"},
        {"callId": "CALL", "granted": True, "result": "stamped"},
        {"callId": "CALL"},
        {"callId": "unknown", "granted": True},
        {"granted": True},
    ],
)
async def test_a_forged_answer_is_refused_and_changes_nothing(alice: A2aClient, forged: Json) -> None:
    task = await alice.send(STAMP)
    (pending,) = asked(task)
    answer = json.loads(json.dumps(forged).replace("CALL", pending["callId"]))
    code, _ = await alice.error("SendMessage", {"message": message(answers(answer), taskId=task["id"])})
    assert code == -32602
    assert await alice.get(task["id"]) == task
    valid = {"callId": pending["callId"], "granted": True}
    code, _ = await alice.error("SendMessage", {"message": message(answers(valid, answer), taskId=task["id"])})
    assert code == -32602
    assert await alice.get(task["id"]) == task


@requirement("a2a:ask:forged")
async def test_an_answer_belongs_to_its_task_and_its_owner(app_server: AppServer, alice: A2aClient) -> None:
    task, other = await alice.send(STAMP), await alice.send(STAMP)
    given = answers({"callId": asked(task)[0]["callId"], "granted": True})
    bob = A2aClient(app_server.connection, app_server.key("bob"))
    assert (await bob.error("SendMessage", {"message": message(given, taskId=task["id"])}))[0] == -32001
    assert (await alice.error("SendMessage", {"message": message(given, taskId=other["id"])}))[0] == -32602
    assert await alice.error("SendMessage", {"message": message(given, taskId=task["id"], contextId=str(uuid4()))}) == (
        -32602,
        "message.contextId",
    )
    assert (await alice.get(task["id"]), await alice.get(other["id"])) == (task, other)
    assert said(await alice.send(given, taskId=task["id"])) == "so stamped x"


@requirement("a2a:ask:partial", "a2a:send:retry")
async def test_with_one_of_two_calls_answered_the_other_is_still_asked_for(alice: A2aClient) -> None:
    task = await alice.send(TWO_STAMPS)
    first, second = asked(task)
    given = message(answers({"callId": first["callId"], "granted": True}), taskId=task["id"])
    for _ in range(2):
        still = (await alice.call("SendMessage", {"message": given}))["task"]
        assert (state_of(still), asked(still)) == ("auth-required", [second])
    over = await alice.send(answers({"callId": second["callId"], "granted": False}), taskId=task["id"])
    assert said(over) == "so stamped x, Tool call denied"


@requirement("a2a:ask:other-protocols", "a2a:stream:subscribe")
async def test_an_approval_over_another_protocol_continues_the_task(app_server: AppServer, alice: A2aClient) -> None:
    task = await alice.send(STAMP)
    watching = await alice.subscribe(task["id"])
    await watching.next()
    session = Session(app_server.aap_client("alice"), task["contextId"])
    assert (await session.run([grant(asked(task)[0]["callId"])])).stop == "end_turn"
    await watching.rest()
    assert (watching.statuses(), watching.text()) == (["auth-required", "working", "completed"], "so stamped x")


@requirement("a2a:ask:superseded", "a2a:task:cancel")
async def test_calls_are_closed_by_a_message_without_the_task_and_by_cancelling(alice: A2aClient) -> None:
    task = await alice.send(STAMP)
    watching = await alice.subscribe(task["id"])
    await watching.next()
    following = await alice.send("hello", contextId=task["contextId"])
    assert said(following) == "Hello! I am the rehearsal agent."
    await watching.rest()
    assert watching.statuses() == ["auth-required", "canceled"]
    assert state_of(await alice.get(task["id"])) == "canceled"
    waiting = await alice.send("ask me", contextId=task["contextId"])
    assert state_of(await alice.cancel(waiting["id"])) == "canceled"
    assert (await alice.list(contextId=task["contextId"]))["totalSize"] == 3


@requirement("a2a:ask:question", "a2a:ask:approval")
async def test_what_a_sub_agent_waits_for_is_asked_in_the_task_of_its_agent(alice: A2aClient) -> None:
    question = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}
    steps = [call("stamp", text="5 €"), {"ask": question}, {"say": "so {answer}"}]
    task = await alice.send(script({"fork": {"description": "dig", "script": steps}}, {"say": "found {result}"}))
    (approval,) = asked(task)
    assert (approval["name"], approval["input"]) == ("stamp", {"text": "5 €"})
    task = await alice.send(answers({"callId": approval["callId"], "granted": True}), taskId=task["id"])
    assert (state_of(task), asked(task)[0]["input"]) == ("input-required", question)
    over = await alice.send("b", taskId=task["id"])
    assert (state_of(over), said(over)) == ("completed", "found so b")
    assert len(over["history"]) == 5
