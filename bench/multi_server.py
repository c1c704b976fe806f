"""The rows about several servers on one PostgreSQL: how late one server's words come at another, what they cost there,
how soon a dead server's sessions are another's, and what a second server adds.

Servers, PostgreSQL, NATS and the load generator share all cores of the machine. Agents say the moment at which they
speak, on the clock that all processes share, so that lateness is from the agent's mouth to the reader's socket.
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
from bench.subjects import Limit, Workspace
from bench.wire import Exchange

STREAMS = 500
PERIOD_MS = 50
MAX_LATENESS_MS = 100
COMMIT_PIECES = 100
"""Pieces in the commit that the rows are compared with: what 500 streams have to write in 10 ms."""
ORPHAN_SESSIONS = 20
ORPHAN_DELTAS = 80
"""Deltas of a run that is cut off after a second, and begun again."""
IN_FLIGHT_WINDOW_S = 1.0
"""What comes in this time was said before the death."""
LEASE_S = 10
"""What `lease_s` is by default."""
STREAMS_PER_SERVER = 250
"""Streams of each server in `nodes`."""
MIN_SPEEDUP = 1.7
SPREAD_S = 2.0
"""In which all streams begin, as in `hold`."""
_LAST_CHUNK = b"0\r\n\r\n"


class FollowConnection(Connection):
    """A connection that watches a session, which has no end, until a turn has ended."""

    def _is_complete(self, data: bytes) -> bool:
        return b"event: turn_stop" in (data if len(data) > 100 else b"".join(self.parts[-5:]))

    def received(self) -> Exchange:
        """What has arrived, as if the stream had ended with the turn."""
        return Exchange(self.sent, [*self.times, clock()], [*self.parts, _LAST_CHUNK])


async def cross_server(workspace: Workspace, effort: Effort) -> list[Figure]:
    """500 streams of 20 deltas/s, played by one server and read at another, over NATS and without."""
    count = round(effort.capacity_s * 1000 / PERIOD_MS) + 40
    found = [await _single_process_figure(workspace, count)]
    for with_nats in (True, False):
        with Cluster(workspace, 2, with_nats=with_nats) as cluster:
            commits = await _commit_times_ms(cluster, effort.commits)
            sessions = await cluster.clients[0].create("stamped", STREAMS)
            seen = await _measure_on_peer(cluster, [(0, 1, sessions)], count)
            void = await cluster.verify(1, sessions)
        way = "over NATS" if with_nats else "without NATS"
        if with_nats:
            found.append(
                _figure("across", "probe", f"one commit of {COMMIT_PIECES} pieces (PostgreSQL)", spread(commits))
            )
        found += [
            _figure(
                "across",
                "dragoman",
                f"said here, read there p50, {way}",
                _single_value(seen.lateness_quantile(0.5)),
                void=void,
            ),
            _figure(
                "across",
                "dragoman",
                f"said here, read there p99, {way}",
                _single_value(seen.lateness_quantile(0.99)),
                target=Target(MAX_LATENESS_MS),
                void=void,
                note=f"{seen.rate:,.0f} deltas/s, max {seen.lateness_quantile(1):.0f} ms",
            ),
            _figure(
                "across",
                "dragoman",
                f"CPU per delta of all processes, {way}",
                _single_value(sum(seen.cpu_us.values())),
                unit="µs",
                void=void,
                note=seen.cost_summary(),
            ),
        ]
    return found


async def takeover(workspace: Workspace, effort: Effort) -> list[Figure]:
    """How long after a server's death another one has its sessions, and readers there hear of all their runs again."""
    text = emit(ORPHAN_DELTAS, "{i3} ", PERIOD_MS)
    claimed: list[float] = []
    told: list[float] = []
    void = ""
    with (
        Cluster(workspace, 2, with_nats=True) as cluster,
        psycopg.connect(cluster.database, autocommit=True) as database,
    ):
        for number in range(min(3, effort.rounds)):
            dies, lives = number % 2, 1 - number % 2
            sessions = await cluster.clients[dies].create("paced", ORPHAN_SESSIONS)
            watching = await _follow(cluster.clients[lives], sessions)
            await _start_turns(cluster.clients[dies], sessions, text, spread_s=0.5)
            await asyncio.sleep(1)  # all runs have begun to speak
            before = cluster.owners(database, sessions)
            begin = clock()
            cluster.servers[dies].stop(signal.SIGKILL)
            async with asyncio.timeout(3 * LEASE_S):
                while cluster.owners(database, sessions) & before:  # noqa: ASYNC110  # the database tells nobody
                    await asyncio.sleep(0.01)
            claimed.append(clock() - begin)
            silent = 0.0
            for connection, session in zip(watching, sessions, strict=True):
                await connection.done
                stream = wire.events(connection.received())
                silent = max(
                    silent, min(at for _, at in wire.deltas(stream) if at > begin + IN_FLIGHT_WINDOW_S) - begin
                )
                session.turns.append((text, wire.text(stream)))
            told.append(silent)
            load.close(watching)
            void = void or await cluster.verify(lives, sessions)
            cluster.start(dies)
    return [
        _figure(
            "takeover",
            "dragoman",
            "death of a server to its sessions being another's",
            spread(claimed),
            unit="s",
            target=Target(LEASE_S + 1, note="(lease + 1 s)"),
            void=void,
        ),
        _figure(
            "takeover", "dragoman", "  to words of all their runs at readers there", spread(told), unit="s", void=void
        ),
    ]


