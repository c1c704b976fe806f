"""A campaign: servers die one after the other on one data folder, clients continue meanwhile, then all is checked."""

import asyncio
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from tests.crash import unsynced_disk
from tests.crash.actor import Actor
from tests.crash.client_records import Violation
from tests.crash.endings import LONGEST_LIFE_S, Ending, KillAfterReady, KillAtPoint, KillWhileStarting, StopGracefully
from tests.crash.failpoints import FailPoint
from tests.crash.final_check import FinalCheck
from tests.crash.log_checker import LogChecker, ServerLife
from tests.crash.process import Server
from tests.crash.server_availability import Life, ServerAvailability

DRAIN_TIMEOUT_S = 0.2
STOP_DEADLINE_S = 30.0
"""How long a server may take to stop: its grace period, the cancellation of a tool, and a slow machine."""
FINISH_TIMEOUT_S = 60.0
LONGEST_FAULT = 2000


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a campaign."""

    seed: int
    endings: Sequence[Ending]
    actors: int = 6
    sabotage: str | None = None
    loses_power: bool = False
    """Each death also discards what was not synced."""
    arguments: Sequence[str] = ()
    """More arguments for the server."""


@dataclass
class Report:
    """The results of campaigns, with the promises that were broken."""

    endings: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    turns: int = 0
    deaths_observed: int = 0
    """How often a client was waiting for an answer when the server died."""
    events: int = 0
    resumed: int = 0
    resume_times_s: list[float] = field(default_factory=list)
    dropped_unsynced: int = 0
    """Sectors that were written but not synced at a death."""
    forged: int = 0
    """Answers that nobody with the right to give them gave."""
    executions: int = 0
    """Payments that ran."""
    faults: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """The number of deaths by SIGKILL."""
        return self.endings.total() - self.endings["stopped"]

    def add(self, other: "Report") -> None:
        """Add the results of another report."""
        self.endings += other.endings
        self.sessions += other.sessions
        self.turns += other.turns
        self.deaths_observed += other.deaths_observed
        self.events += other.events
        self.resumed += other.resumed
        self.resume_times_s += other.resume_times_s
        self.dropped_unsynced += other.dropped_unsynced
        self.forged += other.forged
        self.executions += other.executions
        self.faults += other.faults

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(self.endings.items()))
        lines = [
            f"{self.kills} kills ({kinds})",
            f"{self.sessions} sessions, {self.turns} turns, {self.events} events",
            f"{self.deaths_observed} requests were interrupted by a death, runs were resumed {self.resumed} times",
        ]
        if self.resume_times_s:
            times_s = sorted(self.resume_times_s)
            lines.append(
                f"runs continued or ended {statistics.median(times_s):+.3f} s from the ready line (median; the last"
                f" {times_s[-1]:+.3f} s)"
            )
        if self.dropped_unsynced:
            lines.append(f"{self.dropped_unsynced} sectors were not synced when the power failed")
        if self.forged:
            lines.append(f"{self.forged} forged answers, {self.executions} payments")
        return "\n".join([*lines, *(f"BROKEN {fault[:LONGEST_FAULT]}" for fault in self.faults)])


class Campaign:
    """Runs one campaign in its own folder."""

    def __init__(self, folder: Path, options: Options) -> None:
        self._options = options
        self._data = folder / "data"
        self._unsynced_disk = folder / "synced"
        scratch = folder / "scratch"
        for each in (folder, self._unsynced_disk, scratch):
            each.mkdir(parents=True, exist_ok=True)
        self._rng = random.Random(f"power {options.seed}")
        self._availability = ServerAvailability()
        self._log = LogChecker(self._data, scratch)
        self._check_task: asyncio.Task[list[str]] | None = None
        self._server: Server | None = None
        self.report = Report()
        self._actors = [
            Actor(f"{options.seed}-{place}", random.Random(f"actor {options.seed} {place}"), self._availability)
            for place in range(options.actors)
        ]

    async def play(self) -> Report:
        """Run all server lives, the last one to a normal end, and return the report. Leaves no process behind."""
        tasks = [asyncio.create_task(actor.run()) for actor in self._actors]
        try:
            for number, ending in enumerate(self._options.endings):
                try:
                    await self._run_life(ending)
                    self._raise_of(tasks)
                except (Violation, AssertionError, TimeoutError) as error:
                    self.report.faults.append(f"{error!r} (life {number}, {ending})")
                    break
                if self.report.faults:
                    self.report.faults.append(f"(life {number}, {ending})")
                    break
            else:
                await self._final_life(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._check_task is not None:
                await asyncio.wait([self._check_task])
            if self._server is not None:
                self._server.signal(signal.SIGKILL)
                await self._server.wait_for_exit(STOP_DEADLINE_S)
        return self._add_counts()

    # --- lives ----------------------------------------------------------------------------------------------------

    async def _run_life(self, ending: Ending) -> None:
        """Run one life of the server with the given ending."""
        server = await self._start(ending.point if isinstance(ending, KillAtPoint) else None)
        if isinstance(ending, KillWhileStarting):
            name = await self._die_starting(server, ending)
        elif not await server.ready():
            name = "at a step, starting"
            await self._wait_for_end(server)
        else:
            name = await self._die(server, ending)
        self.report.endings[name] += 1
        await self._collect_remains(server)

    async def _die_starting(self, server: Server, ending: KillWhileStarting) -> str:
        if await server.wait_while_alive(ending.seconds):
            server.signal(signal.SIGKILL)
        await self._wait_for_end(server)
        return "starting"

    async def _die(self, server: Server, ending: KillAfterReady | KillAtPoint | StopGracefully) -> str:
        life = Life(server.port, server.is_dead)
        self._availability.begin(life)
        name = "at a time"
        match ending:
            case KillAfterReady(seconds):
                await server.wait_while_alive(seconds)
            case KillAtPoint():
                if not await server.wait_while_alive(LONGEST_LIFE_S):
                    name = "at a step"
            case StopGracefully(seconds, kill_after):
                name = "stopped"
                await server.wait_while_alive(seconds)
                life.is_draining = True
                server.signal(signal.SIGTERM)
                if kill_after is not None and await server.wait_while_alive(kill_after):
                    name = "stopping"
                else:
                    await self._wait_for_stop(server)
            case _ as never:
                assert_never(never)
        server.signal(signal.SIGKILL)
        if name == "stopping":
            name = (
                "stopped" if await server.wait_for_exit(STOP_DEADLINE_S) == 0 else name
            )  # it may have stopped just before
        elif name != "stopped":
            await self._wait_for_end(server)
        self._availability.end()
        return name

    async def _wait_for_stop(self, server: Server) -> None:
        """Wait for the end of a server that was asked to stop."""
        status = await server.wait_for_exit(STOP_DEADLINE_S)
        if status != 0:
            raise Violation(f"a server that was asked to stop ended with status {status}")

    async def _wait_for_end(self, server: Server) -> None:
        """Wait for the end of a server that was killed."""
        status = await server.wait_for_exit(STOP_DEADLINE_S)
        if status != -signal.SIGKILL:
            raise Violation(f"the server ended by itself with status {status}; see server.log")

    async def _start(self, point: FailPoint | None = None) -> Server:
        options = self._options
        server = await Server.start(
            self._data,
            fail=point,
            synced_copies=self._unsynced_disk if options.loses_power else None,
            sabotage=options.sabotage,
            arguments=("--drain-s", str(DRAIN_TIMEOUT_S), "--log-level", "error", *options.arguments),
        )
        self._server = server
        return server

    async def _collect_remains(self, server: Server) -> None:
        """Check the data of a dead server while the next one starts."""
        self._server = None
        await self._finish_check()
        if self._options.loses_power:
            self.report.dropped_unsynced += unsynced_disk.discard_unsynced(self._data, self._unsynced_disk, self._rng)
        self._log.copy()
        life = ServerLife(server.started_at, server.ready_at, time.time())
        self._check_task = asyncio.create_task(asyncio.to_thread(self._log.check, life, self._deleted_session_ids()))

    async def _finish_check(self) -> None:
        if self._check_task is not None:
            self.report.faults += await self._check_task
            self._check_task = None

    def _deleted_session_ids(self) -> list[str]:
        return [session.session_id for actor in self._actors for session in actor.sessions if session.is_deleted]

    # --- the end --------------------------------------------------------------------------------------------------

    async def _final_life(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Run the last life: the clients finish, the final check runs, and the server stops normally."""
        server = await self._start()
        if not await server.ready():
            self.report.faults.append("the last server died by itself")
            return
        life = Life(server.port)
        self._availability.close()
        self._availability.begin(life)
        if tasks:
            _, unfinished = await asyncio.wait(tasks, timeout=FINISH_TIMEOUT_S)
            if unfinished:
                self.report.faults.append(f"{len(unfinished)} clients could not finish within {FINISH_TIMEOUT_S:g} s")
                return
        try:
            self._raise_of(tasks)
            async with asyncio.timeout(FINISH_TIMEOUT_S):
                self.report.faults += await FinalCheck(server.port, self._actors).run()
        except (Violation, AssertionError, TimeoutError) as error:
            self.report.faults.append(f"{error!r} (last life)")
        life.is_draining = True
        server.signal(signal.SIGTERM)
        try:
            await self._wait_for_stop(server)
        except (Violation, TimeoutError) as error:
            self.report.faults.append(f"{error!r} (last life)")
        await self._collect_remains(server)
        await self._finish_check()
        for run_id in self._log.unfinished:
            self.report.faults.append(f"run {run_id} never ended")

    def _raise_of(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def _add_counts(self) -> Report:
        sessions = [session for actor in self._actors for session in actor.sessions]
        self.report.sessions = len(sessions)
        self.report.turns = sum(len(session.turns) for session in sessions)
        self.report.deaths_observed = sum(run.deaths for session in sessions for run in session.runs)
        self.report.resume_times_s = self._log.resume_times_s
        self.report.resumed, self.report.events = self._log.resumed, self._log.events
        return self.report
