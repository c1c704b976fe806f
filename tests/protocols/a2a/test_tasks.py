"""Tasks: begun by messages, found, listed, queued and cancelled, in both versions and over both bindings."""

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from uuid import uuid4

import pytest

from dragoman.protocols.a2a import tasks as module
from tests.asgi_client import DEADLINE_S
from tests.conversations import call, script
from tests.protocols.a2a.client import A2aClient, Dialect, Json, error_of, message, said, state_of
from tests.protocols.aap.client import user
from tests.requirements import requirement
from tests.servers import AppServer, running_server

SLOW = script({"say": "one "}, {"wait_ms": 600_000}, {"say": "two"})
ALL_DIALECTS = pytest.mark.parametrize("dialect", ["rpc", "http", "old"])


@requirement("a2a:send:task", "a2a:task:get", "a2a:task:history")
async def test_a_message_begins_a_task_whose_answer_is_an_artifact(alice: A2aClient) -> None:
    sent = message("hello", metadata={"ticket": 7})
    task = (await alice.call("SendMessage", {"message": sent}))["task"]
    task_id, context_id = task["id"], task["contextId"]
    (artifact,) = task["artifacts"]
    answer = {"text": "Hello! I am the rehearsal agent.", "mediaType": "text/plain"}
    assert task == {
        "id": task_id,
        "contextId": context_id,
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": task["status"]["timestamp"]},
        "artifacts": [{"artifactId": artifact["artifactId"], "name": "answer", "parts": [answer]}],
        "history": [
            {
                "messageId": sent["messageId"],
                "role": "ROLE_USER",
                "parts": [{"text": "hello", "mediaType": "text/plain"}],
                "contextId": context_id,
                "taskId": task_id,
                "metadata": {"ticket": 7},
            }
        ],
        "metadata": {"usage": {"inputTokens": 2, "outputTokens": 8}, "stopReason": "end_turn"},
    }
    assert await alice.get(task_id) == task
    assert "history" not in await alice.get(task_id, historyLength=0)
    assert await alice.get(task_id.upper(), historyLength=1) == task


@requirement("a2a:task:history")
@ALL_DIALECTS
async def test_a_message_without_text_is_a_part_without_text(app_server: AppServer, dialect: Dialect) -> None:
    """A message has at least one part: the official SDK for Python takes one without for invalid."""
    alice = A2aClient(app_server.connection, app_server.key("alice"), dialect=dialect)
    ((part,),) = [each["parts"] for each in (await alice.send(""))["history"]]
    assert part["text"] == ""


@requirement("a2a:send:task")
async def test_version_0_3_has_the_same_task_with_its_own_names(app_server: AppServer, alice: A2aClient) -> None:
    old = A2aClient(app_server.connection, app_server.key("alice"), dialect="old")
    task = await old.send("hello")
    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    (part,) = task["artifacts"][0]["parts"]
    assert part == {"kind": "text", "text": "Hello! I am the rehearsal agent."}
    (first,) = task["history"]
    assert (first["kind"], first["role"], first["parts"]) == ("message", "user", [{"kind": "text", "text": "hello"}])
    assert said(await alice.get(task["id"])) == said(task)


