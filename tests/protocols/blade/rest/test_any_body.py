"""Whatever is sent to memories, keys, schedules and links, the answer is a good one or a refusal, never a failure."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.protocols.blade.rest_client import Client, client_of
from tests.requirements import requirement
from tests.servers import AppServer, running_server

FIELDS = (
    "content", "type", "skill_name", "record_type", "write_reason", "mem0_id", "topic", "disabled", "action", "ids",
    "name", "title", "prompt", "cron", "timezone", "enabled", "expires_at", "skip_confirmations", "model",
    "ttl_seconds",
)  # fmt: skip
PLAUSIBLE: tuple[Any, ...] = (
    "feedback", "experience", "memory", "delete", "disable", "0 9 * * *", "* * * * *", "0 0 29 2 *", "UTC",
    "Europe/Berlin", "2027-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "x", "",
    1, 0, -1, 2**63, True, None, [1], [2**63 - 1], {},
)  # fmt: skip
values = st.sampled_from(PLAUSIBLE) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=8).map(msgspec.json.encode) | st.binary(max_size=40)
names = st.sampled_from(["1", "99", "x", "0", "9" * 25, "task_x", "key_x", "share_x"]) | st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=10
).filter(lambda text: text.strip(". ")).map(lambda text: quote(text, safe=""))  # fmt: skip
PATHS = (
    ("POST", "memories"), ("GET", "memories"), ("POST", "memories/batch"), ("GET", "memories/{}"),
    ("PUT", "memories/{}"),
    ("PATCH", "memories/{}"), ("DELETE", "memories/{}"), ("POST", "user/api-keys"), ("GET", "user/api-keys/{}"),
    ("PATCH", "user/api-keys/{}"), ("POST", "scheduled-tasks"), ("PATCH", "scheduled-tasks/{}"),
    ("GET", "scheduled-tasks/{}"), ("GET", "scheduled-tasks/{}/runs"), ("POST", "scheduled-tasks/{}/start"),
    ("GET", "scheduled-tasks/calendar"), ("POST", "sessions/{}/share"), ("DELETE", "sessions/{}/share/{}"),
    ("GET", "share/{}"), ("GET", "sessions/{}/export"), ("POST", "sessions/import"),
    ("POST", "sessions/preview-import"),
)  # fmt: skip
queries = st.dictionaries(
    st.sampled_from(["limit", "offset", "keyword", "type", "status", "from", "to", "topic"]),
    st.sampled_from(
        ["1", "-1", "100", "x", "", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "9" * 30, '"', "茶", "%"]
    ),
    max_size=4,
)


@pytest.fixture(scope="module")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppServer]:
    async with running_server(Path(tmp_path_factory.mktemp("any")), manual_clock=True) as running:
        yield running


@pytest.fixture(scope="module")
async def alice(app_server: AppServer) -> AsyncIterator[Client]:
    async with client_of(app_server, "alice") as alice:
        yield alice


@requirement("blade:rest:any-body")
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PATHS), st.tuples(names, names), queries, bodies)
@example(("POST", "memories"), ("", ""), {}, b'{"content": "\\ud800"}')
@example(("POST", "memories"), ("", ""), {}, b'{"content": "\\u0000"}')
@example(("POST", "user/api-keys"), ("", ""), {}, b'{"name": "\\ud83c"}')
@example(
    ("POST", "scheduled-tasks"), ("", ""), {}, b'{"title":"t","prompt":"p","cron":"* * * * *","timezone":"\\u0000"}'
)
async def test_any_request_is_answered_or_refused(
    alice: Client, path: tuple[str, str], filled: tuple[str, str], query: dict[str, str], body: bytes
) -> None:
    method, shape = path
    encoded_query = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    status, reply = await alice.request(method, f"{shape.format(*filled)}?{encoded_query}", raw=body)
    assert status < 500
    if status >= 400:
        assert isinstance(reply["detail"], str)
