"""Token budgets of users and keys: over HTTP and sockets, between steps, across days and restarts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import openai
import pytest
from click.testing import CliRunner

import dragoman
from dragoman.cli.main import commands
from dragoman.core.agent import AgentError
from dragoman.core.content import Usage
from dragoman.core.ids import UserId
from dragoman.core.refusals import TokenBudgetUsedUp
from dragoman.core.token_budgets import TokenLimits
from dragoman.engine.services.token_budgets import RunBudget, TokenBudgets
from dragoman.server.clock_and_ids import SystemClock
from dragoman.stores.postgres.database import Database as Postgres
from dragoman.stores.postgres.token_usage import PostgresTokenUsage
from dragoman.testing.scripted import Scripted
from tests.conversations import call, script
from tests.protocols.aap.client import AapClient, enabled_tools
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.servers import USERS, AppServer, running_server, running_socket_server

USES = "the {}'s budget of {} tokens a {} is used up; it resets at {} 00:00 UTC"


def spending(tokens: int, *more: Any) -> str:
    """A message whose answer costs this many tokens in its first step."""
    return script({"usage": {"input_tokens": tokens - 1, "output_tokens": 1}}, {"say": "spent"}, *more)


def set_user(folder: Path, *options: str) -> str:
    shown = CliRunner().invoke(commands, ["users", "set", "alice", *options, "--data", str(folder)])
    assert shown.exit_code == 0, shown.output
    return shown.output


@pytest.fixture
def limited_key(tmp_path: Path) -> str:
    """A key of alice's with 50 tokens a day."""
    options = ["--user", "alice", "--tokens-per-day", "50", "--data", str(tmp_path)]
    return CliRunner().invoke(commands, ["keys", "create", "--name", "app", *options]).stdout.strip()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path, manual_clock=True, tokens_per_day=1000) as running:
        yield running


async def usage(server: AppServer, key: str) -> list[dict[str, Any]]:
    reply = await AapClient(server.connection, key, base="").get("/usage")
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = reply.json["budgets"]
    return found


async def test_a_used_up_budget_is_429_until_the_next_day_and_counts_across_restarts(server: AppServer) -> None:
    today = server.clock.now().date()
    alice = server.aap_client("alice")
    session = await alice.create()
    spent = await session.post([{"role": "user", "content": spending(600)}], stream="none")
    assert spent.status == 200, spent
    policy = '"user-day";q=1000;qu="tokens";w=86400, "user-runs";q=1000;qu="runs"'
    assert spent.headers["ratelimit-policy"] == policy
    assert spent.headers["ratelimit"].startswith('"user-day";r=1000;t=')
    await server.restart()
    session = session.as_client(server.aap_client("alice"))
    more = await session.post([{"role": "user", "content": spending(500)}], stream="none")
    assert more.headers["ratelimit"].startswith('"user-day";r=400;t='), more
    (budget,) = await usage(server, server.key("alice"))
    assert (budget["used"], budget["left"], budget["holder"], budget["period"]) == (1100, 0, "user", "day")
    tomorrow = budget["resets_at"][:10]
    assert tomorrow > today.isoformat()
    history = await session.history()
    refused = await session.post([{"role": "user", "content": "hello"}], stream="none")
    assert (refused.status, refused.json["code"]) == (429, "rate_limited")
    assert refused.json["error"] == USES.format("user", 1000, "day", tomorrow)
    assert 0 < int(refused.headers["retry-after"]) <= 86400
    assert refused.headers["ratelimit"].startswith('"user-day";r=0;t=')
    assert await session.history() == history
    bob = await server.aap_client("bob").create()
    assert (await bob.post([{"role": "user", "content": "hello"}], stream="none")).status == 200
    server.clock.advance(days=1)
    again = await session.post([{"role": "user", "content": "hello"}], stream="none")
    assert again.status == 200, again
    assert again.headers["ratelimit"].startswith('"user-day";r=1000;t=')


