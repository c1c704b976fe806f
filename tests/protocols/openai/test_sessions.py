"""OpenAI's API, sections 4 and 5: which session a request continues, and what is kept."""

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from dragoman.core.blob_ref import blob_ref_for
from tests.protocols.openai.client import LONG, OpenAiClient, approval, call, function, output, script
from tests.protocols.openai.stream import text_of
from tests.requirements import requirement
from tests.servers import AppServer

Json = Any
PICK = script({"calls": [{"name": "pick"}, {"name": "pick"}]}, {"say": "{results}"})


async def listed(server: AppServer) -> set[str]:
    """The sessions in alice's list."""
    return {
        each["sessionId"] for each in (await server.aap_client("alice").get("/sessions?limit=200")).json["sessions"]
    }


# --- which session ----------------------------------------------------------------------------------------------------


@requirement("openai:session:previous", "openai:session:branch")
async def test_an_earlier_response_begins_a_branch_and_a_hidden_one_switches_back(alice: OpenAiClient) -> None:
    one = await alice.respond("one")
    two = await alice.respond("two", previous_response_id=one["id"])
    three = await alice.respond("three", previous_response_id=one["id"])
    recalled = await alice.respond("recall", previous_response_id=three["id"])
    assert (text_of(recalled), recalled["previous_response_id"]) == ("one | three", three["id"])
    assert text_of(await alice.respond("recall", previous_response_id=two["id"])) == "one | two"
    assert text_of(await alice.respond("recall", previous_response_id=recalled["id"])) == "one | three | recall"
    assert text_of(await alice.get(f"/responses/{two['id']}")) == "You said: two"


@requirement("openai:session:branch")
async def test_functions_that_were_answered_on_another_branch_are_cancelled_where_this_one_begins(
    alice: OpenAiClient,
) -> None:
    asking = await alice.respond(PICK, tools=[function("pick")])
    answers = [output(each["call_id"], "it") for each in asking["output"]]
    answered = await alice.respond(answers, previous_response_id=asking["id"])
    body = {"model": "rehearsal", "input": "instead", "previous_response_id": asking["id"]}
    other = await alice.request("POST", "/responses", body)
    session = other.headers["x-dragoman-session"].replace("-", "")
    for path in (f"/responses/{other.json['id']}/input_items", f"/conversations/conv_{session}/items"):
        items = (await alice.get(f"{path}?order=asc"))["data"]
        outputs = [each["output"] for each in items if each["type"] == "function_call_output"]
        assert outputs == ["Tool call cancelled: a new user message arrived"] * 2, path
    sent = (await alice.get(f"/responses/{answered['id']}/input_items?order=asc"))["data"]
    assert [each["output"] for each in sent] == ["it", "it"]


@requirement("openai:session:references")
async def test_a_resent_history_is_recognised_by_references_ids_and_call_ids(alice: OpenAiClient) -> None:
    one = await alice.respond("one")
    said = {"role": "user", "content": "one"}
    for known in (
        {"type": "item_reference", "id": one["output"][0]["id"]},
        {"id": one["output"][0]["id"]},
        one["output"][0],
    ):
        again = await alice.respond([said, known, {"role": "user", "content": "recall"}])
        assert text_of(again) == "one"
    assert await alice.refused("POST", "/responses", {"input": [{"type": "item_reference", "id": "msg_1"}, said]}) == (
        *(404, "item_not_found"),
        "input[0]",
    )
    other = await alice.respond("other")
    mixed = {"input": [{"id": each["output"][0]["id"]} for each in (one, other)] + [said]}
    assert await alice.refused("POST", "/responses", mixed) == (400, "mixed_history", "input")
    only_known = {"input": [said, one["output"][0]]}
    assert await alice.refused("POST", "/responses", only_known) == (400, "nothing_new", "input")


