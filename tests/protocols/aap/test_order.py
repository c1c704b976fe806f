"""AAP, section 4: one order of checks, and refusals that change nothing."""

import json
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pytest

from tests.protocols.aap.client import (
    AapClient,
    Message,
    Session,
    assert_refusal,
    assert_unchanged,
    call,
    calls,
    client_tool,
    deny,
    enabled_tools,
    grant,
    result,
    script,
    user,
)
from tests.requirements import requirement
from tests.servers import AppServer

UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"


@dataclass
class Request:
    """A request to `/turns` that is right until faults are put in."""

    session: Session
    method: str = "POST"
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=lambda: {"messages": [user("hello")]})
    raw: bytes | None = None

    async def send(self, client: AapClient) -> Any:
        content = self.raw if self.raw is not None else json.dumps(self.body).encode()
        return await client.request(
            self.method, self.path or f"{self.session.path}/turns", raw=content, headers=self.headers
        )


def no_key(request: Request) -> None:
    request.headers["authorization"] = "Bearer nobody"


def no_method(request: Request) -> None:
    request.method = "PUT"


def no_session(request: Request) -> None:
    request.path = f"/sessions/{UNKNOWN}/turns"


def no_type(request: Request) -> None:
    request.headers["content-type"] = "text/plain"


def no_json(request: Request) -> None:
    request.raw = b'{"messages": '


def no_shape(request: Request) -> None:
    request.body["stream"] = "sideways"


def no_option(request: Request) -> None:
    request.body["agent"] = {"options": {"colour": "red"}}


def busy(request: Request) -> None:
    """The session it is sent to runs a turn."""


def no_call(request: Request) -> None:
    request.body["messages"] = [result("nowhere", "x")]


FAULTS = (
    (no_key, 401, "unauthorized"),
    (no_method, 405, "method_not_allowed"),
    (no_session, 404, "session_not_found"),
    (no_type, 415, "unsupported_media_type"),
    (no_json, 400, "invalid_json"),
    (no_shape, 400, "invalid_request"),
    (no_option, 400, "unknown_option"),
    (busy, 409, "turn_in_progress"),
    (no_call, 400, "unknown_tool_call"),
)


@requirement("aap:order:pairwise", "aap:order:refusal-changes-nothing")
@pytest.mark.parametrize(("first", "second"), list(combinations(FAULTS, 2)), ids=lambda fault: fault[0].__name__)
async def test_of_two_faults_in_a_turn_the_earlier_is_answered(aap_client: AapClient, first: Any, second: Any) -> None:
    session = await aap_client.create()
    reading = None
    if busy in (first[0], second[0]):
        reading = await session.open(script({"wait_ms": 600_000}))
        await reading.until("turn_start")
    async with assert_unchanged(session):
        for faults in ((first, second), (second, first)):
            request = Request(session)
            for fault, _, _ in faults:
                fault(request)
            assert_refusal(await request.send(aap_client), first[1], first[2])
    if reading is not None:
        await session.delete()


CREATION_FAULTS = (
    (no_key, 401, "unauthorized"),
    (no_method, 405, "method_not_allowed"),
    (no_type, 415, "unsupported_media_type"),
    (no_json, 400, "invalid_json"),
    (lambda request: request.body.update(tools="none"), 400, "invalid_request"),
    (lambda request: request.body["agent"].update(options={"colour": "red"}), 400, "unknown_option"),
)


@requirement("aap:order:pairwise", "aap:order:refusal-changes-nothing")
@pytest.mark.parametrize(("first", "second"), list(combinations(CREATION_FAULTS, 2)), ids=lambda fault: fault[2])
async def test_of_two_faults_in_a_creation_the_earlier_is_answered(
    aap_client: AapClient, first: Any, second: Any
) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        for faults in ((first, second), (second, first)):
            request = Request(session, path="/sessions", body={"agent": {"name": "rehearsal"}})
            for fault, _, _ in faults:
                fault(request)
            assert_refusal(await request.send(aap_client), first[1], first[2])


@requirement("aap:order:pairwise")
async def test_a_path_that_is_unknown_is_reported_to_key_holders_only(app_server: AppServer) -> None:
    assert_refusal(await AapClient(app_server.connection, "nobody").get("/nowhere"), 401, "unauthorized")
    assert_refusal(await app_server.aap_client("alice").get("/nowhere"), 404, "not_found")


@requirement("aap:order:pairwise")
async def test_a_missing_scope_comes_before_the_method_and_the_session(app_server: AppServer) -> None:
    reader = app_server.aap_client("alice_reads")
    assert_refusal(await reader.request("DELETE", f"/sessions/{UNKNOWN}"), 403, "forbidden")
    assert_refusal(await reader.request("POST", f"/sessions/{UNKNOWN}/turns", raw=b"{"), 403, "forbidden")


@requirement("aap:order:pairwise", "aap:turn:oversized")
async def test_an_oversized_body_comes_after_its_type_and_session_and_before_its_json(aap_client: AapClient) -> None:
    session = await aap_client.create()
    huge = b'{"messages": "' + b"x" * (16 * 1024 * 1024)
    async with assert_unchanged(session):
        assert_refusal(
            await Request(session, path=f"/sessions/{UNKNOWN}/turns", raw=huge).send(aap_client),
            404,
            "session_not_found",
        )
        assert_refusal(
            await Request(session, headers={"content-type": "text/plain"}, raw=huge).send(aap_client),
            415,
            "unsupported_media_type",
        )
        assert_refusal(await Request(session, raw=huge).send(aap_client), 413, "body_too_large", limit=16 * 1024 * 1024)


