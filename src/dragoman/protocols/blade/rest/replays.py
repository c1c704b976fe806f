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
from dragoman.protocols.blade.rest.access import owned, readable
from dragoman.protocols.blade.rest.bodies import In, decode
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.sessions import Created
from dragoman.protocols.kit.http import json_answer

BODY_LIMIT = 16 * 1024
RUNNING = "a chat of this session is running"
NO_TURN = "the session has no completed turn"


class StartReplay(In, frozen=True, kw_only=True):
    """`POST …/replay`."""

    speed: chat.Speed = 1


class ChangeReplay(In, frozen=True, kw_only=True):
    """`PATCH …/replay`. What is null or missing stays."""

    speed: chat.Speed | None = None
    status: Literal["autonomous"] | None = None


class ReplayPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a session can be shown again, and if not, why."""

    session_id: str
    intent: str
    supported: bool
    reason: str | None


class Replaying(msgspec.Struct, frozen=True):
    """How far a replay is."""

    replay_state: chat.ReplayState


def routes(engine: Engine) -> list[Route]:
    """What answers about replays."""
    door = _Door(engine)
    return [
        Route("GET", "sessions/{session}/replay/preview", door.preview),
        Route("POST", "sessions/{session}/replay", door.start),
        Route("PATCH", "sessions/{session}/replay", door.change),
    ]


class _Door:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def preview(self, request: Request) -> Response:
        async with readable(self._engine, request) as live:
            reason = RUNNING if is_busy(live.state) else None
            if reason is None and not (await self._engine.replays.recorded(live)).total:
                reason = NO_TURN
            state = live.state
        shown = chat.shown_session(state.session_id)
        return json_answer(
            ReplayPreview(session_id=shown, intent=state.title(), supported=reason is None, reason=reason)
        )

    async def start(self, request: Request) -> Response:
        body = decode(StartReplay, await json_body(request, BODY_LIMIT))
        async with await owned(self._engine, request) as source:
            replay = await self._engine.replay(source, body.speed, door=translate.DOOR)
        return json_answer(Created(chat.shown_session(replay.state.session_id)))

    async def change(self, request: Request) -> Response:
        body = decode(ChangeReplay, await json_body(request, BODY_LIMIT))
        async with await owned(self._engine, request) as live:
            replay = live.state.settings.replay
            if replay is None:
                raise Conflict("this session is no replay")
            changed = msgspec.structs.replace(
                replay, speed=body.speed or replay.speed, is_on=replay.is_on and body.status is None
            )
            await self._engine.pace(live, changed)
            state = replay_state_of(live.state)
        assert state is not None, "it is a replay"
        return json_answer(Replaying(state))
