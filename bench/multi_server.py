"""Benchmarks of several servers on one PostgreSQL: streams that are read on another server, takeover, and scaling.

Servers, PostgreSQL, NATS and the load generator share all cores of the machine. Each delta is the time at which the
agent emitted it, on a clock that all processes share, so that latency is measured from agent to reader.
"""

import asyncio
import signal
from collections.abc import Sequence
from functools import partial

import msgspec
import psycopg

from bench import load, wire
from bench.cluster import Cluster
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Connection, Session, clock
from bench.stats import Spread, lateness, quantile, spread
from bench.streams import emit
from bench.subjects import Baseline, Workspace
from bench.wire import Exchange

STREAMS = 500
PERIOD_MS = 50
MAX_LATENCY_MS = 100
COMMIT_PIECES = 100
"""Pieces in the commit used for comparison: what 500 streams write in 10 ms."""
ORPHAN_SESSIONS = 20
ORPHAN_DELTAS = 80
"""Deltas of a run that is interrupted after one second and then resumed."""
IN_FLIGHT_WINDOW_S = 1.0
"""Deltas that arrive within this time were emitted before the server died."""
LEASE_S = 10
"""The default of the setting `lease_s`."""
STREAMS_PER_SERVER = 250
"""Streams of each server in the row `scaling`."""
MIN_SPEEDUP = 1.7
SPREAD_S = 2.0
"""Time over which the starts of all streams are spread, as in `sustained_streams`."""
_LAST_CHUNK = b"0\r\n\r\n"


class FollowConnection(Connection):
    """A connection that follows a session's endless event stream until a turn ends."""

    def _is_complete(self, data: bytes) -> bool:
        return b"event: turn_stop" in (data if len(data) > 100 else b"".join(self.parts[-5:]))

    def received(self) -> Exchange:
        """What has arrived, terminated as if the stream had ended with the turn."""
        return Exchange(self.sent, [*self.times, clock()], [*self.parts, _LAST_CHUNK])


async def cross_server(workspace: Workspace, effort: Effort) -> list[Figure]:
    """500 streams of 20 deltas/s that run on one server and are read on another, with and without NATS."""
    count = round(effort.capacity_s * 1000 / PERIOD_MS) + 40
    figures = [await _single_process_figure(workspace, count)]
    for with_nats in (True, False):
        with Cluster(workspace, 2, with_nats=with_nats) as cluster:
            commits = await _commit_times_ms(cluster, effort.commits)
            sessions = await cluster.clients[0].create("timestamped", STREAMS)
            result = await _measure_on_peer(cluster, [(0, 1, sessions)], count)
            invalid = await cluster.verify(1, sessions)
        variant = "with NATS" if with_nats else "without NATS"
        if with_nats:
            figures.append(
                _figure("cross_server", "probe", f"commit of {COMMIT_PIECES} pieces (PostgreSQL)", spread(commits))
            )
        figures += [
            _figure(
                "cross_server",
                "dragoman",
                f"latency p50, {variant}",
                _single_value(result.latency_quantile(0.5)),
                invalid=invalid,
            ),
            _figure(
                "cross_server",
                "dragoman",
                f"latency p99, {variant}",
                _single_value(result.latency_quantile(0.99)),
                target=Target(MAX_LATENCY_MS),
                invalid=invalid,
                note=f"{result.rate:,.0f} deltas/s, max {result.latency_quantile(1):.0f} ms",
            ),
            _figure(
                "cross_server",
                "dragoman",
                f"CPU per delta, all processes, {variant}",
                _single_value(sum(result.cpu_us.values())),
                unit="µs",
                invalid=invalid,
                note=result.cost_summary(),
            ),
        ]
    return figures


