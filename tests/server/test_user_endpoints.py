"""Users over REST for admins: all users, and their token budgets."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dragoman.cli.keys import handle_in_folder
from dragoman.core.audit import ACTOR, Actor
from dragoman.core.ids import UserId
from dragoman.server.admin_socket import SetUser
from tests.asgi_client import Answer
from tests.server.test_key_endpoints import NONSENSE, ask
from tests.servers import AppServer, running_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path, tokens_per_day=100) as running:
        yield running


async def users(server: AppServer) -> dict[str, dict[str, Any]]:
    answer = await ask(server, "GET", "/users", server.key("admin"))
    assert answer.status == 200, answer
    return {each["user"]: each for each in json.loads(answer.body)["users"]}


async def change(server: AppServer, user: str, limits: dict[str, Any]) -> Answer:
    return await ask(server, "PATCH", f"/users/{user}", server.key("admin"), json.dumps(limits).encode())


async def audited(server: AppServer) -> list[tuple[str, str, str]]:
    answer = await ask(server, "GET", "/audit?action=user.limited", server.key("admin"))
    return [(each.get("user", ""), each["target"], each["detail"]) for each in json.loads(answer.body)["entries"]]


async def test_an_admin_changes_the_budget_of_a_user_and_returns_to_the_servers(server: AppServer) -> None:
    before = (await users(server))["alice"]
    assert before["token_limits"] == {}
    assert [(each["period"], each["limit"]) for each in before["budgets"]] == [("day", 100)]
    changed = json.loads((await change(server, "alice", {"tokens_per_month": 9000})).body)
    assert changed["token_limits"] == {"per_month": 9000}
    assert [(each["period"], each["limit"]) for each in changed["budgets"]] == [("day", 100), ("month", 9000)]
    usage = json.loads((await ask(server, "GET", "/usage", server.key("alice"))).body)
    assert [(each["holder"], each["limit"]) for each in usage["budgets"]] == [("user", 100), ("user", 9000)]
    unlimited = json.loads((await change(server, "alice", {"tokens_per_day": 0})).body)
    assert [(each["period"], each["limit"]) for each in unlimited["budgets"]] == [("month", 9000)]
    again = json.loads((await change(server, "alice", {"tokens_per_day": None, "tokens_per_month": None})).body)
    assert again == before == (await users(server))["alice"]
    assert await audited(server) == [
        ("admin", "alice", "tokens as the server's settings say"),
        ("admin", "alice", "tokens unlimited a day, 9000 a month"),
        ("admin", "alice", "tokens 9000 a month"),
    ]


async def test_nonsense_is_refused_and_changes_nothing(server: AppServer) -> None:
    before = await users(server)
    for body, code in NONSENSE:
        answer = await ask(server, "PATCH", "/users/alice", server.key("admin"), body)
        expected = (413 if code == "body_too_large" else 400, code)
        assert (answer.status, json.loads(answer.body)["code"]) == expected, answer
    assert await users(server) == before
    assert await audited(server) == []


async def test_only_admins_change_budgets_of_users_and_only_of_those_that_exist(server: AppServer) -> None:
    body = b'{"tokens_per_day": 0}'
    statuses = [
        (await ask(server, "PATCH", "/users/alice", server.key("alice"), body)).status,
        (await ask(server, "PATCH", "/users/alice", "", body)).status,
        (await ask(server, "PATCH", "/users/nobody", server.key("admin"), body)).status,
        (await ask(server, "DELETE", "/users/alice", server.key("admin"))).status,
    ]
    assert statuses == [403, 401, 404, 405]


async def test_the_name_of_a_user_may_contain_any_character(server: AppServer) -> None:
    name = "https://login.example/ann müller?x=1"
    await asyncio.to_thread(handle_in_folder, server.folder, SetUser(user=name, locale="de"))
    changed = await change(server, quote(name, safe=""), {"tokens_per_day": 5})
    assert json.loads(changed.body)["user"] == name
    assert (await users(server))[name]["token_limits"] == {"per_day": 5}


async def test_a_budget_that_the_command_line_sets_is_in_the_audit_log_and_a_time_zone_is_not(tmp_path: Path) -> None:
    earlier = ACTOR.set(Actor(user=UserId("bob")))  # in whose context a server starts makes no difference
    async with running_server(tmp_path) as server:
        await asyncio.to_thread(handle_in_folder, server.folder, SetUser(user="alice", tokens_per_day=7))
        await asyncio.to_thread(handle_in_folder, server.folder, SetUser(user="alice", time_zone="Europe/Berlin"))
        assert await audited(server) == [("", "alice", "tokens 7 a day")]
    ACTOR.reset(earlier)
