"""The run service: its routes, and the handlers of threads, files and profiles. Runs are in `runs`.

Source: seed 002; the run service's specification, A.1, A.2, A.6, A.7; shared rules, 2, 3, 6.
"""

from contextlib import suppress

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from dragoman.core.events import LoggedEvent, RunStarted
from dragoman.core.refusals import Invalid, SessionNotFound, SessionUnreadable
from dragoman.core.upload_links import CONTENT_PATH
from dragoman.engine.engine import Engine
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.agui.run_service import rules, wire
from dragoman.protocols.agui.run_service.errors import ERRORS, MEDIA_TYPE, parse_thread, problem_body
from dragoman.protocols.agui.run_service.files import Files, read_upload
from dragoman.protocols.agui.run_service.history import DayFinder, history_message
from dragoman.protocols.agui.run_service.runs import RunHandlers, open_thread, run_start_at, thread_of_path
from dragoman.protocols.kit.app import AdmitStream, Authenticate, ProtocolApp, principal_of
from dragoman.protocols.kit.body import json_response, read_json_body
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.router import Route


def app(
    engine: Engine,
    authenticate: Authenticate,
    files: Files,
    profiles: ProfileService,
    *,
    admit_stream: AdmitStream,
    answers_limit: int,
) -> ASGIApp:
    """Build the service as an ASGI application, to be mounted anywhere.

    Args:
        engine: runs the agents.
        authenticate: tells who calls.
        files: uploads, links and recordings.
        profiles: the users' settings.
        admit_stream: counts open streams.
        answers_limit: bytes of a body with answers, which may hold a tool's results.
    """
    runs = RunHandlers(engine, files, admit_stream, answers_limit)
    handlers = _Handlers(engine, files, profiles)
    routes = [
        Route("POST", "runs", runs.submit),
        Route("GET", "runs/{thread}/events", runs.events),
        Route("POST", "runs/{thread}/cancel", runs.cancel),
        Route("POST", "runs/{thread}/answers", runs.answer),
        Route("GET", "history", handlers.history),
        Route("DELETE", "sessions/{thread}", handlers.delete),
        Route("GET", "attachments", files.list_uploads),
        Route("POST", "attachments", handlers.upload),
        Route("DELETE", "attachments", files.remove),
        Route("GET", "attachments/signed-url", files.signed_url),
        Route("GET", CONTENT_PATH, files.content, is_open=True),
        Route("GET", CONTENT_PATH + "/{path:path}", files.content, is_open=True),
        Route("POST", "transcribe", files.transcribe),
        Route("GET", "profile", handlers.profile),
        Route("PATCH", "profile", handlers.change_profile),
    ]
    return ProtocolApp("runs", routes, ERRORS, authenticate, write_error=_write_error)


def _write_error(error: ErrorResponse) -> Response:
    response = json_response(problem_body(error), error.status, error.headers)
    response.headers["content-type"] = MEDIA_TYPE
    return response


class _Handlers:
    def __init__(self, engine: Engine, files: Files, profiles: ProfileService) -> None:
        self._engine = engine
        self._files = files
        self._profiles = profiles

    # --- threads --------------------------------------------------------------------------------------------------

    async def history(self, request: Request) -> Response:
        """Show the newest day of a thread, or the newest before a given one."""
        caller, query = principal_of(request), request.query_params
        before = None if "before" not in query else wire.parse_day(query["before"])
        if before is None and "before" in query:
            raise Invalid("before must be a date such as 2026-03-15")
        if "threadId" in query:
            thread = parse_thread(query["threadId"])
        else:
            newest = await self._engine.page(caller.user, None, 1)
            if not newest:
                return json_response(wire.History(thread_id=None, day=None, has_more=False, messages=()))
            thread = newest[0].session_id
        async with open_thread(self._engine, caller, thread) as live:
            state = live.state
            seq, finder = state.seq, DayFinder(state.message_count, before, state.is_visible)
            await live.until_durable(seq)
            async for page in self._engine.history.newest_events(live, seq + 1):
                if finder.feed(page):
                    break
            messages = []
            for entry in finder.messages(await self._run_start_of(live, finder.first)):
                (message,) = await self._engine.attachments.restore(thread, [entry.message], with_uploads=False)
                messages.append(
                    history_message(entry._replace(message=message), lambda path: self._files.link(request, path))
                )
            return json_response(
                wire.History(
                    thread_id=state.session_id, day=finder.day, has_more=finder.has_more, messages=tuple(messages)
                )
            )

    async def _run_start_of(self, live: SessionView, first: LoggedEvent | None) -> RunStarted | None:
        """The start of the run that an event belongs to."""
        row = None if first is None or first.run_id is None else await self._engine.index.find_run(first.run_id)
        return None if row is None else await run_start_at(self._engine, live, row.first_seq)

    async def delete(self, request: Request) -> Response:
        """Delete a thread."""
        caller, thread = principal_of(request), thread_of_path(request)
        try:
            async with open_thread(self._engine, caller, thread) as live:
                await self._engine.delete(live)
        except SessionUnreadable as error:
            await self._engine.delete_unreadable(caller.user, error.session_id)
        except SessionNotFound:  # images may have been uploaded for a thread that never was
            await self._files.forget(caller.user, thread)
        return Response(status_code=204)

    # --- files and the profile ------------------------------------------------------------------------------------

    async def upload(self, request: Request) -> Response:
        """Store an image."""
        form = await read_upload(request)
        if form.thread is not None:
            with suppress(SessionNotFound):  # images come before the thread's first run
                async with open_thread(self._engine, principal_of(request), form.thread):
                    pass  # it is the caller's
        return await self._files.upload(request, form)

    async def profile(self, request: Request) -> Response:
        """Show the caller's profile."""
        profile = self._profiles.for_user(principal_of(request).user)
        settings = wire.ProfileSettings(timezone=profile.time_zone, locale=profile.locale)
        return json_response(wire.ProfileResponse(user_id=profile.user, settings=settings))

    async def change_profile(self, request: Request) -> Response:
        """Change the caller's profile."""
        given = wire.decode_profile(await read_json_body(request, rules.BODY_LIMIT)).settings
        settings = {"time_zone": given.timezone, "locale": given.locale}
        changed = {name: value for name, value in settings.items() if value is not msgspec.UNSET}
        await self._profiles.change(principal_of(request).user, **changed)
        return await self.profile(request)