@requirement("a2a:send:task")
@pytest.mark.parametrize(
    "parts", [[{"type": "text", "text": "hello"}], [{"text": "hello"}], [{"kind": "text", "text": "hello"}]]
)
async def test_clients_of_0_3_may_write_parts_as_older_ones_do(app_server: AppServer, parts: Json) -> None:
    old = A2aClient(app_server.connection, app_server.key("alice"), dialect="old")
    params = {"message": {"messageId": str(uuid4()), "role": "user", "parts": parts, "kind": "message"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
    stream = await old.open_raw("POST", "", json.dumps(body).encode(), {})
    assert said(json.loads(await stream.read())["result"]) == "Hello! I am the rehearsal agent."


@requirement("a2a:send:immediately", "a2a:task:cancel")
@ALL_DIALECTS
async def test_a_task_is_returned_at_once_and_cancelled(app_server: AppServer, dialect: Dialect) -> None:
    alice = A2aClient(app_server.connection, app_server.key("alice"), dialect=dialect)
    begun = await alice.send(SLOW, more={"configuration": {"returnImmediately": True}})
    assert state_of(begun) == "working"
    assert state_of(await alice.cancel(begun["id"])) == "canceled"
    assert (await alice.error("CancelTask", {"id": begun["id"]}))[1] == "TASK_NOT_CANCELABLE"


@requirement("a2a:send:queue", "a2a:task:cancel", "a2a:stream:events")
async def test_a_message_to_a_working_context_waits_its_turn(alice: A2aClient) -> None:
    at_once = {"configuration": {"returnImmediately": True}}
    first = await alice.open(SLOW)
    await first.until_text("one ")
    context = first.events[0]["task"]["contextId"]
    second = await alice.open("hello", contextId=context)
    await second.next()
    third = await alice.send("never", contextId=context, more=at_once)
    assert (second.statuses(), state_of(third)) == (["submitted"], "submitted")
    assert state_of(await alice.cancel(third["id"])) == "canceled"
    assert state_of(await alice.cancel(first.task_id)) == "canceled"
    await second.rest()
    assert (second.statuses(), second.text()) == (
        ["submitted", "working", "completed"],
        "Hello! I am the rehearsal agent.",
    )
    assert said(await alice.get(second.task_id)) == second.text()
    assert await alice.error("SendMessage", {"message": message("more", taskId=third["id"])}) == (
        -32004,
        "UNSUPPORTED_OPERATION",
    )


@requirement("a2a:send:queue", "a2a:task:history")
async def test_a_large_file_that_waits_its_turn_is_in_the_history_as_it_was_sent(alice: A2aClient) -> None:
    file = {"raw": b64encode(b"%PDF" + bytes(100_000)).decode(), "mediaType": "application/pdf", "filename": "a.pdf"}
    sent = [{"text": "hello", "mediaType": "text/plain"}, file]
    first = await alice.open(SLOW)
    await first.until_text("one ")
    context = first.events[0]["task"]["contextId"]
    second = await alice.open(sent, contextId=context)
    await second.next()
    assert second.events[0]["task"]["history"][0]["parts"] == sent
    assert (await alice.get(second.task_id))["history"][0]["parts"] == sent
    third = asyncio.create_task(alice.send(sent, contextId=context))
    async with asyncio.timeout(DEADLINE_S):
        while (await alice.list(contextId=context))["totalSize"] < 3:
            pass
    await alice.cancel(first.task_id)
    assert (await third)["history"][0]["parts"] == sent


@requirement("a2a:send:queue", "a2a:send:task-id")
async def test_at_most_100_messages_wait_and_none_goes_into_a_working_task(app_server: AppServer) -> None:
    alice = A2aClient(app_server.connection, app_server.key("alice"), dialect="http")
    at_once = {"configuration": {"returnImmediately": True}}
    first = await alice.send(SLOW, more=at_once)
    context = first["contextId"]
    refused = await alice.request("SendMessage", {"message": message("more", taskId=first["id"])})
    assert error_of(refused) == (400, "UNSUPPORTED_OPERATION")
    for _ in range(100):
        await alice.send("next", contextId=context, more=at_once)
    refused = await alice.request("SendMessage", {"message": message("next", contextId=context)})
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    async with app_server.connection.app.engine.session("alice", context) as session:  # type: ignore[attr-defined]  # the app is the server's
        await app_server.connection.app.engine.stop_run(session)  # type: ignore[attr-defined]  # as above


@requirement("a2a:send:retry")
@ALL_DIALECTS
async def test_the_same_message_again_is_the_same_task(app_server: AppServer, dialect: Dialect) -> None:
    alice = A2aClient(app_server.connection, app_server.key("alice"), dialect=dialect)
    sent = message("hello")
    found = await asyncio.gather(*(alice.call("SendMessage", {"message": sent}) for _ in range(10)))
    assert all(each == found[0] for each in found)
    streams = [await alice.stream("SendStreamingMessage", {"message": sent}) for _ in range(2)]
    first, second = [await each.rest() for each in streams]
    assert first == second
    assert streams[0].statuses() == ["working", "completed"]
    code, place = await alice.error("SendMessage", {"message": {**sent, "parts": [{"text": "other"}]}})
    assert (code in (400, -32602), place) == (True, "message.messageId")


@requirement("a2a:send:retry")
async def test_a_repeated_message_that_waits_counts_as_one_more_stream(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_streams_per_user=1) as server, asyncio.timeout(60):
        alice = A2aClient(server.connection, server.key("alice"))
        repeated = {"message": message(SLOW)}
        begun = await alice.stream("SendStreamingMessage", repeated)
        joined = await alice.stream("SendStreamingMessage", repeated)
        await joined.until_text("one ")
        for method in ("SendMessage", "SendStreamingMessage"):
            assert (await alice.request(method, repeated)).status == 429
        at_once = {**repeated, "configuration": {"returnImmediately": True}}
        assert (await alice.call("SendMessage", at_once))["task"]["id"] == joined.task_id
        await alice.cancel(joined.task_id)
        await begun.rest()
        await joined.rest()
        for _ in range(2):
            waiting = {"message": message(script({"wait_ms": 20}))}
            assert len(await asyncio.gather(*(alice.call("SendMessage", waiting) for _ in range(2)))) == 2


@requirement("a2a:send:context", "a2a:task:owner")
async def test_a_context_is_a_session_and_a_name_stays_what_the_client_wrote(
    app_server: AppServer, alice: A2aClient
) -> None:
    bob = A2aClient(app_server.connection, app_server.key("bob"))
    other = A2aClient(app_server.connection, app_server.key("alice"), agent="rehearsal-bare")
    for name in ("my own context", "日本語", str(uuid4())):
        task = await alice.send("first", contextId=name)
        assert task["contextId"] == name
        again = await alice.send(script({"recall": "user"}), contextId=name)
        assert (again["contextId"], said(again)) == (name, "first")
        theirs = await bob.send(script({"recall": "user"}), contextId=name)
        assert (theirs["contextId"], said(theirs) == "first") == (name, False)
        assert await other.error("SendMessage", {"message": message("x", contextId=name)}) == (
            -32602,
            "message.contextId",
        )
        assert await bob.error("GetTask", {"id": task["id"]}) == (-32001, "TASK_NOT_FOUND")
        assert await other.error("GetTask", {"id": task["id"]}) == (-32001, "TASK_NOT_FOUND")
        assert (await bob.list(contextId=task["contextId"]))["totalSize"] == 1


@requirement("a2a:send:fields", "a2a:send:parts", "a2a:send:modes", "a2a:errors:unsupported")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"message": {"role": "ROLE_AGENT"}}, (-32602, "message.role")),
        ({"message": {"parts": []}}, (-32602, "message.parts")),
        ({"message": {"parts": [{}]}}, (-32602, "message.parts[0]")),
        ({"message": {"parts": [{"text": "a", "data": {}}]}}, (-32602, "message.parts[0]")),
        ({"message": {"parts": [{"raw": "aGk=", "filename": "a.pdf"}]}}, (-32005,)),
        ({"message": {"parts": [{"url": "http://a.example/a.pdf", "mediaType": "application/pdf"}]}}, (-32005,)),
        ({"message": {"parts": [{"text": "x" * 1_048_577}]}}, (-32602, "message.parts")),
        ({"message": {"metadata": {"a": "x" * 70_000}}}, (-32602, "message.metadata")),
        ({"message": {"parts": [{"url": "file:///etc/passwd", "mediaType": "image/png"}]}}, (-32005,)),
        ({"message": {"messageId": ""}}, (-32602, "message.messageId")),
        ({"message": {"contextId": "a\nb"}}, (-32602, "message.contextId")),
        ({"message": {"contextId": "x" * 256}}, (-32602, "message.contextId")),
        ({"message": {"taskId": "nonsense"}}, (-32001, "TASK_NOT_FOUND")),
        ({"message": {"referenceTaskIds": [str(uuid4())]}}, (-32001, "TASK_NOT_FOUND")),
        ({"message": {"parts": [{"data": {"answers": []}}]}}, (-32602, "message.parts[0].data.answers")),
        (
            {"message": {"parts": [{"data": {"answers": [{"callId": "c", "granted": True}]}}]}},
            (-32602, "message.taskId"),
        ),
        ({"configuration": {"historyLength": -1}}, (-32602, "configuration.historyLength")),
        ({"configuration": {"acceptedOutputModes": ["video/mp4"]}}, (-32005,)),
        ({"configuration": {"acceptedOutputModes": ["application/pdf", "video/*"]}}, (-32005,)),
        ({"configuration": {"taskPushNotificationConfig": {"url": "http://127.0.0.1"}}}, (-32003,)),
        ({"tenant": "somebody"}, (-32602, "tenant")),
    ],
)
async def test_a_wrong_message_is_refused_and_leaves_nothing(
    app_server: AppServer, change: Json, expected: tuple[Json, ...]
) -> None:
    alice = A2aClient(app_server.connection, app_server.key("bob"))
    before = (await alice.list())["totalSize"]
    params = {
        "message": {**message("x"), **change.get("message", {})},
        **{k: v for k, v in change.items() if k != "message"},
    }
    assert (await alice.error("SendMessage", params))[: len(expected)] == expected
    assert (await alice.list())["totalSize"] == before