@requirement("openai:session:whole")
async def test_a_whole_history_that_is_in_no_single_session_is_the_past_of_a_new_one(alice: OpenAiClient) -> None:
    """Without the ids of messages, over the models of several agents, or out of a conversation that a client fills."""
    asked = script(call("pick", n=1), {"say": "got {result}"})
    sent: list[Json] = [{"role": "user", "content": asked}]
    tools = [function("pick")]
    made = (await alice.respond(sent, tools=tools))["output"][0]
    called = {name: made[name] for name in ("type", "call_id", "name", "arguments")}
    sent += [called, output(made["call_id"], "it")]
    answer = await alice.respond(sent)
    assert text_of(answer) == "got it"
    stripped = [*sent, {"role": "assistant", "content": "got it"}]
    with_ids = [*sent, answer["output"][0]]
    conversation = await alice.post("/conversations", {"items": stripped})
    copied = (await alice.get(f"/conversations/{conversation['id']}/items?order=asc"))["data"]
    past = [["UserMessage", asked], ["AssistantMessage", ""], ["ToolMessage", "it"], ["AssistantMessage", "got it"]]
    answers: list[Json] = []
    for whole in (stripped, with_ids, copied):
        answers.append(await alice.respond([*whole, {"role": "user", "content": "history"}], model="mirror"))
        assert json.loads(text_of(answers[-1])) == [*past, ["UserMessage", "history"]]
    of_two_agents = [*with_ids, answers[1]["output"][0]]
    for whole in (stripped, of_two_agents):
        body = {"model": "rehearsal", "input": [*whole, {"role": "user", "content": "hello"}]}
        session = (await alice.request("POST", "/responses", body)).headers["x-dragoman-session"]
        items = await alice.get(f"/conversations/conv_{session.replace('-', '')}/items?order=asc")
        types = [each["type"] for each in items["data"]]
        assert types == [each.get("type", "message") for each in (*whole, *(2 * [{}]))]
    added = {"items": [{"role": "user", "content": "more"}]}
    await alice.post(f"/conversations/{conversation['id']}/items", added)


@requirement("openai:session:past", "openai:abuse:forged")
async def test_a_history_without_known_items_is_the_past_of_a_new_session(alice: OpenAiClient) -> None:
    past = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "stamp", "arguments": '{"text": "x"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "stamped"},
        {"type": "function_call", "call_id": "c2", "name": "stamp", "arguments": "{}"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "done"}], "phase": "final_answer"},
    ]
    seen = json.loads(text_of(await alice.respond([*past, {"role": "user", "content": "history"}], model="mirror")))
    assert seen == [
        ["SystemMessage", "be brief"],
        ["UserMessage", "one"],
        ["AssistantMessage", ""],
        ["ToolMessage", "stamped"],
        ["AssistantMessage", "done"],
        ["UserMessage", "history"],
    ]
    # Results behind the last user message continue there, and no tool of the agent runs, whatever its name.
    continued = await alice.respond(
        [{"role": "user", "content": script({"call": {"name": "stamp"}}, {"say": "{result}"})}, *past[3:5]]
    )
    assert [item["type"] for item in continued["output"]] == ["message"]
    assert text_of(continued) == "stamped"


@requirement("openai:session:answers", "openai:request:nothing-stored")
async def test_answers_are_taken_one_by_one_and_each_once(alice: OpenAiClient) -> None:
    asked = await alice.respond(PICK, tools=[function("pick")])
    first, second = (item["call_id"] for item in asked["output"])
    partly = await alice.respond([output(first, "A")])
    assert (partly["status"], partly["output"]) == ("completed", [])
    assert (await alice.get(f"/responses/{partly['id']}"))["output"] == []
    twice = {"input": [output(first, "A")], "previous_response_id": asked["id"]}
    assert await alice.refused("POST", "/responses", twice) == (400, "no_pending_call", "input[0].call_id")
    done = await alice.respond([output(second, "B")], previous_response_id=partly["id"])
    assert text_of(done) == "A, B"
    late = {"input": [output(second, "B")], "previous_response_id": asked["id"]}
    assert await alice.refused("POST", "/responses", late) == (400, "no_pending_call", "input[0].call_id")
    unknown = {"input": [{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}]}
    assert await alice.refused("POST", "/responses", unknown) == (
        *(400, "no_pending_call"),
        "input[0].approval_request_id",
    )


@requirement("openai:conversations:objects")
async def test_the_metadata_of_a_conversation_changes_while_a_response_runs(alice: OpenAiClient) -> None:
    path = f"/conversations/{(conversation := (await alice.post('/conversations', {}))['id'])}"
    running = await alice.respond(LONG, conversation=conversation, background=True)
    changed = await alice.post(path, {"metadata": {"topic": "a"}})
    assert (changed["metadata"], (await alice.get(f"/responses/{running['id']}"))["status"]) == (
        {"topic": "a"},
        "in_progress",
    )
    await alice.post(f"/responses/{running['id']}/cancel")