HISTORY_FAULTS = (
    (no_key, 401, "unauthorized"),
    (no_method, 405, "method_not_allowed"),
    (
        lambda request: setattr(request, "path", request.path.replace(request.session.id, UNKNOWN)),
        404,
        "session_not_found",
    ),
    (lambda request: setattr(request, "path", request.path.replace("full", "half")), 400, "invalid_history_type"),
)


@requirement("aap:order:pairwise")
@pytest.mark.parametrize(("first", "second"), list(combinations(HISTORY_FAULTS, 2)), ids=lambda fault: fault[2])
async def test_of_two_faults_in_a_history_the_earlier_is_answered(
    aap_client: AapClient, first: Any, second: Any
) -> None:
    session = await aap_client.create()
    request = Request(session, method="GET", path=f"{session.path}/history?type=full", raw=b"")
    for fault, _, _ in (second, first):
        fault(request)
    assert_refusal(await request.send(aap_client), first[1], first[2])


# --- refusals change nothing ------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "agent": {"tools": enabled_tools("lookup"), "options": {"style": "loud", "token": "new"}},
    "tools": [client_tool("other")],
}
IMAGE = {"type": "image", "url": "ftp://images.example/a.png"}


@requirement(
    "aap:order:refusal-changes-nothing",
    "aap:turn:bad-names",
    "aap:turn:image",
    "aap:turn:duplicate-tools",
    "aap:turn:unknown-mode",
)
@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"messages": []}, 400, "invalid_request"),
        ({"messages": [user("hi"), {"role": "system", "content": "x"}]}, 400, "invalid_request"),
        ({"stream": "sideways"}, 400, "invalid_request"),
        ({"agent": {**GOOD["agent"], "name": "plain"}}, 400, "agent_name_fixed"),
        ({"agent": {**GOOD["agent"], "name": 7}}, 400, "invalid_request"),
        ({"agent": {**GOOD["agent"], "tools": enabled_tools("nothing")}}, 400, "unknown_tool"),
        ({"agent": {**GOOD["agent"], "tools": enabled_tools("whisper")}}, 400, "unknown_tool"),
        ({"agent": {**GOOD["agent"], "tools": enabled_tools("add", "add")}}, 400, "duplicate_tool_name"),
        ({"agent": {**GOOD["agent"], "options": {"style": "loud", "colour": "x"}}}, 400, "unknown_option"),
        ({"agent": {**GOOD["agent"], "options": {"token": "new", "style": "x"}}}, 400, "invalid_option_value"),
        ({"agent": {**GOOD["agent"], "options": {"token": 7}}}, 400, None),
        ({"tools": [client_tool("x"), client_tool("x")]}, 400, "duplicate_tool_name"),
        ({"tools": [client_tool("boom")]}, 400, "duplicate_tool_name"),
        ({"tools": [client_tool("whisper")]}, 400, "duplicate_tool_name"),
        ({"messages": [user([{"type": "text", "text": "see"}, IMAGE])]}, 400, "image_unsupported"),
        ({"messages": [result("nowhere", "x")]}, 400, "unknown_tool_call"),
        ({"messages": [user("hi"), result("nowhere", "x")]}, 400, None),
        ({"messages": [user("x" * (1024 * 1024 + 1))]}, 400, "limit_exceeded"),
    ],
)
async def test_a_refused_turn_keeps_nothing_of_itself(
    aap_client: AapClient, fields: dict[str, Any], status: int, code: str | None
) -> None:
    session = await aap_client.create(
        server_tools=enabled_tools("add"), options={"token": "old"}, tools=[client_tool("paint")]
    )
    await session.run("hello")
    async with assert_unchanged(session):
        reply = await aap_client.post(f"{session.path}/turns", {"messages": [user("hi")], **GOOD, **fields})
        assert (reply.status, reply.json["code"]) == (status, code or reply.json["code"]), reply
    assert (await session.run(script({"option": "token"}))).text == "set(3)"


@requirement(
    "aap:order:refusal-changes-nothing",
    "aap:waiting:some-answers",
    "aap:turn:missing-answers",
    "aap:turn:same-id-twice",
)
async def test_a_refused_answer_keeps_nothing_of_itself_and_the_session_waits_on(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False), tools=[client_tool("paint")])
    old = await session.run(script(call("paint"), {"say": "{result}"}))
    await session.run([result(old.calls[0], "old")])
    asked = await session.run(
        script(calls(("paint", {}), ("stamp", {"text": "x"}), ("paint", {})), {"say": "{results}"})
    )
    paint, stamp, more = asked.calls
    every = [result(paint, "1"), grant(stamp), result(more, "2")]
    async with assert_unchanged(session):
        cases: tuple[tuple[list[Message], str, dict[str, Any]], ...] = (
            (every[:1], "tool_results_missing", {"missing": [stamp.id, more.id]}),
            ([every[2], every[0]], "tool_results_missing", {"missing": [stamp.id]}),
            ([*every[:2], user("and")], "tool_results_missing", {"missing": [more.id]}),
            ([*every, result("nowhere", "x")], "unknown_tool_call", {}),
            ([*every, result(old.calls[0], "x")], "tool_call_resolved", {}),
            ([*every, every[0]], "invalid_request", {}),
            ([*every, deny(stamp)], "invalid_request", {}),
            ([every[0], grant(more), every[1]], "invalid_request", {}),
            ([user("first"), *every], "invalid_request", {}),
        )
        for messages, code, extra in cases:
            assert_refusal(
                await aap_client.post(f"{session.path}/turns", {"messages": messages, **GOOD}), 400, code, **extra
            )
    done = await session.run(every)
    assert done.text == "1, stamped x, 2"
