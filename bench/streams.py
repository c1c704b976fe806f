"""The rows about deltas: what one costs, how late it comes, and how many streams a core holds."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec

from bench import load
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.limits import Mode
from bench.load import Connection, Paced, Session
from bench.stats import Spread, drift, lateness, quantile, spread
from bench.subjects import Dragoman, Limit, Subject, Workspace
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
"""Share of its core above which the load generator is taken for the bottleneck."""


def script(*steps: dict[str, object]) -> str:
    """A user text that makes the rehearsal agent (and the limit servers) play steps."""
    return msgspec.json.encode({"script": steps}).decode()


def emit(count: int, text: str, every_ms: float = 0) -> str:
    """A script of one `emit` step."""
    step: dict[str, object] = {"count": count, "text": text}
    if every_ms:
        step["every_ms"] = every_ms
    return script({"emit": step})


async def saturation(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU for each delta that an agent emits without ever waiting."""
    return await _bursts(workspace, effort, "sat", "rehearsal", Target(2), "tick", Target(6.7))


async def tick(workspace: Workspace, effort: Effort) -> list[Figure]:
    """The same with an agent that gives way to the loop once for each delta."""
    return await _bursts(workspace, effort, "tick", "tick", Target(4), "window", Target(2.7))


async def _bursts(
    workspace: Workspace, effort: Effort, row: str, agent: str, target: Target, best: Mode, best_target: Target
) -> list[Figure]:
    """Rounds of bursts on the limit servers and on Dragoman in turn. `best` is the limit that matters here.

    The targets in microseconds were set where that limit took 0.3 and 1.5 of them; `over_best` is the same demand on
    any machine.
    """
    text = emit(TURN_DELTAS, "abcd ")
    with ExitStack() as running:
        subjects: list[Subject] = [running.enter_context(Limit(workspace, mode)) for mode in MODES]
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
        void = await ours.verify(sessions[-1])
    limits = dict(zip(MODES, costs, strict=False))
    found: list[Figure] = []
    for subject, cost, rate in zip(subjects, costs, rates, strict=True):
        mine = subject is ours
        found.append(
            Figure(
                row=row,
                subject=subject.name,
                what="server CPU per delta",
                unit="µs",
                value=spread(cost),
                ratios={mode: spread(_ratios(cost, limit)) for mode, limit in limits.items()},
                target=target if mine else None,
                void=void if mine else "",
                note=f"{spread(rate).median:,.0f} deltas/s",
            )
        )
    over = spread(_ratios(costs[-1], limits[best]))
    what = f"the same over limit {best}"
    return [*found, Figure(row=row, subject=ours.name, what=what, unit="×", value=over, target=best_target, void=void)]


def _ratios(costs: Sequence[float], limits: Sequence[float]) -> list[float]:
    """Round by round, because the machine's speed changes between rounds."""
    return [cost / limit for cost, limit in zip(costs, limits, strict=True)]


