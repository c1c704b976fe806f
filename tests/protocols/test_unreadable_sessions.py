"""A session whose stored data cannot be decoded: its owner, and nobody else, can delete it over every protocol."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.protocols.openai.client import OpenAiClient
from tests.requirements import requirement
from tests.servers import running_server

DELETIONS = {
    "/aap/v3/sessions/{id}": (404, 204),
    "/api/v1/agent/sessions/{id}": (403, 204),
    "/api/sessions/sess_{id}": (404, 200),
    "/ai-sdk/rehearsal/{id}": (404, 204),
    "/v1/conversations/conv_{bare}": (404, 200),
}
"""Paths that delete sessions, and the answers to another user and to the owner."""


async def delete_conversation_of(response: str, client: OpenAiClient) -> None:
    """A single response cannot be deleted, as others may follow it; the error says what can be."""
    refused = await client.request("DELETE", f"/responses/{response}")
    error = refused.json["error"]
    assert (refused.status, error["code"]) == (400, "conversation_unreadable")
    (path,) = re.findall(r"DELETE (/conversations/conv_[0-9a-f]{32})", error["message"])
    assert (await client.request("DELETE", path)).status == 200
    assert (await client.request("GET", f"/responses/{response}")).status == 404


@pytest.mark.one_server
@requirement("faults:43:altered")
async def test_an_unreadable_session_can_be_deleted(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        alice, openai = server.aap_client("alice"), OpenAiClient(server.connection, server.key("alice"))
        response, paths = (await openai.respond("hello"))["id"], dict[str, str]()
        await openai.respond("and now?", previous_response_id=response)
        for path in DELETIONS:
            session = (await alice.create()).id
            paths[path] = path.format(id=session, bare=session.replace("-", ""))
        await server.stop()
        with closing(sqlite3.connect(tmp_path / "dragoman.db")) as connection, connection:
            connection.execute("UPDATE sessions SET head = '{'")
        await server.start()
        for path, expected in DELETIONS.items():
            statuses = []
            for name in ("bob", "alice"):
                headers = [("authorization", f"Bearer {server.key(name)}")]
                answer = await server.connection.open("DELETE", paths[path], headers=headers)
                await answer.read()
                statuses.append(answer.status)
            assert (path, tuple(statuses)) == (path, expected)
        await delete_conversation_of(response, OpenAiClient(server.connection, server.key("alice")))
        assert (await server.aap_client("alice").get("/sessions")).json == {"sessions": []}
