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
from dragoman.ports import Key
from dragoman.protocols.blade.rest import bodies
from dragoman.protocols.blade.rest.bodies import In
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.kit.http import caller_of, json_answer

KEY_PREFIX = "sk-blade-v2-"
NAME = 50
BODY_LIMIT = 16 * 1024
_ID = "key_"


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is shown. `plaintext` is always null."""

    id: str
    name: str
    masked: str
    plaintext: None = None
    created_at: datetime
    last_used_at: datetime | None


class NewKey(msgspec.Struct, frozen=True):
    """The answer to a creation."""

    key: KeyInfo
    plaintext: str


class NamedKey(In, frozen=True):
    """What clients say of a key."""

    name: str


def routes(ring: KeyRing, prefix: str = KEY_PREFIX) -> list[Route]:
    """What answers below `/api/user/api-keys`.

    Args:
        ring: the keys.
        prefix: begins the keys that are made here.
    """
    door = _Door(ring, prefix)
    return [
        Route("GET", "user/api-keys", door.list),
        Route("POST", "user/api-keys", door.create),
        Route("GET", "user/api-keys/{key}", door.get),
        Route("PATCH", "user/api-keys/{key}", door.rename),
        Route("DELETE", "user/api-keys/{key}", door.revoke),
    ]


class _Door:
    def __init__(self, ring: KeyRing, prefix: str) -> None:
        self._ring = ring
        self._prefix = prefix

    async def list(self, request: Request) -> Response:
        return json_answer([_shown(key) for key in self._ring.owned(caller_of(request).user)])

    async def create(self, request: Request) -> Response:
        body = await _named(request)
        plaintext, key = await self._ring.create(body.name, user=caller_of(request).user, prefix=self._prefix)
        return json_answer(NewKey(_shown(key), plaintext), 201, {"Cache-Control": "no-store"})

    async def get(self, request: Request) -> Response:
        key_id = _asked(request)
        for key in self._ring.owned(caller_of(request).user):
            if key.key_id == key_id:
                return json_answer(_shown(key))
        raise NotFound("there is no such key")

    async def rename(self, request: Request) -> Response:
        body = await _named(request)
        return json_answer(_shown(await self._ring.rename(caller_of(request), _asked(request), body.name)))

    async def revoke(self, request: Request) -> Response:
        await self._ring.revoke_owned(caller_of(request), _asked(request))
        return Response(status_code=204)


async def _named(request: Request) -> NamedKey:
    body = bodies.decode(NamedKey, await json_body(request, BODY_LIMIT))
    bodies.text(body.name, "name", NAME)
    return body


def _asked(request: Request) -> KeyId:
    return KeyId(request.path_params["key"].removeprefix(_ID))


def _shown(key: Key) -> KeyInfo:
    return KeyInfo(
        id=_ID + key.key_id,
        name=key.name,
        masked=key.masked,
        created_at=key.created_at,
        last_used_at=key.last_used_at,
    )
