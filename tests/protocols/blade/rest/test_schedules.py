"""Blade's scheduled tasks over REST, on a whole server with a manual clock."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.core.ids import UserId
from dragoman.server.app import Application
from tests.engine.test_scheduler import until
from tests.protocols.blade.rest_client import Client, client_of
from tests.requirements import requirement
from tests.servers import AppServer, running_server

TASKS = "scheduled-tasks"
NOON = "2026-11-21T12:00:00Z"
GONE = (404, {"detail": "there is no such scheduled task"})
BODY = {"title": "Daily report", "prompt": "say done", "cron": "0 9 * * *", "timezone": "Asia/Shanghai"}


@pytest.fixture
async def app_server(tmp_path: Path) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path, manual_clock=True) as running:
        yield running


@pytest.fixture
async def alice(app_server: AppServer) -> AsyncIterator[Client]:
    async with client_of(app_server, "alice") as alice:
        yield alice


@pytest.fixture
async def bob(app_server: AppServer) -> AsyncIterator[Client]:
    async with client_of(app_server, "bob") as bob:
        yield bob


def task(record: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A task as a client reads it."""
    return {
        "id": record["id"],
        **BODY,
        "enabled": True,
        "expires_at": None,
        "skip_confirmations": False,
        "model": None,
        "solution_id": None,
        "next_run_at": "2026-11-22T01:00:00Z",
        "last_run_at": None,
        "created_at": NOON,
        "updated_at": NOON,
        **fields,
    }


async def created(client: Client, **fields: Any) -> dict[str, Any]:
    status, body = await client.request("POST", TASKS, {**BODY, **fields})
    assert status == 201, body
    displayed: dict[str, Any] = body
    return displayed


async def advance_and_fire(server: AppServer, **ahead: float) -> None:
    """Move the clock, and have what is due then done."""
    server.clock.advance(**ahead)
    book = cast("Application", server.connection.app).schedules
    await book.tick()

    async def is_quiet() -> bool:
        return not book.fire_tasks

    await until(is_quiet)


@requirement("blade:schedules:create", "blade:schedules:fields", "blade:schedules:get")
async def test_a_task_is_created_listed_and_read(alice: Client) -> None:
    displayed = await created(alice)
    assert re.fullmatch(r"task_[0-9a-f-]{36}", displayed["id"])
    assert displayed == task(displayed)
    full = await created(
        alice, enabled=False, expires_at="2027-01-01T00:00:00+08:00", skip_confirmations=True, model="m", extra=1
    )
    assert full == task(
        full, enabled=False, expires_at="2026-12-31T16:00:00Z", skip_confirmations=True, model="m", next_run_at=None
    )
    assert await alice.request("GET", TASKS) == (200, [displayed, full])
    assert await alice.request("GET", f"{TASKS}/{full['id']}/") == (200, full)


@requirement("blade:schedules:zone")
async def test_without_a_zone_it_is_the_users_or_the_servers(app_server: AppServer, alice: Client, bob: Client) -> None:
    await cast("Application", app_server.connection.app).profiles.change(UserId("alice"), time_zone="Europe/Berlin")
    assert (await created(alice, timezone=None))["timezone"] == "Europe/Berlin"
    assert (await created(bob, timezone=None))["timezone"] == "UTC"


@requirement("blade:schedules:bounds", "blade:schedules:cron")
@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"title": ""}, "title: must have 1 to 200 characters"),
        ({"title": "t" * 201}, "title: must have 1 to 200 characters"),
        ({"title": None}, "title: Expected `str`, got `null`"),
        ({"prompt": " "}, "prompt: must not be blank"),
        ({"cron": "0 0 31 2 *"}, "cron: no such day is in any of these months"),
        ({"cron": "@daily"}, "cron: must have five fields, as in '0 9 * * mon-fri', and at most 100 characters"),
        ({"cron": "61 * * * *"}, "cron: '61' is not a valid minute"),
        ({"timezone": "Mars/Olympus"}, "timezone: 'Mars/Olympus' is not an IANA time zone such as Europe/Berlin"),
        ({"expires_at": "2026-11-21T12:00:00Z"}, "expires_at: must be in the future"),
        ({"expires_at": "9999-12-31T23:59:59-10:00"}, "expires_at: is out of range"),
        ({"expires_at": "0001-01-01T00:00:00+10:00"}, "expires_at: is out of range"),
        ({"model": "m" * 201}, "model: must have 1 to 200 characters"),
        ({"solution_id": "x"}, "no agent named 'x' is served here; there are 'rehearsal', 'rehearsal-bare'"),
        ({"enabled": "yes"}, "enabled: Expected `bool | null`, got `str`"),
    ],
)
async def test_a_field_out_of_bounds_is_422(alice: Client, fields: dict[str, Any], detail: str) -> None:
    assert await alice.request("POST", TASKS, {**BODY, **fields}) == (422, {"detail": detail})
    assert await alice.request("GET", TASKS) == (200, [])
    displayed = await created(alice)
    if fields.get("title", "") is not None:
        assert await alice.request("PATCH", f"{TASKS}/{displayed['id']}", fields) == (422, {"detail": detail})
        assert await alice.request("GET", f"{TASKS}/{displayed['id']}") == (200, displayed)


