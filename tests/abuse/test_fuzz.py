"""20,000 generated requests: none is answered with 5xx, and what is refused changes nothing.

Half are valid requests that were tampered with, a quarter go to odd paths with odd methods, the rest schemathesis makes
of the server's own OpenAPI document. Seeds are fixed; a failure prints the request.
"""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from tests.abuse.mutation import METHODS, mutated, path
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory, running_server

TAMPERED, ODD_PATHS, SCHEMATHESIS = 12_000, 6_000, 2_000

SESSION = {
    "agent": {
        "name": "rehearsal",
        "tools": [{"name": "add", "trust": True}, {"name": "stamp"}],
        "options": {"greeting": "hi", "style": "loud", "token": "s3cret"},
    },
    "messages": [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "x"}, {"type": "image", "url": "https://example.org/a.png"}],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "toolCallId": "c", "name": "add", "input": {"a": 1, "b": 2}}],
        },
        {"role": "tool", "toolCallId": "c", "content": "3"},
    ],
    "tools": [{"name": "paint", "description": "", "parameters": {"type": "object", "properties": {}}}],
}
TURNS: tuple[dict[str, Any], ...] = (
    {"messages": [{"role": "user", "content": "hello"}], "stream": "delta"},
    {"messages": [{"role": "user", "content": '{"script": [{"say": "x"}, {"call": {"name": "paint", "input": {}}}]}'}]},
    {"messages": [{"role": "tool", "toolCallId": "c", "content": [{"type": "text", "text": "t"}]}], "stream": "none"},
    {
        "messages": [{"role": "tool_permission", "toolCallId": "c", "granted": False, "reason": "no"}],
        "agent": {"tools": [{"name": "add", "trust": False}], "options": {"greeting": "ho"}},
        "tools": [],
    },
)  # fmt: skip
"""Texts of steps that wait are left out: a tampered one would hold the test up."""


async def _state(house: AppServer, session_id: str) -> tuple[bytes, bytes]:
    face = house.aap_client("alice")
    history = await face.get(f"/sessions/{session_id}/history?type=full")
    return (await face.get(f"/sessions/{session_id}")).body, history.body


@pytest.mark.slow
@requirement("aap:order:refusal-changes-nothing")
async def test_tampered_requests_are_never_5xx_and_refused_ones_change_nothing(tmp_path: Path) -> None:
    rng, told = random.Random(20_000), Counter[int]()
    async with running_server(tmp_path, requests_per_minute=0) as house:
        face = house.aap_client("alice")
        kept = (await face.create(server_tools=[{"name": "add", "trust": True}])).id
        before = await _state(house, kept)
        for number in range(TAMPERED):
            if number % 2:
                asked, body = "/sessions", mutated(rng, SESSION)
            else:
                asked, body = f"/sessions/{kept}/turns", mutated(rng, rng.choice(TURNS))
            reply = await face.request("POST", asked, raw=body)
            told[reply.status] += 1
            assert reply.status < 500, (number, asked, body, reply)
            if asked.endswith("turns"):
                if reply.status == 200:
                    before = await _state(house, kept)
                elif number % 50 == 0:
                    assert await _state(house, kept) == before, (number, body, reply)
        assert await _state(house, kept) == before
    assert told[400] > TAMPERED // 4, told
    assert told[200] + told[201] > 500, told


@pytest.mark.slow
@requirement("aap:transport:unknown-path-is-404")
async def test_odd_paths_and_methods_are_never_5xx(open_app_server: AppServerFactory) -> None:
    rng, told = random.Random(6_000), Counter[int]()
    async with open_app_server(requests_per_minute=0) as house:
        face = house.aap_client("alice")
        known = (await face.create()).id
        for number in range(ODD_PATHS):
            method, asked = rng.choice(METHODS), path(rng, known)
            if "events" in asked:
                asked = asked.replace("events", "event")  # without a position it would watch for ever
            if method == "DELETE" and known in asked:
                continue
            reply = await face.open(method, asked, raw=b"{}" if rng.random() < 0.3 else None)
            told[reply.status] += 1
            assert reply.status < 500, (number, method, asked)
            await reply.read()
        assert (await face.get(f"/sessions/{known}")).status == 200
    assert told[404] > 1000, told


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real program, without keys."""
    command = [sys.executable, "-m", "dragoman", "serve", "--rehearsal", "--no-auth", "--port", "0"]
    data = tmp_path_factory.mktemp("data")
    with subprocess.Popen(
        [*command, "--data", str(data)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        yield line.removeprefix("ready ").strip()
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@requirement("aap:errors:body")
def test_what_schemathesis_makes_of_our_own_document_is_never_5xx(socket_server: str) -> None:
    document = httpx2.get(f"{socket_server}/openapi.json").json()
    document["paths"] = {name: each for name, each in document["paths"].items() if not name.endswith("/events")}
    schema = schemathesis.openapi.from_dict(document)
    operations = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    assert len(operations) > 8
    share = SCHEMATHESIS // len(operations)
    sent = Counter[str]()
    for operation in operations:

        @settings(
            max_examples=share, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            response = case.call(base_url=socket_server, timeout=30)
            sent[case.operation.label] += 1
            assert response.status_code < 500, (case.operation.label, case.body, response.text)

        ask()
    assert len(sent) == len(operations)
    assert sum(sent.values()) > SCHEMATHESIS // 4, sent  # an operation without parameters has few different requests


def test_the_generated_requests_are_20_000() -> None:
    assert TAMPERED + ODD_PATHS + SCHEMATHESIS == 20_000
    assert asyncio.iscoroutinefunction(test_odd_paths_and_methods_are_never_5xx)
