"""Threads over the standard endpoint: whose they are, what a run id means, who may answer what, branches, disconnects.

Specification, B.2, B.8 to B.12; shared rules, 1 to 4, 9, 10, 13, 15, 19 to 21.
"""

import asyncio
import json
from typing import Any
from uuid import uuid4

from dragoman.core import refusals
from dragoman.core.refusals import all_refusals
from dragoman.engine.instrumentation.metrics import COMMITS
from dragoman.protocols.agui.errors import ERRORS
from dragoman.protocols.kit.errors import REQUEST_ERRORS
from tests.asgi_client import Exchange
from tests.conversations import calls, script
from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint, an_input, parse
from tests.protocols.agui.endpoint_streams import (
    HANG,
    HELLO,
    LONG,
    STAMP,
    StreamReader,
    error_of,
    last_stop,
    running,
    started,
    user,
)
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

ANSWERED = [user("hello"), {"id": "answer", "role": "assistant", "content": HELLO}]
"""A history that asks for nothing."""

# --- whose it is ------------------------------------------------------------------------------------------------------


@requirement("ag-ui-b:auth:keys")
async def test_a_key_is_sent_as_bearer_token_or_in_the_api_key_header(
    app_server: AppServer, endpoint: Endpoint
) -> None:
    for headers, status in (
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "", "x-api-key": "wrong"}, 401),
        ({"authorization": "", "x-api-key": app_server.key("alice")}, 200),
    ):
        assert (await endpoint.run(an_input("hello"), headers=headers)).status == status
    body = an_input("hello")
    await endpoint.run(body)
    reads = Endpoint(app_server.connection, app_server.key("alice_reads"))
    assert (await reads.run({**body, "runId": "reads"})).status == 403
    assert (await reads.connect({**body, "runId": "reads", "messages": []})).status == 200


@requirement("ag-ui-b:threads:foreign")
async def test_another_users_thread_is_403_on_every_route_and_reveals_nothing(
    app_server: AppServer, endpoint: Endpoint
) -> None:
    body = an_input("hello", thread=str(uuid4()))
    await endpoint.run(body)
    bob = Endpoint(app_server.connection, app_server.key("bob"))
    thread = body["threadId"]
    replies = [
        await bob.run({**body, "runId": "mine"}),
        await bob.hydrate(thread),
        await bob.connect({**body, "messages": []}),
        await bob.request("POST", f"rehearsal/stop/{thread}"),
        await bob.request("GET", f"rehearsal/threads/{thread}/events"),
    ]
    assert {(reply.status, reply.json["code"]) for reply in replies} == {(403, "forbidden")}
    assert not any(b"hello" in reply.body.lower() for reply in replies)


@requirement("ag-ui-b:threads:names")
async def test_a_thread_id_that_is_not_a_uuid_is_a_name_chosen_by_its_owner(
    app_server: AppServer, endpoint: Endpoint
) -> None:
    bob = Endpoint(app_server.connection, app_server.key("bob"))
    for who, text in ((endpoint, "of alice"), (bob, "of bob")):
        await who.run(an_input(text, thread="our chat / ünïcode"))
    assert (await endpoint.messages("our chat / ünïcode"))[0]["content"] == "of alice"
    assert (await bob.messages("our chat / ünïcode"))[0]["content"] == "of bob"


@requirement("ag-ui-b:threads:one-session")
async def test_a_thread_is_the_same_session_over_aap(app_server: AppServer, endpoint: Endpoint) -> None:
    thread = str(uuid4())
    await endpoint.run(an_input("hello", thread=thread))
    reply = await AapClient(app_server.connection, app_server.key("alice")).get(f"/sessions/{thread}/history?type=full")
    said = [
        each["content"] if each["role"] == "user" else each["content"][0]["text"]
        for each in reply.json["history"]["full"]
    ]
    assert said == ["hello", HELLO]


