"""Benchmark of many clients that read one old session from its beginning at the same time."""

import asyncio
from typing import cast

from bench import load, wire
from bench.effort import Effort
from bench.figures import Figure, Target, single_round
from bench.load import Connection, Session
from bench.stats import quantile
from bench.streams import script
from bench.subjects import Dragoman, Workspace

TURNS = 4
BLOCKS = 500
"""Blocks of a turn, each of which is an event of the log."""
LAST_WORDS = "This is the end."
SAMPLE_INTERVAL_S = 0.02


class Rejoiner(Connection):
    """Reads a session's events, which have no end, up to its last words. It only counts."""

    size = 0
    _tail = b""

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        self._tail = (self._tail + data)[-(len(data) + 100) :]
        if not self.done.done() and LAST_WORDS.encode() in self._tail and b"RUN_FINISHED" in self._tail:
            self.done.set_result(None)


async def rejoin(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Throughput and memory of the server while all readers catch up, and another user's turns meanwhile."""
    blocks: list[dict[str, object]] = [{"think": "So it is."}, {"say": "A word or two."}]
    turn = script(*blocks * (BLOCKS // 2))
    turns: list[float] = []
    with Dragoman(workspace) as ours:
        session, other = await ours.client.create("rehearsal", 2)
        [control] = await ours.client.connect(1)
        for text in (*[turn] * TURNS, script({"say": LAST_WORDS})):
            wire.events(await control.exchange(ours.client.turn(session, text)))
        readers = cast("list[Rejoiner]", await ours.client.connect(effort.readers, Rejoiner))
        idle_kib = peak_kib = ours.server.rss_kib()
        cpu, begin = ours.server.cpu_s(), load.clock()
        for reader in readers:
            reader.begin(wire.request("GET", f"/ag-ui/rehearsal/threads/{session.id}/events", key=ours.key))
        everybody = asyncio.gather(*(reader.done for reader in readers))
        while not everybody.done():
            turns.append(await _turn_ms(ours, control, other))
            peak_kib = max(peak_kib, ours.server.rss_kib())
            await asyncio.sleep(SAMPLE_INTERVAL_S)
        cpu, seconds = ours.server.cpu_s() - cpu, load.clock() - begin
        sizes = {reader.size for reader in readers}
        load.close([*readers, control])
        invalid = await ours.verify([other])
    if len(sizes) > 1:
        invalid = f"readers got between {min(sizes):,} and {max(sizes):,} bytes"
    megabytes = sum(reader.size for reader in readers) / 1e6
    lines = [
        (
            "throughput",
            "MB/s",
            megabytes / seconds,
            Target(300, at_least=True),
            f"{megabytes / cpu:.0f} MB per CPU second",
        ),
        ("memory beyond the idle server", "MiB", (peak_kib - idle_kib) / 1024, Target(64), ""),
        ("another user's turn meanwhile, p99", "ms", quantile(turns, 0.99), Target(50), f"{len(turns)} turns"),
    ]
    return single_round("rejoin", ours.name, f"{effort.readers:,} readers", lines, invalid=invalid)


async def _turn_ms(ours: Dragoman, connection: Connection, session: Session) -> float:
    text = script({"say": "Hello."})
    exchange = await connection.exchange(ours.client.turn(session, text))
    ours.client.record_turn(session, text, exchange)
    return (exchange.times[-1] - exchange.sent) * 1e3