@requirement("openai:session:conversation", "openai:conversations:objects", "openai:conversations:items")
async def test_a_conversation_gets_its_agent_from_its_first_response(
    alice: OpenAiClient, app_server: AppServer
) -> None:
    item = {"role": "user", "content": "zero"}
    draft = await alice.post("/conversations", {"items": [item], "metadata": {"topic": "a"}})
    assert draft == {
        "id": draft["id"],
        "object": "conversation",
        "created_at": draft["created_at"],
        "metadata": {"topic": "a"},
    }
    path = f"/conversations/{draft['id']}"
    added = await alice.post(f"{path}/items", {"items": [{"role": "assistant", "content": "hi"}]})
    assert [each["role"] for each in added["data"]] == ["assistant"]
    response = await alice.respond("history", model="mirror", conversation={"id": draft["id"]})
    assert response["conversation"] == {"id": draft["id"]}
    assert [text for _, text in json.loads(text_of(response))] == ["zero", "hi", "history"]
    items = (await alice.get(f"{path}/items?order=asc"))["data"]
    assert [(each["role"], each["content"][0]["type"]) for each in items] == [
        ("user", "input_text"),
        ("assistant", "output_text"),
        ("user", "input_text"),
        ("assistant", "output_text"),
    ]
    assert items[-1] == response["output"][0] == await alice.get(f"{path}/items/{items[-1]['id']}")
    assert (await alice.post(path, {"metadata": {"topic": "b"}}))["metadata"] == {"topic": "b"}
    refused = await alice.refused("POST", f"{path}/items", {"items": [item]})
    assert refused == (400, "conversation_has_responses", "")
    kept = await alice.refused("DELETE", f"{path}/items/{items[-1]['id']}")
    assert kept == (405, "method_not_allowed", "")
    assert (await alice.post("/conversations"))["metadata"] == {}, "clients send no body if there is nothing to say"
    other = {"model": "rehearsal", "input": "x", "conversation": draft["id"]}
    assert await alice.refused("POST", "/responses", other) == (400, "model_mismatch", "model")
    assert draft["id"].removeprefix("conv_") in {each.replace("-", "") for each in await listed(app_server)}
    assert (await alice.delete(path))["object"] == "conversation.deleted"
    assert await alice.refused("DELETE", path) == (404, "conversation_not_found", "")
    for gone in (path, "/conversations/nonsense"):
        missing = (await alice.request("GET", gone)).json["error"]
        assert missing["message"] == "there is no such conversation", "one sentence for both, in the API's words"


@requirement("openai:conversations:items")
@pytest.mark.parametrize("model", ["rehearsal", "mirror"])
async def test_items_keep_their_ids_when_their_conversation_gets_its_first_response(
    alice: OpenAiClient, model: str
) -> None:
    """Also if its agent is not the default one, so that the session of the conversation is replaced."""
    draft = await alice.post("/conversations", {"items": [{"role": "user", "content": "zero"}]})
    path = f"/conversations/{draft['id']}/items"
    added = await alice.post(path, {"items": [{"role": "assistant", "content": "hi"}]})
    kept = (await alice.get(f"{path}?order=asc"))["data"]
    response = await alice.respond("one", model=model, conversation=draft["id"])
    items = (await alice.get(f"{path}?order=asc"))["data"]
    assert [kept[1:], items[:2]] == [added["data"], kept]
    assert await alice.get(f"{path}/{kept[0]['id']}") == kept[0]
    assert (await alice.get(f"{path}?order=asc&after={kept[1]['id']}"))["data"] == items[2:]
    sent = (await alice.get(f"/responses/{response['id']}/input_items"))["data"]
    assert sent == [items[2]], "what its request sent, and not what the conversation had before"
    assert len({each["id"] for each in items}) == len(items)


@requirement("openai:lists:paging")
async def test_lists_are_paged_in_both_orders(alice: OpenAiClient) -> None:
    items = [{"role": "user", "content": str(number)} for number in range(3)]
    draft = await alice.post("/conversations", {"items": items})
    path = f"/conversations/{draft['id']}/items"
    whole = await alice.get(path)
    assert [each["content"][0]["text"] for each in whole["data"]] == ["2", "1", "0"]
    assert (whole["object"], whole["has_more"]) == ("list", False)
    first = await alice.get(f"{path}?limit=2&order=asc")
    assert (first["first_id"], first["has_more"]) == (whole["last_id"], True)
    rest = await alice.get(f"{path}?limit=2&order=asc&after={first['last_id']}")
    assert rest["data"] == [whole["data"][0]]
    beyond = await alice.get(f"{path}?order=asc&after={rest['last_id']}")
    assert (beyond["data"], beyond["first_id"], beyond["last_id"]) == ([], None, None)
    for wrong, name in (("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=nix", "after")):
        assert await alice.refused("GET", f"{path}?{wrong}") == (400, "invalid_value", name)


