"""Which tokens of an identity provider are accepted, what their claims mean, and how its keys are fetched."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.ids import UserId
from dragoman.core.refusals import InvalidToken, IssuerUnavailable
from dragoman.identity.issuer import (
    MAX_AGE_S,
    MAX_DOCUMENT_BYTES,
    REFRESH_INTERVAL_S,
    RETRY_DELAY_S,
    Issuer,
    may_be_fetched,
)
from dragoman.identity.tokens import MAX_TOKEN_CHARS, TokenRules, TokenService, find_claim
from dragoman.server.clock_and_ids import SystemClock
from tests.identity.provider import AUDIENCE, Provider, running_provider

RULES = TokenRules(
    audiences=(AUDIENCE,),
    algorithms=("ES256", "RS256"),
    scope_map={"dragoman:use": "use", "staff": "admin"},
)


class ManualMonotonic:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


class World:
    """A provider, an issuer that reads it, and a service that verifies its tokens."""

    def __init__(self, provider: Provider, issuer: Issuer, monotonic: ManualMonotonic) -> None:
        self.provider = provider
        self.issuer = issuer
        self.monotonic = monotonic

    async def verify(self, token: str, **rules: Any) -> Any:
        changed = TokenRules(**{**{name: getattr(RULES, name) for name in RULES.__struct_fields__}, **rules})
        return await TokenService(self.issuer, changed, SystemClock()).verify(token)

    async def refusal(self, token: str, **rules: Any) -> InvalidToken:
        with pytest.raises(InvalidToken) as refused:
            await self.verify(token, **rules)
        return refused.value

    @property
    def fetches(self) -> int:
        return self.provider.requests.count("/jwks")


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[tuple[Provider, httpx2.AsyncClient]]:
    async with running_provider() as provider, httpx2.AsyncClient() as client:
        yield provider, client


@pytest.fixture
async def world(served: tuple[Provider, httpx2.AsyncClient]) -> AsyncIterator[World]:
    """An issuer that knows nothing yet, of a provider as it was at its start."""
    provider, client = served
    provider.reset()
    monotonic = ManualMonotonic()
    issuer = Issuer(provider.url, client, monotonic=monotonic)
    yield World(provider, issuer, monotonic)
    await issuer.close()


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_names_its_user_its_scopes_and_its_expiry(world: World) -> None:
    principal = await world.verify(world.provider.token(exp=4102444800), leeway_s=0)
    assert (principal.user, principal.scopes, principal.key_id) == (UserId("ann"), {"use"}, None)
    assert principal.expires_at.isoformat() == "2100-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("claims", "rules", "scopes"),
    [
        ({"scope": "dragoman:use staff"}, {}, {"use", "admin"}),
        ({"scope": ["staff", 7, None]}, {}, {"admin"}),
        ({"scope": "openid"}, {}, set()),
        ({"scope": None}, {}, set()),
        ({"scope": "openid"}, {"default_scopes": frozenset({"use"})}, {"use"}),
        ({"realm_access": {"roles": ["staff"]}}, {"scopes_claim": "realm_access.roles"}, {"admin"}),
        ({"https://example.org/roles": ["staff"]}, {"scopes_claim": "https://example.org/roles"}, {"admin"}),
        ({"realm_access": "staff"}, {"scopes_claim": "realm_access.roles"}, set()),
    ],
)
async def test_scopes_are_taken_from_the_claim_and_the_map(
    world: World, claims: dict[str, Any], rules: dict[str, Any], scopes: set[str]
) -> None:
    assert (await world.verify(world.provider.token(**claims), **rules)).scopes == scopes


@pytest.mark.parametrize(
    ("claims", "message", "is_genuine"),
    [
        ({"exp": 1000}, "expired", True),
        ({"exp": None}, "lacks the claim 'exp'", True),
        ({"exp": "soon"}, "is not a time", True),
        ({"exp": 1e300}, "is not a time", True),
        ({"exp": 253402300799}, "is not a time", True),
        ({"nbf": 4102444800}, "not valid yet", True),
        ({"aud": "another"}, "meant for another audience; expected 'dragoman'", True),
        ({"aud": None}, "lacks the claim 'aud'", True),
        ({"iss": "https://login.example"}, "of another issuer", False),
        ({"iss": None}, "lacks the claim 'iss'", True),
        ({"sub": None}, "a text of 1 to 200 characters in the claim 'sub'", True),
        ({"sub": ""}, "in the claim 'sub'", True),
        ({"sub": "x" * 201}, "in the claim 'sub'", True),
        ({"sub": "a\nb"}, "in the claim 'sub'", True),
    ],
)
async def test_a_token_with_a_wrong_claim_is_refused_with_the_reason(
    world: World, claims: dict[str, Any], message: str, is_genuine: bool
) -> None:
    refused = await world.refusal(world.provider.token(**claims))
    assert message in str(refused)
    assert refused.is_genuine == is_genuine


async def test_clocks_may_differ_by_the_leeway(world: World) -> None:
    now = SystemClock().now().timestamp()
    token = world.provider.token(exp=now - 20, nbf=now + 20)
    assert (await world.verify(token, leeway_s=60)).user == "ann"
    assert "expired" in str(await world.refusal(token, leeway_s=10))


async def test_an_email_address_names_a_user_only_if_it_is_verified(world: World) -> None:
    for verified in (None, False, "true"):
        token = world.provider.token(email="ann@example.org", email_verified=verified)
        assert "not verified" in str(await world.refusal(token, user_claim="email"))
    token = world.provider.token(email="ann@example.org", email_verified=True)
    assert (await world.verify(token, user_claim="email")).user == "ann@example.org"


# --- forgeries --------------------------------------------------------------------------------------------------------


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_forged_tokens_are_refused(world: World) -> None:
    provider = world.provider
    good = provider.token()
    head, body, signature = good.split(".")
    public = provider.keys["first"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    mine = ec.generate_private_key(ec.SECP256R1())
    claims = provider.claims(scope="staff")
    hmac_header = part({"alg": "HS256", "kid": "first", "typ": "JWT"})
    forged = {
        "no signature": f"{head}.{body}.",
        "alg none": f"{part({'alg': 'none', 'kid': 'first'})}.{body}.",
        "alg none, in other letters": f"{part({'alg': 'nOnE', 'kid': 'first'})}.{body}.",
        "another body": f"{head}.{part(claims)}.{signature}",
        "another's signature": f"{head}.{body}.{provider.token(scope='x').split('.')[2]}",
        "signed by the public key as a secret": f"{hmac_header}.{part(claims)}."
        + base64.urlsafe_b64encode(hmac_of(pem, f"{hmac_header}.{part(claims)}")).rstrip(b"=").decode(),
        "my key under the provider's id": jwt.encode(claims, mine, "ES256", {"kid": "first"}),
        "my key, sent along": jwt.encode(
            claims,
            mine,
            "ES256",
            {"kid": "first", "jwk": jwt.algorithms.ECAlgorithm.to_jwk(mine.public_key(), as_dict=True)},
        ),
        "a logout token": provider.token(headers={"typ": "logout+jwt"}),
        "a critical header that nobody knows": provider.token(headers={"crit": ["exp2"], "exp2": 1}),
        "too long": provider.token(padding="x" * MAX_TOKEN_CHARS),
    }
    assert (await world.verify(good)).user == "ann"
    for token in forged.values():
        await world.refusal(token)


def hmac_of(key: bytes, message: str) -> bytes:
    import hashlib
    import hmac

    return hmac.new(key, message.encode(), hashlib.sha256).digest()


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "header",
    [
        '{"alg":"ES256","kid":"first","x":' + "[" * 9000 + "]" * 2000 + "}",
        '{"alg":"ES256","kid":"first","x":' + "9" * 9000 + "}",
        '{"alg":["ES256"],"kid":"first"}',
        '{"alg":"ES256","kid":["first"]}',
        '{"alg":"ES256","kid":{"a":1}}',
        '{"alg":"ES256","kid":"first","typ":["JWT"]}',
        '{"alg":"ES256","kid":"../../first"}',
        '{"alg":"ES256","kid":"first\\u0000"}',
        '{"alg":"ES256","kid":"first","b64":false,"crit":["b64"]}',
        '{"alg":"ES256","kid":"first","crit":"b64"}',
        '{"alg":"ES256","kid":"first","jku":"http://127.0.0.1:1/keys","x5u":"http://127.0.0.1:1/cert"}',
        '["alg"]',
        "null",
    ],
)
async def test_a_header_of_any_form_is_a_refusal_and_nothing_in_it_is_fetched(world: World, header: str) -> None:
    _, body, signature = world.provider.token().split(".")
    await world.refusal(f"{encoded(header)}.{body}.{signature}")
    assert set(world.provider.requests) <= {"/.well-known/openid-configuration", "/jwks"}


@pytest.mark.parametrize("body", ["[" * 9000, "[]", "null", '{"exp":' + "9" * 5000 + "}", "\xff", '{"exp":NaN}'])
async def test_a_signed_body_of_any_form_is_a_refusal(world: World, body: str) -> None:
    await world.refusal(
        jwt.api_jws.encode(body.encode("latin-1"), world.provider.keys["first"], "ES256", {"kid": "first"})
    )


async def test_a_key_is_used_only_with_the_algorithm_that_it_is_published_for(world: World) -> None:
    key = rsa.generate_private_key(65537, 2048)
    published = {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "rsa"}
    world.provider.answers["/jwks"] = (200, {}, json.dumps({"keys": [{**published, "alg": "RS256"}]}).encode())
    rules = {"algorithms": ("RS256", "PS256")}
    token, other = (jwt.encode(world.provider.claims(), key, alg, {"kid": "rsa"}) for alg in ("RS256", "PS256"))
    assert (await world.verify(token, **rules)).user == "ann"
    assert "signature is not valid" in str(await world.refusal(other, **rules))
    assert "accepted are PS256" in str(await world.refusal(token, algorithms=("PS256",)))


async def test_any_text_is_a_refusal(world: World) -> None:
    service = TokenService(world.issuer, RULES, SystemClock())
    good = world.provider.token()
    assert (await service.verify(good)).user == "ann"

    @settings(max_examples=40)
    @given(st.one_of(st.text(max_size=60), st.builds(changed, st.just(good), st.integers(0, len(good) - 1))))
    def is_refused(token: str) -> None:
        with pytest.raises(InvalidToken):
            service.verify(token).send(None)  # the keys are cached, so nothing is awaited

    is_refused()


def changed(token: str, at: int) -> str:
    """The token with another character at this place, which is no equivalent encoding of the same bytes."""
    return token[:at] + ("A" if token[at] not in "ABCD" else "z") + token[at + 1 :]


def test_a_claim_is_found_by_name_before_path() -> None:
    claims = {"a.b": 1, "a": {"b": 2, "c": {"d": 3}}}
    assert [find_claim(claims, path) for path in ("a.b", "a.c.d", "a.x", "a.b.c", "")] == [1, 3, None, None, None]


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_requests_at_the_same_time_share_one_fetch(world: World) -> None:
    token = world.provider.token()
    await asyncio.gather(*(world.verify(token) for _ in range(50)))
    await world.verify(token)
    assert world.provider.requests == ["/.well-known/openid-configuration", "/jwks"]


async def test_a_new_key_is_fetched_when_the_first_token_names_it(world: World) -> None:
    old = world.provider.token()
    await world.verify(old)
    world.provider.rotate()
    world.monotonic.at += RETRY_DELAY_S
    assert (await world.verify(world.provider.token())).user == "ann"
    assert "does not publish" in str(await world.refusal(old)), "a withdrawn key"


async def test_a_key_that_was_replaced_under_its_id_is_fetched_when_a_signature_does_not_fit(world: World) -> None:
    old = world.provider.token()
    await world.verify(old)
    world.provider.rotate("first")
    new = world.provider.token()
    assert "signature" in str(await world.refusal(new)), "keys were only just fetched"
    world.monotonic.at += RETRY_DELAY_S
    assert (await world.verify(new)).user == "ann"
    assert "signature" in str(await world.refusal(old)), "the old key"


async def test_a_key_that_was_replaced_under_its_id_by_one_for_another_algorithm_is_fetched_too(world: World) -> None:
    key = rsa.generate_private_key(65537, 2048)
    published = {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "rsa"}
    tokens = {alg: jwt.encode(world.provider.claims(), key, alg, {"kid": "rsa"}) for alg in ("RS256", "PS256")}
    for algorithm, token in tokens.items():
        world.provider.answers["/jwks"] = (200, {}, json.dumps({"keys": [{**published, "alg": algorithm}]}).encode())
        assert (await world.verify(token, algorithms=tuple(tokens))).user == "ann"
        world.monotonic.at += RETRY_DELAY_S


async def test_forged_signatures_cause_no_flood_of_fetches_and_are_refused_while_the_provider_is_down(
    world: World,
) -> None:
    genuine = world.provider.token()
    await world.verify(genuine)
    forged = changed(genuine, genuine.rindex(".") + 5)
    for _ in range(20):
        assert "signature" in str(await world.refusal(forged))
    assert world.fetches == 1
    world.provider.is_down = True
    for _ in range(20):
        world.monotonic.at += RETRY_DELAY_S / 10
        assert "signature" in str(await world.refusal(forged))
    assert world.provider.requests.count("/.well-known/openid-configuration") == 3, (
        "the first, and one each five seconds"
    )
    assert (await world.verify(genuine)).user == "ann"


async def test_invented_key_ids_cause_no_flood_of_fetches(world: World) -> None:
    await world.verify(world.provider.token())
    for number in range(20):
        assert "does not publish" in str(await world.refusal(world.provider.token(headers={"kid": f"k{number}"})))
    assert world.fetches == 1
    world.monotonic.at += RETRY_DELAY_S
    await world.refusal(world.provider.token(headers={"kid": "k"}))
    assert world.fetches == 2


async def test_keys_are_fetched_again_in_the_background_and_outlive_a_provider_that_is_down(world: World) -> None:
    token = world.provider.token(exp=4102444800)
    await world.verify(token)
    world.provider.is_down = True
    for age_s in (REFRESH_INTERVAL_S + 1, MAX_AGE_S - REFRESH_INTERVAL_S - 2):
        world.monotonic.at += age_s
        assert (await world.verify(token)).user == "ann"
    world.monotonic.at += RETRY_DELAY_S + 2
    with pytest.raises(IssuerUnavailable, match="or use an API key"):
        await world.verify(token)
    world.provider.is_down = False
    world.monotonic.at += RETRY_DELAY_S
    assert (await world.verify(token)).user == "ann"


async def test_a_provider_that_is_down_is_asked_once_in_a_while(world: World) -> None:
    world.provider.is_down = True
    for _ in range(20):
        with pytest.raises(IssuerUnavailable):
            await world.verify(world.provider.token())
    assert len(world.provider.requests) == 1


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/jwks", (302, {"location": "http://127.0.0.1:1/"}, b"")),
        ("/jwks", (200, {}, b"<html>")),
        ("/jwks", (200, {}, b'{"keys": 1}')),
        ("/jwks", (200, {}, b" " * (MAX_DOCUMENT_BYTES + 1))),
        ("/.well-known/openid-configuration", (301, {"location": "http://127.0.0.1:1/"}, b"")),
        ("/.well-known/openid-configuration", (200, {}, b'{"issuer": "https://other", "jwks_uri": "https://other/j"}')),
    ],
)
async def test_a_provider_with_unexpected_answers_counts_as_unavailable(
    world: World, path: str, answer: tuple[int, dict[str, str], bytes]
) -> None:
    world.provider.answers[path] = answer
    with pytest.raises(IssuerUnavailable):
        await world.verify(world.provider.token())


async def test_keys_for_encryption_and_secrets_are_not_used(world: World) -> None:
    key = {**world.provider.jwk("first"), "use": "enc"}
    keys = [key, {"kty": "oct", "k": "c2VjcmV0", "kid": "first"}, {"kid": 7}]
    world.provider.answers["/jwks"] = (200, {}, json.dumps({"keys": keys}).encode())
    assert "does not publish" in str(await world.refusal(world.provider.token()))


async def test_a_token_without_a_key_id_needs_a_provider_with_one_key(world: World) -> None:
    token = jwt.encode(world.provider.claims(), world.provider.keys["first"], "ES256")
    assert (await world.verify(token)).user == "ann"
    world.provider.keys["second"] = ec.generate_private_key(ec.SECP256R1())
    world.monotonic.at += REFRESH_INTERVAL_S + 1
    await world.issuer.signing_key("second")
    assert "does not publish" in str(await world.refusal(token))


@pytest.mark.parametrize(
    ("url", "issuer", "is_allowed"),
    [
        ("https://login.example/keys", "https://login.example/realm", True),
        ("https://keys.example/keys", "https://login.example", True),
        ("http://127.0.0.1:9/keys", "http://127.0.0.1:8/realm", True),
        ("https://10.0.0.7/keys", "https://10.0.0.7", True),
        ("http://keys.example/keys", "https://login.example", False),
        ("https://127.0.0.1/keys", "https://login.example", False),
        ("https://10.0.0.7/keys", "https://login.example", False),
        ("https://169.254.169.254/latest", "https://login.example", False),
        ("https://[::1]/keys", "https://login.example", False),
        ("https://localhost/keys", "https://login.example", False),
        ("https://localhost./keys", "https://login.example", False),
        ("https://keys.localhost/keys", "https://login.example", False),
        ("https://127.0.0.1./keys", "https://login.example", False),
        ("https://127.1/keys", "https://login.example", False),
        ("https://0x7f.0.0.0x1/keys", "https://login.example", False),
        ("https://１２７.0.0.1/keys", "https://login.example", False),
        ("https://[::ffff:127.0.0.1]/keys", "https://login.example", False),
        ("https://[64:ff9b::7f00:1]/keys", "https://login.example", False),
        ("https://[2002:7f00:1::]/keys", "https://login.example", False),
        ("https://224.0.0.1/keys", "https://login.example", False),
        ("https://keys.example./keys", "https://login.example", True),
        ("https://intranet/keys", "https://login.example", False),
        ("file:///etc/passwd", "https://login.example", False),
        ("https://[", "https://login.example", False),
    ],
)
def test_a_provider_cannot_make_the_server_call_its_own_network(url: str, issuer: str, is_allowed: bool) -> None:
    assert may_be_fetched(url, issuer) == is_allowed