async def test_a_run_ends_before_its_next_step_and_keeps_the_results_of_its_tools(server: AppServer) -> None:
    session = await server.aap_client("alice").create(server_tools=enabled_tools("add"))
    turn = await session.run(script({"usage": {"input_tokens": 1000}}, call("add", a=20, b=22), {"say": "never said"}))
    assert turn.error["code"] == "token_budget_used_up", turn
    assert (await session.history())[-1]["content"] == "42", "the result of the tool"
    (budget,) = await usage(server, server.key("alice"))
    assert (budget["used"], budget["left"]) == (1000, 0)


async def test_an_admin_sees_what_each_user_has_used_and_others_do_not(server: AppServer) -> None:
    session = await server.aap_client("alice").create()
    await session.post([{"role": "user", "content": spending(600)}], stream="none")
    admin = AapClient(server.connection, server.key("admin"), base="")
    pages = [(await admin.get(f"/users?{query}")).json["users"] for query in ("limit=2", "limit=2&after=alice")]
    assert [each["user"] for each in pages[0]] == ["admin", "alice"]
    shown = {
        each["user"]: [(budget["period"], budget["limit"], budget["used"]) for budget in each["budgets"]]
        for each in chain(*pages)
    }
    assert list(shown) == sorted({user for user, _ in USERS.values()})
    assert shown == {user: [("day", 1000, 600 if user == "alice" else 0)] for user in shown}
    for limit in ("0", "1001", "x"):
        assert (await admin.get(f"/users?limit={limit}")).status == 400, limit
    refused = await AapClient(server.connection, server.key("alice"), base="").get("/users")
    assert refused.status == 403, refused


async def test_each_protocol_refuses_in_its_own_shape(tmp_path: Path) -> None:
    async with running_socket_server(tmp_path, tokens_per_month=10) as server:
        key = server.key("alice")
        official = openai.AsyncOpenAI(base_url=f"{url_of(server)}/v1", api_key=key, max_retries=0)
        first = await official.responses.with_raw_response.create(model="rehearsal", input=spending(10))
        assert first.headers["ratelimit"].startswith('"user-month";r=10;t=')
        with pytest.raises(openai.RateLimitError, match="budget of 10 tokens a month is used up") as refused:
            await official.chat.completions.create(model="rehearsal", messages=[{"role": "user", "content": "hello"}])
        assert refused.value.code == "insufficient_quota"
        assert int(refused.value.response.headers["retry-after"]) > 0
        assert refused.value.response.headers["x-should-retry"] == "false", "not within seconds, as clients repeat 429"
        await official.close()
        ag_ui = await Endpoint(server.connection, key).run(an_input("hello"))
        assert (ag_ui.status, ag_ui.json["code"]) == (429, "rate_limited")
        rest = RestClient(url_of(server), key)
        session = await rest.session()
        async with socket_client(url_of(server), key) as socket:
            answer = await socket.call("chat:send", {"session_id": session, "message": "hello"})
        assert (answer["status"], answer["code"]) == ("error", "rate_limited")


async def test_the_budget_of_a_key_limits_its_runs_over_sockets_too_but_no_other_key(
    tmp_path: Path, limited_key: str
) -> None:
    key = limited_key
    async with running_socket_server(tmp_path) as server:
        session = await RestClient(url_of(server), key).session()
        async with socket_client(url_of(server), key) as socket:
            await socket.send(session, spending(50))
            answer = await socket.call("chat:send", {"session_id": session, "message": "hello"})
            assert answer["code"] == "rate_limited"
        found = await AapClient(server.connection, key, base="").get("/usage")
        assert [(each["holder"], each["left"]) for each in found.json["budgets"]] == [("key", 0)]
        mine = await AapClient(server.connection, server.key("alice")).create()
        free = await mine.post([{"role": "user", "content": "hello"}], stream="none")
        assert free.status == 200
        assert free.headers["ratelimit"] == '"user-runs";r=999', "this key and its user have no budgets"


async def test_a_compaction_counts_what_its_summary_has_cost(tmp_path: Path) -> None:
    model = Scripted(["one", "two", "a part", "a summary"], usage=Usage(input_tokens=90, output_tokens=10))
    agents = (dragoman.Agent("writer", model=model),)
    async with running_server(tmp_path, agents=agents, tokens_per_day=1000) as server:
        session = await server.aap_client("alice").create("writer")
        for text in ("first " * 300, "second"):
            await session.run(text)
        blade = AapClient(server.connection, server.key("alice"), base="/api")
        assert (await blade.post(f"/sessions/{session.id}/compact", None)).status == 200
        (budget,) = await usage(server, server.key("alice"))
        assert budget["used"] == 400, "two answers, and a summary that was written in two parts"