@requirement("a2a:send:modes")
@pytest.mark.parametrize("mode", ["text/markdown", "Text/*", "image/*", "application/*", "application/pdf, text/plain"])
async def test_a_caller_names_what_it_accepts_by_kind_or_as_markdown(alice: A2aClient, mode: str) -> None:
    params = {"message": message("hello"), "configuration": {"acceptedOutputModes": mode.split(", ")}}
    assert said((await alice.call("SendMessage", params))["task"]) == "Hello! I am the rehearsal agent."


@requirement("a2a:send:parts")
async def test_data_is_text_for_the_agent_and_images_and_files_are_what_they_are(
    app_server: AppServer, alice: A2aClient
) -> None:
    task = await alice.send([{"data": {"a": 1.0}}])
    assert said(task) == 'You said: {"a":1}'
    image = {"raw": "iVBORw0KGgo=", "mediaType": "image/png", "filename": "a.png"}
    paper = {"raw": "JVBERi0=", "mediaType": "application/pdf", "filename": "a.pdf"}
    notes = {"raw": "aGk=", "mediaType": "text/plain;charset=utf-8", "filename": "a.txt"}
    sound = {"url": "https://a.example/a.mp3", "mediaType": "audio/mpeg"}
    task = await alice.send([{"text": "see"}, image, paper, notes, sound])
    assert task["history"][0]["parts"][1:] == [image, paper, notes, sound]
    drawn = await alice.send(script({"image": "https://a.example/a.png?size=2"}))
    assert drawn["artifacts"][0]["parts"] == [{"url": "https://a.example/a.png?size=2", "mediaType": "image/png"}]
    bare = A2aClient(app_server.connection, app_server.key("alice"), agent="rehearsal-bare")
    assert (await bare.error("SendMessage", {"message": message([image])}))[0] == -32005


