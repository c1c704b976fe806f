"""A campaign: servers die one after the other on one data folder, clients go on through all of it, then the verdict."""

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
from tests.crash.endings import LONGEST_LIFE_S, After, At, Ending, Starting, Stop
from tests.crash.failpoints import FailPoint
from tests.crash.final_check import Verdict
from tests.crash.log_checker import Died, LogCheck
from tests.crash.process import Server
from tests.crash.server_availability import Gate, Life

DRAIN_S = 0.2
STOP_DEADLINE_S = 5.0
"""A server that is told to stop has ended by then: the grace, what a cancelled tool may take, and a slow machine."""
FINISH_S = 60.0
LONGEST_FAULT = 2000


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a campaign is like."""

    seed: int
    endings: Sequence[Ending]
    actors: int = 6
    sabotage: str | None = None
    loses_power: bool = False
    """Each death takes what was not synced with it."""
    arguments: Sequence[str] = ()
    """More arguments for the server."""


@dataclass
class Report:
    """What happened in campaigns, and which promises were broken."""

    endings: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    turns: int = 0
    deaths_seen: int = 0
    """How often a client waited for an answer when the server died."""
    events: int = 0
    resumed: int = 0
    taken_up_s: list[float] = field(default_factory=list)
    doubtful: int = 0
    """Sectors that were written and not synced at a death."""
    faults: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """Deaths by SIGKILL."""
        return self.endings.total() - self.endings["stopped"]

    def add(self, other: "Report") -> None:
        """Put two together."""
        self.endings += other.endings
        self.sessions += other.sessions
        self.turns += other.turns
        self.deaths_seen += other.deaths_seen
        self.events += other.events
        self.resumed += other.resumed
        self.taken_up_s += other.taken_up_s
        self.doubtful += other.doubtful
        self.faults += other.faults

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(self.endings.items()))
        lines = [
            f"{self.kills} kills ({kinds})",
            f"{self.sessions} sessions, {self.turns} turns, {self.events} events",
            f"{self.deaths_seen} requests were cut by a death, runs were taken up {self.resumed} times",
        ]
        if self.taken_up_s:
            late = sorted(self.taken_up_s)
            lines.append(
                f"runs went on or ended {statistics.median(late):+.3f} s from the ready line (median; the last"
                f" {late[-1]:+.3f} s)"
            )
        if self.doubtful:
            lines.append(f"{self.doubtful} sectors were in doubt when the power went")
        return "\n".join([*lines, *(f"BROKEN {fault[:LONGEST_FAULT]}" for fault in self.faults)])


class Campaign:
    """Plays one campaign in a folder of its own."""

    def __init__(self, folder: Path, options: Options) -> None:
        self._options = options
        self._data = folder / "data"
        self._platter = folder / "platter"
        scratch = folder / "scratch"
        for each in (folder, self._platter, scratch):
            each.mkdir(parents=True, exist_ok=True)
        self._rng = random.Random(f"power {options.seed}")
        self._gate = Gate()
        self._log = LogCheck(self._data, scratch)
        self._checking: asyncio.Task[list[str]] | None = None
        self._server: Server | None = None
        self.report = Report()
        self._actors = [
            Actor(f"{options.seed}-{place}", random.Random(f"actor {options.seed} {place}"), self._gate)
            for place in range(options.actors)
        ]

    async def play(self) -> Report:
        """All lives, the last one to its good end; gives what was found. Leaves no process behind."""
        tasks = [asyncio.create_task(actor.run()) for actor in self._actors]
        try:
            for number, ending in enumerate(self._options.endings):
                try:
                    await self._live(ending)
                    self._raise_of(tasks)
                except (Violation, AssertionError, TimeoutError) as error:
                    self.report.faults.append(f"{error!r} (life {number}, {ending})")
                    break
                if self.report.faults:
                    self.report.faults.append(f"(life {number}, {ending})")
                    break
            else:
                await self._finish(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._checking is not None:
                await asyncio.wait([self._checking])
            if self._server is not None:
                self._server.signal(signal.SIGKILL)
                await self._server.ended(STOP_DEADLINE_S)
        return self._counted()

    # --- lives ----------------------------------------------------------------------------------------------------

    async def _live(self, ending: Ending) -> None:
        """One life of the server, with the end that it is to have."""
        server = await self._start(ending.point if isinstance(ending, At) else None)
        if isinstance(ending, Starting):
            name = await self._die_starting(server, ending)
        elif not await server.ready():
            name = "at a step, starting"
            await self._ended(server)
        else:
            name = await self._die(server, ending)
        self.report.endings[name] += 1
        await self._bury(server)

    async def _die_starting(self, server: Server, ending: Starting) -> str:
        if await server.lives_for(ending.seconds):
            server.signal(signal.SIGKILL)
        await self._ended(server)
        return "starting"

    async def _die(self, server: Server, ending: After | At | Stop) -> str:
        life = Life(server.port)
        self._gate.begin(life)
        name = "at a time"
        match ending:
            case After(seconds):
                await server.lives_for(seconds)
            case At():
                if not await server.lives_for(LONGEST_LIFE_S):
                    name = "at a step"
            case Stop(seconds, kill_after):
                name = "stopped"
                await server.lives_for(seconds)
                life.is_draining = True
                server.signal(signal.SIGTERM)
                if kill_after is not None and await server.lives_for(kill_after):
                    name = "stopping"
                else:
                    await self._stopped(server)
            case _ as never:
                assert_never(never)
        ended_at = time.time()
        server.signal(signal.SIGKILL)
        if name == "stopping":
            name = "stopped" if await server.ended(STOP_DEADLINE_S) == 0 else name  # it may just have been done
        elif name != "stopped":
            await self._ended(server)
        self._gate.end(ended_at)
        return name

    async def _stopped(self, server: Server) -> None:
        """Wait for the end of a server that was told to stop."""
        status = await server.ended(STOP_DEADLINE_S)
        if status != 0:
            raise Violation(f"a server that was told to stop ended with status {status}")

    async def _ended(self, server: Server) -> None:
        """Wait for the end of a server that was killed."""
        status = await server.ended(STOP_DEADLINE_S)
        if status != -signal.SIGKILL:
            raise Violation(f"the server ended by itself, with status {status}: server.log tells why")

    async def _start(self, point: FailPoint | None = None) -> Server:
        options = self._options
        server = await Server.start(
            self._data,
            fail=point,
            platter=self._platter if options.loses_power else None,
            sabotage=options.sabotage,
            arguments=("--drain-s", str(DRAIN_S), "--log-level", "error", *options.arguments),
        )
        self._server = server
        return server

    async def _bury(self, server: Server) -> None:
        """Look at what a server left, while the next one starts."""
        self._server = None
        await self._checked()
        if self._options.loses_power:
            self.report.doubtful += unsynced_disk.lose_power(self._data, self._platter, self._rng)
        self._log.copy()
        died = Died(server.started_at, server.ready_at, time.time())
        self._checking = asyncio.create_task(asyncio.to_thread(self._log.check, died, self._deleted()))

    async def _checked(self) -> None:
        if self._checking is not None:
            self.report.faults += await self._checking
            self._checking = None

    def _deleted(self) -> list[str]:
        return [session.session_id for actor in self._actors for session in actor.sessions if session.is_deleted]

    # --- the end --------------------------------------------------------------------------------------------------

    async def _finish(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """A last life: the clients finish, the verdict is found, and the server stops as it should."""
        server = await self._start()
        if not await server.ready():
            self.report.faults.append("the last server died by itself")
            return
        life = Life(server.port)
        self._gate.close()
        self._gate.begin(life)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=FINISH_S)
            if late:
                self.report.faults.append(f"{len(late)} clients could not finish within {FINISH_S:g} s")
                return
        try:
            self._raise_of(tasks)
            async with asyncio.timeout(FINISH_S):
                self.report.faults += await Verdict(server.port, self._actors).find()
        except (Violation, AssertionError, TimeoutError) as error:
            self.report.faults.append(f"{error!r} (last life)")
        life.is_draining = True
        server.signal(signal.SIGTERM)
        try:
            await self._stopped(server)
        except (Violation, TimeoutError) as error:
            self.report.faults.append(f"{error!r} (last life)")
        await self._bury(server)
        await self._checked()
        for run_id in self._log.unfinished:
            self.report.faults.append(f"run {run_id} never ended")

    def _raise_of(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def _counted(self) -> Report:
        sessions = [session for actor in self._actors for session in actor.sessions]
        self.report.sessions = len(sessions)
        self.report.turns = sum(len(session.turns) for session in sessions)
        self.report.deaths_seen = sum(run.deaths for session in sessions for run in session.runs)
        self.report.taken_up_s = self._log.taken_up_s
        self.report.resumed, self.report.events = self._log.resumed, self._log.events
        return self.report
