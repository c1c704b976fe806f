"""Servers whose clocks differ by minutes, or jump. Case 46."""

from pathlib import Path

import pytest

from tests.cluster.in_process_cluster import running_cluster
from tests.conversations import CONVERSATIONS, Conversation, Server, play
from tests.protocols.aap.client import AapClient
from tests.protocols.aap.driver import AapDriver
from tests.requirements import requirement

NAMES = ("a tool of the application, twice in a run", "open calls that a new message closes")


def aap_client_of(server: Server) -> AapClient:
    return AapClient(server.connection, server.key("alice"))


@requirement("faults:46:apart", "faults:46:jump")
@pytest.mark.slow
async def test_servers_whose_clocks_differ_and_jump_show_one_history(tmp_path: Path, postgres_url: str) -> None:
    async with running_cluster(tmp_path, postgres_url, default_agent="rehearsal", manual_clock=True) as cluster:
        for server, minutes in zip(cluster.servers, (0, 5, -5), strict=True):
            server.clock.advance(minutes=minutes)

        def jump(place: int) -> bool:
            cluster.servers[place % 3].clock.advance(hours=-1 if place % 2 else 1)
            return False

        for conversation in CONVERSATIONS:
            if conversation.name in NAMES:
                assert isinstance(conversation, Conversation)
                await play(conversation, AapDriver("delta", aap_client_of), cluster, restart_before=jump)
