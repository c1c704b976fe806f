"""Verification of an issuer's tokens, and what their claims mean here: the user and the scopes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import msgspec

from dragoman.core.content import Json
from dragoman.core.ids import UserId
from dragoman.core.principal import Principal
from dragoman.core.refusals import InvalidToken
from dragoman.identity.issuer import Issuer
from dragoman.ports.environment import Clock

MAX_TOKEN_CHARS = 16 * 1024
MAX_USER_CHARS = 200
_TOKEN_TYPES = ("jwt", "at+jwt", "application/at+jwt")
"""Values of the header `typ`. Others are not for access, such as `logout+jwt` and `dpop+jwt`."""
_OPTIONS = {
    "require": ["exp", "iss", "aud"],
    "verify_exp": False,  # by the server's clock, below
    "verify_nbf": False,
    "verify_iat": False,
    "enforce_minimum_key_length": True,
}


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """What is required of a token, and what its claims mean.

    Attributes:
        audiences: of which a token needs one.
        algorithms: with which it may be signed; only asymmetric ones.
        user_claim: the claim that names the user.
        scopes_claim: the claim with scopes, roles or groups; a path with dots for one inside another.
        scope_map: our scope by the value of that claim.
        default_scopes: what every valid token grants.
        leeway_s: by how much the clocks of the issuer and of this server may differ.
    """

    audiences: Sequence[str]
    algorithms: Sequence[str] = ("RS256",)
    user_claim: str = "sub"
    scopes_claim: str = "scope"
    scope_map: Mapping[str, str] = {}
    default_scopes: frozenset[str] = frozenset()
    leeway_s: float = 30.0


class TokenService:
    """Verifies the tokens of one issuer; a `TokenVerifier`."""

    def __init__(self, issuer: Issuer, rules: TokenRules, clock: Clock) -> None:
        self._issuer = issuer
        self._rules = rules
        self._clock = clock

    async def verify(self, token: str) -> Principal:
        """The user and the scopes that a token names; see `TokenVerifier.verify`."""
        if len(token) > MAX_TOKEN_CHARS:
            raise InvalidToken(f"a token must have at most {MAX_TOKEN_CHARS} characters")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError as error:
            raise InvalidToken("the token is not a JWT") from error
        algorithm = str(header.get("alg"))
        if algorithm not in self._rules.algorithms:
            accepted = ", ".join(self._rules.algorithms)
            raise InvalidToken(f"the token is signed with {algorithm[:20]!r}; accepted are {accepted}")
        if str(header.get("typ", "jwt")).lower() not in _TOKEN_TYPES:
            raise InvalidToken("the token is of a type that is not for access")
        key_id = header.get("kid")
        key = await self._issuer.signing_key(key_id)
        if key is None:
            raise InvalidToken("the token is signed with a key that its issuer does not publish")
        claims = self._decode(token, key, algorithm)
        if claims is None and (replacement := await self._issuer.replacement(key_id, key)) is not None:
            claims = self._decode(token, replacement, algorithm)
        if claims is None:
            raise InvalidToken("the token's signature is not valid")
        return self._principal(claims)

    def _decode(self, token: str, key: Mapping[str, Any], algorithm: str) -> Mapping[str, Json] | None:
        """The token's claims; None if its signature does not fit the key, or the key is for another algorithm."""
        if key.get("alg", algorithm) != algorithm:
            return None
        try:
            public_key = jwt.PyJWK(dict(key), algorithm)
            claims: dict[str, Json] = jwt.decode(
                token,
                public_key,
                algorithms=[algorithm],
                audience=self._rules.audiences,
                issuer=self._issuer.url,
                options=_OPTIONS,  # type: ignore[arg-type]  # a TypedDict
            )
        except jwt.InvalidAudienceError as error:
            expected = " or ".join(repr(each) for each in self._rules.audiences)
            raise InvalidToken(
                f"the token is meant for another audience; expected {expected}", is_genuine=True
            ) from error
        except jwt.InvalidIssuerError as error:
            raise InvalidToken(f"the token is of another issuer; expected {self._issuer.url}") from error
        except jwt.MissingRequiredClaimError as error:
            raise InvalidToken(f"the token lacks the claim {error.claim!r}", is_genuine=True) from error
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        return claims

    def _principal(self, claims: Mapping[str, Json]) -> Principal:
        leeway = timedelta(seconds=self._rules.leeway_s)
        now = self._clock.now()
        expires_at = _time(claims, "exp", leeway)
        if expires_at <= now:
            raise InvalidToken("the token has expired: get a new one", is_genuine=True)
        if "nbf" in claims and _time(claims, "nbf", -leeway) > now:
            raise InvalidToken("the token is not valid yet", is_genuine=True)
        return Principal(user=self._user(claims), scopes=self._scopes(claims), expires_at=expires_at)

    def _user(self, claims: Mapping[str, Json]) -> UserId:
        name = self._rules.user_claim
        user = find_claim(claims, name)
        if not isinstance(user, str) or not 0 < len(user) <= MAX_USER_CHARS or not user.isprintable():
            expected = f"a text of 1 to {MAX_USER_CHARS} characters in the claim {name!r}, which names the user"
            raise InvalidToken(f"the token needs {expected}", is_genuine=True)
        if name == "email" and claims.get("email_verified") is not True:
            raise InvalidToken("the token names the user by an email address that is not verified", is_genuine=True)
        return UserId(user)

    def _scopes(self, claims: Mapping[str, Json]) -> frozenset[str]:
        found = find_claim(claims, self._rules.scopes_claim)
        values = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
        mapped = {
            self._rules.scope_map[each] for each in values if isinstance(each, str) and each in self._rules.scope_map
        }
        return self._rules.default_scopes | mapped


def find_claim(claims: Mapping[str, Json], path: str) -> Json:
    """A claim by its name, or by a path such as `realm_access.roles`; None if there is none."""
    if path in claims:
        return claims[path]
    found: Json = dict(claims)
    for name in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def _time(claims: Mapping[str, Json], name: str, leeway: timedelta) -> datetime:
    value = claims[name]
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC) + leeway
    except (ValueError, OverflowError, OSError):
        pass
    raise InvalidToken(f"the token's claim {name!r} is not a time", is_genuine=True)