@requirement("openai:conversations:items")
async def test_a_page_reads_the_large_images_of_its_items_and_no_others(
    alice: OpenAiClient, app_server: AppServer
) -> None:
    """Reading an attachment that the disk has altered is logged, so the log says which ones were read."""
    conversation = (await alice.post("/conversations", {}))["id"]
    path = f"/conversations/{conversation}/items"
    urls = [f"data:image/png;base64,{letter * 40_000}" for letter in "AB"]
    for url in urls:
        content = [{"type": "input_image", "image_url": url}]
        await alice.respond([{"role": "user", "content": content}], conversation=conversation)
    for file in app_server.settings.folder.glob(f"blobs/**/{blob_ref_for(urls[0]).digest}"):
        file.write_text("altered")

    def images_of(*items: Json) -> list[str]:
        return [part["image_url"] for item in items for part in item["content"] if part["type"] == "input_image"]

    with capture_logs() as logs:
        newest = (await alice.get(f"{path}?limit=2"))["data"]
        assert images_of(*newest) == urls[1:]
        assert images_of(await alice.get(f"{path}/{newest[1]['id']}")) == urls[1:]
    assert "attachment was altered" not in [each["event"] for each in logs]
    if app_server.settings.database is None:  # otherwise there are no files to alter
        with capture_logs() as logs:
            assert images_of(*(await alice.get(f"{path}?limit=2&order=asc"))["data"]) == [""]
        assert "attachment was altered" in [each["event"] for each in logs]


@requirement("openai:session:other-protocols", "openai:headers:session")
async def test_a_session_of_another_protocol_is_a_conversation(alice: OpenAiClient, app_server: AppServer) -> None:
    aap = app_server.aap_client("alice")
    created = (await aap.post("/sessions", {"agent": {"name": "rehearsal"}, "_meta": {"labels": {"k": "v"}}})).json
    turn = {"messages": [{"role": "user", "content": "one"}]}
    run = (await aap.post(f"/sessions/{created['sessionId']}/turns", turn)).json["_meta"]["turnId"]
    name = f"conv_{created['sessionId'].replace('-', '')}"
    assert (await alice.get(f"/conversations/{name}"))["metadata"] == {"k": "v"}
    items = (await alice.get(f"/conversations/{name}/items?order=asc"))["data"]
    assert [each["content"][0]["text"] for each in items] == ["one", "You said: one"]
    theirs = await alice.get(f"/responses/resp_{run.replace('-', '')}")
    assert (theirs["status"], theirs["output"], theirs["metadata"]) == ("completed", items[1:], {})
    reply = await alice.request("POST", "/responses", {"input": "recall", "conversation": name})
    assert (text_of(reply.json), reply.headers["x-dragoman-session"]) == ("one", created["sessionId"])


# --- what is kept -----------------------------------------------------------------------------------------------------


@requirement("openai:session:unlisted")
async def test_a_single_response_is_in_no_list_until_there_is_a_second(
    alice: OpenAiClient, app_server: AppServer
) -> None:
    reply = await alice.request("POST", "/responses", {"input": "hello"})
    session = reply.headers["x-dragoman-session"]
    assert session not in await listed(app_server)
    await alice.respond("hello", previous_response_id=reply.json["id"])
    assert session in await listed(app_server)


@requirement("openai:session:not-stored")
async def test_what_is_not_stored_cannot_be_retrieved_but_its_calls_can_be_answered(alice: OpenAiClient) -> None:
    asked = await alice.respond(PICK, tools=[function("pick")], store=False)
    path = f"/responses/{asked['id']}"
    assert await alice.refused("GET", path) == (404, "response_not_found", "")
    refused = await alice.refused("POST", "/responses", {"input": "x", "previous_response_id": asked["id"]})
    assert refused[1] == "previous_response_not_found"
    answers = [output(item["call_id"], "A") for item in asked["output"]]
    resent = [{"role": "user", "content": PICK}, *asked["output"], *answers]
    done = await alice.respond(resent, store=False)
    assert text_of(done) == "A, A"
    # The session is gone with its answer: the same history is only a past now.
    again = await alice.respond(
        [*resent, *done["output"], {"role": "user", "content": "history"}], model="mirror", store=False
    )
    assert [kind for kind, _ in json.loads(text_of(again))] == [
        *("UserMessage", "AssistantMessage", "ToolMessage", "ToolMessage", "AssistantMessage", "UserMessage")
    ]


