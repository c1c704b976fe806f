"""What an engine is built from: its stores, its environment, the services that it uses, and its settings."""

import msgspec

from dragoman.core.input_checks import InputLimits
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.memories import MemoryService
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.engine.sessions.kept_values import KeepLimits
from dragoman.ports.blobs import BlobStore
from dragoman.ports.bus import Bus
from dragoman.ports.cluster import ClusterStore
from dragoman.ports.environment import Cipher, Clock, Ids
from dragoman.ports.log import EventLog, StoreIndex


class EngineStores(msgspec.Struct, frozen=True):
    """Where sessions are stored."""

    log: EventLog
    index: StoreIndex
    blobs: BlobStore
    cluster_store: ClusterStore | None = None
    """What the servers on the store share; None if there can be only one."""


class Environment(msgspec.Struct, frozen=True):
    """What an engine needs besides its stores."""

    bus: Bus
    cipher: Cipher
    clock: Clock
    ids: Ids


class EngineServices(msgspec.Struct, frozen=True):
    """The services of the server that sessions use."""

    budgets: TokenBudgets
    memories: MemoryService | None = None
    profiles: ProfileService | None = None
    audit: AuditLog | None = None


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's settings."""

    input_limits: InputLimits = InputLimits()
    sessions_in_memory: int = 1000
    run_timeout_s: float = 3600.0
    max_runs_per_user: int = 0
    """Unfinished runs of one user, running and queued; 0 for no limit."""
    max_attempts: int = 5
    """How many processes may die during a run before it ends as interrupted."""
    heartbeat_interval_s: float = 15.0
    """Silence after which a stream gets a heartbeat."""
    commit_window_s: float = 0.002
    keep: KeepLimits = KeepLimits()
    """How much agents may keep with their sessions and messages."""
    shows_errors: bool = False
    """Whether clients get the text of an agent's exception and the line of code. Else only the log has them."""
    shows_model_errors: bool = False
    """Whether clients get the messages of a model's errors. Else only the log has them."""
