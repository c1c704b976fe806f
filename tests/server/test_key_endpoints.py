"""API keys over REST for admins: all keys, and their token budgets."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.asgi_client import Answer
from tests.servers import AppServer, running_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path) as running:
        yield running


async def ask(server: AppServer, method: str, path: str, key: str, body: bytes = b"") -> Answer:
    headers = [("authorization", f"Bearer {key}"), ("content-type", "application/json"), ("x-request-id", "r-1")]
    stream = await server.connection.open(method, path, headers=headers, body=body)
    return Answer(stream.status, stream.headers, await stream.read())


async def keys(server: AppServer) -> dict[str, dict[str, Any]]:
    answer = await ask(server, "GET", "/keys", server.key("admin"))
    assert answer.status == 200, answer
    return {each["name"]: each for each in json.loads(answer.body)["keys"]}


async def test_an_admin_changes_the_budget_of_another_users_key(server: AppServer) -> None:
    alice = server.key("alice")
    before = (await keys(server))["alice"]
    assert before["token_limits"] == {"per_day": 0, "per_month": 0}
    path = f"/keys/{before['key_id']}"
    changed = await ask(server, "PATCH", path, server.key("admin"), b'{"tokens_per_day": 500}')
    after = {**before, "token_limits": {"per_day": 500, "per_month": 0}}
    assert (changed.status, json.loads(changed.body)) == (200, after)
    changed = await ask(server, "PATCH", path, server.key("admin"), b'{"tokens_per_month": 9000}')
    assert json.loads(changed.body)["token_limits"] == {"per_day": 500, "per_month": 9000}
    usage = json.loads((await ask(server, "GET", "/usage", alice)).body)
    assert [(each["holder"], each["limit"], each["left"]) for each in usage["budgets"]] == [
        ("key", 500, 500),
        ("key", 9000, 9000),
    ]
    assert alice not in json.dumps(await keys(server))
    audit = json.loads((await ask(server, "GET", "/audit?action=key.limited", server.key("admin"))).body)["entries"]
    assert [(each["target"], each["request_id"]) for each in audit] == [(before["key_id"], "r-1")] * 2
    assert audit[0]["detail"].endswith(", of alice: tokens 500 a day, 9000 a month")


async def test_pages_of_keys_cover_all_of_them_once(server: AppServer) -> None:
    everything = [each["key_id"] for each in (await keys(server)).values()]
    found: list[str] = []
    while len(found) < len(everything):
        path = f"/keys?limit=2&after={found[-1]}" if found else "/keys?limit=2"
        page = json.loads((await ask(server, "GET", path, server.key("admin"))).body)["keys"]
        assert len(page) == min(2, len(everything) - len(found))
        found += [each["key_id"] for each in page]
    assert found == everything == sorted(everything)
    for wrong in ("0", "1001", "-1", "x", ""):
        assert (await ask(server, "GET", f"/keys?limit={wrong}", server.key("admin"))).status == 400


NONSENSE = (
    (b"", "invalid_json"),
    (b"{}", "invalid_request"),
    (b"[]", "invalid_request"),
    (b"{", "invalid_json"),
    (b"\xff", "invalid_json"),
    (b'{"tokens_per_day": -1}', "invalid_request"),
    (b'{"tokens_per_day": 1.5}', "invalid_request"),
    (b'{"tokens_per_day": "5"}', "invalid_request"),
    (b'{"tokens_per_day": 9999999999999999}', "invalid_request"),
    (b'{"tokens_per_week": 5}', "invalid_request"),
    (b'{"tokens_per_day": 5, "x": "' + b"y" * 5000 + b'"}', "body_too_large"),
)


async def test_nonsense_is_refused_and_changes_nothing(server: AppServer) -> None:
    before = await keys(server)
    path = f"/keys/{before['alice']['key_id']}"
    for body, code in NONSENSE:
        answer = await ask(server, "PATCH", path, server.key("admin"), body)
        expected = (413 if code == "body_too_large" else 400, code)
        assert (answer.status, json.loads(answer.body)["code"]) == expected, answer
    assert await keys(server) == before


async def test_only_admins_see_keys_of_others_and_change_budgets(server: AppServer) -> None:
    alice = server.key("alice")
    path = f"/keys/{(await keys(server))['alice']['key_id']}"
    statuses = [
        (await ask(server, "GET", "/keys", alice)).status,
        (await ask(server, "PATCH", path, alice, b'{"tokens_per_day": 0}')).status,
        (await ask(server, "PATCH", path, "", b'{"tokens_per_day": 0}')).status,
        (await ask(server, "PATCH", "/keys/none", server.key("admin"), b'{"tokens_per_day": 0}')).status,
        (await ask(server, "PATCH", "/keys/alice", server.key("admin"), b'{"tokens_per_day": 0}')).status,
        (await ask(server, "DELETE", path, server.key("admin"))).status,
    ]
    assert statuses == [403, 403, 401, 404, 404, 405]
