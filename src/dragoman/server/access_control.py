"""The access control of a server, by its settings."""

from dragoman.core.audit import Actor
from dragoman.core.principal import Principal
from dragoman.core.quotas import show_quota
from dragoman.core.refusals import LimitReached
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.authentication import Authenticator, KeysAndTokens, NoKeys
from dragoman.engine.services.connection_memory import ConnectionMemory
from dragoman.engine.services.keys import KeyRing
from dragoman.engine.services.limits import ConcurrencyLimit, RateLimit
from dragoman.ports.environment import Clock
from dragoman.ports.identity import TokenVerifier
from dragoman.protocols.kit.access import AccessControl, AdmitStream, Authenticate
from dragoman.settings import Settings


def make_access_control(
    settings: Settings,
    keys: KeyRing,
    tokens: TokenVerifier | None,
    clock: Clock,
    audit: AuditLog,
    requests: RateLimit,
    memory: ConnectionMemory,
) -> AccessControl:
    """The access control of a server with these settings, and with this limit of requests per key."""
    authenticator: Authenticator = KeysAndTokens(keys, clock, tokens, audit) if settings.auth else NoKeys()
    return AccessControl(
        authenticator=authenticator,
        authenticate=_rate_limited(authenticator, requests, audit),
        admit_stream=reserve_for_user(ConcurrencyLimit(settings.max_streams_per_user, "open streams")),
        memory=memory,
    )


def reserve_for_user(limit: ConcurrencyLimit) -> AdmitStream:
    """An `AdmitStream` that reserves one of the caller's places under a limit."""
    return lambda principal: limit.acquire(principal.user)


def _rate_limited(authenticator: Authenticator, requests: RateLimit, audit: AuditLog) -> Authenticate:
    async def authenticate(header: str | None, address: str) -> Principal:
        principal = await authenticator.authenticate(header, address)
        caller = principal.key_id or principal.user
        try:
            requests.consume(caller)
        except LimitReached as error:
            audit.count("limit.reached", Actor(principal.user, principal.key_id, address), str(error))
            raise
        finally:
            if (quota := requests.quota(caller)) is not None:
                show_quota(quota)
        return principal

    return authenticate
