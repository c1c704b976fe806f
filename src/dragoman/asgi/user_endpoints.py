"""Users for admins: all users with their token budgets, which can be changed."""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from starlette.requests import Request

from dragoman.core.ids import UserId
from dragoman.core.profile import Profile
from dragoman.core.refusals import Invalid, NotFound
from dragoman.core.token_budgets import TokenBudget
from dragoman.engine.services.audit import MAX_PAGE
from dragoman.engine.services.keys import KeyRing
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.protocols.kit.body import read_json_body
from dragoman.protocols.kit.decoding import decode_body, parse_query_number
from dragoman.protocols.kit.endpoints import Handlers, endpoint, query

MAX_BODY_BYTES = 4096


class BudgetInfo(msgspec.Struct, frozen=True):
    """A token budget. `holder` is `user` or `key`, and `period` `day` or `month`."""

    holder: str
    period: str
    limit: int
    used: int
    left: int
    resets_at: datetime


class OwnLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits that were set for a user; 0 is any number of tokens. Where one is missing, the server's applies."""

    per_day: int | None = None
    per_month: int | None = None


class UserInfo(msgspec.Struct, frozen=True):
    """A user's token budgets. Empty: no limits, and nothing is counted."""

    user: UserId
    budgets: list[BudgetInfo]
    token_limits: OwnLimits


class UserList(msgspec.Struct, frozen=True):
    """Users, by name."""

    users: list[UserInfo]


class LimitChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New limits. One that is missing stays as it is; null returns to the server's setting; 0 is no limit."""

    tokens_per_day: int | msgspec.UnsetType | None = msgspec.UNSET
    tokens_per_month: int | msgspec.UnsetType | None = msgspec.UNSET


_DECODER = msgspec.json.Decoder(LimitChange)


class UserHandlers(Handlers):
    """Handlers below `/users`."""

    def __init__(self, profiles: ProfileService, keys: KeyRing, budgets: TokenBudgets) -> None:
        self._profiles = profiles
        self._keys = keys
        self._budgets = budgets

    @endpoint(
        "GET",
        "/users",
        scope="admin",
        parameters=(
            query("limit", "How many users; 100 by default."),
            query("after", "The last user of the previous page."),
        ),
    )
    async def list_all(self, query: Mapping[str, str]) -> UserList:
        """Token budgets of all users.

        Of those who have an API key or a profile, by name, without the budgets of their keys. Needs the scope `admin`.
        """
        limit, after = parse_query_number(query, "limit", 100, MAX_PAGE), query.get("after")
        users = sorted(each for each in self._known_users() if after is None or each > after)[:limit]
        return UserList(await self._describe(users))

    @endpoint("PATCH", "/users/{user:path}", scope="admin", body=LimitChange, example={"tokens_per_month": 5_000_000})
    async def limit(self, request: Request, user: UserId) -> UserInfo:
        """Change a user's token budgets.

        From the next step of their runs on. Needs the scope `admin`.
        """
        change = decode_body(_DECODER, await read_json_body(request, MAX_BODY_BYTES))
        limits = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not msgspec.UNSET}
        if not limits:
            raise Invalid("expected tokens_per_day or tokens_per_month")
        if user not in self._known_users():
            raise NotFound("there is no such user: GET /users lists those who have an API key or a profile")
        await self._profiles.change(user, **limits)
        return (await self._describe([user]))[0]

    def _known_users(self) -> set[UserId]:
        return self._profiles.users() | {key.user for key in self._keys.all()}

    async def _describe(self, users: list[UserId]) -> list[UserInfo]:
        budgets = await self._budgets.of_users(users)
        return [
            UserInfo(user, [to_budget_info(each) for each in of_user], _own_limits(self._profiles.for_user(user)))
            for user, of_user in zip(users, budgets, strict=True)
        ]


def to_budget_info(budget: TokenBudget) -> BudgetInfo:
    """A budget as it is shown."""
    return msgspec.convert(budget, BudgetInfo, from_attributes=True)


def _own_limits(profile: Profile) -> OwnLimits:
    return OwnLimits(profile.tokens_per_day, profile.tokens_per_month)
