"""Submissions: a client's input becomes events of its session, and the requested run starts.

    at rest                  ──► the run starts
    busy, policy refuse      ──► refused
    busy, policy queue       ──► the run is queued, here or on the server that executes the active run
    busy, policy supersede   ──► the active run is stopped, and the new one starts

Requests are checked before anything is stored, and again once this server may write to the session.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from dragoman.core import admission
from dragoman.core.branches import BranchPoint
from dragoman.core.content import Message
from dragoman.core.events import MessageAdded, RunQueued, SettingsChange
from dragoman.core.history import messages_of
from dragoman.core.ids import CallId, RunId, UserId
from dragoman.core.input_checks import (
    EncryptFunction,
    InputLimits,
    check_answer,
    check_change,
    check_content,
    check_messages,
)
from dragoman.core.inputs import Submit
from dragoman.core.principal import HOPS
from dragoman.core.refusals import Conflict, SessionBusy
from dragoman.core.seeds import check_added_seeds
from dragoman.core.tools import AgentSpec
from dragoman.engine.runs.run_limit import RunLimit
from dragoman.engine.runs.runner import Runner
from dragoman.engine.runs.write_access import WriteAccess
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.services.idempotency import Idempotency, IdempotencyKey
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.engine.sessions.branches import Branches
from dragoman.engine.sessions.history import History
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.environment import Ids
from dragoman.ports.log import LogLookup

BusyPolicy = Literal["refuse", "queue", "supersede"]
"""What happens to input while a run is active: it is refused, it is queued, or the active run is stopped for it."""


class SubmitResult(msgspec.Struct, frozen=True):
    """The result of a request. No run: more answers are needed. `seq` is the first event of a run that has started."""

    run_id: RunId | None
    seq: int
    is_queued: bool = False


class _Submission(NamedTuple):
    """A request that was checked without the session's state."""

    spec: AgentSpec
    request: Submit
    change: SettingsChange
    by: UserId
    idempotency_key: IdempotencyKey | None


