"""Benchmarks of deltas: their cost, their lateness, and the number of streams that one core sustains."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec

from bench import load
from bench.baseline import Mode
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Connection, Paced, Session
from bench.stats import Spread, drift, lateness, quantile, spread
from bench.subjects import Baseline, Dragoman, Subject, Workspace
from bench.wire import Exchange

MODES: tuple[Mode, ...] = ("tick", "window", "each")
CONNECTIONS = 32
TURN_DELTAS = 200
PACED_MS = 20
CAPACITY_PERIOD_MS = 50
CAPACITY_TARGET_STREAMS = 900
CAPACITY_MAX_LATENESS_MS = 100
CAPACITY_MAX_STREAMS = 3000
LOAD_GENERATOR_LIMIT = 0.93
"""Share of its core above which the load generator may be the bottleneck."""


def script(*steps: dict[str, object]) -> str:
    """A user message with a script for the rehearsal agent and the baseline servers."""
    return msgspec.json.encode({"script": steps}).decode()


def emit(count: int, text: str, every_ms: float = 0) -> str:
    """A script of one `emit` step."""
    step: dict[str, object] = {"count": count, "text": text}
    if every_ms:
        step["every_ms"] = every_ms
    return script({"emit": step})


async def saturation(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits."""
    return await _bursts(workspace, effort, "saturation", "rehearsal", Target(2), "tick", Target(6.7))


