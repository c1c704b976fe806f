"""Blade's replays over REST. Thin; what is played, and how, is in the engine. Source: specification, section 5.6."""

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.admission import is_busy
from dragoman.core.refusals import Conflict
from dragoman.engine.engine import Engine
from dragoman.protocols.blade import translate
from dragoman.protocols.blade.projection.chat import replay_state_of
from dragoman.protocols.blade.rest.access import open_owned_session, open_readable_session
from dragoman.protocols.blade.rest.bodies import RequestBody, decode
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.sessions import CreatedSession
from dragoman.protocols.kit.http import json_response

BODY_LIMIT = 16 * 1024
CHAT_RUNNING_REASON = "a chat of this session is running"
NO_COMPLETED_TURN_REASON = "the session has no completed turn"


class StartReplay(RequestBody, frozen=True, kw_only=True):
    """`POST …/replay`."""

    speed: chat.Speed = 1


class ChangeReplay(RequestBody, frozen=True, kw_only=True):
    """`PATCH …/replay`. What is null or missing stays."""

    speed: chat.Speed | None = None
    status: Literal["autonomous"] | None = None


class ReplayPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a session can be shown again, and if not, why."""

    session_id: str
    intent: str
    supported: bool
    reason: str | None


class ReplayResult(msgspec.Struct, frozen=True):
    """How far a replay is."""

    replay_state: chat.ReplayState


def routes(engine: Engine) -> list[Route]:
    """What answers about replays."""
    door = _ReplayHandlers(engine)
    return [
        Route("GET", "sessions/{session}/replay/preview", door.preview),
        Route("POST", "sessions/{session}/replay", door.start),
        Route("PATCH", "sessions/{session}/replay", door.change),
    ]


class _ReplayHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def preview(self, request: Request) -> Response:
        async with open_readable_session(self._engine, request) as live:
            reason = CHAT_RUNNING_REASON if is_busy(live.state) else None
            if reason is None and not (await self._engine.replays.make_recording(live)).total:
                reason = NO_COMPLETED_TURN_REASON
            state = live.state
        shown = chat.public_session_id(state.session_id)
        return json_response(
            ReplayPreview(session_id=shown, intent=state.title(), supported=reason is None, reason=reason)
        )

    async def start(self, request: Request) -> Response:
        body = decode(StartReplay, await json_body(request, BODY_LIMIT))
        async with await open_owned_session(self._engine, request) as source:
            replay = await self._engine.create_replay(source, body.speed, protocol=translate.PROTOCOL)
        return json_response(CreatedSession(chat.public_session_id(replay.state.session_id)))

    async def change(self, request: Request) -> Response:
        body = decode(ChangeReplay, await json_body(request, BODY_LIMIT))
        async with await open_owned_session(self._engine, request) as live:
            replay = live.state.settings.replay
            if replay is None:
                raise Conflict("this session is no replay")
            changed = msgspec.structs.replace(
                replay, speed=body.speed or replay.speed, is_on=replay.is_on and body.status is None
            )
            await self._engine.update_replay(live, changed)
            state = replay_state_of(live.state)
        assert state is not None, "it is a replay"
        return json_response(ReplayResult(state))
