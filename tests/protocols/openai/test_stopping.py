"""OpenAI's API, section 5: what stops a response, what lets it continue, and a request that is sent twice."""

import asyncio
import json
from typing import Any

from tests.asgi_client import DEADLINE_S
from tests.protocols.openai.client import LONG, OpenAiClient, approval, call, script
from tests.protocols.openai.stream import text_of
from tests.requirements import requirement
from tests.servers import AppServerFactory

Json = Any


async def until_over(client: OpenAiClient, response_id: str) -> Json:
    """Poll a response until it is over."""
    async with asyncio.timeout(DEADLINE_S):
        while (response := await client.get(f"/responses/{response_id}"))["status"] in ("queued", "in_progress"):
            pass
    return response


@requirement("openai:disconnect:cancels", "openai:busy:conflict")
async def test_closing_the_connection_stops_the_run(alice: OpenAiClient) -> None:
    reader = await alice.stream(LONG)
    await reader.wait_for_text("begun")
    response = reader.events[0]["response"]["id"]
    busy = await alice.request("POST", "/responses", {"input": "x", "previous_response_id": response})
    assert (busy.status, busy.json["error"]["code"], busy.headers["retry-after"]) == (409, "conversation_busy", "1")
    await reader.disconnect()
    stopped = await until_over(alice, response)
    assert (stopped["status"], stopped["incomplete_details"], text_of(stopped)) == ("cancelled", None, "begun")
    assert stopped["output"][0]["status"] == "incomplete"
    assert text_of(await alice.respond("next", previous_response_id=response)) == "You said: next"


@requirement("openai:disconnect:cancels")
async def test_closing_the_connection_stops_a_run_that_is_not_streamed(alice: OpenAiClient) -> None:
    conversation = (await alice.post("/conversations", {}))["id"]
    body = json.dumps({"model": "rehearsal", "input": LONG, "conversation": conversation}).encode()
    headers = [("authorization", f"Bearer {alice.key}"), ("content-type", "application/json")]
    exchange = alice.connection.begin("POST", "/v1/responses", headers=headers, body=body)  # type: ignore[attr-defined]
    async with asyncio.timeout(DEADLINE_S):
        while not (items := (await alice.get(f"/conversations/{conversation}/items"))["data"]):
            pass
    response = "resp_" + items[-1]["id"].split("_")[1]
    await exchange.disconnect()
    assert (await until_over(alice, response))["status"] == "cancelled"


@requirement("openai:disconnect:exceptions")
async def test_background_watched_and_continued_runs_continue(alice: OpenAiClient) -> None:
    paused = script({"say": "begun"}, {"wait_ms": 150}, {"say": " done"})
    in_background = await alice.stream(paused, background=True)
    watched = await alice.stream(paused)
    body = {"model": "rehearsal", "input": paused, "stream": True}
    continued = await alice.follow("POST", "/responses", body, headers={"x-dragoman-on-disconnect": "continue"})
    for reader in (in_background, watched, continued):
        await reader.until(1)
    watcher = await alice.replay(watched.events[0]["response"]["id"])
    await watcher.until(1)
    for reader in (in_background, watched, continued):
        await reader.disconnect()
    for reader in (in_background, continued):
        over = await until_over(alice, reader.events[0]["response"]["id"])
        assert (over["status"], text_of(over)) == ("completed", "begun done")
    assert text_of(await watcher.end()) == "begun done"


@requirement("openai:background:polled", "openai:ids:stable", "openai:stream:replay")
async def test_a_background_response_survives_a_restart(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        client = OpenAiClient(server.connection, server.key("alice"))
        begun = await client.respond(
            script({"say": "begun"}, {"step": True}, {"wait_ms": 200}, {"say": "done"}), background=True
        )
        assert (begun["status"], begun["output"], begun["background"]) == ("in_progress", [], True)
        reader = await client.replay(begun["id"])
        await reader.wait_for_text("begun")
        await reader.disconnect()
        await server.restart()
        client = OpenAiClient(server.connection, server.key("alice"))
        over = await until_over(client, begun["id"])
        assert (over["status"], text_of(over), over["created_at"]) == ("completed", "begundone", begun["created_at"])
        whole = await client.replay(begun["id"])
        assert await whole.end() == over
        assert whole.events[: len(reader.events)] == reader.events


@requirement("openai:background:cancelled")
async def test_cancelling_stops_a_response_and_leaves_one_that_is_over(alice: OpenAiClient) -> None:
    begun = await alice.respond(LONG, background=True)
    path = f"/responses/{begun['id']}/cancel"
    cancelled = await alice.post(path, {})
    assert cancelled["status"] == "cancelled"
    assert await alice.post(path, {}) == cancelled
    over = await alice.respond("hello")
    assert await alice.post(f"/responses/{over['id']}/cancel", {}) == over


@requirement("openai:cancel:waiting")
async def test_cancelling_a_response_that_waits_closes_its_calls(alice: OpenAiClient) -> None:
    asked = await alice.respond(script(call("stamp", text="paid"), {"say": "{result}"}))
    (request,) = asked["output"]
    assert await alice.post(f"/responses/{asked['id']}/cancel", {}) == asked
    late = {"input": [approval(request, approve=True)], "previous_response_id": asked["id"]}
    assert (await alice.refused("POST", "/responses", late))[1] == "no_pending_call"


@requirement("openai:idempotency:key")
async def test_the_same_key_gets_the_first_response_again(alice: OpenAiClient) -> None:
    headers = {"idempotency-key": "once"}
    body = {"model": "rehearsal", "input": "hello"}
    first = await alice.request("POST", "/responses", body, headers=headers)
    assert (await alice.request("POST", "/responses", body, headers=headers)).json == first.json
    other = await alice.request("POST", "/responses", {**body, "input": "other"}, headers=headers)
    assert (other.status, other.json["error"]["code"], other.headers["x-should-retry"]) == (
        *(409, "idempotency_key_reused"),
        "false",
    )
    unstored, keyed = {**body, "store": False}, {"idempotency-key": "not stored"}
    first = await alice.request("POST", "/responses", unstored, headers=keyed)
    assert (await alice.request("POST", "/responses", unstored, headers=keyed)).json == first.json
    streamed = {**body, "stream": True}
    keyed = {"idempotency-key": "twice"}
    once = await (await alice.follow("POST", "/responses", streamed, headers=keyed)).end()
    assert await (await alice.follow("POST", "/responses", streamed, headers=keyed)).end() == once
