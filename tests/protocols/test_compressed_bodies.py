"""A compressed body is refused as such on every protocol, and not as JSON with an invalid byte."""

import gzip
from pathlib import Path

import pytest

from tests.protocols.every_protocol import for_every_protocol
from tests.requirements import requirement
from tests.servers import running_server

PATHS = for_every_protocol(
    {
        "aap": "/aap/v3/sessions",
        "agui": "/ag-ui/rehearsal",
        "run_service": "/api/v1/agent/runs",
        "agentscope": "/process",
        "blade": "/api/sessions",
        "openai": "/v1/responses",
        "ai_sdk": "/ai-sdk/rehearsal",
        "a2a": "/a2a/rehearsal",
        "mcp": "/mcp",
    }
)


@requirement("aap:transport:wrong-type-is-415", "ag-ui-b:transport:http-errors", "runs:paths:unknown")
@requirement("agentscope:request:media-type", "mcp:transport:media-types")
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_a_compressed_body_is_415_and_names_the_coding(tmp_path: Path, path: str) -> None:
    async with running_server(tmp_path) as server:
        headers = [
            ("authorization", f"Bearer {server.key('alice')}"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ]
        for coding, body, is_refused in (
            ("gzip", gzip.compress(b"{}"), True),
            ("GZIP, br", b"{}", True),
            ("identity", b"{", False),
        ):
            answer = await server.connection.open(
                "POST", path, headers=[*headers, ("content-encoding", coding)], body=body
            )
            text = (await answer.read()).decode()
            assert (answer.status == 415) is is_refused, (answer.status, text)
            assert (coding in text) is is_refused
