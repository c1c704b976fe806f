"""The identity provider, as the settings name it."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlsplit

from dragoman.core.content import JsonObject
from dragoman.core.principal import Scope
from dragoman.core.refusals import IssuerUnavailable
from dragoman.ports.environment import Clock
from dragoman.ports.identity import TokenVerifier
from dragoman.protocols.mcp.options import Authorization
from dragoman.settings import Settings, SettingsError, is_loopback

if TYPE_CHECKING:
    from dragoman.identity.issuer import Issuer

ASYMMETRIC_ALGORITHMS = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
"""Algorithms of signatures that only the identity provider can make; RFC 7518, section 3.1, and RFC 8037."""


async def open_issuer(settings: Settings, stack: AsyncExitStack) -> "Issuer | None":
    """Begin to fetch the provider's keys; None without a provider.

    The server starts without waiting for them: API keys do not need them.
    """
    if settings.oidc_issuer is None:
        return None
    import httpx2  # slow to import

    from dragoman.identity.issuer import Issuer

    client = await stack.enter_async_context(httpx2.AsyncClient())
    issuer = Issuer(settings.oidc_issuer, client, jwks_url=settings.oidc_jwks_url)
    stack.push_async_callback(issuer.close)
    issuer.start()
    return issuer


class ProviderLogin:
    """The console's login at the provider; a `ConsoleLogin`."""

    def __init__(self, issuer: "Issuer", settings: Settings, client_id: str) -> None:
        self._issuer = issuer
        self._settings = settings
        self._client_id = client_id

    @classmethod
    def from_settings(cls, settings: Settings, issuer: "Issuer | None") -> "ProviderLogin | None":
        """The login that the settings name, if they do."""
        if issuer is None or settings.oidc_client_id is None:
            return None
        return cls(issuer, settings, settings.oidc_client_id)

    async def provider(self) -> JsonObject | None:
        """The provider's addresses and the console's requests; None while the provider does not answer."""
        try:
            metadata = await self._issuer.load_metadata()
        except IssuerUnavailable:
            return None
        return {
            "issuer": metadata.issuer,
            "client_id": self._client_id,
            "scope": self._settings.oidc_login_scope,
            "authorization_endpoint": metadata.authorization_endpoint,
            "token_endpoint": metadata.token_endpoint,
            "end_session_endpoint": metadata.end_session_endpoint,
            "parameters": dict(each.split("=", 1) for each in self._settings.oidc_login_parameters),
        }

    @property
    def token_origin(self) -> str:
        """The origin of the token endpoint; until that is known, the issuer's."""
        metadata = self._issuer.metadata
        parts = urlsplit(self._issuer.url if metadata is None else metadata.token_endpoint)
        return f"{parts.scheme}://{parts.netloc}"


def mcp_authorization(settings: Settings) -> Authorization | None:
    """Where MCP hosts get tokens, if the settings say that they may."""
    if not settings.mcp_authorization or settings.oidc_issuer is None or settings.public_url is None:
        return None
    scopes: tuple[str, ...] = ()
    if settings.oidc_scopes_claim == "scope":  # otherwise tokens name roles or groups, which hosts cannot ask for
        values = (each.rpartition("=") for each in settings.oidc_scope_map)
        scopes = tuple(value for value, _, scope in values if scope != "admin")
    return Authorization(settings.public_url.rstrip("/") + settings.mcp_path, settings.oidc_issuer, scopes)


def make_token_verifier(settings: Settings, issuer: "Issuer | None", clock: Clock) -> TokenVerifier | None:
    """The verifier of the provider's tokens; None without a provider.

    Raises:
        SettingsError: the library for tokens is not installed.
    """
    if issuer is None:
        return None
    try:
        from dragoman.identity.tokens import TokenRules, TokenService
    except ModuleNotFoundError as error:
        raise SettingsError(
            "oidc_issuer is set, but the library for tokens is not installed: pip install 'dragoman[oidc]', or in a"
            " checkout make run EXTRAS=oidc"
        ) from error
    authorization = mcp_authorization(settings)
    rules = TokenRules(
        audiences=(*settings.oidc_audience, *(() if authorization is None else (authorization.resource,))),
        algorithms=settings.oidc_algorithms,
        user_claim=settings.oidc_user_claim,
        scopes_claim=settings.oidc_scopes_claim,
        scope_map={value: scope for value, _, scope in (each.rpartition("=") for each in settings.oidc_scope_map)},
        default_scopes=frozenset(settings.oidc_default_scopes),
        leeway_s=settings.oidc_leeway_s,
    )
    return TokenService(issuer, rules, clock)


def check_login_settings(settings: Settings) -> None:
    """Check the settings of the identity provider.

    Raises:
        SettingsError: a setting is wrong, or would make the server accept anybody's tokens.
    """
    if settings.mcp_authorization:
        for name in ("oidc_issuer", "public_url"):
            if getattr(settings, name) is None:
                raise SettingsError(f"setting mcp_authorization: needs {name} too")
    if settings.oidc_issuer is not None:
        _check_provider(settings)


def _check_provider(settings: Settings) -> None:
    if not settings.auth:
        raise SettingsError("setting oidc_issuer: tokens need auth, which is turned off")
    for name in ("oidc_issuer", "oidc_jwks_url"):
        url = getattr(settings, name)
        if url is not None and not _is_https_or_loopback(url):
            raise SettingsError(
                f"setting {name}: expected an https:// URL, or http:// on a loopback address, got {url!r}"
            )
    if not settings.oidc_audience and not settings.mcp_authorization:
        raise SettingsError(
            "setting oidc_audience: needed with oidc_issuer, so that tokens for other applications of the provider"
            " are rejected"
        )
    unknown = set(settings.oidc_algorithms) - ASYMMETRIC_ALGORITHMS
    if unknown or not settings.oidc_algorithms:
        raise SettingsError(
            f"setting oidc_algorithms: expected some of {', '.join(sorted(ASYMMETRIC_ALGORITHMS))},"
            f" got {', '.join(sorted(unknown)) or 'none'}"
        )
    for each in settings.oidc_login_parameters:
        if "=" not in each:
            raise SettingsError(f"setting oidc_login_parameters: expected NAME=VALUE, got {each!r}")
    for each in settings.oidc_scope_map:
        value, _, scope = each.rpartition("=")
        if not value or scope not in get_args(Scope):
            raise SettingsError(
                f"setting oidc_scope_map: expected VALUE=SCOPE with one of the scopes {', '.join(get_args(Scope))},"
                f" got {each!r}"
            )


def _is_https_or_loopback(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
