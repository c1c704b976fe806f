"""Blade's API keys over REST."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.ids import UserId
from dragoman.protocols.blade.rest import keys as blade_keys
from dragoman.stores.sqlite.keys import SqliteKeys
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.protocols.blade.rest_client import NOON, Client, RestFixture, running_rest_app
from tests.requirements import requirement
from tests.servers import SocketServer

KEYS = "user/api-keys/"


@pytest.fixture
async def rest_fixture(tmp_path: Path) -> AsyncIterator[RestFixture]:
    async with running_rest_app(tmp_path) as rest:
        yield rest


@pytest.fixture
async def alice(rest_fixture: RestFixture) -> Client:
    return await rest_fixture.client()


async def created(client: Client, name: str = "laptop") -> tuple[dict[str, Any], str]:
    """Create a key; returns its public form and the key itself."""
    status, body = await client.request("POST", KEYS, {"name": name})
    assert (status, set(body)) == (201, {"key", "plaintext"})
    assert body["key"]["plaintext"] == body["plaintext"], "in the object, and beside it for older clients"
    return {**body["key"], "plaintext": None}, body["plaintext"]


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@requirement("blade:keys:create", "blade:keys:form", "blade:keys:fields")
async def test_a_key_is_shown_once_when_it_is_made(rest_fixture: RestFixture, alice: Client) -> None:
    key, plaintext = await created(alice)
    assert re.fullmatch(r"sk-blade-v2-[A-Za-z0-9_-]{32,}", plaintext)
    assert re.fullmatch(r"key_[0-9a-f-]{36}", key["id"])
    assert key == {
        "id": key["id"],
        "name": "laptop",
        "masked": f"sk-blade-v2-...{plaintext[-4:]}",
        "plaintext": None,
        "created_at": NOON,
        "last_used_at": None,
    }
    assert await alice.request("GET", KEYS + key["id"]) == (200, key)
    own, listed = (await alice.request("GET", KEYS)).body
    assert (listed, own["name"]) == (key, "alice's")
    assert plaintext.encode() not in everything_in(rest_fixture.folder)


@requirement("blade:keys:works-at-once", "blade:keys:last-use")
async def test_a_key_works_at_once_and_its_first_use_is_noted(rest_fixture: RestFixture, alice: Client) -> None:
    key, plaintext = await created(alice)
    rest_fixture.clock.move(60)
    laptop = Client(rest_fixture.http, plaintext)
    expected = {**key, "last_used_at": "2026-03-04T05:07:07Z"}
    assert await laptop.request("GET", KEYS + key["id"]) == (200, expected)
    rest_fixture.clock.move(60)
    await rest_fixture.key_ring.write_last_uses()
    assert await alice.request("GET", KEYS + key["id"]) == (200, expected)


@requirement("blade:keys:rename")
async def test_a_key_is_renamed_and_stays_so(rest_fixture: RestFixture, alice: Client) -> None:
    key, _ = await created(alice)
    renamed = {**key, "name": "phone"}
    assert await alice.request("PATCH", KEYS + key["id"], {"name": "phone"}) == (200, renamed)
    assert await alice.request("GET", KEYS + key["id"]) == (200, renamed)
    assert [stored.name for stored in await SqliteKeys(rest_fixture.database).all()] == ["alice's", "phone"]


@requirement("blade:keys:delete")
async def test_a_deleted_key_is_refused_at_once_and_its_holders_are_notified(
    rest_fixture: RestFixture, alice: Client
) -> None:
    key, plaintext = await created(alice)
    laptop = Client(rest_fixture.http, plaintext)
    reply: list[str] = []
    rest_fixture.key_ring.on_revoked(
        rest_fixture.key_ring.principal_for(plaintext, "here"), lambda: reply.append("closed")
    )
    assert await alice.request("DELETE", KEYS + key["id"]) == (204, None)
    assert reply == ["closed"]
    assert await laptop.request("GET", KEYS) == (401, {"detail": "this key is not known here"})
    gone = (404, {"detail": "there is no such key"})
    assert await alice.request("DELETE", KEYS + key["id"]) == gone
    assert await alice.request("GET", KEYS + key["id"]) == gone
    assert await alice.request("PATCH", KEYS + key["id"], {"name": "phone"}) == gone


@requirement("blade:keys:own")
async def test_another_users_key_is_not_there(rest_fixture: RestFixture, alice: Client) -> None:
    key, _ = await created(alice)
    bob = await rest_fixture.client("bob")
    gone = (404, {"detail": "there is no such key"})
    assert await bob.request("GET", KEYS + key["id"]) == gone
    assert await bob.request("PATCH", KEYS + key["id"], {"name": "phone"}) == gone
    assert await bob.request("DELETE", KEYS + key["id"]) == gone
    assert [each["name"] for each in (await bob.request("GET", KEYS)).body] == ["bob's"]


@requirement("blade:keys:own")
async def test_a_key_named_like_anothers_id_keeps_nobody_from_deleting_that(
    rest_fixture: RestFixture, alice: Client
) -> None:
    key, _ = await created(alice)
    await rest_fixture.key_ring.create(key["id"].removeprefix("key_"), user=UserId("bob"))
    assert (await alice.request("DELETE", KEYS + key["id"])).status == 204
    assert len(rest_fixture.key_ring.list_for_user(UserId("bob"))) == 1


@requirement("blade:keys:scope")
async def test_a_key_changes_none_that_may_more_than_itself(rest_fixture: RestFixture, alice: Client) -> None:
    await rest_fixture.client(scope="admin")
    own, mighty = [each["id"] for each in (await alice.request("GET", KEYS)).body]
    forbidden = (403, {"detail": "this key lacks the scope 'admin'"})
    assert await alice.request("DELETE", KEYS + mighty) == forbidden
    assert await alice.request("PATCH", KEYS + mighty, {"name": "phone"}) == forbidden
    assert await alice.request("DELETE", KEYS + own) == (204, None)


@requirement("blade:keys:name")
@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "name: this field is required"),
        ({"name": ""}, "name: must have 1 to 50 characters"),
        ({"name": "n" * 51}, "name: must have 1 to 50 characters"),
        ({"name": "  "}, "name: must not be blank"),
        ({"name": None}, "name: Expected `str`, got `null`"),
        ({"name": "a\nb"}, "name: a key's name must have 1 to 200 printable characters, got 'a\\nb'"),
    ],
)
async def test_a_name_out_of_bounds_is_422(alice: Client, body: dict[str, Any], detail: str) -> None:
    key, _ = await created(alice)
    assert await alice.request("POST", KEYS, body) == (422, {"detail": detail})
    assert await alice.request("PATCH", KEYS + key["id"], body) == (422, {"detail": detail})


@requirement("blade:keys:limit")
async def test_a_user_with_very_many_keys_gets_no_more_until_one_is_deleted(
    rest_fixture: RestFixture, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = await created(alice)
    count = len(rest_fixture.key_ring.list_for_user(UserId("alice")))
    monkeypatch.setattr(blade_keys, "MAX_KEYS_PER_USER", count)
    refused = {"detail": f"there are {count} API keys already: delete one"}
    assert await alice.request("POST", KEYS, {"name": "one more"}) == (409, refused)
    monkeypatch.setattr(blade_keys, "MAX_KEYS_PER_USER", count + 1)
    answers = await asyncio.gather(*(alice.request("POST", KEYS, {"name": f"key {n}"}) for n in range(5)))
    assert sorted(each.status for each in answers) == [201, 409, 409, 409, 409]
    await created(await rest_fixture.client(user="bob"))
    await alice.request("DELETE", KEYS + key["id"])
    await created(alice)


@requirement("blade:keys:scope")
async def test_a_key_that_reads_makes_none_and_a_new_key_uses_only(rest_fixture: RestFixture) -> None:
    reader, admin = await rest_fixture.client(scope="read"), await rest_fixture.client(scope="admin")
    assert (await reader.request("POST", KEYS, {"name": "laptop"})).status == 403
    _, plaintext = await created(admin)
    assert rest_fixture.key_ring.principal_for(plaintext, "here").scopes == {"use"}


@requirement("blade:keys:delete", "blade:socket:revoked")
async def test_a_deleted_keys_socket_is_closed(shared_server: SocketServer) -> None:
    caller = RestClient(url_of(shared_server), shared_server.key("alice"))
    new = (await caller.request("POST", KEYS, {"name": "laptop"})).body
    async with socket_client(caller.url, new["plaintext"]) as laptop:
        assert (await caller.request("DELETE", KEYS + new["key"]["id"])).status == 204
        async with asyncio.timeout(60):
            await laptop.is_disconnected.wait()
