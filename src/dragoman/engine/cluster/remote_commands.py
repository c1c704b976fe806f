"""Commands from one server to the server that runs a session, and their replies.

    sender      stores the command, publishes a hint, and waits for the reply
    receiver    reads its pending commands, executes them, and stores the replies

A command whose reply was not stored is executed again, so executing it twice must have the effect of executing it once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec
import structlog

from dragoman.core.events import RunQueued, SettingsChange
from dragoman.core.ids import RunId
from dragoman.core.refusals import LimitReached, Refused, SessionBusy, StoreUnavailable
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.cluster.log_tailer import LogTailer
from dragoman.engine.cluster.ownership import Ownership
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.bus import Bus
from dragoman.ports.cluster import CommandQueue, PendingCommand
from dragoman.ports.environment import Ids
from dragoman.ports.log import IdempotencyRecord

COMMAND_SUBJECT, REPLY_SUBJECT = "asked", "answered"
"""Subjects of the hints: a server with a pending command; a command with a reply."""
COMMAND_POLL_INTERVAL_S = 1.0
"""How often pending commands are read without a hint."""
REPLY_POLL_INTERVAL_S = 0.25
"""How often the reply is looked up without a hint."""
REPLY_TIMEOUT_S = 20.0
"""How long to wait for a reply: a run that is stopped has some seconds to end."""
RETRY_DELAY_S = 0.03
"""Pause before sending again if no server has the run, and before reading again after a failure."""

log = structlog.get_logger(__name__)


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Stop a run, or all active and queued ones. `only_if_unwatched`: only if the session has no reader there."""

    run_id: RunId | None
    only_if_unwatched: bool = msgspec.field(default=False, name="unwatched")


class Enqueue(msgspec.Struct, frozen=True, tag="enqueue"):
    """Queue a run after the active one."""

    queued: RunQueued
    idempotency_record: IdempotencyRecord | None = msgspec.field(name="once")


class ChangeSettings(msgspec.Struct, frozen=True, tag="settings"):
    """Change settings that do not affect the active run."""

    change: SettingsChange


Command = Stop | Enqueue | ChangeSettings


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The effect of a command, and the session's last event after it."""

    seq: int
    has_effect: bool = True


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """The session's run is no longer on this server; nothing was done."""


class Denied(msgspec.Struct, frozen=True, tag="denied"):
    """The command was refused. `is_busy`: because of the session's state; else the server is unavailable."""

    message: str
    is_busy: bool
    retry_after_s: int | None = None
    """Set if the user has reached a limit there."""


Outcome = Done | Moved | Denied
_COMMANDS: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_OUTCOMES: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)
_ENCODER = msgspec.json.Encoder()