@requirement("openai:responses:deleted", "openai:session:not-stored")
async def test_a_deleted_response_is_gone_and_the_messages_that_others_need_stay(alice: OpenAiClient) -> None:
    single = await alice.request("POST", "/responses", {"input": "hello"})
    path = f"/responses/{single.json['id']}"
    assert await alice.delete(path) == {"id": single.json["id"], "object": "response", "deleted": True}
    assert await alice.refused("DELETE", path) == (404, "response_not_found", "")
    session = single.headers["x-dragoman-session"].replace("-", "")
    assert await alice.refused("GET", f"/conversations/conv_{session}") == (404, "conversation_not_found", "")
    one = await alice.respond("one")
    two = await alice.respond("two", previous_response_id=one["id"])
    await alice.delete(f"/responses/{one['id']}")
    for method, at in (("GET", ""), ("GET", "?stream=true"), ("GET", "/input_items"), ("POST", "/cancel")):
        assert (await alice.refused(method, f"/responses/{one['id']}{at}"))[1] == "response_not_found"
    refused = await alice.refused("POST", "/responses", {"input": "x", "previous_response_id": one["id"]})
    assert refused[1] == "previous_response_not_found"
    assert text_of(await alice.respond("recall", previous_response_id=two["id"])) == "one | two"


@requirement("openai:responses:input-items")
async def test_the_input_items_are_what_the_request_brought(alice: OpenAiClient) -> None:
    first = await alice.respond(
        [{"role": "developer", "content": "be brief"}, {"role": "user", "content": PICK}], tools=[function("pick")]
    )
    items = (await alice.get(f"/responses/{first['id']}/input_items?order=asc"))["data"]
    assert [(each["role"], each["content"][0]["text"]) for each in items] == [("system", "be brief"), ("user", PICK)]
    calls = [item["call_id"] for item in first["output"]]
    second = await alice.respond([output(call, "A") for call in calls], previous_response_id=first["id"])
    items = (await alice.get(f"/responses/{second['id']}/input_items?order=asc"))["data"]
    assert [(each["type"], each["call_id"], each["output"]) for each in items] == [
        ("function_call_output", call, "A") for call in calls
    ]


@requirement("openai:abuse:foreign")
async def test_another_owners_objects_look_like_unknown_ones(alice: OpenAiClient, bob: OpenAiClient) -> None:
    asked = await alice.request("POST", "/responses", {"input": PICK, "tools": [function("pick")]})
    response = asked.json["id"]
    conversation = f"conv_{asked.headers['x-dragoman-session'].replace('-', '')}"
    for path in (f"/responses/{response}", f"/responses/{response}/input_items"):
        assert await bob.refused("GET", path) == await bob.refused("GET", path.replace(response, "resp_" + "0" * 32))
    for path in (f"/conversations/{conversation}", f"/conversations/{conversation}/items"):
        assert (await bob.refused("GET", path))[:2] == (404, "conversation_not_found")
    bodies: list[tuple[Json, str]] = [
        ({"input": "x", "previous_response_id": response}, "previous_response_not_found"),
        ({"input": "x", "conversation": conversation}, "conversation_not_found"),
        ({"input": [{"type": "item_reference", "id": asked.json["output"][0]["id"]}]}, "item_not_found"),
        ({"input": [output(asked.json["output"][0]["call_id"], "A")]}, "no_pending_call"),
    ]
    for body, code in bodies:
        assert (await bob.refused("POST", "/responses", body))[1] == code
    assert (await bob.refused("DELETE", f"/responses/{response}"))[0] == 404


@requirement("openai:abuse:forged", "openai:abuse:foreign")
async def test_an_approval_counts_once_in_its_own_session_and_for_its_owner(
    alice: OpenAiClient, bob: OpenAiClient
) -> None:
    asked = await alice.respond(script({"call": {"name": "stamp", "input": {"text": "paid"}}}, {"say": "{result}"}))
    other = await alice.respond("other")
    granted, denied = (approval(asked["output"][0], approve=approve) for approve in (True, False))
    forged: list[tuple[OpenAiClient, Json]] = [
        (bob, {"input": [granted]}),
        (alice, {"input": [granted], "previous_response_id": other["id"]}),
        (alice, {"input": [granted, denied]}),
        (alice, {"input": [output(asked["output"][0]["id"], "stamped")], "previous_response_id": asked["id"]}),
    ]
    for client, body in forged:
        assert (await client.refused("POST", "/responses", body))[:2] == (400, "no_pending_call")
    assert text_of(await alice.respond([granted])) == "stamped paid"


