"""Short campaigns of servers that are killed; `python -m tests.adapters.kills` plays long ones."""

from pathlib import Path

import pytest

from tests.adapters.kills import run
from tests.adapters.scenes import FRAMEWORKS, Framework
from tests.adapters.scripted_agents import Effects, build
from tests.extent import extent, sampled


@pytest.mark.slow
@pytest.mark.parametrize("framework", sampled(FRAMEWORKS, 3))
async def test_no_tool_begins_twice_and_every_message_is_answered_although_servers_are_killed(
    tmp_path: Path, framework: Framework
) -> None:
    build(framework, Effects())  # skips the test where the framework is not installed
    report = await run(tmp_path, framework, kills=extent(100, 1))
    assert report.faults == [], report
    assert report.turns >= 3, report
