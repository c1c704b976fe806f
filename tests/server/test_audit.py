"""The audit log of a server: what is recorded, who may read it, over REST and from the command line."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dragoman.cli.main import commands
from dragoman.core.audit import ACTOR, Actor
from dragoman.core.ids import UserId
from tests.asgi_client import DEADLINE_S, Answer
from tests.identity.provider import AUDIENCE, running_provider
from tests.protocols.aap.client import AapClient
from tests.servers import AppServer, running_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path) as running:
        yield running


async def ask(server: AppServer, method: str, path: str, key: str, body: object = None, request_id: str = "") -> Answer:
    headers = [("authorization", f"Bearer {key}"), ("content-type", "application/json"), ("x-request-id", request_id)]
    content = b"" if body is None else json.dumps(body).encode()
    stream = await server.connection.open(method, path, headers=headers, body=content)
    return Answer(stream.status, stream.headers, await stream.read())


async def entries(server: AppServer, query: str = "") -> list[dict[str, Any]]:
    answer = await ask(server, "GET", f"/audit{query}", server.key("admin"))
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = json.loads(answer.body)["entries"]
    return found


async def test_what_a_user_does_is_recorded_with_user_key_and_request_id(server: AppServer) -> None:
    alice = server.key("alice")
    session = await AapClient(server.connection, alice).create()
    path = f"/api/sessions/sess_{session.id}"
    share = await ask(server, "POST", f"{path}/share", alice, {}, "r-1")
    assert share.status == 200, share
    for is_shared in (True, True, False):
        changed = await ask(server, "PATCH", f"{path}/sharing", alice, {"shared": is_shared}, f"r-{is_shared}")
        assert changed.status == 200, changed
    assert (await ask(server, "GET", f"{path}/export", alice, request_id="r-2")).status == 200
    assert (await ask(server, "DELETE", f"/aap/v3/sessions/{session.id}", alice, request_id="r-3")).status < 300
    made = await ask(server, "POST", "/api/user/api-keys", alice, {"name": "phone"}, "r-4")
    key_id = json.loads(made.body)["key"]["id"]
    assert (await ask(server, "DELETE", f"/api/user/api-keys/{key_id}", alice, request_id="r-5")).status < 300
    recorded = await entries(server, "?user=alice")
    assert [(each["action"], each["request_id"]) for each in recorded] == [
        ("key.revoked", "r-5"),
        ("key.created", "r-4"),
        ("session.deleted", "r-3"),
        ("session.exported", "r-2"),
        ("session.unshared", "r-False"),
        ("session.shared", "r-True"),
        ("share.created", "r-1"),
    ]
    assert {each["target"] for each in recorded[2:]} == {session.id}
    assert recorded[0]["target"] == recorded[1]["target"]
    assert recorded[1]["detail"] == "phone, of alice: use"
    assert all(each["key_id"] and each["address"] for each in recorded)
    assert alice not in json.dumps(await entries(server))


async def test_refusals_are_counted_by_address_and_logins_recorded_once_per_token(tmp_path: Path) -> None:
    async with running_provider() as provider:
        settings = {"oidc_issuer": provider.url, "oidc_audience": [AUDIENCE], "requests_per_minute": 2}
        async with running_server(tmp_path, **settings) as server:
            token = provider.token()
            for _ in range(3):
                await ask(server, "GET", "/aap/v3/sessions", token)
            for _ in range(5):
                await ask(server, "GET", "/aap/v3/sessions", "sk-dragoman-wrong")
            await ask(server, "GET", "/aap/v3/sessions", provider.token(exp=1000))
        async with running_server(tmp_path) as server:
            counted = {(each["action"], each.get("detail"), each.get("count", 1)) for each in await entries(server)}
    assert {
        ("login.succeeded", "with a token", 1),
        ("login.refused", "this key is not known here", 5),
        ("login.refused", "the token has expired: get a new one", 1),
    } <= counted
    assert [count for action, _, count in counted if action == "limit.reached"] == [1]


async def test_a_session_that_expires_is_not_recorded_as_deleted_by_its_owner(tmp_path: Path) -> None:
    async with running_server(tmp_path, manual_clock=True) as server:
        session = await server.aap_client("alice").create()
    earlier = ACTOR.set(Actor(user=UserId("alice")))  # in whose context a server starts makes no difference
    async with running_server(tmp_path, retention_days=1) as server, asyncio.timeout(DEADLINE_S):
        while not (deleted := await entries(server, "?action=session.deleted")):
            pass
    ACTOR.reset(earlier)
    assert [(each["target"], each.get("user", ""), each["detail"]) for each in deleted] == [
        (session.id, "", "of alice: it had expired")
    ]


async def test_guesses_of_links_beyond_the_limit_are_recorded(tmp_path: Path) -> None:
    async with running_server(tmp_path, wrong_keys_per_minute=1) as server:
        answers = [await ask(server, "GET", "/api/share/share_guess", "") for _ in range(3)]
        assert [answer.status for answer in answers] == [404, 429, 429]
    async with running_server(tmp_path) as server:
        (reached,) = [each for each in await entries(server) if each["action"] == "limit.reached"]
    assert (reached["count"], bool(reached["address"])) == (2, True)


async def test_only_admins_read_it_and_nonsense_is_refused(server: AppServer) -> None:
    assert (await ask(server, "GET", "/audit", server.key("alice"))).status == 403
    assert (await ask(server, "GET", "/audit", "")).status == 401
    for limit in ("0", "1001", "-1", "x", "9" * 5000):
        answer = await ask(server, "GET", f"/audit?limit={limit}", server.key("admin"))
        assert (answer.status, json.loads(answer.body)["code"]) == (400, "invalid_request")
    assert (await ask(server, "POST", "/audit", server.key("admin"), {})).status == 405


def test_the_command_line_records_and_shows_entries_without_a_server(tmp_path: Path) -> None:
    runner = CliRunner()
    data = ["--data", str(tmp_path)]
    assert runner.invoke(commands, ["keys", "create", "--name", "laptop", "--user", "ann", *data]).exit_code == 0
    assert runner.invoke(commands, ["keys", "revoke", "laptop", *data]).exit_code == 0
    shown = runner.invoke(commands, ["audit", *data])
    assert shown.exit_code == 0, shown
    header, revoked, created = shown.output.splitlines()
    assert header.split() == ["TIME", "ACTION", "USER", "ADDRESS", "TARGET", "TIMES", "DETAIL"]
    assert "key.revoked" in revoked
    assert created.endswith("laptop, of ann: use")
    lines = runner.invoke(commands, ["audit", "--json", "--action", "key.created", *data]).output.splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["key.created"]
