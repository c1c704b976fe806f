"""Code that blocks the event loop is logged while it does so."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.typing import EventDict

from dragoman.engine.runs.loop_watchdog import LoopWatchdog
from tests.requirements import requirement

DEADLINE_S = 60.0


class LogCapture:
    """What was logged. `first` and `second` are set with the first line and the second."""

    def __init__(self) -> None:
        self.lines: list[EventDict] = []
        self.first, self.second = threading.Event(), threading.Event()

    def __call__(self, _logger: Any, _method: str, line: EventDict) -> EventDict:
        self.lines.append(line)
        (self.second if self.first.is_set() else self.first).set()
        raise structlog.DropEvent


@pytest.fixture
def log_capture() -> Iterator[LogCapture]:
    captured, before = LogCapture(), structlog.get_config()["processors"]
    structlog.configure(processors=[captured])
    yield captured
    structlog.configure(processors=before)


async def block_loop(until: threading.Event) -> None:
    assert until.wait(DEADLINE_S)


@requirement("faults:50:processor")
async def test_code_that_blocks_the_loop_is_logged_with_its_line_and_duration(log_capture: LogCapture) -> None:
    with LoopWatchdog(0.05):
        await block_loop(log_capture.first)
        await asyncio.to_thread(log_capture.second.wait, DEADLINE_S)
    blocked, goes_on = log_capture.lines[:2]
    assert blocked["event"] == "the event loop is blocked"
    assert [line.rpartition(" ")[2] for line in blocked["at"]][:2] == ["wait", "wait"]
    assert any(line.startswith(__file__) and line.endswith(" block_loop") for line in blocked["at"])
    assert (goes_on["event"], goes_on["blocked_s"] > 0) == ("the event loop is no longer blocked", True)