async def scaling(workspace: Workspace, effort: Effort) -> list[Figure]:
    """The same load for each of one and of two servers: what a delta costs them, and so what a second one adds."""
    count = round(effort.capacity_s * 1000 / PERIOD_MS) + 40
    seen: list[CrossServerResult] = []
    void = ""
    for servers in (1, 2):
        with Cluster(workspace, servers, with_nats=True) as cluster:
            shares = [
                (at, at, await cluster.clients[at].create("stamped", STREAMS_PER_SERVER)) for at in range(servers)
            ]
            seen.append(await _measure_on_peer(cluster, shares, count))
            for at, _, sessions in shares:
                void = void or await cluster.verify(at, sessions)
    one, two = seen
    found = []
    for servers, each in zip((1, 2), seen, strict=True):
        found.append(
            _figure(
                "nodes",
                "dragoman",
                f"CPU per delta of {servers} server{'s' if servers > 1 else ''} with {STREAMS_PER_SERVER} streams each",
                _single_value(each.servers_us),
                unit="µs",
                void=void,
                note=f"{each.rate:,.0f} deltas/s, p99 {each.lateness_quantile(0.99):.0f} ms, {each.cost_summary()}",
            )
        )
    more = 2 * one.servers_us / two.servers_us
    return [
        *found,
        _figure(
            "nodes",
            "dragoman",
            "what two servers carry with a core each, over one",
            _single_value(more),
            unit="×",
            target=Target(MIN_SPEEDUP, at_least=True),
            void=void,
            note="from the CPU of the servers; PostgreSQL has its own",
        ),
    ]


# --- what is measured -------------------------------------------------------------------------------------------------


class CrossServerResult(msgspec.Struct, frozen=True):
    """What readers saw: how late, in ms, each delta came; and what a delta cost each part, in µs."""

    lateness_ms: list[float]
    cpu_us: dict[str, float]
    rate: float

    def lateness_quantile(self, share: float) -> float:
        """The lateness that `share` of the deltas did not exceed, in ms."""
        return quantile(self.lateness_ms, share)

    @property
    def servers_us(self) -> float:
        """The CPU of a delta in the servers alone."""
        return sum(cost for name, cost in self.cpu_us.items() if name.startswith("node"))

    def cost_summary(self) -> str:
        """The costs by their parts."""
        return ", ".join(f"{name} {cost:.0f} µs" for name, cost in self.cpu_us.items())