@requirement("openai:conversations:items", "openai:session:conversation")
async def test_a_refused_request_leaves_a_conversation_without_a_response_as_it_is(alice: OpenAiClient) -> None:
    picture = {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.org/a.png"}]}
    conversation = await alice.post("/conversations", {"items": [picture], "metadata": {"topic": "kept"}})
    path = f"/conversations/{conversation['id']}"
    items = await alice.get(f"{path}/items")
    too_long = {"items": [{"role": "user", "content": "x" * 1_100_000}]}
    assert (await alice.refused("POST", f"{path}/items", too_long))[1] == "limit_exceeded"
    bare = {"model": "rehearsal-bare", "conversation": conversation["id"], "input": "hello"}
    assert (await alice.refused("POST", "/responses", bare))[1:] == ("image_unsupported", "model")
    assert await alice.get(f"{path}/items") == items
    assert await alice.get(path) == conversation
    calls = [
        {"type": "function_call", "call_id": "c1", "name": "paint", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ]
    assert len((await alice.post(f"{path}/items", {"items": calls}))["data"]) == 2
    assert (await alice.refused("POST", f"{path}/items", {"items": calls}))[0] == 400, "the same call twice"
    assert len((await alice.get(f"{path}/items"))["data"]) == 3


@requirement("openai:conversations:items")
async def test_a_call_can_be_added_before_its_result(alice: OpenAiClient) -> None:
    """`OpenAIConversationsSession` of the Agents SDK does so while a person decides about the call."""
    called = {"type": "function_call", "call_id": "c1", "name": "paint", "arguments": '{"n":1}'}
    conversation = await alice.post("/conversations", {"items": [{"role": "user", "content": "paint"}, called]})
    path = f"/conversations/{conversation['id']}/items"
    second = {**called, "call_id": "c2"}
    assert [each["call_id"] for each in (await alice.post(path, {"items": [second]}))["data"]] == ["c2"]
    added = await alice.post(path, {"items": [output("c1", "done"), {"role": "assistant", "content": "Painted."}]})
    assert [each["type"] for each in added["data"]] == ["function_call_output", "message"]
    for again in (called, output("c1", "done"), output("c3", "done")):
        assert (await alice.refused("POST", path, {"items": [again]}))[0] == 400
    items = (await alice.get(f"{path}?order=asc"))["data"]
    types = [each["type"] for each in items]
    assert types == ["message", "function_call", "function_call", "function_call_output", "message"]
    response = await alice.respond("history", model="mirror", conversation=conversation["id"])
    assert [kind for kind, _ in json.loads(text_of(response))][:4] == [
        *("UserMessage", "AssistantMessage", "AssistantMessage"),
        "ToolMessage",
    ]
    assert (await alice.get(f"{path}?order=asc"))["data"][:5] == items


@requirement("openai:conversations:items")
async def test_of_results_that_are_added_at_once_for_one_call_only_the_first_is_kept(alice: OpenAiClient) -> None:
    called = {"type": "function_call", "call_id": "c1", "name": "paint", "arguments": "{}"}
    conversation = await alice.post("/conversations", {"items": [{"role": "user", "content": "paint"}, called]})
    path = f"/conversations/{conversation['id']}/items"
    sent = [alice.request("POST", path, {"items": [output("c1", f"{number}")]}) for number in range(3)]
    assert sorted([answer.status for answer in await asyncio.gather(*sent)]) == [200, 400, 400]
    types = [each["type"] for each in (await alice.get(f"{path}?order=asc"))["data"]]
    assert types == ["message", "function_call", "function_call_output"]


@requirement("openai:conversations:items")
async def test_items_that_are_added_at_once_are_all_kept(alice: OpenAiClient) -> None:
    path = f"/conversations/{(await alice.post('/conversations', {}))['id']}/items"
    texts = [f"number {number}" for number in range(5)]
    sent = [{"items": [{"role": "user", "content": text}]} for text in texts]
    await asyncio.gather(*(alice.post(path, each) for each in sent))
    items = (await alice.get(f"{path}?limit=100"))["data"]
    assert sorted(each["content"][0]["text"] for each in items) == texts
