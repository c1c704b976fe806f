"""Benchmarks of crowds: many readers of one session, and many runs that start within seconds."""

import asyncio
from collections.abc import Sequence
from typing import cast

from bench import ag_ui, load, wire
from bench.effort import Effort
from bench.figures import Figure, Target, single_round
from bench.load import Connection, Session
from bench.stats import lateness, quantile, spread
from bench.streams import PACED_MS, emit
from bench.subjects import Dragoman, Workspace
from bench.wire import Exchange

STORM_RUNS_PER_S = 1000
STORM_DELTAS = 20
SETTLE_DELAY_S = 0.2


class Follower(Connection):
    """Follows a session with a stream that has no end, and is done when a run has ended."""

    path = "/aap/v3/sessions/{}/events"
    last_event = b"event: turn_stop\n"
    shows_input = False

    def _is_complete(self, data: bytes) -> bool:
        return self.last_event in data

    def received(self) -> Exchange:
        """What has arrived, as if the response had ended."""
        return Exchange(self.sent, [*self.times, self.times[-1]], [*self.parts, b"0\r\n\r\n"])

    def deltas(self) -> list[tuple[str, float]]:
        """The text deltas with their arrival times."""
        return list(wire.deltas(wire.events(self.received())))


class AgUiFollower(Follower):
    """The same over AG-UI."""

    path = "/ag-ui/paced/threads/{}/events"
    last_event = b'"type":"RUN_FINISHED"'
    shows_input = True

    def deltas(self) -> list[tuple[str, float]]:
        """The text of the run. Arrival times are compared over AAP only."""
        return [(ag_ui.answer_text(self.received()), self.times[-1])]


async def fan_out(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta and reader of a session with many readers, and the lateness at the readers."""
    text = emit(effort.paced_deltas, "{i3} ", PACED_MS)
    sessions: list[Session] = []
    costs: dict[type[Follower], list[float]] = {Follower: [], AgUiFollower: []}
    late: list[float] = []
    with Dragoman(workspace) as ours:
        for number in range(max(2, effort.rounds // 2)):
            for kind, measured in costs.items():
                [session] = await ours.client.create("paced", 1)
                cpu_s, streams = await _follow(ours, session, kind, text, effort.readers if number else 10)
                sessions.append(session)
                if number == 0:  # the first round warms up
                    continue
                measured.append(cpu_s / effort.readers / effort.paced_deltas * 1e6)
                if kind is Follower:
                    arrivals = [[at for delta, at in stream for _ in range(delta.count(" "))] for stream in streams]
                    moments = [moment for each in arrivals for moment in lateness(each, PACED_MS / 1000)]
                    late.append(quantile(moments, 0.99) * 1e3)
        invalid = await ours.verify(sessions)
    metric = f"server CPU per delta and reader, {effort.readers:,} readers"
    figures = [
        ("AAP", metric, "µs", costs[Follower], None),
        ("AG-UI", metric, "µs", costs[AgUiFollower], None),
        ("AAP", f"lateness p99, {effort.readers:,} readers", "ms", late, Target(50)),
    ]
    return [
        Figure(
            row="fan_out",
            subject=f"dragoman, {protocol}",
            metric=metric,
            unit=unit,
            value=spread(values),
            target=target,
            invalid=invalid,
        )
        for protocol, metric, unit, values, target in figures
    ]


async def _follow(
    ours: Dragoman, session: Session, kind: type[Follower], text: str, readers: int
) -> tuple[float, Sequence[Sequence[tuple[str, float]]]]:
    """Run a turn in a session with so many readers. Returns the server's CPU time, and what each reader got.

    Raises:
        InvalidResponse: a reader got another text than the client of the turn.
    """
    followers = cast("list[Follower]", await ours.client.connect(readers, kind))
    [control] = await ours.client.connect(1)
    for follower in followers:
        follower.begin(wire.request("GET", kind.path.format(session.id), key=ours.key))
    for follower in followers:
        await follower.response_started
    await asyncio.sleep(SETTLE_DELAY_S)
    cpu = ours.server.cpu_s()
    ours.client.record_turn(session, text, await control.exchange(ours.client.turn(session, text)))
    for follower in followers:
        await follower.done
    cpu = ours.server.cpu_s() - cpu
    load.close([*followers, control])
    streams = [follower.deltas() for follower in followers]
    expected = (text if kind.shows_input else "") + session.turns[-1][1]
    for stream in streams:
        if (got := "".join(delta for delta, _ in stream)) != expected:
            raise wire.InvalidResponse(f"a reader got {len(got)} characters of {len(expected)}, or others")
    return cpu, streams


async def start_storm(workspace: Workspace, effort: Effort) -> list[Figure]:
    """The first delta of runs that start at a rate close to what one core can start, in sessions made before.

    Most of the sessions are not in memory when their run starts.
    """
    text = emit(STORM_DELTAS, "abcd ")
    with Dragoman(workspace) as ours:
        sessions = await ours.client.create("rehearsal", effort.storm_runs)
        connections = await ours.client.connect(effort.storm_runs)
        await asyncio.sleep(SETTLE_DELAY_S)
        storm = await load.pace(ours.client, connections, sessions, text, spread_s=effort.storm_runs / STORM_RUNS_PER_S)
        load.close(connections)
        invalid = await ours.verify(sessions)
    first = [(stream[0] - sent) * 1e3 for sent, stream in zip(storm.sent, storm.arrivals, strict=True)]
    share = (
        f"server {storm.cpu_s / storm.seconds:.0%} of its core, load generator {storm.load_cpu_s / storm.seconds:.0%}"
    )
    lines = [
        ("first delta p50", "ms", quantile(first, 0.5), None, ""),
        ("first delta p99", "ms", quantile(first, 0.99), Target(100), share),
        ("server CPU per run", "µs", storm.cpu_s / effort.storm_runs * 1e6, None, ""),
    ]
    return single_round("start_storm", ours.name, f"{effort.storm_runs:,} runs", lines, invalid=invalid)
