"""API keys for admins: all keys with their token budgets, which can be changed."""

from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dragoman.core.audit import ACTOR, Actor
from dragoman.core.ids import KeyId, UserId
from dragoman.core.refusals import Invalid, NotFound
from dragoman.core.token_budgets import TokenLimits
from dragoman.engine.services.authentication import Authenticator
from dragoman.engine.services.keys import KeyRing
from dragoman.ports.accounts import ApiKey
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.app import address_of
from dragoman.protocols.kit.body import header, json_response, read_body, release_body, require_json
from dragoman.protocols.kit.errors import RequestError

MAX_BODY_BYTES = 4096


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is shown. A limit of 0 tokens is none."""

    key_id: KeyId
    name: str
    user: UserId
    masked_key: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    token_limits: TokenLimits


class KeyList(msgspec.Struct, frozen=True):
    """All keys, oldest first."""

    keys: list[KeyInfo]


class LimitChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New limits. One that is missing stays as it is; 0 removes it."""

    tokens_per_day: int | None = None
    tokens_per_month: int | None = None


ROUTES = (
    openapi.Route(
        method="GET",
        path="/keys",
        summary="API keys of all users",
        description="With their token budgets, masked. Needs the scope `admin`.",
        tag="Server",
        responses={200: openapi.ResponseSpec(description="the keys", body=KeyList)},
    ),
    openapi.Route(
        method="PATCH",
        path="/keys/{key}",
        summary="Change a key's token budgets",
        description="From the next step of its runs on. Needs the scope `admin`.",
        tag="Server",
        body=LimitChange,
        body_example={"tokens_per_month": 5_000_000},
        parameters=[openapi.Parameter(name="key", location="path", description="its ID", is_required=True)],
        responses={200: openapi.ResponseSpec(description="the key", body=KeyInfo)},
    ),
)
_DECODER = msgspec.json.Decoder(LimitChange)


class KeyEndpoints:
    """The endpoints of one server."""

    def __init__(self, keys: KeyRing, authenticator: Authenticator) -> None:
        self._keys = keys
        self._authenticator = authenticator

    def routes(self) -> list[Route]:
        """The endpoints as routes."""
        return [Route("/keys", self.list_all), Route("/keys/{key}", self.limit, methods=["PATCH"])]

    async def list_all(self, request: Request) -> Response:
        """All keys."""
        await self._require_admin(request)
        return json_response(KeyList([_to_info(key) for key in self._keys.all()]))

    async def limit(self, request: Request) -> Response:
        """Change a key's token budgets."""
        await self._require_admin(request)
        change = await _read_change(request)
        key_id = request.path_params["key"]
        if all(key.key_id != key_id for key in self._keys.all()):
            raise NotFound("there is no such key: GET /keys lists their ids")
        limits = {"per_day": change.tokens_per_day, "per_month": change.tokens_per_month}
        return json_response(_to_info(await self._keys.limit(key_id, **limits)))

    async def _require_admin(self, request: Request) -> None:
        address = address_of(request.scope)
        principal = await self._authenticator.authenticate(request.headers.get("authorization"), address)
        principal.require("admin")
        request_id = header(request.scope, b"x-request-id") or ""
        ACTOR.set(Actor(principal.user, principal.key_id, address, request_id))


async def _read_change(request: Request) -> LimitChange:
    """Read the body. Raises Invalid if it is not what is expected."""
    try:
        require_json(request)
        change = _DECODER.decode(await read_body(request, MAX_BODY_BYTES))
    except RequestError as error:
        raise Invalid(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"expected tokens_per_day or tokens_per_month as numbers: {error}") from error
    finally:
        release_body(request.scope)
    if change.tokens_per_day is None and change.tokens_per_month is None:
        raise Invalid("expected tokens_per_day or tokens_per_month")
    return change


def _to_info(key: ApiKey) -> KeyInfo:
    return msgspec.structs.replace(msgspec.convert(key, KeyInfo, from_attributes=True), scopes=sorted(key.scopes))
