"""A request that is repeated follows the run of the first one. This counts as a stream, on every protocol."""

import json
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from tests.conversations import script
from tests.protocols.agui.endpoint import an_input
from tests.protocols.aisdk.client import user as page_message
from tests.requirements import requirement
from tests.servers import running_server

SLOW = script({"say": "one"}, {"wait_ms": 600_000})


class Repeated(NamedTuple):
    """A request that starts a run, and finds it again."""

    path: str
    body: Any


@requirement(
    "aap:errors:rate-limited",
    "ag-ui-b:transport:http-errors",
    "ai-sdk:send:retry",
    "openai:idempotency:key",
)
async def test_a_repeated_request_counts_as_one_more_stream(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_streams_per_user=1) as server:
        session = await server.aap_client("alice").create()
        turn = {"messages": [{"role": "user", "content": SLOW}]}
        for path, body in (
            Repeated(f"/aap/v3/sessions/{session.id}/turns", {**turn, "stream": "delta"}),
            Repeated("/ag-ui/rehearsal", an_input(SLOW)),
            Repeated("/ai-sdk/rehearsal", {"id": str(uuid4()), "messages": [page_message(SLOW, "u1")]}),
            Repeated("/v1/responses", {"model": "rehearsal", "input": SLOW, "stream": True}),
        ):
            headers = [
                ("authorization", f"Bearer {server.key('alice')}"),
                ("content-type", "application/json"),
                ("idempotency-key", "one"),
            ]
            opened = [
                await server.connection.open("POST", path, headers=headers, body=json.dumps(body).encode())
                for _ in range(3)
            ]
            assert (path, [each.status for each in opened]) == (path, [200, 200, 429])
            await opened[1].disconnect()
            await opened[1].wait_until_released()
            await opened[0].disconnect()
            await opened[0].wait_until_released()
