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
from bench.subjects import Limit, Place
from bench.wire import Exchange

STREAMS = 500
PERIOD_MS = 50
LATE_MS = 100
COMMITTED = 100
"""Pieces in the commit that the rows are compared with: what 500 streams have to write in 10 ms."""
ORPHANS = 20
ORPHANS_SAY = 80
"""Deltas of a run that is cut off after a second, and begun again."""
QUIET_S = 1.0
"""What comes in this time was said before the death."""
LEASE_S = 10
"""What `lease_s` is by default."""
EACH = 250
"""Streams of each server in `nodes`."""
MORE = 1.7
SPREAD_S = 2.0
"""In which all streams begin, as in `hold`."""
_WHOLE = b"0\r\n\r\n"


class Watching(Connection):
    """A connection that watches a session, which has no end, until a turn has ended."""

    def _ended(self, data: bytes) -> bool:
        return b"event: turn_stop" in (data if len(data) > 100 else b"".join(self.parts[-5:]))

    def received(self) -> Exchange:
        """What has arrived, as if the stream had ended with the turn."""
        return Exchange(self.sent, [*self.times, clock()], [*self.parts, _WHOLE])


async def across(place: Place, effort: Effort) -> list[Figure]:
    """500 streams of 20 deltas/s, played by one server and read at another, over NATS and without."""
    count = round(effort.hold_s * 1000 / PERIOD_MS) + 40
    found = [await _alone(place, count)]
    for with_nats in (True, False):
        with Cluster(place, 2, with_nats=with_nats) as cluster:
            commits = await _commits(cluster, effort.commits)
            sessions = await cluster.clients[0].create("stamped", STREAMS)
            seen = await _read_elsewhere(cluster, [(0, 1, sessions)], count)
            void = await cluster.verify(1, sessions)
        way = "over NATS" if with_nats else "without NATS"
        if with_nats:
            found.append(_line("across", "probe", f"one commit of {COMMITTED} pieces (PostgreSQL)", spread(commits)))
        found += [
            _line("across", "dragoman", f"said here, read there p50, {way}", _only(seen.late(0.5)), void=void),
            _line(
                "across",
                "dragoman",
                f"said here, read there p99, {way}",
                _only(seen.late(0.99)),
                target=Target(LATE_MS),
                void=void,
                note=f"{seen.rate:,.0f} deltas/s, max {seen.late(1):.0f} ms",
            ),
            _line(
                "across",
                "dragoman",
                f"CPU per delta of all processes, {way}",
                _only(sum(seen.cpu_us.values())),
                unit="µs",
                void=void,
                note=seen.shares(),
            ),
        ]
    return found


async def takeover(place: Place, effort: Effort) -> list[Figure]:
    """How long after a server's death another one has its sessions, and readers there hear of all their runs again."""
    text = emit(ORPHANS_SAY, "{i3} ", PERIOD_MS)
    claimed: list[float] = []
    told: list[float] = []
    void = ""
    with Cluster(place, 2, with_nats=True) as cluster, psycopg.connect(cluster.database, autocommit=True) as database:
        for number in range(min(3, effort.rounds)):
            dies, lives = number % 2, 1 - number % 2
            sessions = await cluster.clients[dies].create("paced", ORPHANS)
            watching = await _watch(cluster.clients[lives], sessions)
            await _post(cluster.clients[dies], sessions, text, spread_s=0.5)
            await asyncio.sleep(1)  # all runs have begun to speak
            before = cluster.owners(database, sessions)
            begin = clock()
            cluster.nodes[dies].stop(signal.SIGKILL)
            async with asyncio.timeout(3 * LEASE_S):
                while cluster.owners(database, sessions) & before:  # noqa: ASYNC110  # the database tells nobody
                    await asyncio.sleep(0.01)
            claimed.append(clock() - begin)
            silent = 0.0
            for connection, session in zip(watching, sessions, strict=True):
                await connection.done
                stream = wire.events(connection.received())
                silent = max(silent, min(at for _, at in wire.deltas(stream) if at > begin + QUIET_S) - begin)
                session.turns.append((text, wire.text(stream)))
            told.append(silent)
            load.close(watching)
            void = void or await cluster.verify(lives, sessions)
            cluster.start(dies)
    return [
        _line(
            "takeover",
            "dragoman",
            "death of a server to its sessions being another's",
            spread(claimed),
            unit="s",
            target=Target(LEASE_S + 1, note="(lease + 1 s)"),
            void=void,
        ),
        _line(
            "takeover", "dragoman", "  to words of all their runs at readers there", spread(told), unit="s", void=void
        ),
    ]