@requirement("a2a:send:parts")
async def test_a_history_that_ag2_repeats_is_left_out_in_a_context_that_has_it(alice: A2aClient) -> None:
    """AG2 1.2 sends the whole conversation with every message, beside the context's ID."""
    events = [{"parts": [{"type": "text", "text": "one"}], "kind": "user_input"}]
    history = {"data": {"events": events}, "mediaType": "application/vnd.ag2.history+json"}
    first = await alice.send("one")
    task = await alice.send([{"text": "two"}, history], contextId=first["contextId"])
    assert (said(task), task["history"][0]["parts"]) == ("You said: two", [{"text": "two", "mediaType": "text/plain"}])
    assert "one" in said(await alice.send([{"text": "two"}, history])), "a new context has no other history"


@requirement("a2a:task:states")
@pytest.mark.parametrize(
    ("steps", "state", "reason"),
    [
        ([{"say": "half"}, {"stop": "max_tokens"}], "completed", "max_tokens"),
        ([{"say": "half"}, {"stop": "refusal"}], "rejected", "refusal"),
        ([{"say": "half"}, {"fail": "internal words"}], "failed", "error"),
    ],
)
async def test_ends_have_their_states(alice: A2aClient, steps: Json, state: str, reason: str) -> None:
    task = await alice.send(script(*steps))
    assert (state_of(task), task["metadata"]["stopReason"], said(task)) == (state, reason, "half")
    if state == "failed":
        assert task["metadata"]["code"]
        assert "internal words" not in json.dumps(task["status"])


