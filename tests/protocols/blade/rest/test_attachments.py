"""Attachments over Blade: an image is seen after a reload, by whoever may read the session and by nobody else."""

import base64
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conversations import script
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import running_socket_server

Json = Any
SMALL, LARGE = b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n" + bytes(64 * 1024)


def data_uri(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def image(content: bytes) -> Json:
    return {"type": "image_url", "image_url": {"url": data_uri(content)}}


async def fetch(client: RestClient, path: str) -> httpx2.Response:
    headers = {"authorization": f"Bearer {client.key}"}
    async with httpx2.AsyncClient(base_url=client.url, headers=headers, verify=False) as http:
        return await http.get(path)


async def attachments(client: RestClient, session: str) -> list[Json]:
    blocks = [block for turn in await client.messages(session) for block in turn["blocks"]]
    return [block["attachment"] for block in blocks if "attachment" in block]


@requirement("blade:attachments:read")
async def test_images_and_files_of_a_message_are_seen_after_a_reload_and_a_restart(tmp_path: Path) -> None:
    file = {"type": "file", "name": "größe.csv", "data": base64.b64encode(b"a,b").decode()}
    elsewhere = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    parts = [{"type": "text", "text": "look"}, image(SMALL), file, image(LARGE), elsewhere]
    async with running_socket_server(tmp_path) as app_server:
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        session = await alice.session()
        async with socket_client(alice.url, alice.key) as socket:
            events = await socket.send(session, parts)
    [live] = [each["blocks"] for name, each in events if name == "turn:end" and each["role"] == "user"]
    async with running_socket_server(tmp_path) as app_server:
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        found = await attachments(alice, session)
        assert found == [block["attachment"] for block in live if "attachment" in block]
        answers = [await fetch(alice, each["url"]) for each in found[:3]]
    assert [answer.content for answer in answers] == [SMALL, b"a,b", LARGE]
    assert [answer.headers["content-type"] for answer in answers][::2] == ["image/png", "image/png"]
    assert [answer.headers.get("content-disposition") for answer in answers] == [
        None,
        "attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe.csv",
        None,
    ]
    assert {answer.headers["content-security-policy"] for answer in answers} == {"default-src 'none'; sandbox"}
    assert found[3]["url"] == "https://example.com/cat.png"


@requirement("blade:attachments:read")
async def test_an_image_of_the_agent_is_seen_after_a_reload(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, script({"say": "here"}, {"image": data_uri(SMALL)}))
    [found] = await attachments(alice, session)
    assert (await fetch(alice, found["url"])).content == SMALL


@requirement("blade:attachments:read")
async def test_an_attachment_is_read_by_who_may_read_its_session(alice: RestClient, bob: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, [image(LARGE)])
    [found] = await attachments(alice, session)
    assert (await fetch(RestClient(alice.url, "sk-dragoman-wrong"), found["url"])).status_code == 401
    assert (await fetch(bob, found["url"])).status_code == 404
    await alice.request("PATCH", f"sessions/{session}/sharing", {"shared": True})
    assert (await fetch(bob, found["url"])).content == LARGE


@requirement("blade:attachments:read")
@pytest.mark.parametrize("name", ["1-0", "2-0", "999999-0", "x", "0-0", "2-99", "-1-0"])
async def test_what_is_no_attachment_is_not_found(alice: RestClient, name: str) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "hello")
    assert (await alice.request("GET", f"sessions/{session}/attachments/{name}")).status == 404