async def takeover(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Time from a server's death until another server owns its sessions, and until all runs emit deltas there."""
    text = emit(ORPHAN_DELTAS, "{i3} ", PERIOD_MS)
    claim_times: list[float] = []
    resume_times: list[float] = []
    invalid = ""
    with (
        Cluster(workspace, 2, with_nats=True) as cluster,
        psycopg.connect(cluster.database, autocommit=True) as database,
    ):
        for number in range(min(3, effort.rounds)):
            victim, survivor = number % 2, 1 - number % 2
            sessions = await cluster.clients[victim].create("paced", ORPHAN_SESSIONS)
            followers = await _follow(cluster.clients[survivor], sessions)
            await _start_turns(cluster.clients[victim], sessions, text, spread_s=0.5)
            await asyncio.sleep(1)  # let all runs emit their first deltas
            before = cluster.owners(database, sessions)
            begin = clock()
            cluster.servers[victim].stop(signal.SIGKILL)
            async with asyncio.timeout(3 * LEASE_S):
                while cluster.owners(database, sessions) & before:  # noqa: ASYNC110  # the database does not notify
                    await asyncio.sleep(0.01)
            claim_times.append(clock() - begin)
            longest = 0.0
            for connection, session in zip(followers, sessions, strict=True):
                await connection.done
                stream = wire.events(connection.received())
                resumed_at = min(at for _, at in wire.deltas(stream) if at > begin + IN_FLIGHT_WINDOW_S)
                longest = max(longest, resumed_at - begin)
                session.turns.append((text, wire.text(stream)))
            resume_times.append(longest)
            load.close(followers)
            invalid = invalid or await cluster.verify(survivor, sessions)
            cluster.start(victim)
    return [
        _figure(
            "takeover",
            "dragoman",
            "server death to takeover of its sessions",
            spread(claim_times),
            unit="s",
            target=Target(LEASE_S + 1, note="(lease + 1 s)"),
            invalid=invalid,
        ),
        _figure(
            "takeover",
            "dragoman",
            "server death to new deltas of all its runs",
            spread(resume_times),
            unit="s",
            invalid=invalid,
        ),
    ]


async def scaling(workspace: Workspace, effort: Effort) -> list[Figure]:
    """The same load per server on one and on two servers. The CPU per delta shows what a second server adds."""
    count = round(effort.capacity_s * 1000 / PERIOD_MS) + 40
    results: list[CrossServerResult] = []
    invalid = ""
    for servers in (1, 2):
        with Cluster(workspace, servers, with_nats=True) as cluster:
            shares = [
                (at, at, await cluster.clients[at].create("timestamped", STREAMS_PER_SERVER)) for at in range(servers)
            ]
            results.append(await _measure_on_peer(cluster, shares, count))
            for at, _, sessions in shares:
                invalid = invalid or await cluster.verify(at, sessions)
    one, two = results
    figures = [
        _figure(
            "scaling",
            "dragoman",
            f"CPU per delta, {servers} server{'s' if servers > 1 else ''}, {STREAMS_PER_SERVER} streams each",
            _single_value(each.servers_us),
            unit="µs",
            invalid=invalid,
            note=f"{each.rate:,.0f} deltas/s, p99 {each.latency_quantile(0.99):.0f} ms, {each.cost_summary()}",
        )
        for servers, each in zip((1, 2), results, strict=True)
    ]
    return [
        *figures,
        _figure(
            "scaling",
            "dragoman",
            "capacity of two servers with a core each, relative to one",
            _single_value(2 * one.servers_us / two.servers_us),
            unit="×",
            target=Target(MIN_SPEEDUP, at_least=True),
            invalid=invalid,
            note="from the CPU time of the servers, without PostgreSQL",
        ),
    ]


# --- measuring --------------------------------------------------------------------------------------------------------


class CrossServerResult(msgspec.Struct, frozen=True):
    """The latency of each delta in ms, the CPU time per delta of each process in µs, and the deltas per second."""

    latency_ms: list[float]
    cpu_us: dict[str, float]
    rate: float

    def latency_quantile(self, share: float) -> float:
        """The latency that `share` of the deltas did not exceed, in ms."""
        return quantile(self.latency_ms, share)

    @property
    def servers_us(self) -> float:
        """The CPU time per delta of the servers alone."""
        return sum(cost for name, cost in self.cpu_us.items() if name.startswith("server"))

    def cost_summary(self) -> str:
        """The CPU time of each process as text."""
        return ", ".join(f"{name} {cost:.0f} µs" for name, cost in self.cpu_us.items())


async def _measure_on_peer(
    cluster: Cluster, assignments: Sequence[tuple[int, int, Sequence[Session]]], count: int
) -> CrossServerResult:
    """Run a turn of `count` deltas on all sessions.

    Args:
        cluster: the servers.
        assignments: the number of the server that runs the turns, that of the server that is read, and the sessions.
        count: deltas of each turn.
    """
    text = emit(count, "", PERIOD_MS)
    followers = [await _follow(cluster.clients[reader], sessions) for _, reader, sessions in assignments]
    await asyncio.sleep(0.5)
    before, begin = cluster.cpu_s(), clock()
    async with asyncio.TaskGroup() as group:
        for runner, _, sessions in assignments:
            group.create_task(_start_turns(cluster.clients[runner], sessions, text, spread_s=SPREAD_S))
    for connection in (connection for each in followers for connection in each):
        await connection.done
    seconds, after = clock() - begin, cluster.cpu_s()
    latencies: list[float] = []
    for (_, reader, sessions), connections in zip(assignments, followers, strict=True):
        for session, connection in zip(sessions, connections, strict=True):
            deltas = cluster.clients[reader].record_turn(session, text, connection.received())
            latencies += [(at - float(emitted_at)) * 1e3 for delta, at in deltas for emitted_at in delta.split()]
    for connections in followers:
        load.close(connections)
    return CrossServerResult(
        latencies,
        {name: (after[name] - before[name]) / len(latencies) * 1e6 for name in after},
        len(latencies) / (seconds - SPREAD_S),
    )


async def _follow(client: Client, sessions: Sequence[Session]) -> list[Connection]:
    """Follow each session from now on, over its own connection."""
    connections = await client.connect(len(sessions), FollowConnection)
    for connection, session in zip(connections, sessions, strict=True):
        connection.begin(client.request("GET", f"/sessions/{session.id}/events"))
        await connection.response_started
    return connections


async def _start_turns(client: Client, sessions: Sequence[Session], text: str, *, spread_s: float) -> None:
    """Start a turn on each session and disconnect. The turns continue, and are read by the followers."""
    connections = await client.connect(len(sessions))
    begin = clock()
    for index, (connection, session) in enumerate(zip(connections, sessions, strict=True)):
        if (wait := begin + index * spread_s / len(sessions) - clock()) > 0:
            await asyncio.sleep(wait)
        connection.begin(client.turn(session, text))
        connection.response_started.add_done_callback(partial(_disconnect, connection))
    for connection in connections:
        await connection.response_started


def _disconnect(connection: Connection, _: object) -> None:
    connection.close()


# --- comparison -------------------------------------------------------------------------------------------------------


async def _single_process_figure(workspace: Workspace, count: int) -> Figure:
    """The same streams from one process that stores nothing."""
    with Baseline(workspace, "window") as baseline:
        sessions = await baseline.client.create("paced", STREAMS)
        connections = await baseline.client.connect(STREAMS)
        result = await load.pace(
            baseline.client, connections, sessions, emit(count, "{i3} ", PERIOD_MS), spread_s=SPREAD_S
        )
        load.close(connections)
    late = [moment * 1e3 for stream in result.arrivals for moment in lateness(stream, PERIOD_MS / 1000)]
    note = f"{result.cpu_s / len(late) * 1e6:.0f} µs CPU per delta"
    return _figure(
        "cross_server", baseline.name, "lateness p99, one process", _single_value(quantile(late, 0.99)), note=note
    )


async def _commit_times_ms(cluster: Cluster, count: int) -> list[float]:
    """Duration in ms of single commits of as many pieces as a busy server writes together."""
    durations: list[float] = []
    with psycopg.connect(cluster.database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE probe (session_id text, place bigint, text bytea, PRIMARY KEY (session_id, place))"
        )
        for number in range(count):
            await asyncio.sleep(0.01)
            started = clock()
            connection.execute(
                "INSERT INTO probe SELECT 'session ' || n, %s, '1234567.890123 ' FROM generate_series(1, %s) AS n",
                (number, COMMIT_PIECES),
            )
            durations.append((clock() - started) * 1e3)
        connection.execute("DROP TABLE probe")
    return durations


def _single_value(value: float) -> Spread:
    return Spread(value, value, value)


def _figure(
    row: str,
    subject: str,
    metric: str,
    value: Spread,
    *,
    unit: str = "ms",
    target: Target | None = None,
    invalid: str = "",
    note: str = "",
) -> Figure:
    return Figure(
        row=row, subject=subject, metric=metric, unit=unit, value=value, target=target, invalid=invalid, note=note
    )
