"""Benchmarks of sessions: memory, long histories, stalled readers, start time, first delta and commits."""

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
from bench.subjects import DATABASE, Baseline, Dragoman, Subject, Workspace

SEED_LIMIT = 1000
FEW_MESSAGES = 10
SETTLE_DELAY_S = 1.0


async def idle_memory(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Memory of an open stream that waits for a slow agent."""
    figures: list[Figure] = []
    for streams in effort.idle_streams:
        baseline = Baseline(workspace, "window")
        with baseline:
            baseline_memory = await _memory_per_stream(baseline, streams)
        with Dragoman(workspace) as ours:
            our_memory = await _memory_per_stream(ours, streams)
        for subject, (kib, invalid) in ((baseline, baseline_memory), (ours, our_memory)):
            figures.append(
                Figure(
                    row="idle_memory",
                    subject=subject.name,
                    metric=f"memory per open stream, {streams:,} streams",
                    unit="KiB",
                    value=spread([kib]),
                    ratios={"window": spread([kib / baseline_memory[0]])},
                    target=Target(24) if subject is ours and streams == 5000 else None,
                    invalid=invalid,
                )
            )
    return figures


async def _memory_per_stream(subject: Subject, streams: int) -> tuple[float, str]:
    """KiB per stream, and why the figure is invalid."""
    client = subject.client
    [warm] = await client.create("rehearsal", 1)
    [control] = await client.connect(1)
    client.record_turn(warm, "hello", await control.exchange(client.turn(warm, emit(1, "warm "))))
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
    load.close([*connections, control])
    if statuses != {200} or still_open != streams:
        return kib, f"{still_open} of {streams} streams stayed open, statuses {sorted(statuses)}"
    if isinstance(subject, Baseline):
        return kib, ""
    subject.stop(signal.SIGKILL)  # acknowledged input must survive this
    try:
        check.database(subject.folder / DATABASE, sessions)
    except check.Mismatch as mismatch:
        return kib, str(mismatch)
    return kib, ""


async def long_history(workspace: Workspace, effort: Effort) -> list[Figure]:
    """A short run in a session with few earlier messages, and in one with many."""
    text = emit(20, "abcd ")
    seeds = [{"role": ("user", "assistant")[n % 2], "content": f"{n:05} " + "x" * 94} for n in range(SEED_LIMIT)]
    few_cpu: list[float] = []
    many_cpu: list[float] = []
    few_first: list[float] = []
    many_first: list[float] = []
    cold: list[float] = []
    with Dragoman(workspace) as ours:
        [many] = await ours.client.create("rehearsal", 1, seeds)
        [control] = await ours.client.connect(1)
        await _add_messages(ours.client, control, many, effort.old_messages - SEED_LIMIT)
        few: list[Session] = []
        for _ in range(effort.rounds):
            fresh = await ours.client.create("rehearsal", max(1, effort.history_turns // 4), seeds[:FEW_MESSAGES])
            few += fresh
            for session in [*fresh, many]:  # warm
                ours.client.record_turn(session, text, await control.exchange(ours.client.turn(session, text)))
            cpu, first = await _measure_turns(ours, control, [session for session in fresh for _ in range(4)], text)
            few_cpu.append(cpu)
            few_first.append(first)
            cpu, first = await _measure_turns(ours, control, [many] * effort.history_turns, text)
            many_cpu.append(cpu)
            many_first.append(first)
        invalid = await ours.verify([many], seeds=SEED_LIMIT)
        for _ in range(effort.starts):
            ours.start()
            [control] = await ours.client.connect(1)
            [other] = await ours.client.create("rehearsal", 1)
            await control.exchange(ours.client.turn(other, text))
            _, first = await _measure_turns(ours, control, [many], text)
            cold.append(first)
            ours.stop()
        ours.start()
        invalid = invalid or await ours.verify(few, seeds=FEW_MESSAGES)
        ours.start()
        invalid = invalid or await ours.verify([many], seeds=SEED_LIMIT)

    def line(metric: str, unit: str, values: list[float], target: Target | None = None) -> Figure:
        return Figure(
            row="long_history",
            subject="dragoman",
            metric=metric,
            unit=unit,
            value=spread(values),
            target=target,
            invalid=invalid,
        )

    name = f"{effort.old_messages:,}"
    ratios = [a / b for a, b in zip(many_cpu, few_cpu, strict=True)]
    return [
        line(f"server CPU per run, {FEW_MESSAGES} earlier messages", "ms", [each * 1e3 for each in few_cpu]),
        line(f"server CPU per run, {name} earlier messages", "ms", [each * 1e3 for each in many_cpu]),
        line(f"CPU ratio, {name} to {FEW_MESSAGES} earlier messages", "×", ratios, Target(1.3)),
        line(f"first delta, {FEW_MESSAGES} earlier messages, warm", "ms", few_first),
        line(f"first delta, {name} earlier messages, warm", "ms", many_first),
        line(f"first delta, {name} earlier messages, cold", "ms", cold, Target(30)),
    ]


async def _add_messages(client: Client, connection: Connection, session: Session, count: int) -> None:
    """Add about `count` messages of 100 characters, in runs of one question and many model steps."""
    step_count = 20
    steps: list[dict[str, object]] = []
    for number in range(step_count):
        steps += [{"say": [f"{number:05} " + "y" * 94]}, {"step": True}]
    text = script(*steps[:-1])
    for _ in range(count // (step_count + 1)):
        client.record_turn(session, text, await connection.exchange(client.turn(session, text)))


async def _measure_turns(
    ours: Dragoman, connection: Connection, sessions: list[Session], text: str
) -> tuple[float, float]:
    """Run a turn on each session in sequence. Returns server CPU per turn in s and the median first delta in ms."""
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


def _first_delta(deltas: wire.Deltas, sent: float) -> float:
    """Time from the request to the first delta in ms."""
    _, at = deltas[0]
    return (at - sent) * 1e3


async def stalled_reader(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Growth of the server's memory during a stream of 300,000 deltas whose reader never reads."""
    block: dict[str, object] = {"emit": {"count": 100_000, "text": "abcd "}}
    text = script(block, block, block)  # three, because a text block is limited to 1 MiB
    figures = []
    for reads in (True, False):
        with Dragoman(workspace) as ours:
            growth, session = await _measure_stall(ours, text, reads=reads)
            invalid = await ours.verify([session])
        figures.append(
            Figure(
                row="stalled_reader",
                subject="dragoman",
                metric="memory growth, " + ("fast reader" if reads else "stalled reader"),
                unit="MiB",
                value=spread([growth / 1024]),
                target=None if reads else Target(12),
                invalid=invalid,
            )
        )
    return figures


async def _measure_stall(ours: Dragoman, text: str, *, reads: bool) -> tuple[float, Session]:
    """The maximum growth in KiB, from before the run until after its end."""
    client = ours.client
    warm, session = await client.create("rehearsal", 2)
    [control, stream] = await client.connect(2)
    await control.exchange(client.turn(warm, emit(TURN_DELTAS, "abcd ")))
    await asyncio.sleep(SETTLE_DELAY_S)
    peak = before = ours.server.rss_kib()
    with contextlib.ExitStack() as open_sockets:
        if reads:
            stream.begin(client.turn(session, text))
        else:
            stalled = open_sockets.enter_context(socket.socket())
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.connect((ours.server.host, ours.server.port))
            stalled.sendall(client.turn(session, text))
        started = clock()

        async def has_stopped() -> bool:
            nonlocal peak
            peak = max(peak, ours.server.rss_kib())
            answer = wire.body(await control.exchange(client.request("GET", f"/sessions/{session.id}")))
            return clock() - started > 0.5 and msgspec.json.decode(answer)["_meta"]["status"] == "idle"

        ended = await load.poll_until(has_stopped, deadline_s=30)
        await asyncio.sleep(SETTLE_DELAY_S)
        peak = max(peak, ours.server.rss_kib())
    if ended:
        session.turns.append((text, "abcd " * 300_000))
    return peak - before, session


async def cold_start(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Time from the start of the process to its first response, without the embedded model."""
    first: list[float] = []
    turn: list[float] = []
    with Dragoman(workspace) as ours:
        [session] = await ours.client.create("rehearsal", 1)
        for _ in range(effort.starts):
            ours.stop()
            ours.start()
            [control] = await ours.client.connect(1)
            wire.body(await control.exchange(ours.client.request("GET", "/meta")))
            first.append(clock() - ours.server.started)
            text = emit(TURN_DELTAS, "abcd ")
            ours.client.record_turn(session, text, await control.exchange(ours.client.turn(session, text)))
            turn.append(clock() - ours.server.started)
        rss = ours.server.rss_kib() / 1024
        invalid = await ours.verify([session])

    def line(metric: str, unit: str, values: list[float], target: Target | None = None) -> Figure:
        return Figure(
            row="cold_start",
            subject="dragoman",
            metric=metric,
            unit=unit,
            value=spread(values),
            target=target,
            invalid=invalid,
        )

    return [
        line("process start to first response", "s", first, Target(0.6)),
        line("process start to end of first turn", "s", turn),
        line("memory after the first turn", "MiB", [rss]),
    ]


async def first_delta(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Time to the first delta on an idle server, compared with commits on the same disk at the same time."""
    text = emit(1, "abcd ")
    first_deltas: list[list[float]] = []
    delivery: list[float] = []
    commits: dict[int, list[float]] = {PAGES: [], 1: []}
    with (
        Dragoman(workspace) as ours,
        Baseline(workspace, "tick") as baseline,
        closing(Probe(ours.folder / "probe.db")) as probe,
    ):

        async def probe_commit(pages: int) -> None:
            await asyncio.sleep(0.01)
            commits[pages].append(probe.commit(pages) * 1e3)
            await asyncio.sleep(0.01)

        sessions: list[Session] = []
        for subject in (baseline, ours):
            [control] = await subject.client.connect(1)
            [session] = await subject.client.create("rehearsal", 1)
            sessions.append(session)
            durations = []
            for _ in range(effort.commits):
                exchange = await control.exchange(subject.client.turn(session, text))
                durations.append(_first_delta(subject.client.record_turn(session, text, exchange), exchange.sent))
                await probe_commit(PAGES)
            first_deltas.append(durations)
        [pausing] = await ours.client.create("clock", 1)
        [control] = await ours.client.connect(1)
        for _ in range(effort.commits // 2):
            deltas = ours.client.record_turn(pausing, "go", await control.exchange(ours.client.turn(pausing, "go")))
            delivery += [(at - float(delta)) * 1e3 for delta, at in deltas]
            await probe_commit(1)
        invalid = await ours.verify([sessions[1], pausing])
    run_commit, delta_commit = (quantile(commits[pages], 0.5) for pages in (PAGES, 1))
    baseline_first, our_first = first_deltas
    overhead = quantile(our_first, 0.5) - quantile(baseline_first, 0.5)

    def line(metric: str, values: list[float], *, subject: str = "dragoman", target: Target | None = None) -> Figure:
        note = f"p99 {quantile(values, 0.99):.2f} ms" if len(values) > 1 else ""
        return Figure(
            row="first_delta",
            subject=subject,
            metric=metric,
            unit="ms",
            value=spread(values),
            target=target,
            invalid=invalid if subject == "dragoman" else "",
            note=note,
        )

    return [
        line(f"commit of {PAGES} pages (SQLite, FULL)", commits[PAGES], subject="probe"),
        line("commit of 1 page (SQLite, FULL)", commits[1], subject="probe"),
        line("request to first delta", baseline_first, subject="baseline tick"),
        line("request to first delta", our_first),
        line(
            "  minus the baseline",
            [overhead],
            target=Target(round(run_commit + HANDLING_MS, 3), note=f"(one commit + {HANDLING_MS:g} ms)"),
        ),
        line("emission after a pause to arrival", delivery),
        line("  minus one commit", [quantile(delivery, 0.5) - delta_commit], target=Target(HANDLING_MS)),
    ]


HANDLING_MS = 1.0
"""Maximum time from the agent to the reader, in addition to the commit."""


PAGES = 6
"""Pages that a run of one delta changes, as counted in the server's write-ahead log."""
ROW_CHARS = 3000
"""Long enough that each row has its own page."""


class Probe:
    """Commits a number of pages to its own database on the same disk.

    Probes alternate with the runs, because the sync time of a disk varies threefold within seconds.
    """

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE log (n INTEGER PRIMARY KEY, payload TEXT)")
        self._connection.executemany("INSERT INTO log VALUES (?, '')", [(n,) for n in range(PAGES)])
        self._count = 0

    def commit(self, pages: int) -> float:
        """Commit once. Returns the duration in seconds."""
        self._count += 1
        row = f"{self._count:0{ROW_CHARS}}"  # different each time, because SQLite skips unchanged pages
        started = clock()
        self._connection.execute("UPDATE log SET payload = ? WHERE n < ?", (row, pages))
        return clock() - started

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


_COMMITS = re.compile(rb"^(dragoman\w*commits?(?:_total)?)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


async def commits_per_run(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Number of commits of a run, alone and together with 31 others, from the server's metrics."""
    text = emit(TURN_DELTAS, "abcd ")
    figures = []
    for streams in (1, CONNECTIONS):
        with Dragoman(workspace) as ours:
            client = ours.client
            sessions = await client.create("rehearsal", streams)
            connections = await client.connect(streams)
            [control] = await client.connect(1)
            before = await _commit_count(client, control)
            if before is None:
                return []
            burst = await load.saturate(client, connections, sessions, text, effort.burst_s)
            after = await _commit_count(client, control)
            invalid = await ours.verify(sessions)
        assert after is not None
        figures.append(
            Figure(
                row="commits_per_run",
                subject="dragoman",
                metric=f"commits per run, {streams} concurrent run{'s' if streams > 1 else ''}",
                unit="commits",
                value=spread([(after - before) / burst.turns]),
                invalid=invalid,
                note=f"{(after - before) / burst.seconds:,.0f} commits/s",
            )
        )
    return figures


async def _commit_count(client: Client, connection: Connection) -> float | None:
    metrics = wire.body(await connection.exchange(wire.request("GET", "/metrics", key=client.key)))
    counts = [float(value) for _, value in _COMMITS.findall(metrics)]
    return sum(counts) if counts else None