class RemoteCommands:
    """Sends commands to other servers, and executes theirs.

    Args:
        cluster_store: stores commands and replies.
        bus: carries hints between the servers.
        ids: ids of commands.
        sessions: the sessions in memory.
        ownership: which of them this server writes.
        log_tailer: reads here what a command did there.
        perform: executes another server's command on a session whose run is here.
    """

    def __init__(
        self,
        cluster_store: CommandQueue,
        *,
        bus: Bus,
        ids: Ids,
        sessions: SessionRegistry,
        ownership: Ownership,
        log_tailer: LogTailer,
        perform: Callable[[LiveSession, Command], Awaitable[Done | Moved]],
    ) -> None:
        self._cluster_store = cluster_store
        self._bus = bus
        self._new_id = ids.new
        self._sessions = sessions
        self._ownership = ownership
        self._log_tailer = log_tailer
        self._perform = perform
        self._command_arrived = asyncio.Event()
        self._reply_events: dict[str, asyncio.Event] = {}
        self._discard_tasks = BackgroundTasks()
        self._perform_tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def subscriptions(self) -> Sequence[tuple[str, Callable[[str], None]]]:
        """The handlers of this server's subjects on the bus."""
        return ((COMMAND_SUBJECT, self._on_command_hint), (REPLY_SUBJECT, self._on_reply_hint))

    def close(self) -> None:
        """Stop executing commands. Senders that still wait will find this server gone."""
        self._discard_tasks.cancel()
        for task in self._perform_tasks.values():
            task.cancel()

    # --- sending --------------------------------------------------------------------------------------------------

    async def send(self, live: LiveSession, command: Command) -> Done | None:
        """Have the server that runs a session execute a command. None: no server runs it, and nothing was done.

        Raises:
            SessionBusy, LimitReached: the command was refused.
            StoreUnavailable: it is unknown whether the command was executed.
        """
        request_id, heard = self._new_id(), asyncio.Event()
        node = await self._cluster_store.send_command(request_id, live.state.session_id, _ENCODER.encode(command))
        if node is None:
            await asyncio.sleep(RETRY_DELAY_S)
            return None
        self._reply_events[request_id] = heard
        self._bus.publish(COMMAND_SUBJECT, node)
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                outcome = await self._outcome(request_id, heard)
        except TimeoutError:
            raise StoreUnavailable("the server that executes the run does not reply") from None
        finally:
            del self._reply_events[request_id]
            self._discard_tasks.start(self._discard(request_id), "discard a command")
        match outcome:
            case Denied(message, _, int(retry_after_s)):
                raise LimitReached(message, retry_after_s=retry_after_s)
            case Denied(message, is_busy):
                raise SessionBusy(message) if is_busy else StoreUnavailable(message)
            case Done():
                await self._log_tailer.wait_until_reached(live, outcome.seq)
                return outcome
            case _:
                await asyncio.sleep(RETRY_DELAY_S)
                return None

    async def _outcome(self, request_id: str, reply_event: asyncio.Event) -> Outcome:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPLY_POLL_INTERVAL_S):
                    await reply_event.wait()
            reply_event.clear()
            answer, is_alive = await self._cluster_store.find_reply(request_id)
            if answer is not None:
                return _OUTCOMES.decode(answer)
            if not is_alive:
                return Moved()

    async def _discard(self, request_id: str) -> None:
        with suppress(StoreUnavailable):
            await self._cluster_store.discard_command(request_id)

    def _on_reply_hint(self, payload: str) -> None:
        heard = self._reply_events.get(payload)
        if heard is not None:
            heard.set()

    # --- receiving ------------------------------------------------------------------------------------------------

    def _on_command_hint(self, payload: str) -> None:
        if payload == self._cluster_store.node_id:
            self._command_arrived.set()

    async def serve(self) -> None:
        """Execute other servers' commands, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(COMMAND_POLL_INTERVAL_S):
                    await self._command_arrived.wait()
            self._command_arrived.clear()
            if self._ownership.is_alone:
                continue
            try:
                begun = set(self._perform_tasks)  # a command that ends during the read may be in the result
                for asked in await self._cluster_store.pending_commands():
                    if asked.request_id not in begun and asked.request_id not in self._perform_tasks:
                        task = asyncio.create_task(self._perform_and_reply(asked), name=f"asked {asked.session_id}")
                        self._perform_tasks[asked.request_id] = task
                        task.add_done_callback(partial(self._on_performed, asked.request_id))
            except StoreUnavailable:
                await asyncio.sleep(RETRY_DELAY_S)
            except Exception:  # the root of a task that must continue
                log.exception("failed to serve commands of other servers")
                await asyncio.sleep(RETRY_DELAY_S)

    def _on_performed(self, request_id: str, _: asyncio.Task[None]) -> None:
        self._perform_tasks.pop(request_id, None)

    async def _perform_and_reply(self, request: PendingCommand) -> None:
        outcome: Outcome
        try:
            live = self._sessions.get_loaded(request.session_id)
            if live is None or not self._ownership.is_ours(live):
                outcome = Moved()
            else:
                live.reference_count += 1
                try:
                    outcome = await self._perform(live, _COMMANDS.decode(request.body))
                finally:
                    live.reference_count -= 1
        except Refused as refused:
            retry_after_s = refused.retry_after_s if isinstance(refused, LimitReached) else None
            outcome = Denied(str(refused), isinstance(refused, SessionBusy), retry_after_s)
        except Exception:  # the root of a task
            log.exception("remote command failed", session_id=request.session_id)
            outcome = Denied("the server that executes the run failed", is_busy=False)
        with suppress(StoreUnavailable):
            await self._cluster_store.store_reply(request.request_id, _ENCODER.encode(outcome))
            self._bus.publish(REPLY_SUBJECT, request.request_id)
