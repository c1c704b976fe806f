"""Blade's share links, on a whole server with a manual clock."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.core.ids import UserId
from dragoman.core.memories import MemoryTexts
from dragoman.engine.services import shares
from dragoman.server.app import Application
from tests.engine.test_scheduler import until
from tests.protocols.blade.rest_client import Client, client_of
from tests.requirements import requirement
from tests.servers import AppServer, running_server

GONE = (404, {"detail": "there is no such link"})
OFF = (403, {"detail": "public sharing is switched off on this server"})


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


async def recorded_session(server: AppServer, client: Client) -> str:
    """A session with a conversation that a schedule started, with an injected memory and a variable."""
    app = cast("Application", server.connection.app)
    await app.memories.add(UserId("alice"), MemoryTexts(content="a canary that nobody may see"))
    task = {"title": "t", "prompt": "say done", "cron": "0 13 * * *"}
    displayed = (await client.request("POST", "scheduled-tasks", task)).body
    server.clock.advance(hours=1)
    await app.schedules.tick()

    async def is_over() -> bool:
        return not app.schedules.fire_tasks

    await until(is_over)
    (run,) = (await client.request("GET", f"scheduled-tasks/{displayed['id']}/runs")).body
    session = str(run["session_id"])
    answer = await client.request("PUT", f"sessions/{session}/env", {"env": {"SECRET": "a canary that nobody may see"}})
    assert answer.status == 200
    return session


async def shared(client: Client, session: str, **body: Any) -> dict[str, Any]:
    status, reply = await client.request("POST", f"sessions/{session}/share", body)
    assert (status, set(reply)) == (200, {"id", "created_at", "token", "url", "expires_at"})
    result: dict[str, Any] = reply
    return result


def nobody(client: Client) -> Client:
    """The same server, without a key."""
    return Client(client.http, "")


@requirement("blade:share:create", "blade:share:reads")
async def test_whoever_has_the_link_reads_the_turns_and_nothing_else(app_server: AppServer, alice: Client) -> None:
    session = await recorded_session(app_server, alice)
    link = await shared(alice, session)
    assert re.fullmatch(r"share_[A-Za-z0-9_-]{43}", link["token"])
    assert (link["url"], link["expires_at"]) == (f"http://127.0.0.1:8000/api/share/{link['token']}", None)
    turns = (await alice.request("GET", f"sessions/{session}/messages")).body
    assert [turn["memory_refs"] is not None for turn in turns] == [False, True]
    status, seen = await nobody(alice).request("GET", f"share/{link['token']}")
    assert (status, seen) == (200, [{**turn, "memory_refs": None} for turn in turns])
    assert "canary" not in str(seen)


@requirement("blade:share:expires")
async def test_a_link_ends_with_its_time(app_server: AppServer, alice: Client) -> None:
    session = (await alice.request("POST", "sessions", {})).body["session_id"]
    link = await shared(alice, session, ttl_seconds=60)
    assert link["expires_at"] == "2026-11-21T12:01:00Z"
    app_server.clock.advance(seconds=59)
    assert await nobody(alice).request("GET", f"share/{link['token']}") == (200, [])
    app_server.clock.advance(seconds=1)
    assert await nobody(alice).request("GET", f"share/{link['token']}") == GONE


@requirement("blade:share:revoke")
async def test_a_revoked_link_shows_nothing_any_more(alice: Client) -> None:
    session, other = [(await alice.request("POST", "sessions", {})).body["session_id"] for _ in range(2)]
    link, stored = await shared(alice, session), await shared(alice, session)
    assert await alice.request("DELETE", f"sessions/{other}/share/{link['token']}") == GONE
    assert await alice.request("DELETE", f"sessions/{session}/share/{link['token']}") == (200, {"revoked": True})
    assert await alice.request("DELETE", f"sessions/{session}/share/{link['token']}") == GONE
    assert await nobody(alice).request("GET", f"share/{link['token']}") == GONE
    assert await nobody(alice).request("GET", f"share/{stored['token']}") == (200, [])


@requirement("blade:share:list")
async def test_older_links_are_listed_without_their_tokens_and_revoked_by_their_ids(
    app_server: AppServer, alice: Client
) -> None:
    session, other = [(await alice.request("POST", "sessions", {})).body["session_id"] for _ in range(2)]
    links = []
    for ttl in (None, 60, 3600):
        links.append(await shared(alice, session, ttl_seconds=ttl))
        app_server.clock.advance(seconds=1)
    oldest, expired, newest = [{name: each[name] for name in ("id", "created_at", "expires_at")} for each in links]
    assert await alice.request("GET", f"sessions/{session}/share") == (200, [newest, expired, oldest])
    assert await alice.request("GET", f"sessions/{other}/share") == (200, [])
    app_server.clock.advance(seconds=60)
    assert await alice.request("GET", f"sessions/{session}/share") == (200, [newest, oldest])
    assert await nobody(alice).request("GET", f"share/{oldest['id']}") == GONE, "an ID opens nothing"
    assert await alice.request("DELETE", f"sessions/{other}/share/{oldest['id']}") == GONE
    assert await alice.request("DELETE", f"sessions/{session}/share/{oldest['id']}") == (200, {"revoked": True})
    assert await alice.request("DELETE", f"sessions/{session}/share/{oldest['id']}") == GONE
    assert await nobody(alice).request("GET", f"share/{links[0]['token']}") == GONE
    assert await alice.request("GET", f"sessions/{session}/share") == (200, [newest])


@requirement("blade:share:deleted")
async def test_a_deleted_sessions_links_show_nothing(alice: Client) -> None:
    session = (await alice.request("POST", "sessions", {})).body["session_id"]
    link = await shared(alice, session)
    assert (await alice.request("DELETE", f"sessions/{session}")).status == 200
    assert await nobody(alice).request("GET", f"share/{link['token']}") == GONE


@requirement("blade:share:unknown")
@pytest.mark.parametrize("token", ["x", "share_", "share_" + "A" * 43, "x" * 5000, "%F0%9F%8D%B5"])
async def test_an_unknown_token_shows_nothing(alice: Client, token: str) -> None:
    assert await nobody(alice).request("GET", f"share/{token}") == GONE


@requirement("blade:share:own")
async def test_only_its_owner_shares_a_session(alice: Client, bob: Client) -> None:
    session = (await alice.request("POST", "sessions", {})).body["session_id"]
    link = await shared(alice, session)
    share = f"sessions/{session}/share"
    paths = [("POST", share), ("GET", share), ("DELETE", f"{share}/{link['token']}")]
    assert [(await bob.request(*path, {})).status for path in paths] == [404, 404, 404]
    await alice.request("PATCH", f"sessions/{session}/sharing", {"shared": True})
    assert [(await bob.request(*path, {})).status for path in paths] == [403, 403, 403]
    assert await nobody(alice).request("GET", f"share/{link['token']}") == (200, [])


@requirement("blade:share:bounds")
@pytest.mark.parametrize("ttl", [0, -1, "60", 1.5, 10**30])
async def test_a_time_out_of_bounds_is_422(alice: Client, ttl: object) -> None:
    session = (await alice.request("POST", "sessions", {})).body["session_id"]
    assert (await alice.request("POST", f"sessions/{session}/share", {"ttl_seconds": ttl})).status == 422


@requirement("blade:share:off")
async def test_where_sharing_is_off_links_are_403(tmp_path: Path) -> None:
    async with running_server(tmp_path, blade_public_sharing=False) as running, client_of(running, "alice") as alice:
        session = (await alice.request("POST", "sessions", {})).body["session_id"]
        assert await alice.request("POST", f"sessions/{session}/share", {}) == OFF
        assert await alice.request("DELETE", f"sessions/{session}/share/x") == OFF
        assert await nobody(alice).request("GET", "share/x") == OFF
        assert (await alice.request("GET", "config")).body["publicSharingEnabled"] is False


@requirement("blade:share:token")
async def test_a_token_is_kept_nowhere(app_server: AppServer, alice: Client) -> None:
    session = (await alice.request("POST", "sessions", {})).body["session_id"]
    token = (await shared(alice, session))["token"]
    content = b"".join(path.read_bytes() for path in app_server.folder.rglob("*") if path.is_file())
    assert token.encode() not in content


@requirement("blade:share:limit")
async def test_a_session_with_very_many_links_gets_no_more_until_one_ends(
    app_server: AppServer, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "MAX_LINKS_PER_SESSION", 2)
    session, another = [(await alice.request("POST", "sessions", {})).body["session_id"] for _ in range(2)]
    link = await shared(alice, session)
    await shared(alice, session, ttl_seconds=60)
    refused = {"detail": "there are 2 links to this session already: revoke one"}
    assert await alice.request("POST", f"sessions/{session}/share", {}) == (409, refused)
    await shared(alice, another)
    app_server.clock.advance(seconds=61)
    await shared(alice, session)
    assert await alice.request("POST", f"sessions/{session}/share", {}) == (409, refused)
    await alice.request("DELETE", f"sessions/{session}/share/{link['token']}")
    await shared(alice, session)


@requirement("blade:share:guesses")
async def test_guesses_of_links_are_limited_and_real_links_are_not(tmp_path: Any) -> None:
    async with running_server(tmp_path, wrong_keys_per_minute=3) as server, client_of(server, "alice") as alice:
        session = (await alice.request("POST", "sessions", {})).body["session_id"]
        link = await shared(alice, session)
        for _ in range(3):
            assert await nobody(alice).request("GET", "share/share_guess") == GONE
        assert (await nobody(alice).request("GET", "share/share_guess")).status == 429
        assert await nobody(alice).request("GET", f"share/{link['token']}") == (200, [])