@requirement("blade:schedules:bounds")
async def test_an_expiry_without_an_offset_and_a_missing_field_are_422(alice: Client) -> None:
    assert (await alice.request("POST", TASKS, {**BODY, "expires_at": "2027-01-01T00:00:00"})).status == 422
    assert await alice.request("POST", TASKS, {"title": "t"}) == (422, {"detail": "prompt: this field is required"})


@requirement("blade:schedules:change")
async def test_a_change_recalculates_the_next_time(app_server: AppServer, alice: Client) -> None:
    displayed = await created(alice, expires_at="2027-01-01T00:00:00Z", model="m", solution_id="rehearsal-bare")
    app_server.clock.advance(minutes=1)
    path = f"{TASKS}/{displayed['id']}"
    later = "2026-11-21T12:01:00Z"
    changes = {"cron": "0 10 * * *", "timezone": "UTC", "title": "Other", "prompt": None, "expires_at": None}
    changed = task(
        displayed, cron="0 10 * * *", timezone="UTC", title="Other", model="m", solution_id="rehearsal-bare",
        updated_at=later, next_run_at="2026-11-22T10:00:00Z",
    )  # fmt: skip
    assert await alice.request("PATCH", path, changes) == (200, changed)
    changed |= {"model": None, "solution_id": None}
    assert await alice.request("PATCH", path, {"model": None, "solution_id": None}) == (200, changed)
    assert await alice.request("PATCH", path, {}) == (200, changed)


@requirement("blade:schedules:start-stop")
async def test_a_task_is_stopped_and_started_and_started_again(alice: Client) -> None:
    displayed = await created(alice)
    path = f"{TASKS}/{displayed['id']}"
    stopped = task(displayed, enabled=False, next_run_at=None)
    assert [await alice.request("POST", f"{path}/stop") for _ in range(2)] == [(200, stopped)] * 2
    assert [await alice.request("POST", f"{path}/start") for _ in range(2)] == [(200, displayed)] * 2
    assert await alice.request("GET", f"{path}/runs") == (200, [])


@requirement("blade:schedules:start-expired", "blade:schedules:expiry")
async def test_an_expired_task_is_disabled_at_its_time_and_cannot_be_started(
    app_server: AppServer, alice: Client
) -> None:
    displayed = await created(alice, expires_at="2026-11-21T18:00:00Z")
    path = f"{TASKS}/{displayed['id']}"
    app_server.clock.advance(hours=7)
    assert (await alice.request("GET", path)).body["enabled"] is True
    assert (await alice.request("POST", f"{path}/start")).status == 409, "it has expired, though its time has not come"
    await advance_and_fire(app_server, hours=6)
    assert (await alice.request("GET", path)).body["enabled"] is False
    assert await alice.request("POST", f"{path}/start") == (409, {"detail": "this scheduled task has expired"})
    assert await alice.request("GET", f"{path}/runs") == (200, [])


@requirement("blade:schedules:delete")
async def test_a_deleted_task_is_gone(alice: Client) -> None:
    path = f"{TASKS}/{(await created(alice))['id']}"
    assert await alice.request("DELETE", path) == (204, None)
    assert await alice.request("DELETE", path) == GONE
    assert await alice.request("GET", path) == GONE
    assert await alice.request("PATCH", path, {}) == GONE
    assert await alice.request("POST", f"{path}/start") == GONE
    assert await alice.request("GET", f"{path}/runs") == GONE


