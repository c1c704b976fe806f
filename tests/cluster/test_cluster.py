"""Three servers on one database: killed, stopped for longer than their lease, cut off, and their database restarted."""

import pytest

from tests.cluster.campaign import play


@pytest.mark.slow
async def test_whatever_is_done_to_three_servers_nothing_that_was_told_is_lost_and_every_run_ends() -> None:
    """One of each fault, under clients that send every request to another server."""
    report = await play(
        ["kill", "cut", "pause", "postgres", "restart"], every_s=(0.5, 1.0), clients=4, lease_s=4.0, seed=7
    )
    assert isinstance(report["turns"], int)
    assert report["turns"] > 12, report
