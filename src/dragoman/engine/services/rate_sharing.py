"""Rate limits over several servers: each reports what its callers consumed, and counts what the others report.

A report is a hint, which may be lost, and comes up to `REPORT_INTERVAL_S` late: in that time a caller may use its
allowance once on each server. A shared counter would be exact, for a query in each request.
"""

import asyncio
import uuid
from collections.abc import Mapping

import msgspec

from dragoman.engine.services.limits import RateLimit
from dragoman.ports.bus import Bus

REPORT_INTERVAL_S = 0.5
CALLERS_PER_HINT = 250
"""Each takes some 25 bytes."""


class _Report(msgspec.Struct):
    server: str
    consumed: Mapping[str, int]


class RateSharing:
    """Shares a rate limit with the other servers.

    Args:
        limit: the limit in this process.
        bus: reaches the other servers.
        subject: the subject of the hints, one for each limit.
    """

    def __init__(self, limit: RateLimit, bus: Bus, subject: str) -> None:
        self._limit = limit
        self._bus = bus
        self._subject = subject
        self._server = uuid.uuid4().hex
        self._decoder = msgspec.json.Decoder(_Report)
        self._encoder = msgspec.json.Encoder()

    async def run(self) -> None:
        """Report and listen until cancelled."""
        self._limit.report()
        stop_listening = self._bus.subscribe(self._subject, self._on_report)
        try:
            while True:
                await asyncio.sleep(REPORT_INTERVAL_S)
                consumed = list(self._limit.report().items())
                for start in range(0, len(consumed), CALLERS_PER_HINT):
                    report = _Report(self._server, dict(consumed[start : start + CALLERS_PER_HINT]))
                    self._bus.publish(self._subject, self._encoder.encode(report).decode())
        finally:
            stop_listening()

    def _on_report(self, payload: str) -> None:
        report = self._decoder.decode(payload)
        if report.server != self._server:
            self._limit.count_remote(report.consumed)
