"""Blade's API keys over REST. Thin: decode, ask the key ring, encode. Source: specification, sections 3.5 and 12.

A key itself stands in one answer only, that to its creation.
"""

from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.ids import KeyId
from dragoman.core.refusals import NotFound
from dragoman.engine.services.keys import KeyRing
from dragoman.ports.accounts import ApiKey
from dragoman.protocols.blade.rest import bodies
from dragoman.protocols.blade.rest.bodies import RequestBody
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.kit.http import json_response, principal_of

KEY_PREFIX = "sk-blade-v2-"
MAX_NAME_CHARS = 50
BODY_LIMIT = 16 * 1024
_ID_PREFIX = "key_"


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is shown. `plaintext` is always null."""

    id: str
    name: str
    masked: str
    plaintext: None = None
    created_at: datetime
    last_used_at: datetime | None


class CreatedKey(msgspec.Struct, frozen=True):
    """The answer to a creation."""

    key: KeyInfo
    plaintext: str


class KeyBody(RequestBody, frozen=True):
    """What clients say of a key."""

    name: str


def routes(key_ring: KeyRing, prefix: str = KEY_PREFIX) -> list[Route]:
    """What answers below `/api/user/api-keys`.

    Args:
        ring: the keys.
        prefix: begins the keys that are made here.
    """
    door = _KeyHandlers(key_ring, prefix)
    return [
        Route("GET", "user/api-keys", door.list),
        Route("POST", "user/api-keys", door.create),
        Route("GET", "user/api-keys/{key}", door.get),
        Route("PATCH", "user/api-keys/{key}", door.rename),
        Route("DELETE", "user/api-keys/{key}", door.revoke),
    ]


class _KeyHandlers:
    def __init__(self, ring: KeyRing, prefix: str) -> None:
        self._key_ring = ring
        self._prefix = prefix

    async def list(self, request: Request) -> Response:
        return json_response([_to_key_info(key) for key in self._key_ring.list_for_user(principal_of(request).user)])

    async def create(self, request: Request) -> Response:
        body = await _decode_key_body(request)
        plaintext, key = await self._key_ring.create(body.name, user=principal_of(request).user, prefix=self._prefix)
        return json_response(CreatedKey(_to_key_info(key), plaintext), 201, {"Cache-Control": "no-store"})

    async def get(self, request: Request) -> Response:
        key_id = _key_id(request)
        for key in self._key_ring.list_for_user(principal_of(request).user):
            if key.key_id == key_id:
                return json_response(_to_key_info(key))
        raise NotFound("there is no such key")

    async def rename(self, request: Request) -> Response:
        body = await _decode_key_body(request)
        return json_response(
            _to_key_info(await self._key_ring.rename(principal_of(request), _key_id(request), body.name))
        )

    async def revoke(self, request: Request) -> Response:
        await self._key_ring.revoke_owned(principal_of(request), _key_id(request))
        return Response(status_code=204)


async def _decode_key_body(request: Request) -> KeyBody:
    body = bodies.decode(KeyBody, await json_body(request, BODY_LIMIT))
    bodies.check_text(body.name, "name", MAX_NAME_CHARS)
    return body


def _key_id(request: Request) -> KeyId:
    return KeyId(request.path_params["key"].removeprefix(_ID_PREFIX))


def _to_key_info(key: ApiKey) -> KeyInfo:
    return KeyInfo(
        id=_ID_PREFIX + key.key_id,
        name=key.name,
        masked=key.masked_key,
        created_at=key.created_at,
        last_used_at=key.last_used_at,
    )
