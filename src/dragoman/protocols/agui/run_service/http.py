"""The run service: its routes, and the handlers of threads, files and profiles. Runs are in `runs`.

Source: seed 002; the run service's specification, A.1, A.2, A.6, A.7; shared rules, 2, 3, 6.
"""

from collections.abc import Mapping
from zoneinfo import ZoneInfo

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from dragoman.core.ids import UserId
from dragoman.core.principal import Principal
from dragoman.core.refusals import Invalid, SessionNotFound
from dragoman.core.time_zones import is_zone
from dragoman.core.upload_links import CONTENT_PATH
from dragoman.engine.engine import Engine
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.session_days import newest_day
from dragoman.protocols.agui.run_service import rules, wire
from dragoman.protocols.agui.run_service.errors import ERRORS, MEDIA_TYPE, ProblemBody, parse_thread, problem_body
from dragoman.protocols.agui.run_service.files import Files
from dragoman.protocols.agui.run_service.runs import RunHandlers
from dragoman.protocols.agui.run_service.translate import history_message, thread_info
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import ProtocolApp
from dragoman.protocols.kit.body import json_response, read_json_body
from dragoman.protocols.kit.endpoints import ApiDescription, Handlers, endpoint, query
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.openapi import COMMON_ERRORS
from dragoman.protocols.kit.router import Route
from dragoman.protocols.kit.session_pages import PAGE_QUERY, requested_page


def app(
    engine: Engine,
    access: AccessControl,
    files: Files,
    profiles: ProfileService,
    *,
    answers_limit: int,
) -> ASGIApp:
    """Build the service as an ASGI application, to be mounted anywhere.

    `answers_limit` is in bytes: of a body with answers, which may hold a tool's results.
    """
    runs = RunHandlers(engine, files, access.admit_stream, answers_limit)
    handlers = _Handlers(engine, files, profiles)
    routes = [
        *(route for area in (runs, handlers, files) for route in area.routes()),
        Route("GET", CONTENT_PATH, files.content, is_open=True),
        Route("GET", CONTENT_PATH + "/{path:path}", files.content, is_open=True),
    ]
    return ProtocolApp("runs", routes, ERRORS, access, write_error=_write_error)


def _write_error(error: ErrorResponse) -> Response:
    response = json_response(problem_body(error), error.status, error.headers)
    response.headers["content-type"] = MEDIA_TYPE
    return response


class _Handlers(Handlers):
    def __init__(self, engine: Engine, files: Files, profiles: ProfileService) -> None:
        self._engine = engine
        self._files = files
        self._profiles = profiles

    # --- threads --------------------------------------------------------------------------------------------------

    @endpoint(
        "GET",
        "/history",
        parameters=(
            query("threadId", "The thread; by default the newest."),
            query("before", "Only days before this one, YYYY-MM-DD."),
            query("timezone", "The IANA zone of the days, or `profile` for that of your profile. UTC by default."),
        ),
    )
    async def history(self, request: Request, principal: Principal, query: Mapping[str, str]) -> wire.History:
        """Read one day of a thread."""
        before = None if "before" not in query else wire.parse_day(query["before"])
        if before is None and "before" in query:
            raise Invalid("before must be a date such as 2026-03-15")
        zone = self._zone_of_days(principal.user, query.get("timezone", "UTC"))
        named = query.get("threadId", query.get("thread_id"))
        if named is not None:
            thread = parse_thread(named)
        else:
            newest = await self._engine.page(principal.user, None, 1)
            if not newest:
                return wire.History(thread_id=None, day=None, has_more=False, messages=())
            thread = newest[0].session_id
        async with self._engine.session(principal.user, thread, reveals_foreign=True) as session:
            day, has_more, entries = await newest_day(self._engine, session, before, zone)
            messages = [history_message(each, lambda path: self._files.link(request, path)) for each in entries]
            thread_id = session.state.session_id
            return wire.History(thread_id=thread_id, day=day, has_more=has_more, messages=tuple(messages))

    def _zone_of_days(self, user: UserId, name: str) -> ZoneInfo:
        if name == "profile":
            name = self._profiles.for_user(user).time_zone or "UTC"
        if not is_zone(name):
            raise Invalid("timezone must be an IANA time zone such as Europe/Berlin, or `profile`")
        return ZoneInfo(name)

    @endpoint("GET", "/threads", parameters=PAGE_QUERY)
    async def threads(self, principal: Principal, query: Mapping[str, str]) -> wire.ThreadPage:
        """List your threads, newest first, whichever protocol created them."""
        threads, following = await requested_page(self._engine, principal.user, query, thread_info)
        return wire.ThreadPage(threads=threads, next=following)

    @endpoint("DELETE", "/sessions/{thread_id}")
    async def delete(self, principal: Principal, thread_id: str) -> None:
        """Delete a thread and everything in it."""
        thread = parse_thread(thread_id)
        try:
            await self._engine.delete_by_name(principal.user, thread, reveals_foreign=True)
        except SessionNotFound:  # images may have been uploaded for a thread that never was
            await self._files.uploads.delete_for_thread(principal.user, thread)

    # --- files and the profile ------------------------------------------------------------------------------------

    @endpoint("GET", "/profile")
    async def profile(self, principal: Principal) -> wire.ProfileResponse:
        """Show your settings for all agents."""
        profile = self._profiles.for_user(principal.user)
        settings = wire.ProfileSettings(timezone=profile.time_zone, locale=profile.locale)
        return wire.ProfileResponse(user_id=profile.user, settings=settings)

    @endpoint(
        "PATCH",
        "/profile",
        body=wire.ProfileChange,
        example={"settings": {"timezone": "Europe/Berlin", "locale": "de"}},
    )
    async def change_profile(self, request: Request, principal: Principal) -> wire.ProfileResponse:
        """Set your time zone or locale."""
        change = wire.decode_profile(await read_json_body(request, rules.BODY_LIMIT)).settings
        settings = {"time_zone": change.timezone, "locale": change.locale}
        changed = {name: value for name, value in settings.items() if value is not msgspec.UNSET}
        await self._profiles.change(principal.user, **changed)
        return await self.profile(principal)


OPENAPI_ROUTES = ApiDescription(
    "AG-UI run service",
    ProblemBody,
    error_media_type=MEDIA_TYPE,
    errors={**COMMON_ERRORS, 422: "The request is invalid; `detail` and `code` say why."},
    input_errors={},
    body_errors={415: "The body is not declared as JSON."},
).routes(RunHandlers, _Handlers, Files)
