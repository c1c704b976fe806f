"""What a run does is done in the name of the user who sent its message, over every protocol."""

from pathlib import Path

from dragoman import Run, agent
from dragoman.client import AsyncClient
from dragoman.core.audit import ACTOR
from tests.client.driver import FEATURES
from tests.servers import running_socket_server


@agent
async def witness(_: Run) -> str:
    """Say for whom the run works."""
    actor = ACTOR.get()
    return "nobody" if actor is None else f"{actor.user} at {actor.address}"


async def test_stores_and_the_audit_log_know_for_whom_a_run_works(tmp_path: Path) -> None:
    """Stores take the reads of users in turn, and the audit log has the address."""
    async with running_socket_server(tmp_path, agents=[witness], rehearsal=False) as server:
        for protocol in FEATURES:
            async with AsyncClient(server.connection.url, key=server.key("alice"), protocol=protocol) as client:
                session = await client.create("witness")
                assert (await session.ask("Who?")).text == "alice at 127.0.0.1", protocol
