"""Creates sessions. Two requests, on one server or several, may choose the same id or name: one of them is refused."""

from dragoman.core import admission
from dragoman.core.ids import SessionId, UserId
from dragoman.core.input_checks import EncryptFunction, InputLimits
from dragoman.core.inputs import Create
from dragoman.core.refusals import IdTaken, StoreUnavailable
from dragoman.core.tools import AgentSpec
from dragoman.engine.cluster.cluster import Cluster
from dragoman.engine.cluster.single_server import SingleServer
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.services.idempotency import Idempotency, IdempotencyKey
from dragoman.engine.sessions.group_commit import GroupCommitter
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.environment import Clock, Ids
from dragoman.ports.log import SessionIndex


class Creation:
    """Creates sessions.

    Args:
        sessions: those in memory.
        index: finds those in the store.
        committer: writes them.
        cluster: the other servers on the store.
        attachments: stores large contents of their seeds.
        idempotency: makes the records of requests with a key.
        clock: the time.
        ids: makes ids.
        encrypt_secret: encrypts secrets among their options.
    """

    def __init__(
        self,
        sessions: SessionRegistry,
        index: SessionIndex,
        *,
        committer: GroupCommitter,
        cluster: Cluster | SingleServer,
        attachments: Attachments,
        idempotency: Idempotency,
        clock: Clock,
        ids: Ids,
        encrypt_secret: EncryptFunction,
    ) -> None:
        self._sessions = sessions
        self._index = index
        self._committer = committer
        self._cluster = cluster
        self._attachments = attachments
        self._idempotency = idempotency
        self._clock = clock
        self._ids = ids
        self._encrypt_secret = encrypt_secret

    async def create(
        self,
        owner: UserId,
        spec: AgentSpec,
        request: Create,
        key: IdempotencyKey | None,
        limits: InputLimits,
        *,
        run_follows: bool,
    ) -> LiveSession:
        """Create a session of an agent; see `Engine.create`."""
        session_id = request.session_id or SessionId(self._ids.new())
        await self._require_free(owner, request)
        created = admission.create(spec, request, self._encrypt_secret, limits)
        events = await self._attachments.put_seeds(session_id, created)
        await self._cluster.wait_until_joined()
        if session_id in self._sessions:  # another request was faster
            raise IdTaken("a session with this id exists")
        live = LiveSession.new(
            session_id,
            events,
            owner=owner,
            name=request.name,
            idempotency_record=self._idempotency.make_record(owner, key, session_id, None),
            epoch=self._sessions.epoch,
            committer=self._committer,
            clock=self._clock,
        )
        self._sessions.add(live)
        if run_follows and not self._may_be_taken(request):
            return live
        try:
            await live.until_durable(live.state.seq)
        except StoreUnavailable:
            self._sessions.remove(live)
            await self._require_free(owner, request)  # another server may have been faster
            raise
        return live

    def _may_be_taken(self, request: Create) -> bool:
        """Whether another request may get the session's id or name first, which only the commit decides."""
        return request.name is not None or (request.session_id is not None and self._cluster.is_shared)

    async def _require_free(self, owner: UserId, request: Create) -> None:
        if request.session_id is not None and await self._sessions.get(request.session_id) is not None:
            raise IdTaken("a session with this id exists")
        if request.name is not None and await self._index.find_by_name(owner, request.name) is not None:
            raise IdTaken("a session with this name exists")
