"""Servers that die, and what their clients find afterwards. `python -m tests.crash` runs longer campaigns.

Every campaign checks all promises (see `client_checker` and `log_checker`); the tests differ in how the servers die. A
failure prints its seed, and the command that repeats it.
"""

import re
from pathlib import Path

import pytest

from tests.crash.campaign import Campaign, Options
from tests.crash.endings import Ending, KillAfterReady
from tests.crash.histories import HistoryCampaign
from tests.crash.kinds import run
from tests.crash.unsynced_disk import UnsyncedDiskUnavailable, sqlite_library
from tests.extent import IS_FULL, extent
from tests.requirements import requirement

SEED = 1
SHARDS = 2
HAS_UNSYNCED_DISK = True
try:
    sqlite_library()
except UnsyncedDiskUnavailable:
    HAS_UNSYNCED_DISK = False


pytestmark = pytest.mark.slow


@requirement("faults:41:every-step")
@pytest.mark.parametrize(
    ("kind", "lives", "kills"),
    [
        ("random", extent(60, 4), extent(40, 1)),  # at any time and at any step, including start and stop
        ("sweep", extent(60, 4), extent(60, 4)),  # before every commit in turn, after it and after its publication
        ("hammer", extent(24, 4), extent(24, 4)),  # so early and so often that runs are given up
        ("first-start", extent(12, 2), extent(12, 2)),  # while the database is created
        ("stop", extent(16, 2), 0),  # asked to stop under load; some are killed while they drain
    ],
)
async def test_nothing_acknowledged_is_lost_when_servers_die(kind: str, lives: int, kills: int, tmp_path: Path) -> None:
    report = await run(kind, tmp_path, seed=SEED, kills=lives, shards=SHARDS)
    assert not report.faults, str(report)
    assert (report.endings.total(), report.kills >= kills) == (lives, True), str(report)


@requirement("faults:41:approvals")
async def test_a_payment_runs_once_for_each_permission_whatever_is_forged_between_crashes(tmp_path: Path) -> None:
    kills = extent(2, 1)
    report = await run("forged", tmp_path, seed=SEED, kills=kills, shards=1)
    assert not report.faults, str(report)
    assert (report.kills, report.executions > 0) == (kills, True), str(report)
    if IS_FULL:  # the first kill may come before anything was forged
        assert report.forged > 0, str(report)


@pytest.mark.skipif(not HAS_UNSYNCED_DISK, reason="this Python's SQLite cannot be accessed from outside")
async def test_nothing_acknowledged_is_lost_when_the_machine_dies(tmp_path: Path) -> None:
    kills = extent(24, 4)
    report = await run("power", tmp_path, seed=SEED, kills=kills, shards=SHARDS)
    assert not report.faults, str(report)
    assert report.kills == kills, str(report)
    if IS_FULL:  # few kills may all come when nothing is being written
        assert report.dropped_unsynced > 0, str(report)


# --- sabotaged servers -----------------------------------------------------------------------------------------------


LIVES: list[Ending] = [KillAfterReady(0.2 + 0.05 * (place % 7)) for place in range(20)]


# What is gone may be the session, an event of a stream, a tool call that waits, a setting, or a message.
GONE = (
    "session_not_found|invalid_cursor|unknown_tool_call|were acknowledged|are known, and|were seen:|is lost"
    "|is there 0 times|is missing|, a client saw |messages, the client "
)


@pytest.mark.parametrize(
    ("way", "fault"),
    [
        ("acknowledge-first", GONE),
        ("repeat-tools", "was started 2 times"),
        *([("leave-runs", "had not gone on")] if IS_FULL else []),  # takes longest to be found
    ],
)
async def test_a_server_that_breaks_a_promise_is_found(way: str, fault: str, tmp_path: Path) -> None:
    report = await Campaign(tmp_path, Options(seed=SEED, endings=LIVES, sabotage=way)).play()
    assert re.search(fault, "\n".join(report.faults)), str(report)


@pytest.mark.skipif(not HAS_UNSYNCED_DISK, reason="this Python's SQLite cannot be accessed from outside")
async def test_a_server_that_does_not_sync_is_found(tmp_path: Path) -> None:
    """`synchronous=normal` promises less, as documented: a power cut may discard what was acknowledged last."""
    options = Options(seed=SEED, endings=LIVES, loses_power=True, arguments=("--synchronous", "normal"))
    report = await Campaign(tmp_path, options).play()
    assert report.faults != []


async def test_what_clients_saw_of_a_killed_server_is_linearizable(tmp_path: Path) -> None:
    report = await HistoryCampaign(tmp_path, seed=SEED, kills=extent(20, 1)).play()
    assert report.faults == [], str(report)
    assert sum(report.histories) > 0