async def yielding(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that yields to the event loop once per delta."""
    return await _bursts(workspace, effort, "yielding", "yielding", Target(4), "window", Target(2.7))


async def _bursts(
    workspace: Workspace, effort: Effort, row: str, agent: str, target: Target, best: Mode, ratio_target: Target
) -> list[Figure]:
    """Rounds of bursts on the baseline servers and on Dragoman in turn. `best` is the mode of the fastest baseline.

    The absolute targets were set on a machine where that baseline takes 0.3 µs and 1.5 µs; `ratio_target` is the
    equivalent for other machines.
    """
    text = emit(TURN_DELTAS, "abcd ")
    with ExitStack() as running:
        subjects: list[Subject] = [running.enter_context(Baseline(workspace, mode)) for mode in MODES]
        ours = running.enter_context(Dragoman(workspace))
        subjects.append(ours)
        connections = [await subject.client.connect(CONNECTIONS) for subject in subjects]
        sessions = [await subject.client.create(agent, CONNECTIONS) for subject in subjects]
        costs: list[list[float]] = [[] for _ in subjects]
        rates: list[list[float]] = [[] for _ in subjects]
        for number in range(effort.rounds + 1):
            for at, subject in enumerate(subjects):
                seconds = effort.burst_s if number else 0.3
                burst = await load.saturate(subject.client, connections[at], sessions[at], text, seconds)
                if number:  # the first round warms up
                    deltas = burst.turns * TURN_DELTAS
                    costs[at].append(burst.cpu_s / deltas * 1e6)
                    rates[at].append(deltas / burst.seconds)
        invalid = await ours.verify(sessions[-1])
    baselines = dict(zip(MODES, costs, strict=False))
    figures: list[Figure] = []
    for subject, cost, rate in zip(subjects, costs, rates, strict=True):
        is_ours = subject is ours
        figures.append(
            Figure(
                row=row,
                subject=subject.name,
                metric="server CPU per delta",
                unit="µs",
                value=spread(cost),
                ratios={mode: spread(_ratios(cost, baseline)) for mode, baseline in baselines.items()},
                target=target if is_ours else None,
                invalid=invalid if is_ours else "",
                note=f"{spread(rate).median:,.0f} deltas/s",
            )
        )
    ratio = Figure(
        row=row,
        subject=ours.name,
        metric=f"ratio to baseline {best}",
        unit="×",
        value=spread(_ratios(costs[-1], baselines[best])),
        target=ratio_target,
        invalid=invalid,
    )
    return [*figures, ratio]


def _ratios(costs: Sequence[float], baseline_costs: Sequence[float]) -> list[float]:
    """Ratios round by round, because the machine's speed varies between rounds."""
    return [cost / baseline for cost, baseline in zip(costs, baseline_costs, strict=True)]


async def paced_streams(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Lateness of 32 streams with one delta every 20 ms."""
    text = emit(effort.paced_deltas, "{i3} ", PACED_MS)
    figures: list[Figure] = []
    with ExitStack() as running:
        ours = running.enter_context(Dragoman(workspace))
        subjects: list[Subject] = [running.enter_context(Baseline(workspace, "window")), ours]
        sessions = [await subject.client.create("paced", CONNECTIONS) for subject in subjects]
        connections = [await subject.client.connect(CONNECTIONS) for subject in subjects]
        results: list[list[Paced]] = [[], []]
        await _pace_once(subjects, connections, sessions, emit(5, "{i3} ", PACED_MS))
        for _ in range(max(1, effort.rounds // 2)):
            for rounds, result in zip(results, await _pace_once(subjects, connections, sessions, text), strict=True):
                rounds.append(result)
        invalid = await ours.verify(sessions[-1])
    for subject, rounds in zip(subjects, results, strict=True):
        figures += _paced_figures("paced_streams", subject, rounds, PACED_MS / 1000, 5, invalid)
    return figures


async def _pace_once(
    subjects: Sequence[Subject],
    connections: Sequence[Sequence[Connection]],
    sessions: Sequence[Sequence[Session]],
    text: str,
) -> list[Paced]:
    return [
        await load.pace(subject.client, connection, session, text, spread_s=PACED_MS / 1000)
        for subject, connection, session in zip(subjects, connections, sessions, strict=True)
    ]


def _paced_figures(
    row: str, subject: Subject, rounds: Sequence[Paced], period_s: float, p99_ms: float, invalid: str
) -> list[Figure]:
    """Lateness and first delta of paced streams. Only Dragoman has targets."""
    is_ours = isinstance(subject, Dragoman)
    late = [[moment * 1e3 for stream in each.arrivals for moment in lateness(stream, period_s)] for each in rounds]
    first = [
        [(stream[0] - sent - period_s) * 1e3 for sent, stream in zip(each.sent, each.arrivals, strict=True)]
        for each in rounds
    ]
    drifts = [drift(stream, period_s) * 1e6 for each in rounds for stream in each.arrivals]
    cpu = spread([each.cpu_s / each.seconds for each in rounds]).median
    lines: list[tuple[str, Spread, Target | None, str]] = [
        ("lateness p50", spread([quantile(each, 0.5) for each in late]), None, ""),
        ("lateness p99", spread([quantile(each, 0.99) for each in late]), Target(p99_ms), f"{cpu:.0%} of a core"),
        (
            "lateness max",
            spread([max(each) for each in late]),
            None,
            f"drift {spread(drifts).median:.0f} µs per delta",
        ),
        ("delay of the first delta p50", spread([quantile(each, 0.5) for each in first]), None, ""),
        ("delay of the first delta p99", spread([quantile(each, 0.99) for each in first]), None, ""),
    ]
    return [
        Figure(
            row=row,
            subject=subject.name,
            metric=metric,
            unit="ms",
            value=value,
            target=target if is_ours else None,
            invalid=invalid if is_ours else "",
            note=note,
        )
        for metric, value, target, note in lines
    ]


async def noisy_neighbor(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Lateness of 32 paced streams while one agent emits without ever yielding to the event loop."""
    text = emit(effort.paced_deltas, "{i3} ", PACED_MS)
    endless = emit(200_000, "abcd ")
    with Dragoman(workspace) as ours:
        client = ours.client
        sessions = await client.create("paced", CONNECTIONS)
        connections = await client.connect(CONNECTIONS)
        [neighbor] = await client.create("rehearsal", 1)
        [control] = await client.connect(1)
        exchanges: list[Exchange] = []
        over = asyncio.Event()

        async def never_yield() -> None:
            while not over.is_set():
                exchanges.append(await control.exchange(client.turn(neighbor, endless)))

        noise = asyncio.create_task(never_yield())
        rounds = [
            await load.pace(client, connections, sessions, text, spread_s=PACED_MS / 1000)
            for _ in range(max(1, effort.rounds // 2))
        ]
        over.set()
        await noise
        for exchange in exchanges:
            client.record_turn(neighbor, endless, exchange)
        invalid = await ours.verify([*sessions, neighbor])
        rate = len(exchanges) * 200_000 / sum(each.seconds for each in rounds)
        figures = _paced_figures("noisy_neighbor", ours, rounds, PACED_MS / 1000, 25, invalid)
    throughput = Figure(
        row="noisy_neighbor",
        subject="dragoman",
        metric="throughput of the non-yielding agent",
        unit="deltas/s",
        value=spread([rate]),
    )
    return [*figures, throughput]


class CapacityResult(msgspec.Struct, frozen=True):
    """The result of running a number of paced streams."""

    streams: int
    p99_ms: float
    server_share: float
    load_share: float
    invalid: str = ""

    @property
    def is_sustained(self) -> bool:
        """Whether the p99 lateness is below `CAPACITY_MAX_LATENESS_MS`."""
        return self.p99_ms < CAPACITY_MAX_LATENESS_MS and not self.invalid


async def sustained_streams(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Streams of 20 deltas/s on one core with p99 lateness under 100 ms: lateness with 900, and the maximum number."""
    result = await measure_capacity(workspace, "dragoman", CAPACITY_TARGET_STREAMS, effort.capacity_s)
    figures = [
        Figure(
            row="sustained_streams",
            subject="dragoman",
            metric=f"lateness p99 with {CAPACITY_TARGET_STREAMS} streams",
            unit="ms",
            value=spread([result.p99_ms]),
            target=Target(CAPACITY_MAX_LATENESS_MS),
            invalid=result.invalid,
            note=f"server {result.server_share:.0%} of its core, load generator {result.load_share:.0%}",
        )
    ]
    if effort.searches_capacity:
        best, first_failure = await _search_capacity(workspace, "dragoman", result, effort.capacity_s)
        baseline, _ = await _search_capacity(
            workspace,
            "window",
            await measure_capacity(workspace, "window", 1500, effort.capacity_s),
            effort.capacity_s,
        )
        ratio = {"window": spread([best.streams / max(1, baseline.streams)])}
        failure = (
            f"fails at {first_failure.streams} with {first_failure.p99_ms:.0f} ms"
            if first_failure
            else "upper bound of the search"
        )
        bottleneck = best.invalid or (
            f"load generator at {best.load_share:.0%}" if best.load_share > LOAD_GENERATOR_LIMIT else ""
        )
        figures += [
            Figure(
                row="sustained_streams",
                subject="baseline window",
                metric="sustained streams",
                unit="streams",
                value=spread([baseline.streams]),
            ),
            Figure(
                row="sustained_streams",
                subject="dragoman",
                metric="sustained streams",
                unit="streams",
                value=spread([best.streams]),
                ratios=ratio,
                target=Target(CAPACITY_TARGET_STREAMS, at_least=True),
                note="; ".join(filter(None, [failure, bottleneck])),
            ),
        ]
    return figures


async def _search_capacity(
    workspace: Workspace, name: str, first: CapacityResult, seconds: float
) -> tuple[CapacityResult, CapacityResult | None]:
    """The largest number that is sustained and the smallest that is not, to about 6 %.

    The number first grows by a quarter each time; then the interval is halved.
    """
    best = first if first.is_sustained else CapacityResult(0, 0, 0, 0)
    failed = None if first.is_sustained else first
    while failed is None and best.streams < CAPACITY_MAX_STREAMS:
        next_one = await _measure_with_retry(workspace, name, min(CAPACITY_MAX_STREAMS, best.streams * 5 // 4), seconds)
        best, failed = (next_one, None) if next_one.is_sustained else (best, next_one)
    while failed is not None and failed.streams - best.streams > max(25, best.streams // 16):
        next_one = await _measure_with_retry(workspace, name, (failed.streams + best.streams) // 2, seconds)
        best, failed = (next_one, failed) if next_one.is_sustained else (best, next_one)
    return best, failed


async def _measure_with_retry(workspace: Workspace, name: str, streams: int, seconds: float) -> CapacityResult:
    """Measure a number of streams, and repeat a failed measurement once, because other programs may have interfered."""
    result = await measure_capacity(workspace, name, streams, seconds)
    return result if result.is_sustained else await measure_capacity(workspace, name, streams, seconds)


async def measure_capacity(workspace: Workspace, name: str, streams: int, seconds: float) -> CapacityResult:
    """Run a number of streams on a fresh server, with their starts spread over two seconds."""
    count = round(seconds * 1000 / CAPACITY_PERIOD_MS) + 40
    invalid = ""
    subject: Subject = Dragoman(workspace) if name == "dragoman" else Baseline(workspace, "window")
    with subject:
        sessions = await subject.client.create("paced", streams)
        connections = await subject.client.connect(streams)
        result = await load.pace(
            subject.client, connections, sessions, emit(count, "{i3} ", CAPACITY_PERIOD_MS), spread_s=2
        )
        load.close(connections)
        if isinstance(subject, Dragoman):
            invalid = await subject.verify(sessions)
    late = [moment * 1e3 for stream in result.arrivals for moment in lateness(stream, CAPACITY_PERIOD_MS / 1000)]
    return CapacityResult(
        streams, quantile(late, 0.99), result.cpu_s / result.seconds, result.load_cpu_s / result.seconds, invalid
    )