async def paced(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Lateness of 32 streams of a delta each 20 ms."""
    text = emit(effort.paced_deltas, "{i3} ", PACED_MS)
    found: list[Figure] = []
    with ExitStack() as running:
        ours = running.enter_context(Dragoman(workspace))
        subjects: list[Subject] = [running.enter_context(Limit(workspace, "window")), ours]
        sessions = [await subject.client.create("paced", CONNECTIONS) for subject in subjects]
        connections = [await subject.client.connect(CONNECTIONS) for subject in subjects]
        seen: list[list[Paced]] = [[], []]
        await _pace_once(subjects, connections, sessions, emit(5, "{i3} ", PACED_MS))
        for _ in range(max(1, effort.rounds // 2)):
            for rounds, result in zip(seen, await _pace_once(subjects, connections, sessions, text), strict=True):
                rounds.append(result)
        void = await ours.verify(sessions[-1])
    for subject, rounds in zip(subjects, seen, strict=True):
        found += _paced_figures("paced", subject, rounds, PACED_MS / 1000, 5, void)
    return found


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
    row: str, subject: Subject, rounds: Sequence[Paced], period_s: float, p99_ms: float, void: str
) -> list[Figure]:
    """Lateness and first delta of paced streams; only Dragoman has targets."""
    mine = isinstance(subject, Dragoman)
    late = [[moment * 1e3 for stream in each.arrivals for moment in lateness(stream, period_s)] for each in rounds]
    first = [
        [(stream[0] - sent - period_s) * 1e3 for sent, stream in zip(each.sent, each.arrivals, strict=True)]
        for each in rounds
    ]
    slower = [drift(stream, period_s) * 1e6 for each in rounds for stream in each.arrivals]
    cpu = spread([each.cpu_s / each.seconds for each in rounds]).median
    lines: list[tuple[str, Spread, Target | None, str]] = [
        ("lateness p50", spread([quantile(each, 0.5) for each in late]), None, ""),
        ("lateness p99", spread([quantile(each, 0.99) for each in late]), Target(p99_ms), f"{cpu:.0%} of a core"),
        (
            "lateness max",
            spread([max(each) for each in late]),
            None,
            f"drift {spread(slower).median:.0f} µs a delta",
        ),
        ("first delta after its time p50", spread([quantile(each, 0.5) for each in first]), None, ""),
        ("first delta after its time p99", spread([quantile(each, 0.99) for each in first]), None, ""),
    ]
    return [
        Figure(
            row=row,
            subject=subject.name,
            what=what,
            unit="ms",
            value=value,
            target=target if mine else None,
            void=void if mine else "",
            note=note,
        )
        for what, value, target, note in lines
    ]


async def greedy(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Lateness of 32 paced streams while one agent emits without ever giving way."""
    text = emit(effort.paced_deltas, "{i3} ", PACED_MS)
    endless = emit(200_000, "abcd ")
    with Dragoman(workspace) as ours:
        client = ours.client
        sessions = await client.create("paced", CONNECTIONS)
        connections = await client.connect(CONNECTIONS)
        [neighbour] = await client.create("rehearsal", 1)
        [door] = await client.connect(1)
        exchanges: list[Exchange] = []
        over = asyncio.Event()

        async def never_yield() -> None:
            while not over.is_set():
                exchanges.append(await door.exchange(client.turn(neighbour, endless)))

        hog = asyncio.create_task(never_yield())
        rounds = [
            await load.pace(client, connections, sessions, text, spread_s=PACED_MS / 1000)
            for _ in range(max(1, effort.rounds // 2))
        ]
        over.set()
        await hog
        for exchange in exchanges:
            client.record_turn(neighbour, endless, exchange)
        void = await ours.verify([*sessions, neighbour])
        share = len(exchanges) * 200_000 / sum(each.seconds for each in rounds)
        found = _paced_figures("greedy", ours, rounds, PACED_MS / 1000, 25, void)
    return [*found, _greedy_rate(share)]


def _greedy_rate(rate: float) -> Figure:
    return Figure(
        row="greedy", subject="dragoman", what="the greedy agent meanwhile", unit="deltas/s", value=spread([rate])
    )


class CapacityResult(msgspec.Struct, frozen=True):
    """Whether a number of streams was held."""

    streams: int
    p99_ms: float
    server_share: float
    load_share: float
    void: str = ""

    @property
    def is_sustained(self) -> bool:
        """Late for at most `HOLD_LATE_MS` at the 99th percentile."""
        return self.p99_ms < CAPACITY_MAX_LATENESS_MS and not self.void


async def capacity(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Streams of 20 deltas/s on one core with p99 lateness under 100 ms: 900, and the greatest number."""
    check = [await _measure_capacity(workspace, "dragoman", CAPACITY_TARGET_STREAMS, effort.capacity_s)]
    found = [_capacity_figure("dragoman", f"lateness p99 with {CAPACITY_TARGET_STREAMS} streams", check[0])]
    if effort.searches_capacity:
        best, first_failure = await _search_capacity(workspace, "dragoman", check[0], effort.capacity_s)
        limit, _ = await _search_capacity(
            workspace,
            "window",
            await _measure_capacity(workspace, "window", 1500, effort.capacity_s),
            effort.capacity_s,
        )
        ratio = {"window": spread([best.streams / max(1, limit.streams)])}
        fails = (
            f"fails at {first_failure.streams} with {first_failure.p99_ms:.0f} ms"
            if first_failure
            else "not searched further"
        )
        bound = best.void or (
            f"load generator at {best.load_share:.0%}" if best.load_share > LOAD_GENERATOR_LIMIT else ""
        )
        found += [
            Figure(
                row="hold", subject="limit window", what="streams held", unit="streams", value=spread([limit.streams])
            ),
            Figure(
                row="hold",
                subject="dragoman",
                what="streams held",
                unit="streams",
                value=spread([best.streams]),
                ratios=ratio,
                target=Target(CAPACITY_TARGET_STREAMS, at_least=True),
                note="; ".join(filter(None, [fails, bound])),
            ),
        ]
    return found


def _capacity_figure(subject: str, what: str, result: CapacityResult) -> Figure:
    return Figure(
        row="hold",
        subject=subject,
        what=what,
        unit="ms",
        value=spread([result.p99_ms]),
        target=Target(CAPACITY_MAX_LATENESS_MS),
        void=result.void,
        note=f"server {result.server_share:.0%} of its core, load generator {result.load_share:.0%}",
    )


async def _search_capacity(
    workspace: Workspace, name: str, first: CapacityResult, seconds: float
) -> tuple[CapacityResult, CapacityResult | None]:
    """The greatest number held and the least one not held, to about 6 %: out by a quarter, then by halves."""
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
    """Try a number of streams, and once more if it failed: the machine may have been busy with something else."""
    tried = await _measure_capacity(workspace, name, streams, seconds)
    return tried if tried.is_sustained else await _measure_capacity(workspace, name, streams, seconds)


async def _measure_capacity(workspace: Workspace, name: str, streams: int, seconds: float) -> CapacityResult:
    """Run a number of streams, begun over two seconds, on a fresh server."""
    count = round(seconds * 1000 / CAPACITY_PERIOD_MS) + 40
    void = ""
    subject: Subject = Dragoman(workspace) if name == "dragoman" else Limit(workspace, "window")
    with subject:
        sessions = await subject.client.create("paced", streams)
        connections = await subject.client.connect(streams)
        result = await load.pace(
            subject.client, connections, sessions, emit(count, "{i3} ", CAPACITY_PERIOD_MS), spread_s=2
        )
        load.close(connections)
        if isinstance(subject, Dragoman):
            void = await subject.verify(sessions)
    late = [moment * 1e3 for stream in result.arrivals for moment in lateness(stream, CAPACITY_PERIOD_MS / 1000)]
    return CapacityResult(
        streams, quantile(late, 0.99), result.cpu_s / result.seconds, result.load_cpu_s / result.seconds, void
    )