async def _measure_on_peer(
    cluster: Cluster, assignments: Sequence[tuple[int, int, Sequence[Session]]], count: int
) -> CrossServerResult:
    """Play a turn of `count` deltas on all sessions. Each share names who plays, who is read at, and the sessions."""
    text = emit(count, "", PERIOD_MS)
    watching = [await _follow(cluster.clients[reads], sessions) for _, reads, sessions in assignments]
    await asyncio.sleep(0.5)
    before, begin = cluster.cpu_s(), clock()
    async with asyncio.TaskGroup() as group:
        for plays, _, sessions in assignments:
            group.create_task(_start_turns(cluster.clients[plays], sessions, text, spread_s=SPREAD_S))
    for connection in (connection for each in watching for connection in each):
        await connection.done
    seconds, after = clock() - begin, cluster.cpu_s()
    lates: list[float] = []
    for (_, reads, sessions), connections in zip(assignments, watching, strict=True):
        for session, connection in zip(sessions, connections, strict=True):
            stream = cluster.clients[reads].record_turn(session, text, connection.received())
            lates += [(at - float(said)) * 1e3 for delta, at in wire.deltas(stream) for said in delta.split()]
    for connections in watching:
        load.close(connections)
    return CrossServerResult(
        lates,
        {name: (after[name] - before[name]) / len(lates) * 1e6 for name in after},
        len(lates) / (seconds - SPREAD_S),
    )


async def _follow(client: Client, sessions: Sequence[Session]) -> list[Connection]:
    """Watch sessions, each over a connection of its own, from now on."""
    connections = await client.connect(len(sessions), FollowConnection)
    for connection, session in zip(connections, sessions, strict=True):
        connection.begin(client.request("GET", f"/sessions/{session.id}/events"))
        await connection.response_started
    return connections


async def _start_turns(client: Client, sessions: Sequence[Session], text: str, *, spread_s: float) -> None:
    """Begin a turn on each session, and leave each as it begins: all go on, and are read by those who watch."""
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


# --- limits -----------------------------------------------------------------------------------------------------------


async def _single_process_figure(workspace: Workspace, count: int) -> Figure:
    """The same streams from one process that keeps nothing."""
    with Limit(workspace, "window") as limit:
        sessions = await limit.client.create("paced", STREAMS)
        connections = await limit.client.connect(STREAMS)
        result = await load.pace(
            limit.client, connections, sessions, emit(count, "{i3} ", PERIOD_MS), spread_s=SPREAD_S
        )
        load.close(connections)
    late = [moment * 1e3 for stream in result.arrivals for moment in lateness(stream, PERIOD_MS / 1000)]
    note = f"{result.cpu_s / len(late) * 1e6:.0f} µs CPU per delta"
    return _figure("across", limit.name, "lateness p99, one process", _single_value(quantile(late, 0.99)), note=note)


async def _commit_times_ms(cluster: Cluster, count: int) -> list[float]:
    """Milliseconds of single commits of as many pieces as a busy server writes together."""
    took: list[float] = []
    with psycopg.connect(cluster.database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE probe (session_id text, place bigint, text bytea, PRIMARY KEY (session_id, place))"
        )
        for number in range(count):
            await asyncio.sleep(0.01)
            begun = clock()
            connection.execute(
                "INSERT INTO probe SELECT 'session ' || n, %s, '1234567.890123 ' FROM generate_series(1, %s) AS n",
                (number, COMMIT_PIECES),
            )
            took.append((clock() - begun) * 1e3)
        connection.execute("DROP TABLE probe")
    return took


def _single_value(value: float) -> Spread:
    return Spread(value, value, value)


def _figure(
    row: str,
    subject: str,
    what: str,
    value: Spread,
    *,
    unit: str = "ms",
    target: Target | None = None,
    void: str = "",
    note: str = "",
) -> Figure:
    return Figure(row=row, subject=subject, what=what, unit=unit, value=value, target=target, void=void, note=note)