@requirement("blade:schedules:own")
async def test_another_users_task_is_not_there(alice: Client, bob: Client) -> None:
    path = f"{TASKS}/{(await created(alice))['id']}"
    calls = [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/start"), ("POST", "/stop"), ("GET", "/runs")]
    assert [await bob.request(method, path + rest) for method, rest in calls] == [GONE] * len(calls)
    assert await bob.request("GET", TASKS) == (200, [])


@requirement("blade:schedules:run", "blade:schedules:runs")
async def test_at_its_time_a_session_of_its_own_answers_the_prompt(app_server: AppServer, alice: Client) -> None:
    displayed = await created(alice, model="m")
    path = f"{TASKS}/{displayed['id']}"
    await advance_and_fire(app_server, hours=13)
    ((status, (run,)),) = [await alice.request("GET", f"{path}/runs")]
    assert (status, run) == (
        200,
        {
            "id": run["id"],
            "task_id": displayed["id"],
            "session_id": run["session_id"],
            "status": "completed",
            "error": None,
            "triggered_at": "2026-11-22T01:00:00Z",
            "finished_at": "2026-11-22T01:00:00Z",
        },
    )
    assert re.fullmatch(r"run_[0-9a-f-]{36}", run["id"])
    session = (await alice.request("GET", f"sessions/{run['session_id']}")).body
    assert (session["intent"], session["model"], session["status"]) == ("Daily report", "m", "completed")
    turns = (await alice.request("GET", f"sessions/{run['session_id']}/messages")).body
    assert [(turn["role"], turn["blocks"][0]["content"]) for turn in turns[:1]] == [("user", "say done")]
    now = (await alice.request("GET", path)).body
    assert (now["last_run_at"], now["next_run_at"]) == ("2026-11-22T01:00:00Z", "2026-11-23T01:00:00Z")
    await advance_and_fire(app_server, hours=24)
    times = [each["triggered_at"] for each in (await alice.request("GET", f"{path}/runs")).body]
    assert times == ["2026-11-23T01:00:00Z", "2026-11-22T01:00:00Z"]
    assert [
        each["triggered_at"] for each in (await alice.request("GET", f"{path}/runs?limit=1&offset=1")).body
    ] == times[1:]


@requirement("blade:schedules:missed")
async def test_a_time_missed_is_reported(app_server: AppServer, alice: Client) -> None:
    displayed = await created(alice)
    await advance_and_fire(app_server, hours=13, minutes=5)
    (run,) = (await alice.request("GET", f"{TASKS}/{displayed['id']}/runs")).body
    assert (run["status"], run["error"], run["session_id"]) == ("failed", "missed: server was not running", "")


@requirement("blade:schedules:calendar")
async def test_the_calendar_reports_when_enabled_tasks_are_due(alice: Client, bob: Client) -> None:
    daily = await created(alice, expires_at="2026-11-23T12:00:00Z")
    busy = await created(alice, cron="* * * * *", title="Busy")
    await created(alice, cron="0 0 1 1 *")
    await created(alice, enabled=False)
    status, (first, second) = await alice.request(
        "GET", f"{TASKS}/calendar?from=2026-11-22T01:00:00Z&to=2026-11-25T09:00:00+08:00"
    )
    occurrences = ["2026-11-22T01:00:00Z", "2026-11-23T01:00:00Z"]
    assert (status, first) == (200, {"task_id": daily["id"], "title": "Daily report", "occurrences": occurrences})
    assert (second["task_id"], len(second["occurrences"]), second["truncated"]) == (busy["id"], 1000, True)
    assert await bob.request("GET", f"{TASKS}/calendar?from=2026-11-22T00:00:00Z&to=2026-11-25T00:00:00Z") == (200, [])


@requirement("blade:schedules:calendar")
@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("", "from: must be a time with an offset, as in 2026-01-01T00:00:00Z"),
        ("from=2026-01-01T00:00:00Z", "to: must be a time with an offset, as in 2026-01-01T00:00:00Z"),
        ("from=2026-01-01T00:00:00&to=2026-01-02T00:00:00Z",
         "from: must be a time with an offset, as in 2026-01-01T00:00:00Z"),
        ("from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:00Z", "to: must be after from, by at most 366 days"),
        ("from=2026-01-01T00:00:00Z&to=2027-01-02T00:00:01Z", "to: must be after from, by at most 366 days"),
        ("from=9999-12-31T23:59:59-10:00&to=2027-01-02T00:00:01Z", "from: is out of range"),
    ],
)  # fmt: skip
async def test_a_span_out_of_bounds_is_422(alice: Client, query: str, detail: str) -> None:
    assert await alice.request("GET", f"{TASKS}/calendar?{query}") == (422, {"detail": detail})


@requirement("blade:schedules:preview")
async def test_the_next_times_are_reported_before_a_task_is_made(alice: Client) -> None:
    target = f"{TASKS}/preview?cron=30+2+*+*+*&timezone=America/New_York&count=2"
    reply = {"timezone": "America/New_York", "occurrences": ["2026-11-22T07:30:00Z", "2026-11-23T07:30:00Z"]}
    assert await alice.request("GET", target) == (200, reply)
    status, body = await alice.request("GET", f"{TASKS}/preview?cron=0+9+*+*+*")
    assert (status, body["timezone"], len(body["occurrences"])) == (200, "UTC", 5)
    no_zone = "timezone: 'Berlin' is not an IANA time zone such as Europe/Berlin"
    assert await alice.request("GET", f"{TASKS}/preview?cron=0+9+*+*+*&timezone=Berlin") == (422, {"detail": no_zone})
    status, body = await alice.request("GET", f"{TASKS}/preview?cron=0+0+31+2+*")
    assert (status, body["detail"].partition(":")[0]) == (422, "cron")


@requirement("blade:schedules:once")
async def test_a_server_that_starts_again_keeps_a_time_once(app_server: AppServer, alice: Client) -> None:
    displayed = await created(alice)
    await advance_and_fire(app_server, hours=13)
    await app_server.restart()
    async with client_of(app_server, "alice") as again:
        await advance_and_fire(app_server)
        assert len((await again.request("GET", f"{TASKS}/{displayed['id']}/runs")).body) == 1
