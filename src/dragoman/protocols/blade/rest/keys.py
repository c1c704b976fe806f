"""Blade's API keys over REST. The key itself is in one answer only, that to its creation. Source: section 12."""

from datetime import datetime

import msgspec

from dragoman.core.ids import KeyId
from dragoman.core.principal import Principal
from dragoman.core.refusals import NotFound
from dragoman.core.text_checks import check_text
from dragoman.engine.services.keys import KeyRing
from dragoman.ports.accounts import ApiKey
from dragoman.protocols.blade.rest.endpoints import BladeHandlers, endpoint

KEY_PREFIX = "sk-blade-v2-"
MAX_NAME_CHARS = 50
MAX_KEYS_PER_USER = 100
"""The limit for keys that are created here: each server keeps all keys in memory."""
_ID_PREFIX = "key_"
_KEY = "/user/api-keys/{key}"


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is shown. `plaintext` is null except in the answer to its creation."""

    key_id: str = msgspec.field(name="id")
    name: str
    masked_key: str = msgspec.field(name="masked")
    plaintext: str | None = None
    created_at: datetime
    last_used_at: datetime | None


class CreatedKey(msgspec.Struct, frozen=True):
    """The answer to a creation."""

    key: KeyInfo
    plaintext: str


class KeyBody(msgspec.Struct, frozen=True):
    """The body of a creation and of a change."""

    name: str


class KeyHandlers(BladeHandlers):
    """Handlers below `/user/api-keys`. `prefix` begins the keys that are created here."""

    def __init__(self, key_ring: KeyRing, prefix: str = KEY_PREFIX) -> None:
        self._key_ring = key_ring
        self._prefix = prefix

    @endpoint("GET", "/user/api-keys")
    async def list_all(self, principal: Principal) -> list[KeyInfo]:
        """List your API keys, masked."""
        return [_to_key_info(key) for key in self._key_ring.list_for_user(principal.user)]

    @endpoint("POST", "/user/api-keys", example={"name": "laptop"}, status=201, headers={"Cache-Control": "no-store"})
    async def create(self, principal: Principal, body: KeyBody) -> CreatedKey:
        """Create an API key, which is shown only in this answer."""
        name = check_text(body.name, "name", MAX_NAME_CHARS)
        plaintext, key = await self._key_ring.create(
            name, user=principal.user, prefix=self._prefix, max_keys=MAX_KEYS_PER_USER
        )
        return CreatedKey(msgspec.structs.replace(_to_key_info(key), plaintext=plaintext), plaintext)

    @endpoint("GET", _KEY)
    async def get(self, principal: Principal, key: str) -> KeyInfo:
        """Get an API key, masked."""
        for each in self._key_ring.list_for_user(principal.user):
            if each.key_id == _parse_key_id(key):
                return _to_key_info(each)
        raise NotFound("there is no such key")

    @endpoint("PATCH", _KEY, example={"name": "phone"})
    async def rename(self, principal: Principal, key: str, body: KeyBody) -> KeyInfo:
        """Rename an API key."""
        name = check_text(body.name, "name", MAX_NAME_CHARS)
        return _to_key_info(await self._key_ring.rename(principal, _parse_key_id(key), name))

    @endpoint("DELETE", _KEY)
    async def revoke(self, principal: Principal, key: str) -> None:
        """Revoke an API key."""
        await self._key_ring.revoke_owned(principal, _parse_key_id(key))


def _parse_key_id(text: str) -> KeyId:
    return KeyId(text.removeprefix(_ID_PREFIX))


def _to_key_info(key: ApiKey) -> KeyInfo:
    return msgspec.structs.replace(msgspec.convert(key, KeyInfo, from_attributes=True), key_id=_ID_PREFIX + key.key_id)