async def nodes(place: Place, effort: Effort) -> list[Figure]:
    """The same load for each of one and of two servers: what a delta costs them, and so what a second one adds."""
    count = round(effort.hold_s * 1000 / PERIOD_MS) + 40
    seen: list[Seen] = []
    void = ""
    for servers in (1, 2):
        with Cluster(place, servers, with_nats=True) as cluster:
            shares = [(at, at, await cluster.clients[at].create("stamped", EACH)) for at in range(servers)]
            seen.append(await _read_elsewhere(cluster, shares, count))
            for at, _, sessions in shares:
                void = void or await cluster.verify(at, sessions)
    one, two = seen
    found = []
    for servers, each in zip((1, 2), seen, strict=True):
        found.append(
            _line(
                "nodes",
                "dragoman",
                f"CPU per delta of {servers} server{'s' if servers > 1 else ''} with {EACH} streams each",
                _only(each.servers_us),
                unit="µs",
                void=void,
                note=f"{each.rate:,.0f} deltas/s, p99 {each.late(0.99):.0f} ms, {each.shares()}",
            )
        )
    more = 2 * one.servers_us / two.servers_us
    return [
        *found,
        _line(
            "nodes",
            "dragoman",
            "what two servers carry with a core each, over one",
            _only(more),
            unit="×",
            target=Target(MORE, at_least=True),
            void=void,
            note="from the CPU of the servers; PostgreSQL has its own",
        ),
    ]


# --- what is measured -------------------------------------------------------------------------------------------------


class Seen(msgspec.Struct, frozen=True):
    """What readers saw: how late, in ms, each delta came; and what a delta cost each part, in µs."""

    lates: list[float]
    cpu_us: dict[str, float]
    rate: float

    def late(self, share: float) -> float:
        """The lateness that `share` of the deltas did not exceed, in ms."""
        return quantile(self.lates, share)

    @property
    def servers_us(self) -> float:
        """The CPU of a delta in the servers alone."""
        return sum(cost for name, cost in self.cpu_us.items() if name.startswith("node"))

    def shares(self) -> str:
        """The costs by their parts."""
        return ", ".join(f"{name} {cost:.0f} µs" for name, cost in self.cpu_us.items())


async def _read_elsewhere(cluster: Cluster, shares: Sequence[tuple[int, int, Sequence[Session]]], count: int) -> Seen:
    """Play a turn of `count` deltas on all sessions. Each share names who plays, who is read at, and the sessions."""
    text = emit(count, "", PERIOD_MS)
    watching = [await _watch(cluster.clients[reads], sessions) for _, reads, sessions in shares]
    await asyncio.sleep(0.5)
    before, begin = cluster.cpu_s(), clock()
    async with asyncio.TaskGroup() as group:
        for plays, _, sessions in shares:
            group.create_task(_post(cluster.clients[plays], sessions, text, spread_s=SPREAD_S))
    for connection in (connection for each in watching for connection in each):
        await connection.done
    seconds, after = clock() - begin, cluster.cpu_s()
    lates: list[float] = []
    for (_, reads, sessions), connections in zip(shares, watching, strict=True):
        for session, connection in zip(sessions, connections, strict=True):
            stream = cluster.clients[reads].note(session, text, connection.received())
            lates += [(at - float(said)) * 1e3 for delta, at in wire.deltas(stream) for said in delta.split()]
    for connections in watching:
        load.close(connections)
    return Seen(
        lates,
        {name: (after[name] - before[name]) / len(lates) * 1e6 for name in after},
        len(lates) / (seconds - SPREAD_S),
    )


async def _watch(client: Client, sessions: Sequence[Session]) -> list[Connection]:
    """Watch sessions, each over a connection of its own, from now on."""
    connections = await client.connect(len(sessions), Watching)
    for connection, session in zip(connections, sessions, strict=True):
        connection.begin(client.request("GET", f"/sessions/{session.id}/events"))
        await connection.begun
    return connections


async def _post(client: Client, sessions: Sequence[Session], text: str, *, spread_s: float) -> None:
    """Begin a turn on each session, and leave each as it begins: all go on, and are read by those who watch."""
    connections = await client.connect(len(sessions))
    begin = clock()
    for index, (connection, session) in enumerate(zip(connections, sessions, strict=True)):
        if (wait := begin + index * spread_s / len(sessions) - clock()) > 0:
            await asyncio.sleep(wait)
        connection.begin(client.turn(session, text))
        connection.begun.add_done_callback(partial(_leave, connection))
    for connection in connections:
        await connection.begun


def _leave(connection: Connection, _: object) -> None:
    connection.close()


# --- limits -----------------------------------------------------------------------------------------------------------


async def _alone(place: Place, count: int) -> Figure:
    """The same streams from one process that keeps nothing."""
    with Limit(place, "window") as limit:
        sessions = await limit.client.create("paced", STREAMS)
        connections = await limit.client.connect(STREAMS)
        result = await load.pace(
            limit.client, connections, sessions, emit(count, "{i3} ", PERIOD_MS), spread_s=SPREAD_S
        )
        load.close(connections)
    late = [moment * 1e3 for stream in result.arrivals for moment in lateness(stream, PERIOD_MS / 1000)]
    note = f"{result.cpu_s / len(late) * 1e6:.0f} µs CPU per delta"
    return _line("across", limit.name, "lateness p99, one process", _only(quantile(late, 0.99)), note=note)


async def _commits(cluster: Cluster, count: int) -> list[float]:
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
                (number, COMMITTED),
            )
            took.append((clock() - begun) * 1e3)
        connection.execute("DROP TABLE probe")
    return took


def _only(value: float) -> Spread:
    return Spread(value, value, value)


def _line(
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
