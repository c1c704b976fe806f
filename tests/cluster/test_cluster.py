"""Three servers on one database: killed, paused, cut off, stopped; their database restarts, NATS goes away."""

import pytest

from tests.cluster.campaign import play
from tests.extent import IS_FULL
from tests.requirements import requirement


@requirement("faults:41:several", "faults:42:zombie", "faults:44:restart", "faults:45:away", "faults:47:rolling")
@pytest.mark.slow
async def test_whatever_is_done_to_three_servers_nothing_that_was_reported_is_lost_and_every_run_ends() -> None:
    """Faults of four kinds, under clients that send every request to another server. With FULL=1 of all six."""
    report = await play(
        ["kill", "cut", "pause", "postgres", *(["nats", "restart"] if IS_FULL else [])],
        every_s=(0.5, 1.0),
        clients=4,
        lease_s=4.0,
        outage_s=2.0,
        seed=7,
    )
    assert isinstance(report["turns"], int)
    assert report["turns"] > 8, report
    assert report["turns given up"] == 0, report
