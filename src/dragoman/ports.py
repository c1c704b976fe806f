"""The contracts that the engine needs from the world. Adapters do not inherit from them; one suite tests them all."""

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec

from dragoman.core.content import JsonObject, Message, Usage
from dragoman.core.events import LoggedEvent
from dragoman.core.ids import CallId, KeyId, MessageId, RunId, SessionId, UserId
from dragoman.core.memories import Memory, MemoryFilter
from dragoman.core.profile import Profile
from dragoman.core.schedules import Fire, Schedule, ScheduleId
from dragoman.core.session import Head, SessionState
from dragoman.core.stream import Cursor, Piece
from dragoman.core.tools import ToolSpec

MAX_HINT_BYTES = 7_900
"""Longest payload of a hint."""
DELTAS_SUBJECT_PREFIX = "words"
"""Subjects that begin so, with a dot and an address behind it, are for what users said."""
MAX_DELTAS_BYTES = 256 * 1024
"""Longest payload of words."""


class Clock(Protocol):
    """The time. Tests hold it."""

    def now(self) -> datetime:
        """The present, aware, in UTC."""


class Ids(Protocol):
    """New identifiers."""

    def new(self) -> str:
        """A UUID of version 7 in canonical form; later ones sort after earlier ones."""


# --- the log ----------------------------------------------------------------------------------------------------------


class IdempotencyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a request with a client's own key did: kept in the transaction that did it.

    It is kept for 24 hours, or if it `lasts`, as long as the session. `fingerprint` is a digest of the request; the
    answer is told again from the session and the run.
    """

    owner: UserId
    key: str
    fingerprint: str
    session_id: SessionId
    run_id: RunId | None
    at: datetime
    lasts: bool = False


class Append(msgspec.Struct, kw_only=True, gc=False):
    """One session's share of a commit: all of it becomes durable, or nothing.

    Args:
        after: the log's last event as the writer knows it; if the log has moved on, the append is refused.
        epoch: the writer's claim on the session; if a later claim wrote, the append is refused.
        events: the next events, `after + 1` and following.
        payloads: the events as JSON, as they are to be stored.
        pieces: new pieces of blocks that stay open.
        closed: blocks that `events` close; their pieces go, the event holds their text.
        head: the state after `events`, when the session is at rest; None while a run is active.
        is_new: the session begins here; refused when there is one of that id.
        name: the client's own name for a new session.
    """

    session_id: SessionId
    owner: UserId
    epoch: int
    after: int
    events: list[LoggedEvent]
    payloads: list[bytes]
    pieces: list[Piece] = []
    closed_blocks: list[tuple[MessageId, int]] = []
    head: Head | None = None
    is_new: bool = False
    name: str | None = None
    idempotency_records: Sequence[IdempotencyRecord] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored: its state at the last rest, the events since then, and the pieces of open blocks.

    Events since then, and pieces, are there only when a server died in the middle of a run.
    """

    head: SessionState
    events: Sequence[LoggedEvent]
    pieces: Sequence[Piece]


class RunLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run begins in its session's log: at its start, or while it waits, at its queuing."""

    run_id: RunId
    session_id: SessionId
    owner: UserId
    first_seq: int


class EventLog(Protocol):
    """The sessions' logs. Reads see only what is durable.

    All methods raise `StoreUnavailable` when the store cannot do its work now.
    """

    async def claim_epoch(self) -> int:
        """A new epoch, greater than all before."""

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        """Write all appends of a batch durably, together; tell for each whether it was taken."""

    async def load(self, session_id: SessionId) -> Snapshot | None:
        """The newest state of a session."""

    async def events(self, session_id: SessionId, after: int, limit: int) -> Sequence[LoggedEvent]:
        """The events that follow `after`, oldest first, at most so many."""

    async def events_before(self, session_id: SessionId, before: int, limit: int) -> Sequence[LoggedEvent]:
        """The events just before event `before`, oldest first, at most so many."""

    async def delete(self, session_id: SessionId) -> None:
        """Remove a session and everything of it."""


class RecentSessions(msgspec.Struct, frozen=True, kw_only=True):
    """A page of an owner's sessions by their use, of `total` in all.

    `is_partial`: there was too much text to search all of it, so that sessions may be missing.
    """

    states: Sequence[SessionState]
    total: int
    is_partial: bool = False