@requirement("a2a:task:artifacts")
async def test_every_step_that_says_something_is_an_artifact_and_tools_do_not_show(alice: A2aClient) -> None:
    steps = [{"think": "hm"}, {"say": "first"}, call("add", a=1, b=2), {"data": {"n": 1}}, {"say": "then {result}"}]
    task = await alice.send(script(*steps))
    assert [each["parts"] for each in task["artifacts"]] == [
        [{"text": "first", "mediaType": "text/plain"}],
        [{"data": {"n": 1}, "mediaType": "application/json"}, {"text": "then 3", "mediaType": "text/plain"}],
    ]
    shown = json.dumps({**task, "history": []})
    assert '"add"' not in shown, "ids may have these letters"
    assert "hm" not in shown


@requirement("a2a:task:list")
async def test_tasks_are_listed_newest_status_first_in_pages(app_server: AppServer) -> None:
    admin = A2aClient(app_server.connection, app_server.key("admin"))
    at_once = {"configuration": {"returnImmediately": True}}
    tasks = [await admin.send("hello", contextId=each) for each in ("a", "b", "a")]
    working = await admin.send(SLOW, contextId="b", more=at_once)
    listed = await admin.list()
    assert (listed["totalSize"], listed["pageSize"], listed["nextPageToken"]) == (4, 50, "")
    newest_first = [working["id"], *(each["id"] for each in reversed(tasks))]
    assert [each["id"] for each in listed["tasks"]] == newest_first
    assert not any("artifacts" in each for each in listed["tasks"])
    page = await admin.list(pageSize=3, includeArtifacts=True)
    assert said(page["tasks"][1]) == "Hello! I am the rehearsal agent."
    rest = await admin.list(pageSize=3, pageToken=page["nextPageToken"])
    assert [each["id"] for each in page["tasks"] + rest["tasks"]] == newest_first
    assert (rest["nextPageToken"], rest["totalSize"]) == ("", 4)
    assert (await admin.list(contextId="a"))["totalSize"] == 2
    assert [each["id"] for each in (await admin.list(status="TASK_STATE_WORKING"))["tasks"]] == [working["id"]]
    since = tasks[1]["status"]["timestamp"].replace("Z", "+00:00")
    assert (await admin.list(statusTimestampAfter=since))["totalSize"] in (2, 3), "milliseconds are shown"
    http = A2aClient(app_server.connection, app_server.key("admin"), dialect="http")
    assert await http.list(pageSize=3, includeArtifacts=True) == page
    for wrong in ({"pageSize": 0}, {"pageSize": 10**9}, {"pageToken": "x"}, {"status": "DONE"}, {"historyLength": -1}):
        assert (await admin.error("ListTasks", wrong))[0] == -32602
    assert b"pageSize: Expected `int` >= 1" in (await http.request("ListTasks", {"pageSize": 0})).body
    await admin.cancel(working["id"])


@requirement("a2a:task:list")
async def test_the_pages_of_a_list_cover_all_sessions_also_those_that_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SESSIONS_PER_READ", 2)
    monkeypatch.setattr(module, "MAX_COUNTED_SESSIONS", 1)
    async with running_server(tmp_path) as server:
        bob = A2aClient(server.connection, server.key("bob"))
        contexts = ["old", "b", "c", "b", "d", "e", "old", "c", "b"]
        sent = [(await bob.send("hello", contextId=each))["id"] for each in contexts]
        for page_size in (1, 3, 8):
            listed, token = list[str](), ""
            while len(listed) < len(sent):
                page = await bob.list(pageSize=page_size, pageToken=token)
                listed += [each["id"] for each in page["tasks"]]
                assert 3 <= page["totalSize"] <= len(sent), "those of the session used last, and those that were read"
                token = page["nextPageToken"]
            assert (listed, token) == (sent[::-1], ""), "newest status first, each once"


