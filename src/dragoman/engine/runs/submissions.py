"""Letting input into sessions: what a client sends becomes events of its session, and the run that it asks for starts.

    at rest                                  ──► it runs
    busy, and who asks is not patient        ──► refused
    busy, to be queued                       ──► it waits, here or at the server that plays the run
    busy, to be superseded                   ──► what is active is stopped, and it runs

What can be refused is checked before anything is stored, and again when the session is had to itself.
"""

from typing import Literal

import msgspec

from dragoman.core import admission
from dragoman.core.events import RunQueued, SettingsChange
from dragoman.core.ids import CallId, RunId, UserId
from dragoman.core.input_checks import EncryptFunction, InputLimits, check_answer, check_change, check_messages
from dragoman.core.inputs import Submit
from dragoman.core.refusals import SessionBusy
from dragoman.core.tools import AgentSpec
from dragoman.engine.runs.run_limit import RunLimit
from dragoman.engine.runs.runner import Runner
from dragoman.engine.runs.write_access import WriteAccess
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.services.idempotency import Idempotency, IdempotencyKey
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.sessions.branches import Branches
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.environment import Ids
from dragoman.ports.log import LogLookup

BusyPolicy = Literal["refuse", "queue", "supersede"]
"""What a second input does while a run is active: it is refused, it waits, or the run is stopped for it."""


class SubmitResult(msgspec.Struct, frozen=True):
    """What became of a request. No run: more answers are needed. `seq` is the run's first event, when it has begun."""

    run_id: RunId | None
    seq: int
    is_queued: bool = False


class Submissions:
    """Lets input into sessions, wherever their runs are played."""

    def __init__(
        self,
        write_access: WriteAccess,
        branches: Branches,
        runner: Runner,
        run_limit: RunLimit,
        *,
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
        before_seq: int | None,
    ) -> SubmitResult:
        """See `Engine.submit`; `spec` is the session's agent."""
        request = self._with_profile(request, by)
        change = check_change(spec, live.state.settings, request.change, self._encrypt_secret, self._limits)
        check_messages(spec, request.messages, self._limits)
        for answer in request.answers:
            check_answer(spec, answer, self._limits)
        with self._run_limit.reserve(live.state.owner):
            return await self._accept(live, spec, request, change, by, busy, idempotency_key, before_seq)

    async def _accept(
        self,
        live: LiveSession,
        spec: AgentSpec,
        request: Submit,
        change: SettingsChange,
        by: UserId,
        busy: BusyPolicy,
        idempotency_key: IdempotencyKey | None,
        before_seq: int | None,
    ) -> SubmitResult:
        is_patient = busy != "refuse" and bool(request.messages) and not request.answers
        async with self._write_access.acquire(live):
            if admission.is_busy(live.state) and not is_patient:
                raise SessionBusy("a run of this session is active")
            if self._attachments.has_large_content(*request.messages, *request.answers):
                if not admission.is_busy(live.state):
                    await self._admit(live, spec, request, change, by)  # what is refused leaves nothing in the store
                request = await self._store_attachments(live, request)
            while is_patient and admission.is_busy(live.state):
                if busy == "queue":
                    queued = admission.queue_run(live.state, spec, request, change, self._ids.new, self._limits)
                    submitted = await self._enqueue(live, queued, idempotency_key)
                    if submitted is not None:
                        return submitted
                else:
                    await self._write_access.stop(live, None)  # and again, when somebody else was quicker
                await self._write_access.claim(live)
            if before_seq is not None:
                await self._admit(live, spec, request, change, by)  # what is refused leaves the history as it is
                await self._branches.rewind(live, before_seq)
            while True:
                admitted = await self._admit(live, spec, request, change, by)
                if self._write_access.may_write(live):
                    return self._append(live, admitted, idempotency_key)
                await self._write_access.claim(live)
                if admission.is_busy(live.state):
                    raise SessionBusy("a run of this session is active")

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _enqueue(
        self, live: LiveSession, queued: admission.Admission, idempotency_key: IdempotencyKey | None
    ) -> SubmitResult | None:
        """Let a run wait for the active one's end; None: there is none any more."""
        if not live.is_remote:
            return self._append(live, queued, idempotency_key)
        (event,) = queued.events
        assert isinstance(event, RunQueued), "it waits"
        kept = self._idempotency.make_record(live.state.owner, idempotency_key, live.state.session_id, event.run_id)
        seq = await self._write_access.enqueue(live, event, kept)
        return None if seq is None else SubmitResult(event.run_id, seq, is_queued=True)

    async def _admit(
        self, live: LiveSession, spec: AgentSpec, request: Submit, change: SettingsChange, by: UserId
    ) -> admission.Admission:
        """What the request does now. Nothing is waited for unless it answers what is not asked."""
        answerable = live.state.answerable_calls() if request.answers else {}
        first = request.answers[: len(answerable) + 1]  # among more than there are calls, one of these is wrong
        strange = [each.call_id for each in first if each.call_id not in answerable]
        resolved: set[CallId] = set()
        if strange:
            resolved = await self._index.known_calls(live.state.session_id, strange)
        return admission.admit(
            live.state, spec, request, change, by=by, resolved=resolved, new_id=self._ids.new, limits=self._limits
        )

    def _append(
        self, live: LiveSession, admitted: admission.Admission, idempotency_key: IdempotencyKey | None
    ) -> SubmitResult:
        state = live.state
        kept = self._idempotency.make_record(state.owner, idempotency_key, state.session_id, admitted.run_id)
        live.append(admitted.events, admitted.run_id, idempotency_record=kept)
        if admitted.run_id is None or admitted.is_queued or state.run is None:
            return SubmitResult(admitted.run_id, state.seq, admitted.is_queued)
        self._runner.start(live)
        return SubmitResult(admitted.run_id, state.run.started_seq)

    async def _store_attachments(self, live: LiveSession, request: Submit) -> Submit:
        """The request with names in place of large contents. Nothing is waited for when there are none."""
        session_id = live.state.session_id
        return msgspec.structs.replace(
            request,
            messages=await self._attachments.put(session_id, request.messages),
            answers=await self._attachments.put_answers(session_id, request.answers),
        )

    def _with_profile(self, request: Submit, by: UserId) -> Submit:
        """The request with what its user has set for all runs, as it is now (shared rules, 6)."""
        profile = None if self._profiles is None else self._profiles.for_user(by)
        if profile is None or not (profile.time_zone or profile.locale):
            return request
        metadata = msgspec.structs.replace(
            request.metadata,
            time_zone=request.metadata.time_zone or profile.time_zone or None,
            locale=request.metadata.locale or profile.locale or None,
        )
        return msgspec.structs.replace(request, metadata=metadata)