@requirement("ag-ui-b:threads:unknown")
async def test_unknown_agents_threads_and_paths_are_404(endpoint: Endpoint) -> None:
    for method, path, body, code in (
        ("POST", "nobody", an_input("hello"), "unknown_agent"),
        ("POST", "rehearsal", an_input(messages=[]), "thread_not_found"),
        ("POST", "rehearsal", an_input(messages=ANSWERED), "thread_not_found"),
        ("POST", "rehearsal/connect", an_input(messages=[]), "thread_not_found"),
        ("POST", f"rehearsal/stop/{uuid4()}", None, "thread_not_found"),
        ("GET", f"rehearsal/threads/{uuid4()}/events", None, "thread_not_found"),
        ("GET", "nobody/capabilities", None, "unknown_agent"),
        ("GET", "rehearsal/nothing", None, "not_found"),
    ):
        reply = await endpoint.request(method, path, body)
        assert (reply.status, reply.json["code"]) == (404, code), path


@requirement("ag-ui-b:threads:agent-fixed")
async def test_a_threads_agent_cannot_change(endpoint: Endpoint) -> None:
    body = an_input("hello")
    await endpoint.run(body)
    other = Endpoint(endpoint.connection, endpoint.key, agent="rehearsal-bare")
    reply = await other.run({**body, "runId": "other", "messages": [user("again")]})
    assert (reply.status, reply.json["code"]) == (409, "agent_fixed")


@requirement("ag-ui-b:transport:http-errors")
async def test_every_refusal_of_the_core_has_an_answer(endpoint: Endpoint) -> None:
    of_the_core = {each for each in all_refusals() if each.__module__ == refusals.__name__}
    assert {*of_the_core, *REQUEST_ERRORS} <= set(ERRORS.rows)
    reply = await endpoint.request("GET", "rehearsal")
    assert (reply.status, reply.json["code"], reply.headers["allow"]) == (405, "method_not_allowed", "POST")
    reply = await endpoint.run(an_input("hello"), headers={"content-type": "text/plain"})
    assert (reply.status, reply.json["code"]) == (415, "unsupported_media_type")


@requirement("ag-ui-b:cors")
async def test_cors_allows_the_headers_that_clients_send(app_server: AppServer, endpoint: Endpoint) -> None:
    requested = "authorization,content-type,last-event-id,x-api-key,x-run-on-disconnect,x-tenant"
    headers = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": requested,
    }
    reply = await endpoint.request("OPTIONS", "rehearsal", headers=headers)
    assert reply.status == 204
    allowed = {each.strip() for each in reply.headers["access-control-allow-headers"].split(",")}
    assert set(requested.split(",")) <= allowed


@requirement("ag-ui-b:capabilities")
async def test_capabilities_match_the_agent(endpoint: Endpoint) -> None:
    from ag_ui.core import capabilities

    reply = await endpoint.request("GET", "rehearsal/capabilities")
    declared = capabilities.AgentCapabilities.model_validate_json(reply.body)
    assert declared.transport is not None
    assert (declared.transport.streaming, declared.transport.resumable) == (True, True)
    assert declared.tools is not None
    assert declared.tools.client_provided is True
    assert [tool.name for tool in declared.tools.items or ()] == [
        "add",
        "lookup",
        "stamp",
        "clock",
        "slow",
        "boom",
        "card",
        "highlight",
    ]
    assert declared.human_in_the_loop is not None
    assert declared.human_in_the_loop.interrupts is True
    bare = json.loads((await endpoint.request("GET", "rehearsal-bare/capabilities")).body)
    assert (bare["tools"]["clientProvided"], bare["tools"]["items"]) == (False, [])


# --- run ids ----------------------------------------------------------------------------------------------------------


