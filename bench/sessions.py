"""The rows about what sessions weigh: memory, long histories, readers that do not read, starts and commits."""

import asyncio
import contextlib
import re
import signal
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from bench import check, load, wire
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Connection, Session, clock
from bench.stats import quantile, spread
from bench.streams import CONNECTIONS, TURN_DELTAS, emit, script
from bench.subjects import DATABASE, Dragoman, Limit, Subject, Workspace

SEED_LIMIT = 1000
FEW_MESSAGES = 10
SETTLE_DELAY_S = 1.0


async def idle(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Memory of an open stream that waits for a slow agent."""
    found: list[Figure] = []
    for streams in effort.idle:
        limit = Limit(workspace, "window")
        with limit:
            base = await _idle(limit, streams)
        with Dragoman(workspace) as ours:
            mine = await _idle(ours, streams)
        demanded = streams == 5000
        for subject, (kib, void) in ((limit, base), (ours, mine)):
            found.append(
                Figure(
                    row="idle",
                    subject=subject.name,
                    what=f"memory per open stream of {streams:,}",
                    unit="KiB",
                    value=spread([kib]),
                    ratios={"window": spread([kib / base[0]])},
                    target=Target(24) if subject is ours and demanded else None,
                    void=void,
                )
            )
    return found


async def _idle(subject: Subject, streams: int) -> tuple[float, str]:
    """KiB for each stream, and why they do not count."""
    client = subject.client
    [warm] = await client.create("rehearsal", 1)
    [door] = await client.connect(1)
    client.record_turn(warm, "hello", await door.exchange(client.turn(warm, emit(1, "warm "))))
    text = script({"wait_ms": 600_000})
    sessions = await client.create("rehearsal", streams)
    await asyncio.sleep(SETTLE_DELAY_S)
    before = subject.server.rss_kib()
    connections = await client.connect(streams)
    for connection, session in zip(connections, sessions, strict=True):
        connection.begin(client.turn(session, text))
        session.turns.append((text, ""))
    for connection in connections:
        await connection.response_started
    await asyncio.sleep(SETTLE_DELAY_S)
    kib = (subject.server.rss_kib() - before) / streams
    statuses = {wire.status(connection.parts[0]) for connection in connections}
    still_open = sum(not connection.done.done() for connection in connections)
    load.close([*connections, door])
    if statuses != {200} or still_open != streams:
        return kib, f"{still_open} of {streams} streams stayed open, statuses {sorted(statuses)}"
    if isinstance(subject, Limit):
        return kib, ""
    subject.stop(signal.SIGKILL)  # what was acknowledged has to survive that
    try:
        check.database(subject.folder / DATABASE, sessions)
    except check.Mismatch as difference:
        return kib, str(difference)
    return kib, ""


async def history(workspace: Workspace, effort: Effort) -> list[Figure]:
    """A short run on a session with few earlier messages and on one with many."""
    text = emit(20, "abcd ")
    seeds = [{"role": ("user", "assistant")[n % 2], "content": f"{n:05} " + "x" * 94} for n in range(SEED_LIMIT)]
    few_cpu: list[float] = []
    many_cpu: list[float] = []
    few_first: list[float] = []
    many_first: list[float] = []
    cold: list[float] = []
    with Dragoman(workspace) as ours:
        [many] = await ours.client.create("rehearsal", 1, seeds)
        [door] = await ours.client.connect(1)
        await _add_messages(ours.client, door, many, effort.old_messages - SEED_LIMIT)
        few: list[Session] = []
        for _ in range(effort.rounds):
            fresh = await ours.client.create("rehearsal", max(1, effort.history_turns // 4), seeds[:FEW_MESSAGES])
            few += fresh
            for session in [*fresh, many]:  # warm
                ours.client.record_turn(session, text, await door.exchange(ours.client.turn(session, text)))
            cpu, first = await _measure_turns(ours, door, [session for session in fresh for _ in range(4)], text)
            few_cpu.append(cpu)
            few_first.append(first)
            cpu, first = await _measure_turns(ours, door, [many] * effort.history_turns, text)
            many_cpu.append(cpu)
            many_first.append(first)
        void = await ours.verify([many], seeds=SEED_LIMIT)
        for _ in range(effort.starts):
            ours.start()
            [door] = await ours.client.connect(1)
            [other] = await ours.client.create("rehearsal", 1)
            await door.exchange(ours.client.turn(other, text))
            _, first = await _measure_turns(ours, door, [many], text)
            cold.append(first)
            ours.stop()
        ours.start()
        void = void or await ours.verify(few, seeds=FEW_MESSAGES)
        ours.start()
        void = void or await ours.verify([many], seeds=SEED_LIMIT)

    def line(what: str, unit: str, values: list[float], target: Target | None = None) -> Figure:
        return Figure(
            row="history", subject="dragoman", what=what, unit=unit, value=spread(values), target=target, void=void
        )

    name = f"{effort.old_messages:,}"
    ratios = [a / b for a, b in zip(many_cpu, few_cpu, strict=True)]
    return [
        line(f"server CPU of a run, {FEW_MESSAGES} earlier messages", "ms", [each * 1e3 for each in few_cpu]),
        line(f"server CPU of a run, {name} earlier messages", "ms", [each * 1e3 for each in many_cpu]),
        line(f"CPU with {name} over CPU with {FEW_MESSAGES}", "×", ratios, Target(1.3)),
        line(f"first delta, {FEW_MESSAGES}, warm", "ms", few_first),
        line(f"first delta, {name}, warm", "ms", many_first),
        line(f"first delta, {name}, cold", "ms", cold, Target(30)),
    ]


async def _add_messages(client: Client, connection: Connection, session: Session, count: int) -> None:
    """Add about `count` messages of a hundred characters: runs of one question and many model steps."""
    steps = 20
    says: list[dict[str, object]] = []
    for number in range(steps):
        says += [{"say": [f"{number:05} " + "y" * 94]}, {"step": True}]
    text = script(*says[:-1])
    for _ in range(count // (steps + 1)):
        client.record_turn(session, text, await connection.exchange(client.turn(session, text)))


async def _measure_turns(
    ours: Dragoman, connection: Connection, sessions: list[Session], text: str
) -> tuple[float, float]:
    """Run a turn on each session, one after the other; server CPU of a turn in s, median first delta in ms."""
    client = ours.client
    cpu = ours.server.cpu_s()
    exchanges = [await connection.exchange(client.turn(session, text)) for session in sessions]
    await asyncio.sleep(0.05)
    cpu = ours.server.cpu_s() - cpu
    firsts = [
        _first_delta(client.record_turn(session, text, exchange), exchange.sent)
        for session, exchange in zip(sessions, exchanges, strict=True)
    ]
    return cpu / len(sessions), quantile(firsts, 0.5)


def _first_delta(stream: list[wire.Event], sent: float) -> float:
    """Milliseconds from the request to the first delta."""
    _, at = next(wire.deltas(stream))
    return (at - sent) * 1e3


async def stalled(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Growth of the server's memory by one stream of 300,000 deltas whose reader never reads."""
    block: dict[str, object] = {"emit": {"count": 100_000, "text": "abcd "}}
    text = script(block, block, block)  # three: a text block has a limit of 1 MiB
    found = []
    for reads in (True, False):
        with Dragoman(workspace) as ours:
            growth, session = await _measure_stall(ours, text, reads=reads)
            void = await ours.verify([session])
        found.append(
            Figure(
                row="stalled",
                subject="dragoman",
                what="memory, " + ("the same read at once" if reads else "never read"),
                unit="MiB",
                value=spread([growth / 1024]),
                target=None if reads else Target(12),
                void=void,
            )
        )
    return found


async def _measure_stall(ours: Dragoman, text: str, *, reads: bool) -> tuple[float, Session]:
    """The greatest growth in KiB from before the run until after its end."""
    client = ours.client
    warm, session = await client.create("rehearsal", 2)
    [door, stream] = await client.connect(2)
    await door.exchange(client.turn(warm, emit(TURN_DELTAS, "abcd ")))
    await asyncio.sleep(SETTLE_DELAY_S)
    peak = before = ours.server.rss_kib()
    with contextlib.ExitStack() as open_sockets:
        if reads:
            stream.begin(client.turn(session, text))
        else:
            deaf = open_sockets.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect((ours.server.host, ours.server.port))
            deaf.sendall(client.turn(session, text))
        begun = clock()

        async def stopped() -> bool:
            nonlocal peak
            peak = max(peak, ours.server.rss_kib())
            answer = wire.body(await door.exchange(client.request("GET", f"/sessions/{session.id}")))
            return clock() - begun > 0.5 and msgspec.json.decode(answer)["_meta"]["status"] == "idle"

        ended = await load.poll_until(stopped, deadline_s=30)
        await asyncio.sleep(SETTLE_DELAY_S)
        peak = max(peak, ours.server.rss_kib())
    if ended:
        session.turns.append((text, "abcd " * 300_000))
    return peak - before, session


async def cold(workspace: Workspace, effort: Effort) -> list[Figure]:
    """From the start of the process to the first answered request, without the model."""
    first: list[float] = []
    turn: list[float] = []
    with Dragoman(workspace) as ours:
        [session] = await ours.client.create("rehearsal", 1)
        for _ in range(effort.starts):
            ours.stop()
            ours.start()
            [door] = await ours.client.connect(1)
            wire.body(await door.exchange(ours.client.request("GET", "/meta")))
            first.append(clock() - ours.server.started)
            text = emit(TURN_DELTAS, "abcd ")
            ours.client.record_turn(session, text, await door.exchange(ours.client.turn(session, text)))
            turn.append(clock() - ours.server.started)
        rss = ours.server.rss_kib() / 1024
        void = await ours.verify([session])

    def line(what: str, unit: str, values: list[float], target: Target | None = None) -> Figure:
        return Figure(
            row="cold", subject="dragoman", what=what, unit=unit, value=spread(values), target=target, void=void
        )

    return [
        line("start to the first answered request", "s", first, Target(0.6)),
        line("start to the end of the first turn", "s", turn),
        line("memory then", "MiB", [rss]),
    ]


async def first(workspace: Workspace, effort: Effort) -> list[Figure]:
    """What stands before the first delta on an idle server, in commits of the same disk at the same time."""
    text = emit(1, "abcd ")
    asked: list[list[float]] = []
    emitted: list[float] = []
    commits: dict[int, list[float]] = {PAGES: [], 1: []}
    with (
        Dragoman(workspace) as ours,
        Limit(workspace, "tick") as limit,
        closing(Probe(ours.folder / "probe.db")) as probe,
    ):

        async def probed(pages: int) -> None:
            await asyncio.sleep(0.01)
            commits[pages].append(probe.commit(pages) * 1e3)
            await asyncio.sleep(0.01)

        used: list[Session] = []
        for subject in (limit, ours):
            [door] = await subject.client.connect(1)
            [session] = await subject.client.create("rehearsal", 1)
            used.append(session)
            waits = []
            for _ in range(effort.commits):
                exchange = await door.exchange(subject.client.turn(session, text))
                waits.append(_first_delta(subject.client.record_turn(session, text, exchange), exchange.sent))
                await probed(PAGES)
            asked.append(waits)
        [pausing] = await ours.client.create("clock", 1)
        [door] = await ours.client.connect(1)
        for _ in range(effort.commits // 2):
            stream = ours.client.record_turn(pausing, "go", await door.exchange(ours.client.turn(pausing, "go")))
            emitted += [(at - float(delta)) * 1e3 for delta, at in wire.deltas(stream)]
            await probed(1)
        void = await ours.verify([used[1], pausing])
    run, word = (quantile(commits[pages], 0.5) for pages in (PAGES, 1))
    base, mine = asked
    over = quantile(mine, 0.5) - quantile(base, 0.5)

    def line(what: str, values: list[float], *, subject: str = "dragoman", target: Target | None = None) -> Figure:
        note = f"p99 {quantile(values, 0.99):.2f} ms" if len(values) > 1 else ""
        return Figure(
            row="first",
            subject=subject,
            what=what,
            unit="ms",
            value=spread(values),
            target=target,
            void=void if subject == "dragoman" else "",
            note=note,
        )

    return [
        line(f"one commit of {PAGES} pages on this disk (SQLite, FULL)", commits[PAGES], subject="probe"),
        line("one commit of 1 page", commits[1], subject="probe"),
        line("request to first delta", base, subject="limit tick"),
        line("request to first delta", mine),
        line("  over the limit", [over], target=Target(round(run + HANDLING_MS, 3), note="(1 commit + handling)")),
        line("emitted after a pause, to its arrival", emitted),
        line("  less one commit", [quantile(emitted, 0.5) - word], target=Target(HANDLING_MS)),
    ]


HANDLING_MS = 1.0
"""What the way from the agent to the reader may cost beside the commit."""


PAGES = 6
"""Pages that a run of one word changes, as counted in the server's write-ahead log."""
ROW_CHARS = 3000
"""So that each row has a page of its own."""


class Probe:
    """Commits of so many pages, in a database of their own on the same disk.

    They alternate with the runs: how long a disk takes to sync changes threefold within seconds.
    """

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE log (n INTEGER PRIMARY KEY, payload TEXT)")
        self._connection.executemany("INSERT INTO log VALUES (?, '')", [(n,) for n in range(PAGES)])
        self._count = 0

    def commit(self, pages: int) -> float:
        """Make one. Seconds that it took."""
        self._count += 1
        row = f"{self._count:0{ROW_CHARS}}"  # SQLite does not write what is there already
        begun = clock()
        self._connection.execute("UPDATE log SET payload = ? WHERE n < ?", (row, pages))
        return clock() - begun

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


_COMMITS = re.compile(rb"^(dragoman\w*commits?(?:_total)?)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


async def commits(workspace: Workspace, effort: Effort) -> list[Figure]:
    """How many commits a run takes, alone and beside 31 others; read from the server's metrics."""
    text = emit(TURN_DELTAS, "abcd ")
    found = []
    for streams in (1, CONNECTIONS):
        with Dragoman(workspace) as ours:
            client = ours.client
            sessions = await client.create("rehearsal", streams)
            connections = await client.connect(streams)
            [door] = await client.connect(1)
            before = await _commit_count(client, door)
            if before is None:
                return []
            burst = await load.saturate(client, connections, sessions, text, effort.burst_s)
            after = await _commit_count(client, door)
            void = await ours.verify(sessions)
        assert after is not None
        found.append(
            Figure(
                row="commits",
                subject="dragoman",
                what=f"commits per run, {streams} at once",
                unit="commits",
                value=spread([(after - before) / burst.turns]),
                void=void,
                note=f"{(after - before) / burst.seconds:,.0f} commits/s",
            )
        )
    return found


async def _commit_count(client: Client, connection: Connection) -> float | None:
    metrics = wire.body(await connection.exchange(wire.request("GET", "/metrics", key=client.key)))
    counts = [float(value) for _, value in _COMMITS.findall(metrics)]
    return sum(counts) if counts else None