async def test_servers_share_a_budget_and_exceed_it_by_one_step_of_each_run_at_most(postgres_url: str) -> None:
    """Six runs on two servers, with steps of 10 tokens: 100 allowed, at most 100 + 6 * 10 used."""
    ann, limits = UserId("ann"), TokenLimits(100, 0)
    with (
        closing(Postgres(postgres_url, access="unlocked")) as one,
        closing(Postgres(postgres_url, access="unlocked")) as other,
    ):
        servers = [
            TokenBudgets(PostgresTokenUsage(database), SystemClock(), of_user=lambda _: limits)
            for database in (one, other)
        ]

        async def run_until_used_up(run: RunBudget | None) -> None:
            assert run is not None
            with suppress(AgentError):
                while True:
                    run.require()
                    await run.count(Usage(input_tokens=10))

        runs = [await servers[number % 2].for_run(ann, None) for number in range(6)]
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(run_until_used_up(run))
        for budgets in servers:
            (budget,) = await budgets.current(ann, None)
            assert 100 <= budget.used <= 160
            with pytest.raises(TokenBudgetUsedUp):
                await budgets.require(ann, None)


async def test_a_changed_budget_of_a_key_applies_at_once(tmp_path: Path, limited_key: str) -> None:
    async with running_server(tmp_path) as server:
        session = await AapClient(server.connection, limited_key).create()
        await session.run(spending(50))
        assert (await session.post([{"role": "user", "content": "hello"}])).status == 429
        options = ["app", "--tokens-per-day", "80", "--data", str(tmp_path)]
        changed = await asyncio.to_thread(CliRunner().invoke, commands, ["keys", "limit", *options])
        assert changed.output.endswith("tokens 80 a day\n"), changed.output
        assert (await session.run("hello")).stop == "end_turn"
        (budget,) = await usage(server, limited_key)
        assert (budget["limit"], budget["used"] >= 50) == (80, True)
        entries = await server.connection.app.audit.page()  # type: ignore[attr-defined]  # the app is the server's
        assert "key.limited" in {each.action for each in entries}


def test_the_command_line_sets_budgets_of_keys_and_users_and_refuses_nonsense(tmp_path: Path) -> None:
    runner, data = CliRunner(), ["--data", str(tmp_path)]
    made = runner.invoke(commands, ["keys", "create", "--name", "app", "--tokens-per-day", "500", *data])
    assert made.exit_code == 0, made.output
    listed = runner.invoke(commands, ["keys", "list", *data]).output.splitlines()
    assert listed[0].endswith("TOKENS")
    assert listed[1].endswith("500 a day")
    shown = set_user(tmp_path, "--tokens-per-day", "0", "--tokens-per-month", "70")
    assert shown.endswith("retention days -, tokens a day 0, tokens a month 70\n")
    assert set_user(tmp_path, "--tokens-per-month", "").endswith("tokens a day 0, tokens a month -\n")
    for option in (["--tokens-per-day", "-1"], ["--tokens-per-month", "x"], ["--tokens-per-month", "9" * 30]):
        assert runner.invoke(commands, ["keys", "create", "--name", "app", *option, *data]).exit_code != 0
        assert runner.invoke(commands, ["users", "set", "alice", *option, *data]).exit_code != 0
        assert runner.invoke(commands, ["keys", "limit", "app", *option, *data]).exit_code != 0
    assert len(runner.invoke(commands, ["keys", "list", *data]).output.splitlines()) == 2
    limited = runner.invoke(commands, ["keys", "limit", "app", "--tokens-per-month", "9000", *data])
    assert limited.output.endswith("tokens 500 a day, 9000 a month\n")
    assert "nothing to change" in runner.invoke(commands, ["keys", "limit", "app", *data]).output
    unknown = runner.invoke(commands, ["keys", "limit", "no such key", "--tokens-per-day", "1", *data])
    assert (unknown.exit_code, "there is no key 'no such key'" in unknown.output) == (1, True)