@requirement("ag-ui-b:runs:replayed")
async def test_a_repeated_run_id_replays_the_run_and_runs_nothing(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        endpoint = Endpoint(server.connection, server.key("alice"))
        body = an_input("hello")
        first = await endpoint.run(body)
        assert (await endpoint.run(body)).body == first.body
        await server.restart()
        endpoint = Endpoint(server.connection, server.key("alice"))
        assert (await endpoint.run(body)).body == first.body
        assert len(await endpoint.messages(body["threadId"])) == 2


@requirement("ag-ui-b:runs:joined")
async def test_a_repeated_run_id_joins_the_active_run(endpoint: Endpoint) -> None:
    body = an_input(LONG)
    async with running(endpoint, body) as first:
        second = await started(endpoint, body)
        assert second.events == first.events


@requirement("ag-ui-b:runs:conflict")
async def test_the_same_run_id_with_another_request_is_a_conflict(endpoint: Endpoint) -> None:
    body = an_input("hello")
    await endpoint.run(body)
    reply = await endpoint.run({**body, "messages": [user("else")]})
    assert (reply.status, reply.json["code"]) == (409, "run_conflict")


@requirement("ag-ui-b:runs:busy")
async def test_a_second_run_while_the_first_is_watched_is_refused_as_busy(endpoint: Endpoint) -> None:
    body = an_input(LONG)
    async with running(endpoint, body):
        reply = await endpoint.run({**body, "runId": "second", "messages": [*body["messages"], user("hello")]})
        assert error_of(reply) == (["RUN_ERROR"], "thread_busy")


# --- leaving ----------------------------------------------------------------------------------------------------------


@requirement("ag-ui-b:disconnect:cancels")
async def test_a_disconnect_cancels_the_run(endpoint: Endpoint) -> None:
    body = an_input(LONG)
    reading = await started(endpoint, body)
    await reading.exchange.disconnect()
    assert (await last_stop(endpoint, body["threadId"]))["outcome"] == {"type": "cancelled"}


@requirement("ag-ui-b:disconnect:continue")
async def test_a_header_or_a_setting_lets_the_run_continue_after_a_disconnect(
    endpoint: Endpoint, open_app_server: AppServerFactory
) -> None:
    async with open_app_server(ag_ui_on_disconnect="continue") as server:
        for where, header in (
            (endpoint, {"x_run_on_disconnect": "continue"}),
            (Endpoint(server.connection, server.key("alice")), {}),
        ):
            body = an_input(LONG)
            reading = await started(where, body, **header)
            exchange = reading.exchange
            await exchange.disconnect()
            await exchange.wait_until_released()
            joined = StreamReader(
                await where.open("POST", "rehearsal/connect", {**body, "runId": "back", "messages": []})
            )
            assert (await joined.until("TEXT_MESSAGE_CONTENT"))["delta"] == "so far "
            stopped = await where.request("POST", f"rehearsal/stop/{body['threadId']}")
            assert stopped.json == {"stopped": True}
            assert (await joined.read_to_end())[-1]["outcome"] == {"type": "cancelled"}


@requirement("ag-ui-b:disconnect:watched")
async def test_a_run_with_another_reader_survives_a_disconnect(endpoint: Endpoint) -> None:
    body = an_input(LONG)
    first = await started(endpoint, body)
    other = StreamReader(await endpoint.open("POST", "rehearsal/connect", {**body, "runId": "watch", "messages": []}))
    await other.until("TEXT_MESSAGE_CONTENT")
    assert isinstance(first.exchange, Exchange)
    await first.exchange.disconnect()
    await first.exchange.wait_until_released()
    stopped = await endpoint.request("POST", f"rehearsal/stop/{body['threadId']}")
    assert stopped.json == {"stopped": True}  # so it was still running


@requirement("ag-ui-b:disconnect:orphan")
async def test_a_run_without_a_reader_is_stopped_by_the_next_message(endpoint: Endpoint) -> None:
    body = an_input(LONG)
    first = await started(endpoint, body, x_run_on_disconnect="continue")
    await first.exchange.disconnect()
    await first.exchange.wait_until_released()
    reply = await endpoint.run({**body, "runId": "next", "messages": [*body["messages"], user("hello")]})
    assert reply.text == HELLO


@requirement("ag-ui-b:disconnect:next-at-once", "ag-ui-b:disconnect:orphan")
async def test_a_message_that_arrives_before_the_previous_reader_disconnects_waits_for_it(
    endpoint: Endpoint,
) -> None:
    body = an_input(LONG)
    first = await started(endpoint, body)
    following = {**body, "runId": "next", "messages": [*body["messages"], user("hello")]}
    second = asyncio.create_task(endpoint.run(following))
    for _ in range(2):
        await endpoint.messages(body["threadId"])  # which takes as long as the second run takes to find the first one
    await first.exchange.disconnect()
    assert (await second).text == HELLO


@requirement("ag-ui-b:errors:revoked")
async def test_streams_of_a_revoked_key_end_with_an_error_and_the_run_continues(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server() as server:
        phone, alice = (Endpoint(server.connection, server.key(name)) for name in ("alice_phone", "alice"))
        body = an_input(LONG)
        streams = [
            await started(phone, body),
            StreamReader(await phone.open("POST", "rehearsal/connect", {**body, "runId": "watch", "messages": []})),
        ]
        app: Any = server.connection.app
        await app.keys.revoke("alice_phone")
        for stream in streams:
            (*_, last) = await stream.read_to_end()
            assert (last["type"], last["code"]) == ("RUN_ERROR", "unauthorized")
        stopped = await alice.request("POST", f"rehearsal/stop/{body['threadId']}")
        assert stopped.json == {"stopped": True}  # so it was still running


@requirement("ag-ui-b:slow-reader")
async def test_a_reader_that_does_not_read_does_not_slow_the_run_and_misses_nothing(endpoint: Endpoint) -> None:
    body = an_input(script(*[{"burst": 1000}, {"wait_ms": 5}] * 8))
    headers, sent = endpoint.headers({}), json.dumps(body).encode()
    slow = await endpoint.connection.open("POST", "/ag-ui/rehearsal", headers=headers, body=sent, window=1000)
    assert (await last_stop(endpoint, body["threadId"]))["outcome"] == {"type": "success"}
    assert len(slow.unread()) < 4_000_000
    events = [frame.event for frame in parse(await slow.read())]
    assert sum(len(each["delta"]) for each in events if each["type"] == "TEXT_MESSAGE_CONTENT") == 8_000_000
    assert events[-1]["type"] == "RUN_FINISHED"


@requirement("ag-ui-b:stop")
async def test_stopping_ends_the_run_for_all_its_readers(endpoint: Endpoint) -> None:
    body = an_input(LONG)
    reading = await started(endpoint, body)
    path = f"rehearsal/stop/{body['threadId']}"
    assert (await endpoint.request("POST", path, {"runId": "another"})).json == {"stopped": False}
    assert (await endpoint.request("POST", path, {"runId": body["runId"], "force": True})).status == 400
    assert (await endpoint.request("POST", path, {"runId": body["runId"]})).json == {"stopped": True}
    assert [each["type"] for each in await reading.read_to_end()] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert (await endpoint.request("POST", path)).json == {"stopped": False}


@requirement("ag-ui-b:downgrade:cancelled")
async def test_a_0x_client_gets_an_error_for_a_stopped_run(endpoint: Endpoint) -> None:
    body = an_input(LONG, version=None)
    reading = await started(endpoint, body)
    await endpoint.request("POST", f"rehearsal/stop/{body['threadId']}")
    *_, last = await reading.read_to_end()
    assert (last["type"], last["code"]) == ("RUN_ERROR", "cancelled")


@requirement("ag-ui-b:errors:shutdown")
async def test_a_stopping_server_ends_the_stream_with_an_error_and_the_run_continues_after_the_restart(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server() as server:
        endpoint = Endpoint(server.connection, server.key("alice"))
        body = an_input(script({"say": "before "}, {"step": True}, {"wait_ms": 2_000}, {"say": "after"}))
        reading = await started(endpoint, body)
        await server.stop()
        *_, last = await reading.read_to_end()
        assert (last["type"], last["code"]) == ("RUN_ERROR", "shutting_down")
        await server.start()
        endpoint = Endpoint(server.connection, server.key("alice"))
        assert (await endpoint.connect({**body, "runId": "back", "messages": []})).types[-1] == "RUN_FINISHED"
        assert [each["content"] for each in await endpoint.messages(body["threadId"])][1:] == ["before ", "after"]


# --- the events route -------------------------------------------------------------------------------------------------


@requirement("ag-ui-b:events:log", "ag-ui-b:events:position")
async def test_the_events_route_resumes_strictly_after_any_id(endpoint: Endpoint) -> None:
    body = an_input(script({"think": "hm"}, {"say": "x"}, calls(("add", {"a": 1, "b": 2})), {"say": "{result}"}))
    await endpoint.run(body)
    await endpoint.run({**body, "runId": "2", "messages": [user("hello", "u2")]})
    path = f"rehearsal/threads/{body['threadId']}/events"
    whole = StreamReader(await endpoint.open("GET", path))
    for _ in range(2):
        await whole.until("RUN_FINISHED")
    assert [each["delta"] for each in whole.events if each["type"] == "TEXT_MESSAGE_CONTENT"] == [
        body["messages"][0]["content"],
        "x",
        "3",
        "hello",
        HELLO,
    ]
    await whole.exchange.disconnect()
    for place, own in enumerate(whole.ids[:-1]):
        assert own is not None
        rest = StreamReader(await endpoint.open("GET", path, headers={"last-event-id": own}))
        while len(rest.events) < len(whole.events) - place - 1:
            await rest.next()
        assert (rest.events, rest.ids) == (whole.events[place + 1 :], whole.ids[place + 1 :])
        await rest.exchange.disconnect()
    for strange in ("12:3", "999999-0-1"):
        reply = await endpoint.request("GET", path, headers={"last-event-id": strange})
        assert (reply.status, reply.json["code"]) == (400, "invalid_cursor")


@requirement("ag-ui-b:events:live", "ag-ui-b:threads:one-session")
async def test_what_another_protocol_sends_is_seen_live(app_server: AppServer, endpoint: Endpoint) -> None:
    thread = str(uuid4())
    await endpoint.run(an_input("hello", thread=thread))
    watching = StreamReader(await endpoint.open("GET", f"rehearsal/threads/{thread}/events"))
    await watching.until("RUN_FINISHED")
    body = {"messages": [{"role": "user", "content": "from elsewhere"}], "stream": "none"}
    await AapClient(app_server.connection, app_server.key("alice")).post(f"/sessions/{thread}/turns", body)
    await watching.until("RUN_STARTED")
    assert (await watching.until("TEXT_MESSAGE_START"))["role"] == "user"
    assert (await watching.until("TEXT_MESSAGE_CONTENT"))["delta"] == "from elsewhere"
    await watching.until("RUN_FINISHED")
    await watching.exchange.disconnect()


@requirement("ag-ui-b:connect:as-it-stands")
async def test_connect_to_an_idle_thread_is_hydration(endpoint: Endpoint) -> None:
    body = an_input(STAMP)
    await endpoint.run(body)
    connected = await endpoint.connect({**body, "runId": "c", "messages": []})
    hydrated = await endpoint.run({**body, "runId": "c", "messages": []})
    assert connected.body == hydrated.body
    assert connected.events[-1]["outcome"]["type"] == "interrupt"


@requirement("ag-ui-b:runs:end-first")
async def test_the_next_run_may_start_as_soon_as_the_previous_end_is_received(endpoint: Endpoint) -> None:
    body = an_input("hello")
    for number in range(10):
        reading = StreamReader(
            await endpoint.open("POST", "rehearsal", {**body, "runId": str(number), "messages": [user("hello")]})
        )
        await reading.until("RUN_FINISHED")


@requirement("ag-ui-b:threads:same-first")
async def test_a_new_thread_and_its_run_share_a_commit(open_app_server: AppServerFactory) -> None:
    """One whose client knows nothing of it yet, under a UUID: decision 52."""
    written = COMMITS.labels(outcome="written")
    async with open_app_server() as server:
        endpoint = Endpoint(server.connection, server.key("alice"))
        before = written.value
        opened = await endpoint.open("POST", endpoint.agent, an_input(script(HANG), thread=str(uuid4())))
        await StreamReader(opened).until("RUN_STARTED")
        assert written.value == before + 1


@requirement("ag-ui-b:threads:same-first")
async def test_two_concurrent_first_requests_create_one_thread(endpoint: Endpoint) -> None:
    body = an_input("hello", thread=str(uuid4()))
    first, second = await asyncio.gather(endpoint.run(body), endpoint.run(body))
    assert first.body == second.body
    assert len(await endpoint.messages(body["threadId"])) == 2


@requirement("ag-ui-b:threads:same-first", "ag-ui-b:threads:foreign")
async def test_two_users_cannot_create_the_same_thread(app_server: AppServer, endpoint: Endpoint) -> None:
    body = an_input("hello", thread=str(uuid4()))
    both = await asyncio.gather(endpoint.run(body), Endpoint(app_server.connection, app_server.key("bob")).run(body))
    refused, taken = sorted(both, key=lambda reply: -reply.status)
    assert (taken.status, refused.status, refused.json["code"]) == (200, 403, "forbidden")
