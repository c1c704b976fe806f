"""The engine: loads sessions, executes runs, serves readers, and recovers what a crash interrupted.

Everything that a protocol needs is a method of `Engine`, or of `Engine.history`, which reads the past. A run never
lives inside a request: the engine owns its task, and a stream is one of its readers, which may come and go.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Literal

import msgspec

from dragoman.core.agent import Agent, Summarizer, Summary
from dragoman.core.audit import Action
from dragoman.core.branches import BranchPoint
from dragoman.core.content import Message
from dragoman.core.events import CompactionMade, EncryptedValue, ProtocolName, SettingsChange
from dragoman.core.ids import RunId, SessionId, UserId
from dragoman.core.input_checks import InputLimits, check_change
from dragoman.core.inputs import Create, Submit
from dragoman.core.refusals import (
    AgentNotFound,
    AgentNotServed,
    SessionUnreadable,
    ShuttingDown,
)
from dragoman.core.session import SessionState
from dragoman.core.stream import Cursor
from dragoman.core.tools import AgentSpec
from dragoman.engine.cluster.cluster import Cluster
from dragoman.engine.cluster.single_server import SingleServer
from dragoman.engine.compaction import Compaction
from dragoman.engine.creation import Creation
from dragoman.engine.deletion import Deletion
from dragoman.engine.parts import EngineOptions, EngineServices, EngineStores, Environment
from dragoman.engine.runs.loop_setup import LoopSetup
from dragoman.engine.runs.replays import Replays
from dragoman.engine.runs.run_limit import RunLimit
from dragoman.engine.runs.runner import Runner
from dragoman.engine.runs.submissions import BusyPolicy, Submissions, SubmitResult
from dragoman.engine.runs.write_access import WriteAccess
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.services.idempotency import Idempotency, IdempotencyKey
from dragoman.engine.services.served_agents import ServedAgents
from dragoman.engine.sessions.branches import Branches
from dragoman.engine.sessions.group_commit import GroupCommitter
from dragoman.engine.sessions.history import History
from dragoman.engine.sessions.kept_values import KeptValues
from dragoman.engine.sessions.live_session import to_live_session
from dragoman.engine.sessions.log_pages import LogPages
from dragoman.engine.sessions.lookup import FirstRequest, FoundSession, Lease, SessionLookup
from dragoman.engine.sessions.reader import Reader, ReaderRegistry
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.engine.sessions.view import DeletionWatcher, SessionLease, SessionView, Watcher
from dragoman.ports.log import IdempotencyRecord, RecentSessions, RunLocation


# Large: the API of the layer; nearly every method delegates to the part that does the work.
class Engine:
    """One server's engine."""

    def __init__(
        self,
        stores: EngineStores,
        environment: Environment,
        agents: ServedAgents,
        services: EngineServices,
        options: EngineOptions,
    ) -> None:
        log, index = stores.log, stores.index
        cipher, clock, ids = environment.cipher, environment.clock, environment.ids
        self._agents = agents
        self.default_agent = agents.default
        self.index = index
        self.clock = clock
        self.ids = ids
        self.limits = options.input_limits
        self.is_draining = False
        self._cipher = cipher
        self.cluster: Cluster | SingleServer = (
            SingleServer(log, index)
            if stores.cluster_store is None
            else Cluster(stores.cluster_store, log=log, bus=environment.bus, ids=ids)
        )
        """The other servers on the store."""
        self._committer = GroupCommitter(log, window_s=options.commit_window_s, on_commit=self.cluster.on_commit)
        self.attachments = Attachments(stores.blobs)
        self.history = History(log, index, self.attachments)
        self._idempotency = Idempotency(index, clock, self.cluster.coordination_store)
        self.replays = Replays(find_session=self.find_session, log=log, attachments=self.attachments, ids=ids)
        self._runner = Runner(
            setup=LoopSetup(
                agents=agents,
                decrypt_secret=cipher.decrypt,
                replays=self.replays,
                kept_values=lambda live: KeptValues(log, live, options.keep),
                memories=services.memories,
                budgets=services.budgets,
            ),
            agents=agents,
            history=self.history,
            attachments=self.attachments,
            ids=ids,
            wait_for_valid_lease=self.cluster.wait_for_valid_lease,
            timeout_s=options.run_timeout_s,
            max_attempts=options.max_attempts,
            shows_errors=options.shows_errors,
            shows_model_errors=options.shows_model_errors,
        )
        self._sessions = SessionRegistry(
            log,
            self._committer,
            clock,
            self.cluster,
            max_sessions=options.sessions_in_memory,
            take_over=self._runner.take_over,
            is_served=lambda name: agents.find(name) is not None,
        )
        self._audit = services.audit
        self._lookup = SessionLookup(self._sessions, index, is_shared=self.cluster.is_shared)
        self._readers = ReaderRegistry(options.heartbeat_interval_s)
        self._log_pages = LogPages(log)
        self._run_limit = RunLimit(
            options.max_runs_per_user, self._runner.count_unfinished_runs, self.cluster.coordination_store
        )
        self._write_access = WriteAccess(
            self.cluster, self._runner, self._run_limit, self._idempotency, index, self.limits
        )
        self._deletion = Deletion(
            log,
            index,
            sessions=self._sessions,
            write_access=self._write_access,
            cluster=self.cluster,
            attachments=self.attachments,
            clock=clock,
            agents=agents,
            audit=self._audit,
        )
        self._creation = Creation(
            self._sessions,
            index,
            committer=self._committer,
            cluster=self.cluster,
            attachments=self.attachments,
            idempotency=self._idempotency,
            clock=clock,
            ids=ids,
            encrypt_secret=self._encrypt_secret,
        )
        self._compaction = Compaction(self.history, self._write_access, self._run_limit, services.budgets)
        self._branches = Branches(self.history, ids)
        self._submissions = Submissions(
            self._write_access,
            self._branches,
            self._runner,
            self._run_limit,
            services.budgets,
            history=self.history,
            index=index,
            idempotency=self._idempotency,
            attachments=self.attachments,
            profiles=services.profiles,
            ids=ids,
            encrypt_secret=self._encrypt_secret,
            limits=self.limits,
        )
        self.cluster.connect(
            self._sessions,
            agents=agents.names_and_aliases(),
            take_over=self._runner.take_over,
            perform=self._write_access.perform,
        )

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Claim the store, and recover the runs that the previous server left unfinished."""
        self._committer.start()
        await self.cluster.start()
        await self._deletion.resume()

    async def drain(self, grace_s: float) -> None:
        """Refuse new work, let runs end within the grace period, park the rest, and end the streams.

        The next server that starts on the store continues parked runs.
        """
        self.is_draining = self._sessions.is_closed = True
        for reader in self._readers:
            if reader.ends_on_drain:
                reader.end(ShuttingDown("the server is stopping"))
        await self._runner.drain(grace_s)
        await self._readers.end(ShuttingDown("the server is stopping"))

    async def close(self) -> None:
        """Write what is left. Call this after `drain`."""
        self._sessions.close()
        await self._committer.stop()
        await self.cluster.leave()

    def running_sessions(self) -> Sequence[SessionView]:
        """The sessions whose runs are executed on this server."""
        return [live for live in self._sessions if live.run_task is not None]

    def watch(self, watcher: Watcher, on_deleted: DeletionWatcher) -> None:
        """Call `watcher` with the durable events of all sessions, whichever protocol they come from."""
        self._sessions.watchers.append(watcher)
        self._sessions.deletion_watchers.append(on_deleted)

    @property
    def waiting_run_count(self) -> int:
        """The sessions whose run waits until a server serves its agent."""
        return self.cluster.abandoned_count + self._sessions.count_waiting_runs()

    @property
    def sessions_in_memory(self) -> int:
        """The number of sessions in memory."""
        return len(self._sessions)

    # --- agents ---------------------------------------------------------------------------------------------------

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents of this server by name."""
        return self._agents.by_name

    def agent(self, name: str) -> Agent:
        """The agent with a name or an alias. Raises AgentNotFound."""
        agent = self._agents.find(name)
        if agent is None:
            raise AgentNotFound(name, self.agents)
        return agent

    def find_spec(self, name: str) -> AgentSpec | None:
        """The declaration of an agent; None if it is not served here."""
        return None if (agent := self._agents.find(name)) is None else agent.spec

    def agent_for(self, session: SessionView) -> Agent:
        """The agent of a session. Raises AgentNotServed if it is no longer served."""
        if (agent := self._agents.find(session.state.agent)) is None:
            raise AgentNotServed(session.state.agent)
        return agent

    def spec_for(self, session: SessionView) -> AgentSpec | None:
        """The declaration of a session's agent; None if it is no longer served."""
        return self.find_spec(session.state.agent)

    # --- sessions -------------------------------------------------------------------------------------------------

    async def create(
        self,
        owner: UserId,
        request: Create,
        *,
        idempotency_key: IdempotencyKey | None = None,
        limits: InputLimits | None = None,
        run_follows: bool = False,
    ) -> SessionView:
        """Create a session. It is durable when this returns, unless a run follows.

        Args:
            owner: its owner.
            request: its agent, settings and seeds, and its id or name if the client chose one.
            idempotency_key: the client's key for this request, stored with the session.
            limits: instead of the engine's own.
            run_follows: the caller starts a run next, within `first_request`, and tells nobody of the session before
                the run is durable. Both share a commit, unless only a commit can tell whether the id or name is free.

        Raises:
            IdTaken: a session with that id exists, or the owner has one with that name.
            AgentNotFound, Invalid, ShuttingDown, StoreUnavailable: nothing was created.
        """
        self._refuse_when_draining()
        spec = self.agent(request.agent).spec
        limits = limits or self.limits
        return await self._creation.create(owner, spec, request, idempotency_key, limits, run_follows=run_follows)

    def session(
        self, owner: UserId, name: str, *, include_shared: bool = False, reveals_foreign: bool = False
    ) -> SessionLease:
        """Find a session, in `async with`; it stays in memory until the block is left.

        Args:
            owner: the user who makes the request.
            name: its id, or the name that a client of the owner gave it over any protocol (shared rules, 1).
            include_shared: also find another owner's shared session by its id, for reading.
            reveals_foreign: raise Forbidden for another owner's session. Only for protocols that do (shared rules, 2).

        Raises:
            SessionNotFound: there is none, or it belongs to another owner.
            Forbidden: it belongs to another owner, with `reveals_foreign`.
        """
        find = partial(self._lookup.find, owner, name, include_shared=include_shared, reveals_foreign=reveals_foreign)
        return FoundSession(find)

    async def find_session(
        self, owner: UserId, name: str, *, include_shared: bool = False, reveals_foreign: bool = False
    ) -> SessionView:
        """The session as `session` finds it, without a lease."""
        return await self._lookup.find(owner, name, include_shared=include_shared, reveals_foreign=reveals_foreign)

    def lease(self, session: SessionView) -> AbstractContextManager[None]:
        """Keep a session in memory until the block is left."""
        return Lease(to_live_session(session))

    def first_request(self, session: SessionView, *, is_new: bool) -> AbstractAsyncContextManager[None]:
        """Keep a session in memory until the block is left. If the block is refused, a new session is deleted."""
        return FirstRequest(to_live_session(session), self._deletion.delete, is_new=is_new)

    async def exists_for_other_owner(self, owner: UserId, session_id: SessionId) -> bool:
        """Whether another owner has a session with that id. Only for protocols that reveal it (shared rules, 2)."""
        return await self._lookup.exists_for_other_owner(owner, session_id)

    async def page(self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int) -> list[SessionState]:
        """An owner's sessions in their current state, newest first."""
        states = await self.index.page(owner, before, limit)
        return await self._sessions.current_states(states)

    async def recent(self, owner: UserId, text: str, offset: int, limit: int) -> RecentSessions:
        """An owner's sessions in their current state, by their last use; filtered by text."""
        found = await self.index.recent(owner, text, offset, limit)
        return msgspec.structs.replace(found, states=await self._sessions.current_states(found.states))

    async def until_durable(self, marks: Sequence[tuple[SessionId, int]]) -> None:
        """Wait until these events are durable, for those sessions that are in memory."""
        for session_id, seq in marks:
            live = self._sessions.get_loaded(session_id)
            if live is not None and live.state.seq >= seq:  # else another server wrote the event to the store
                await live.until_durable(seq)

    async def change(self, session: SessionView, change: SettingsChange) -> None:
        """Change a session's settings. Durable when this returns.

        Raises:
            SessionBusy: a run is active or queued, and the change affects it: see `admission.check_settings_change`.
            AgentNotServed: the change is of settings that only the session's agent can check.
            Invalid, ShuttingDown: nothing changed.
        """
        self._refuse_when_draining()
        live = to_live_session(session)
        if change.needs_agent() or self.spec_for(live) is not None:
            spec = self.agent_for(live).spec
            change = check_change(spec, live.state.settings, change, self._encrypt_secret, self.limits)
        was_shared = live.state.settings.shared
        await self._write_access.change_settings(live, change)
        if self._audit is not None and change.shared not in {None, was_shared}:
            action: Action = "session.shared" if change.shared else "session.unshared"
            await self._audit.record(action, target=live.state.session_id, user=live.state.owner)

    async def create_replay(
        self, source: SessionView, speed: Literal[1, 2, 5], *, protocol: ProtocolName
    ) -> SessionView:
        """Create a session that replays another one.

        Raises:
            SessionBusy: a run of the recorded session is active or queued.
            Conflict: the recorded session has no complete turn.
            ShuttingDown, StoreUnavailable: nothing was created.
        """
        live = await self.create(source.state.owner, await self.replays.request_for(source, speed, protocol))
        first = await self.replays.next_turn(live)
        if first is not None and first.mode is not None:
            await self.change(live, SettingsChange(mode=first.mode))
        return live

    async def delete(self, session: SessionView) -> None:
        """Delete a session and all its data. Its run is stopped first, so that its readers see the end."""
        await self._deletion.delete(to_live_session(session))

    async def delete_if_expired(self, owner: UserId, session_id: SessionId, idle_since: datetime | None = None) -> bool:
        """Delete a session that has expired, is at rest, and is not used by anybody. Returns whether it was deleted.

        Args:
            owner: its owner.
            session_id: the session.
            idle_since: it has also expired if it has not changed since then.

        Raises:
            SessionNotFound: there is none, or it is another owner's.
            SessionUnreadable: its stored data cannot be decoded.
        """
        async with self.session(owner, session_id) as session:
            return await self._deletion.delete_if_expired(to_live_session(session), idle_since)

    async def delete_by_name(self, owner: UserId, name: str, *, reveals_foreign: bool = False) -> None:
        """Delete a session that `session` would find, even if its stored data cannot be decoded."""
        try:
            async with self.session(owner, name, reveals_foreign=reveals_foreign) as session:
                await self.delete(session)
        except SessionUnreadable as error:
            await self._deletion.delete_unreadable(owner, error.session_id)

    async def add_seeds(self, session: SessionView, seeds: Sequence[Message]) -> None:
        """Add to the past of a session in which nothing has run, durably.

        Calls stay without a result, as the client's claims, until a result is added: they wait for nobody.

        Raises:
            Conflict, AgentNotServed, Invalid: nothing is added.
        """
        self._refuse_when_draining()
        await self._submissions.add_seeds(to_live_session(session), self.agent_for(session).spec, seeds)

    # --- runs -----------------------------------------------------------------------------------------------------

    async def start_run(
        self,
        session: SessionView,
        request: Submit,
        *,
        by: UserId,
        busy: BusyPolicy = "refuse",
        idempotency_key: IdempotencyKey | None = None,
        branch: BranchPoint | None = None,
    ) -> SubmitResult:
        """Accept input for a session and start or queue the run that it asks for. Durable once event `seq` is.

        Args:
            session: the session.
            request: the input.
            by: the user who sends it.
            busy: what to do while a run is active.
            idempotency_key: the client's key, stored with the run. Call this inside `reserve_key`.
            branch: first begin a branch here, as `rewind` does. If the request, which must have messages only, is
                refused, the history stays as it is.

        Raises:
            AgentNotServed, Invalid, SessionBusy, LimitReached, ShuttingDown: nothing changed.
        """
        self._refuse_when_draining()
        live, spec = to_live_session(session), self.agent_for(session).spec
        return await self._submissions.submit(
            live, spec, request, by=by, busy=busy, idempotency_key=idempotency_key, branch=branch
        )

    async def stop_run(
        self, session: SessionView, run_id: RunId | None = None, *, only_if_unwatched: bool = False
    ) -> bool:
        """Stop a session's runs, and cancel its waiting calls. Durable when this returns.

        Args:
            session: the session.
            run_id: stop only this run; by default the active one and all that are queued.
            only_if_unwatched: only if no stream follows the session, on any server.

        Returns:
            Whether there was anything to stop.
        """
        return await self._write_access.stop(to_live_session(session), run_id, only_if_unwatched=only_if_unwatched)

    async def cancel_waiting_calls(self, session: SessionView, run_id: RunId) -> bool:
        """Cancel the calls with which a run stopped, if they wait and nothing ran since. Durable when this returns.

        Returns:
            Whether there were any.
        """
        return await self._write_access.cancel_waiting_calls(to_live_session(session), run_id)

    def on_run_end(self, session: SessionView, callback: Callable[[], object]) -> None:
        """Call `callback` when the session's active run ends, if this server executes one; else at once."""
        if (task := to_live_session(session).run_task) is None:
            callback()
        else:
            task.add_done_callback(lambda _: callback())

    def follow(self, session: SessionView, after: Cursor, *, ends_on_drain: bool = False) -> Reader:
        """A reader of the session's stream after a position. Enter it to read.

        Args:
            session: the session.
            after: the position.
            ends_on_drain: end when the server begins to stop, not when the runs have ended.
        """
        if ends_on_drain:
            self._refuse_when_draining()
        live = to_live_session(session)
        return Reader(live, self._log_pages, after, readers=self._readers, ends_on_drain=ends_on_drain)

    async def rewind(self, session: SessionView, before_seq: int) -> None:
        """Continue from an earlier point: events from `before_seq` on leave the history, but not the log.

        Durable when this returns.

        Raises:
            SessionBusy: a run is active or queued.
            ValueError: the session has no such event.
        """
        live = to_live_session(session)
        async with self._write_access.acquire(live):
            await self._branches.rewind(live, BranchPoint(before_seq))
            await live.until_durable(live.state.seq)

    async def switch_branch(self, session: SessionView, hidden: Sequence[tuple[int, int]]) -> None:
        """Continue in another branch: the history is what is outside these ranges of events.

        Durable when this returns. Open calls are cancelled. The last range extends to the end of the log.

        Raises:
            SessionBusy: a run is active or queued.
        """
        live = to_live_session(session)
        async with self._write_access.acquire(live):
            await self._branches.branch(live, hidden)
            await live.until_durable(live.state.seq)

    async def compact(self, session: SessionView) -> CompactionMade | None:
        """Have the agent summarize a session's older messages now. Durable when this returns.

        Returns:
            The compaction; None if there are fewer than two turns, if it would save no tokens, or if the agent cannot.

        Raises:
            SessionBusy: a run is active or queued, or the session changed meanwhile.
            LimitReached: the owner has as many unfinished runs as allowed, or no tokens left.
        """
        self._refuse_when_draining()
        return await self._compaction.compact(self.agent_for(session), to_live_session(session))

    async def summarize(self, user: UserId, agent: Summarizer, messages: Sequence[Message]) -> Summary | None:
        """Have an agent summarize messages of no session, all but the newest. It counts as a run of the user's.

        Returns None if the agent cannot write one.

        Raises:
            LimitReached: the user has as many unfinished runs as allowed.
        """
        self._refuse_when_draining()
        return await self._compaction.summarize(user, agent, messages)

    # --- idempotency ----------------------------------------------------------------------------------------------

    def reserve_key(self, owner: UserId, key: IdempotencyKey) -> AbstractAsyncContextManager[IdempotencyRecord | None]:
        """Reserve a client's key while its request is processed; see `Idempotency.reserve`."""
        return self._idempotency.reserve(owner, key)

    def reserve_key_with_messages(
        self, owner: UserId, key: IdempotencyKey, session: SessionView, message_ids: Collection[str]
    ) -> AbstractAsyncContextManager[tuple[IdempotencyRecord | None, Mapping[str, int]]]:
        """Reserve a session's key, and find the request's messages there; see `Idempotency.reserve_with_messages`."""
        stored = session.state.session_id if session.durable_cursor.seq else None
        return self._idempotency.reserve_with_messages(owner, key, stored, message_ids)

    async def find_run_of(self, record: IdempotencyRecord | None) -> RunLocation | None:
        """The run that the request of an idempotency record started; None if it started none, or the run is gone."""
        if record is None or record.run_id is None:
            return None
        row = await self.history.find_run(record.owner, record.run_id)
        return None if row is None or row.session_id != record.session_id else row

    async def find_idempotency_record(self, owner: UserId, name: str) -> IdempotencyRecord | None:
        """The record of the request with a key of the owner's."""
        return await self._idempotency.find(owner, name)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _refuse_when_draining(self) -> None:
        if self.is_draining:
            raise ShuttingDown("the server is stopping: try again in a moment")

    def _encrypt_secret(self, plaintext: str) -> EncryptedValue:
        return EncryptedValue(self._cipher.encrypt(plaintext), len(plaintext))
