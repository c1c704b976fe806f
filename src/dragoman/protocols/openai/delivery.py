"""Delivers the answer of a run, streamed or whole. Closing the connection is how these clients stop a run."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from dragoman.engine.expiry import ExpiredSessions
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.kit.app import principal_of
from dragoman.protocols.kit.body import header
from dragoman.protocols.kit.frame_encoder import FrameEncoder
from dragoman.protocols.kit.runs import RunHandle, SessionStreams
from dragoman.protocols.openai.handlers import OpenAiOptions
from dragoman.protocols.openai.runs import Runs
from dragoman.protocols.openai.sessions import is_ephemeral

OnEnd = Callable[[SessionView], None]


class Delivery:
    """Sends answers, and deletes the sessions that end with them."""

    def __init__(self, runs: Runs, expired: ExpiredSessions, options: OpenAiOptions, streams: SessionStreams) -> None:
        self._runs = runs
        self._expired = expired
        self._options = options
        self._streams = streams

    async def stream(
        self,
        request: Request,
        handle: RunHandle,
        encoder: FrameEncoder,
        *,
        continues: bool = False,
        on_end: OnEnd = lambda session: None,
    ) -> Response:
        """Stream a run from its start. The run is stopped when the client leaves, unless it `continues`."""
        on_close = self._on_close(request, handle, continues, on_end)
        return await self._streams.open(
            principal_of(request), handle.session, handle.before, encoder, is_new_run=handle.is_new, on_close=on_close
        )

    async def read(
        self,
        request: Request,
        handle: RunHandle,
        encoder: FrameEncoder,
        on_end: OnEnd = lambda session: None,
    ) -> None:
        """Read a run to its end. The run is stopped when the client leaves."""
        on_close = self._on_close(request, handle, False, on_end)
        await self._streams.read(
            request, handle.session, handle.before, encoder, is_new_run=handle.is_new, on_close=on_close
        )

    def _on_close(self, request: Request, handle: RunHandle, continues: bool, on_end: OnEnd) -> Callable[[bool], None]:
        """What is to be done when an answer closes."""
        is_kept = continues or self.continues(request.scope)

        def on_close(has_disconnected: bool) -> None:
            on_end(handle.session)
            self.end(handle, has_disconnected=has_disconnected, is_kept=is_kept)

        return on_close

    def continues(self, scope: Scope) -> bool:
        """Whether runs of a connection continue when its client leaves."""
        policy = header(scope, b"x-dragoman-on-disconnect") or self._options.on_disconnect
        return policy.lower() == "continue"

    def end(self, handle: RunHandle, *, has_disconnected: bool, is_kept: bool) -> None:
        """Stop a run whose client has left, unless it is kept, and delete its session if its answer ends that."""
        if has_disconnected and handle.is_new and not is_kept:
            self._runs.abandoned.stop(handle.session, handle.run_id)
        self.check(handle.session)

    def check(self, session: SessionView) -> None:
        """Delete a session that its last answer ended, unless it is in use."""
        self._expired.check(session)


def session_headers(session: SessionView) -> dict[str, str]:
    """The header that names a session that is kept."""
    return {} if is_ephemeral(session) else {"X-Dragoman-Session": session.state.session_id}