class SessionIndex(Protocol):
    """What can be looked up across sessions; all of it could be rebuilt from the logs."""

    async def page(
        self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int
    ) -> Sequence[SessionState]:
        """An owner's sessions, newest first, from the position of one on. Their states are those of their last rest."""

    async def recent(self, owner: UserId, text: str, offset: int, limit: int) -> RecentSessions:
        """An owner's sessions, the pinned ones first, then those changed last; of equal times the later made first.

        Args:
            owner: whose.
            words: only those whose title or messages hold this text, in whatever case; empty: all.
            offset: sessions left out at the beginning.
            limit: most sessions given.
        """

    async def unfinished_sessions(self) -> Sequence[SessionId]:
        """The sessions with a run that has not stopped."""

    async def find_run(self, run_id: RunId) -> RunLocation | None:
        """A run by its id."""

    async def known_calls(self, session_id: SessionId, call_ids: Collection[CallId]) -> set[CallId]:
        """Those of the calls that the session's log knows."""

    async def find_by_name(self, owner: UserId, name: str) -> SessionId | None:
        """The session that its owner's client calls so."""

    async def find_idempotency_record(self, owner: UserId, key: str) -> IdempotencyRecord | None:
        """What the request with that key did."""

    async def find_messages(self, session_id: SessionId, ids: Collection[str]) -> dict[str, int]:
        """Of these ids, those of messages in the session's log, with the event that completed each.

        A user message is found by its own id and by the client's for it; of several with one id, the newest is.
        """

    async def find_request(
        self, owner: UserId, key: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[IdempotencyRecord | None, dict[str, int]]:
        """`once` and `messages` in one: what is known of a request that brings messages."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key as it is stored: never the key itself. `masked` shows its prefix and its last four characters."""

    key_id: KeyId
    digest: bytes
    name: str
    user: UserId
    masked_key: str = msgspec.field(name="masked")
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


class ApiKeyStore(Protocol):
    """The stored API keys."""

    async def add(self, key: ApiKey) -> None:
        """Store a key."""

    async def all(self) -> Sequence[ApiKey]:
        """All keys, oldest first."""

    async def remove(self, key_id: KeyId) -> bool:
        """Remove a key. False: there was none."""

    async def rename(self, key_id: KeyId, name: str) -> None:
        """Call a key otherwise; nothing happens when there is none."""

    async def touch(self, used: Sequence[tuple[KeyId, datetime]]) -> None:
        """Note when keys were last used."""


class ProfileStore(Protocol):
    """The users' stored profiles."""

    async def all(self) -> Sequence[Profile]:
        """All of them."""

    async def put(self, profile: Profile) -> None:
        """Store a user's, replacing what was there."""


class MemoryStore(Protocol):
    """What is remembered of the users. One user's memories are nobody else's."""

    async def add(self, memory: Memory, replaces: int | None = None) -> Memory | None:
        """Store a new memory, with the id that it gets. None: the user has no memory `replaces`; nothing was stored.

        The replaced one is superseded by it from here on.
        """

    async def get(self, user: UserId, ids: Collection[int]) -> Sequence[Memory]:
        """Those of the memories that the user has, newest first."""

    async def page(self, user: UserId, criteria: MemoryFilter, offset: int, limit: int) -> tuple[Sequence[Memory], int]:
        """The memories that fit, newest first, from a place on; and how many fit in all."""

    async def put(self, memory: Memory, *, expected: Memory) -> bool:
        """Store a memory's texts, its time of change and whether it is disabled.

        False: it is not there any more, or was changed since it was as given.
        """

    async def set_disabled(self, user: UserId, ids: Collection[int], *, disabled: bool, at: datetime) -> int:
        """Disable or enable memories. How many were otherwise before."""

    async def remove(self, user: UserId, ids: Collection[int]) -> int:
        """Remove memories for good. How many there were."""

    async def candidates(self, user: UserId, trigrams: Sequence[str]) -> Sequence[Memory]:
        """Memories in force that may count: the newest, and those whose text has most in common with the trigrams."""

    async def record_hits(self, run_id: RunId, user: UserId, ids: Collection[int], at: datetime) -> None:
        """Count that an agent was told of these memories; of one run only once."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A link that shows a session to whoever has it, as it is stored: never its token."""

    digest: bytes
    owner: UserId
    session_id: SessionId
    created_at: datetime
    expires_at: datetime | None = None


class ShareStore(Protocol):
    """The stored links. They go with their sessions."""

    async def add(self, share: Share) -> None:
        """Store a link; those that have expired by its creation may go."""

    async def get(self, digest: bytes) -> Share | None:
        """The link of that token."""

    async def remove(self, session_id: SessionId, digest: bytes) -> bool:
        """Remove a link of a session. False: there was none."""


class ScheduleStore(Protocol):
    """The users' schedules, and the times of theirs that came due."""

    async def put(self, schedule: Schedule) -> None:
        """Store a schedule, replacing what was there."""

    async def remove(self, schedule_id: ScheduleId) -> None:
        """Remove a schedule with all its fires."""

    async def all(self) -> Sequence[Schedule]:
        """All schedules, oldest first."""

    async def claim_fire(self, schedule: Schedule, fire: Fire) -> bool:
        """Store a fire and its schedule as it stands afterwards, together. False: that time was claimed before."""

    async def update_fire(self, fire: Fire) -> None:
        """Store what became of a fire; nothing happens when it is there no more."""

    async def fires(self, schedule_id: ScheduleId, offset: int, limit: int) -> Sequence[Fire]:
        """A schedule's fires, newest first, from a place on."""

    async def running_fires(self) -> Sequence[Fire]:
        """The fires that have not ended, oldest first."""


class ArchivedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as an archive lists it: what cannot be told from its log."""

    session_id: SessionId
    owner: UserId
    name: str | None
    idempotency_records: Sequence[IdempotencyRecord]


class StoreArchive(Protocol):
    """All that a server's stores hold, whosever it is: for copying it elsewhere while no server runs."""

    async def count(self) -> int:
        """How many sessions there are."""

    async def sessions(self, after: SessionId | None, limit: int) -> Sequence[ArchivedSession]:
        """The sessions by their id, from one on."""

    async def memories(self, after: int, limit: int) -> Sequence[Memory]:
        """The memories of all users by their id, from one on."""

    async def restore_memories(self, memories: Sequence[Memory]) -> None:
        """Store memories with the ids that they have. Those that are made later get greater ones."""

    async def shares(self) -> Sequence[Share]:
        """All links."""


class Transcriber(Protocol):
    """Makes text of speech."""

    async def transcribe(self, audio: bytes) -> str:
        """What is said in a WAV recording.

        Raises:
            TranscriptionFailed: there is no answer; the message is for the log.
        """

    async def aclose(self) -> None:
        """Give up everything."""


class TranscriptionFailed(Exception):
    """A recording could not be made into text."""


class BlobStore(Protocol):
    """Large values by name. A name is made of `/`-separated parts of letters, digits, `_`, `.` and `-`."""

    async def put(self, name: str, content: bytes) -> None:
        """Store durably, replacing what was there."""

    async def get(self, name: str) -> bytes | None:
        """The content."""

    async def delete(self, name: str) -> None:
        """Remove it, and all whose names begin with it and a `/`; nothing happens when there is none."""

    async def names(self, prefix: str | None = None) -> Sequence[str]:
        """The names of all blobs, in order; or of those alone that begin with one and a `/`."""


class Bus(Protocol):
    """Hints between the parts of a server, and between servers. Whoever hears one looks the truth up.

    They may be lost, repeated, late and out of order; who publishes hears it too. Both methods are called on the loop,
    and so is what hears; what that raises is logged, and nobody else notices. A payload has at most `PAYLOAD_BYTES` and
    none of what a user said, but for words: these have subjects and a bound of their own, and come as they were sent to
    those alone who may read them, or not at all.
    """

    @property
    def deltas_group(self) -> str | None:
        """What all those have in common that can read each other's words; None: it carries none."""

    def publish(self, subject: str, payload: str) -> None:
        """Tell every subscriber of the subject, wherever it is. Never waits, never raises."""

    def subscribe(self, subject: str, handler: Callable[[str], None]) -> Callable[[], None]:
        """Call `heard` with each payload. Returns what ends the subscription."""


# --- several servers --------------------------------------------------------------------------------------------------


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Another server on the same store. `seen` is the latest newcomer's epoch that it has taken note of."""

    node_id: str
    epoch: int
    seen_epoch: int
    is_alive: bool


class SessionClaim(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim on a session found. `epoch` is that of the claim; None: the session is another server's."""

    epoch: int | None
    created_at: datetime
    seq: int
    is_running: bool


class SessionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What a session has behind a position, and which server wrote it last.

    `created_at` tells it from an older session of the same id, which was deleted.
    """

    session_id: SessionId
    created_at: datetime
    node_id: str | None
    is_running: bool
    seq: int
    events: Sequence[LoggedEvent]
    pieces: Sequence[Piece]


class PendingCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What another server asks."""

    request_id: str
    session_id: SessionId
    body: bytes


class ClusterStore(Protocol):
    """The servers on one store: who lives, and who writes which session.

    A session with a run is its server's for as long as that lives; one at rest is anybody's. All methods that wait
    raise `StoreUnavailable`.
    """

    @property
    def node_id(self) -> str:
        """This server; another name after each `join`."""

    def lease_remaining_s(self) -> float:
        """How long this server's lease surely holds; from any thread. Not more than 0: others may take its sessions."""

    @property
    def is_lease_expired(self) -> bool:
        """Whether the lease ended. What this server had may be others' by now, until it joins anew."""

    async def join(self) -> int:
        """Live from now on, and be renewed; this server's epoch, later than all before."""

    async def leave(self) -> None:
        """Live no more: others may take what this server had at once."""

    async def other_nodes(self) -> Sequence[Node]:
        """The other servers."""

    def publish_seen_epoch(self, epoch: int) -> None:
        """Tell the others, soon, up to which epoch newcomers are known here."""

    async def remove_dead_nodes(self) -> None:
        """Forget the servers that died and left nothing behind."""

    async def claim_session(self, session_id: SessionId) -> SessionClaim | None:
        """Take a session that is at rest or has no living owner; None: there is none of that id.

        One at rest is kept from others for a moment, in which to write to it.
        """

    async def release_session(self, session_id: SessionId, epoch: int) -> None:
        """Give back what was claimed and not written to."""

    async def claim_abandoned(self, limit: int) -> Sequence[SessionId]:
        """Take some of the sessions whose runs have no living owner."""

    async def session_updates(self, positions: Sequence[tuple[SessionId, Cursor]]) -> Sequence[SessionUpdate]:
        """What sessions have behind those positions. One that is not told of is no more."""

    async def send_command(self, request_id: str, session_id: SessionId, body: bytes) -> str | None:
        """Ask the server that plays a session's run; which one that is. None: there is no run, or none that lives."""

    async def pending_commands(self) -> Sequence[PendingCommand]:
        """What this server was asked and has not answered."""

    async def store_reply(self, request_id: str, answer: bytes) -> None:
        """Answer."""

    async def find_reply(self, request_id: str) -> tuple[bytes | None, bool]:
        """The answer, if there is one, and whether there may still be one."""

    async def discard_command(self, request_id: str) -> None:
        """Remove a request."""

    async def lock_idempotency_key(self, owner: UserId, key: str) -> bool:
        """Have a request's key to oneself, for half a minute at most.

        False: another server has it now, or this one's lease has ended.
        """

    async def unlock_idempotency_key(self, owner: UserId, key: str) -> None:
        """Let others have a key."""

    async def claim_abandoned_fires(self) -> Collection[str]:
        """Take the running fires without a living owner; their ids."""

    async def schedules_version(self) -> int:
        """A number that is another one when a schedule changed, whoever changed it."""


class Cipher(Protocol):
    """Keeps secrets at rest."""

    def encrypt(self, plaintext: str) -> str:
        """Encrypt."""

    def decrypt(self, ciphertext: str) -> str:
        """Decrypt. Raises ValueError when it was sealed with another key."""


# --- models -----------------------------------------------------------------------------------------------------------


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model.

    `messages` open with the conversation's oldest message; an assistant message's calls are each answered by a tool
    message before the next user or assistant message. `instructions` rank above all of them.
    """

    model: str
    messages: Sequence[Message]
    instructions: str = ""
    tools: Sequence[ToolSpec] = ()
    max_tokens: int | None = None
    parameters: JsonObject = msgspec.field(default_factory=dict)
    """Further settings such as `temperature`, by their OpenAI names."""


class TextDelta(msgspec.Struct, frozen=True):
    """The next words of the answer; never empty."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """The next words of the reasoning; never empty."""

    text: str


class CallRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A whole call, its arguments complete. `input` is None when they are no JSON object; `raw` is their text."""

    id: str
    name: str
    input: JsonObject | None
    raw: str


ModelStop = Literal["end_turn", "tool_use", "max_tokens", "refusal"]


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The last event of a model call. A call that the token limit cut off was dropped before."""

    stop: ModelStop
    usage: Usage | None = None


ModelEvent = TextDelta | ThinkingDelta | CallRequested | Finished


class Model(Protocol):
    """A language model."""

    @property
    def context_window(self) -> int | None:
        """Tokens that a request and its answer may have together; None when unknown."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model. Closing the stream early cancels the call.

        Raises:
            ModelUnavailable: it cannot be reached or has no capacity; trying later may help.
            ModelFailed: it refused the request or broke its answer off; trying again will not help.
            ContextTooLong: the request has more tokens than the model takes.
        """


class ModelFailed(Exception):
    """A model call failed. The message is for the log; `code` is for clients."""

    code = "model_error"


class ModelUnavailable(ModelFailed):
    """The model cannot be reached now."""

    code = "model_unavailable"


class ContextTooLong(ModelFailed):
    """The request does not fit into the model's context window."""

    code = "context_too_long"
