"""API keys for admins: all keys with their token budgets, which can be changed."""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from starlette.requests import Request

from dragoman.core.ids import KeyId, UserId
from dragoman.core.refusals import Invalid, NotFound
from dragoman.core.token_budgets import TokenLimits
from dragoman.engine.services.audit import MAX_PAGE
from dragoman.engine.services.keys import KeyRing
from dragoman.ports.accounts import ApiKey
from dragoman.protocols.kit.body import read_json_body
from dragoman.protocols.kit.decoding import decode_body, parse_query_number
from dragoman.protocols.kit.endpoints import Handlers, endpoint, query

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
    """Keys, oldest first."""

    keys: list[KeyInfo]


class LimitChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New limits. One that is missing stays as it is; 0 removes it."""

    tokens_per_day: int | None = None
    tokens_per_month: int | None = None


_DECODER = msgspec.json.Decoder(LimitChange)


class KeyHandlers(Handlers):
    """Handlers below `/keys`."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    @endpoint(
        "GET",
        "/keys",
        scope="admin",
        parameters=(
            query("limit", "How many keys; 100 by default."),
            query("after", "The `key_id` of the last key of the previous page."),
        ),
    )
    async def list_all(self, query: Mapping[str, str]) -> KeyList:
        """API keys of all users.

        With their token budgets, masked, oldest first. Needs the scope `admin`.
        """
        limit, after = parse_query_number(query, "limit", 100, MAX_PAGE), query.get("after", "")
        keys = sorted((key for key in self._keys.all() if key.key_id > after), key=lambda key: key.key_id)
        return KeyList([_to_info(key) for key in keys[:limit]])

    @endpoint("PATCH", "/keys/{key}", scope="admin", body=LimitChange, example={"tokens_per_month": 5_000_000})
    async def limit(self, request: Request, key: str) -> KeyInfo:
        """Change a key's token budgets.

        From the next step of its runs on. Needs the scope `admin`.
        """
        change = decode_body(_DECODER, await read_json_body(request, MAX_BODY_BYTES))
        if change.tokens_per_day is None and change.tokens_per_month is None:
            raise Invalid("expected tokens_per_day or tokens_per_month")
        if all(each.key_id != key for each in self._keys.all()):
            raise NotFound("there is no such key: GET /keys lists their ids")
        limits = {"per_day": change.tokens_per_day, "per_month": change.tokens_per_month}
        return _to_info(await self._keys.limit(KeyId(key), **limits))


def _to_info(key: ApiKey) -> KeyInfo:
    return msgspec.structs.replace(msgspec.convert(key, KeyInfo, from_attributes=True), scopes=sorted(key.scopes))