@requirement("a2a:task:list")
async def test_a_page_that_needs_too_many_logs_is_shorter_and_its_token_leads_to_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PAGE_EVENTS", 10)
    async with running_server(tmp_path) as server:
        bob = A2aClient(server.connection, server.key("bob"))
        failure = script({"fail": {"code": "no_credit", "message": "No credit left"}})
        failed = (await bob.send(failure, contextId="first"))["id"]
        for number in range(5):
            await bob.send("hello", contextId=f"later-{number}")
        pages = [await bob.list(status="TASK_STATE_FAILED")]
        while token := pages[-1]["nextPageToken"]:
            assert len(pages) <= 6, "each page reads at least one log"
            pages.append(await bob.list(status="TASK_STATE_FAILED", pageToken=token))
        assert pages[0]["tasks"] == []
        assert [task["id"] for page in pages for task in page["tasks"]] == [failed]


@requirement("a2a:task:list")
async def test_a_list_reads_a_limited_number_of_events_of_each_session(
    app_server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = A2aClient(app_server.connection, app_server.key("bob"))
    late = (await bob.send("hello", contextId="late"))["id"]
    async with app_server.connection.app.engine.session("bob", "late") as session:  # type: ignore[attr-defined]  # the app is the server's
        monkeypatch.setattr(module, "MAX_LISTED_EVENTS", session.state.seq)
    again = await bob.send("hello", contextId="late")
    assert [each["id"] for each in (await bob.list(contextId="late"))["tasks"]] == [again["id"]], "the newest"
    assert (await bob.get(late))["id"] == late


@requirement("a2a:task:list")
async def test_a_list_that_is_read_again_shows_every_change(app_server: AppServer, alice: A2aClient) -> None:
    context = str(uuid4())

    async def listed() -> list[str]:
        return [state_of(each) for each in (await alice.list(contextId=context))["tasks"]]

    asking = await alice.send("ask me", contextId=context)
    assert await listed() == await listed() == ["input-required"]
    await alice.send("staging", contextId=context, taskId=asking["id"])
    assert await listed() == ["completed"]
    working = await alice.send(SLOW, contextId=context, more={"configuration": {"returnImmediately": True}})
    assert await listed() == ["working", "completed"]
    await alice.cancel(working["id"])
    assert await listed() == ["canceled", "completed"]
    await app_server.aap_client("alice").request("DELETE", f"/sessions/{context}")
    assert await listed() == []
    await alice.send("hello", contextId=context)
    assert await listed() == ["completed"]


@requirement("a2a:task:other-protocols", "a2a:task:deleted")
async def test_a_turn_of_another_protocol_is_a_task_until_its_session_is_deleted(
    app_server: AppServer, alice: A2aClient
) -> None:
    session = await app_server.aap_client("alice").create()
    turn = (await session.post([user("hello")])).json
    task = await alice.get(turn["_meta"]["turnId"])
    assert (task["contextId"], said(task)) == (session.id, "Hello! I am the rehearsal agent.")
    assert (await app_server.aap_client("alice").request("DELETE", f"/sessions/{session.id}")).status < 300
    assert await alice.error("GetTask", {"id": task["id"]}) == (-32001, "TASK_NOT_FOUND")
    assert await alice.error("SubscribeToTask", {"id": task["id"]}) == (-32001, "TASK_NOT_FOUND")


@requirement("a2a:auth:scopes")
async def test_a_key_that_reads_may_look_but_not_send(app_server: AppServer, alice: A2aClient) -> None:
    task = await alice.send("hello")
    reader = A2aClient(app_server.connection, app_server.key("alice_reads"))
    assert await reader.get(task["id"]) == task
    for dialect in ("rpc", "http"):
        reader.dialect = dialect
        for method in ("SendMessage", "SendStreamingMessage", "CancelTask"):
            refused = await reader.request(method, {"message": message("x"), "id": task["id"]})
            assert (refused.status, json.loads(refused.body)["error"]["status"]) == (403, "PERMISSION_DENIED")
    nobody = A2aClient(app_server.connection, None)
    refused = await nobody.request("GetTask", {"id": task["id"]})
    assert (refused.status, refused.headers["www-authenticate"]) == (401, 'Bearer realm="dragoman"')


@requirement("a2a:task:get", "a2a:send:retry")
async def test_tasks_and_retries_survive_a_restart(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        alice = A2aClient(server.connection, server.key("alice"))
        sent = message("hello")
        task = (await alice.call("SendMessage", {"message": sent}))["task"]
        await server.restart()
        alice.connection = server.connection
        assert await alice.get(task["id"]) == task
        assert (await alice.call("SendMessage", {"message": sent}))["task"] == task