class Submissions:
    """Accepts input for sessions, whichever server executes their runs."""

    def __init__(
        self,
        write_access: WriteAccess,
        branches: Branches,
        runner: Runner,
        run_limit: RunLimit,
        budgets: TokenBudgets,
        *,
        history: History,
        index: LogLookup,
        idempotency: Idempotency,
        attachments: Attachments,
        profiles: ProfileService | None,
        ids: Ids,
        encrypt_secret: EncryptFunction,
        limits: InputLimits,
    ) -> None:
        self._write_access = write_access
        self._branches = branches
        self._runner = runner
        self._run_limit = run_limit
        self._budgets = budgets
        self._history = history
        self._index = index
        self._idempotency = idempotency
        self._attachments = attachments
        self._profiles = profiles
        self._ids = ids
        self._encrypt_secret = encrypt_secret
        self._limits = limits

    async def submit(
        self,
        live: LiveSession,
        spec: AgentSpec,
        request: Submit,
        *,
        by: UserId,
        busy: BusyPolicy,
        idempotency_key: IdempotencyKey | None,
        branch: BranchPoint | None,
    ) -> SubmitResult:
        """Accept a request; `spec` is that of the session's agent. See `Engine.start_run`."""
        request = self._completed(request, by)
        settings = live.state.settings
        change = check_change(spec, settings, request.change, self._encrypt_secret, self._limits)
        change = admission.with_listing(settings, request, change)
        check_messages(spec, request.messages, self._limits)
        for text in (*request.system, request.metadata.instructions):
            if text:
                check_content(spec, text, self._limits, "instructions")
        for answer in request.answers:
            check_answer(spec, answer, self._limits)
        await self._budgets.require(live.state.owner, request.metadata.key_id)
        with await self._run_limit.reserve(live.state.owner):
            submission = _Submission(spec, request, change, by, idempotency_key)
            return await self._accept(live, submission, busy, branch)

    async def _accept(
        self, live: LiveSession, submission: _Submission, busy: BusyPolicy, branch: BranchPoint | None
    ) -> SubmitResult:
        request = submission.request
        may_wait = busy != "refuse" and bool(request.messages) and not request.answers
        async with self._write_access.acquire(live):
            if admission.is_busy(live.state) and not may_wait:
                raise SessionBusy
            if self._attachments.has_large_content(*request.messages, *request.answers):
                if not admission.is_busy(live.state):
                    await self._admit(live, submission)  # a refused request stores nothing
                submission = submission._replace(request=await self._store_attachments(live, request))
            while may_wait and admission.is_busy(live.state):
                if busy == "queue":
                    submitted = await self._enqueue(live, submission)
                    if submitted is not None:
                        return submitted
                else:
                    await self._write_access.stop(live, None)  # and again if another run started meanwhile
                await self._write_access.claim(live)
            if branch is not None:
                await self._admit(live, submission)  # a refused request must not change the history
                await self._branches.rewind(live, branch)
            while True:
                admitted = await self._admit(live, submission)
                if self._write_access.may_write(live):
                    return self._append(live, admitted, submission.idempotency_key)
                await self._write_access.claim(live)
                if admission.is_busy(live.state):
                    raise SessionBusy

    async def add_seeds(self, live: LiveSession, spec: AgentSpec, seeds: Sequence[Message]) -> None:
        """Add to the past of a session. See `Engine.add_seeds`."""
        stored: Sequence[Message] | None = None
        async with self._write_access.acquire(live):
            while True:
                checked = live.state.seq
                await live.until_durable(checked)
                earlier = messages_of(await self._history.shown_events(live))  # without reading their attachments
                check_added_seeds(spec, seeds, self._limits, earlier)
                if stored is None:  # a refused request stores nothing
                    stored = await self._attachments.put(live.state.session_id, seeds)
                may_write = await self._write_access.claim(live)
                if not may_write or live.state.last_run is not None or admission.is_busy(live.state):
                    raise Conflict("a past can be added only before the first run")
                if live.state.seq == checked:  # else another request has added something meanwhile
                    break
            live.append([MessageAdded(message=message) for message in stored], None)
        await live.until_durable(live.state.seq)

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _enqueue(self, live: LiveSession, submission: _Submission) -> SubmitResult | None:
        """Queue a run after the active one; None if there is none any more."""
        spec, request, change, _, key = submission
        queued = admission.queue_run(live.state, spec, request, change, self._ids.new, self._limits)
        if self._write_access.may_write(live):
            return self._append(live, queued, key)
        (event,) = queued.events
        assert isinstance(event, RunQueued), "it was queued"
        record = self._idempotency.make_record(live.state.owner, key, live.state.session_id, event.run_id)
        seq = await self._write_access.enqueue(live, event, record)
        return None if seq is None else SubmitResult(event.run_id, seq, is_queued=True)

    async def _admit(self, live: LiveSession, submission: _Submission) -> admission.Admission:
        """Decide on a request in the current state, or raise its refusal. Nothing changes.

        This waits only if an answer names a call that is not open.
        """
        spec, request, change, by, _ = submission
        answerable = live.state.answerable_calls() if request.answers else {}
        first = request.answers[: len(answerable) + 1]  # if there are more answers than calls, one of these is wrong
        unknown = [each.call_id for each in first if each.call_id not in answerable]
        resolved: set[CallId] = set()
        if unknown:
            resolved = await self._index.known_calls(live.state.session_id, unknown)
        return admission.admit(
            live.state, spec, request, change, by=by, resolved=resolved, new_id=self._ids.new, limits=self._limits
        )

    def _append(
        self, live: LiveSession, admitted: admission.Admission, idempotency_key: IdempotencyKey | None
    ) -> SubmitResult:
        state = live.state
        record = self._idempotency.make_record(state.owner, idempotency_key, state.session_id, admitted.run_id)
        live.append(admitted.events, admitted.run_id, idempotency_record=record)
        if admitted.run_id is None or admitted.is_queued or state.run is None:
            return SubmitResult(admitted.run_id, state.seq, admitted.is_queued)
        self._runner.start(live)
        return SubmitResult(admitted.run_id, state.run.started_seq)

    async def _store_attachments(self, live: LiveSession, request: Submit) -> Submit:
        """The request with references in place of large contents, which are stored."""
        session_id = live.state.session_id
        return msgspec.structs.replace(
            request,
            messages=await self._attachments.put(session_id, request.messages),
            answers=await self._attachments.put_answers(session_id, request.answers),
        )

    def _completed(self, request: Submit, by: UserId) -> Submit:
        """The request with the time zone and locale of its user's profile (shared rules, 6), its hops and its key."""
        metadata = request.metadata
        if hops := HOPS.get():
            metadata = msgspec.structs.replace(metadata, hops=hops)
        if key_id := self._budgets.limited_key():
            metadata = msgspec.structs.replace(metadata, key_id=key_id)
        profile = None if self._profiles is None else self._profiles.for_user(by)
        if profile is not None and (profile.time_zone or profile.locale):
            metadata = msgspec.structs.replace(
                metadata,
                time_zone=metadata.time_zone or profile.time_zone or None,
                locale=metadata.locale or profile.locale or None,
            )
        return request if metadata is request.metadata else msgspec.structs.replace(request, metadata=metadata)
