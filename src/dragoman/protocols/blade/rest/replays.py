"""Blade's replays over REST. Source: specification, section 5.6."""

from typing import Literal

import msgspec

from dragoman.core.admission import is_busy
from dragoman.core.events import SettingsChange
from dragoman.core.refusals import Conflict
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade import translate
from dragoman.protocols.blade.projection.chats import replay_state_of
from dragoman.protocols.blade.rest.endpoints import SESSION, BladeHandlers, endpoint
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.sessions import CreatedSession


class StartReplay(msgspec.Struct, frozen=True, kw_only=True):
    """`POST …/replay`."""

    speed: chat.Speed = 1


class ChangeReplay(msgspec.Struct, frozen=True, kw_only=True):
    """`PATCH …/replay`. A field that is null or absent is left as it is."""

    speed: chat.Speed | None = None
    status: Literal["autonomous"] | None = None


class ReplayPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a session can be replayed, and if not, the reason."""

    session_id: str
    intent: str
    supported: bool
    reason: str | None


class ReplayResult(msgspec.Struct, frozen=True):
    """The progress of a replay."""

    replay_state: chat.ReplayState


class ReplayHandlers(BladeHandlers):
    """Handlers of replays."""

    @endpoint("GET", f"{SESSION}/replay/preview", access="reader")
    async def preview(self, session: SessionView) -> ReplayPreview:
        """Check whether a session can be replayed."""
        reason = "a chat of this session is running" if is_busy(session.state) else None
        if reason is None and not (await self.engine.replays.make_recording(session)).total:
            reason = "the session has no completed turn"
        return ReplayPreview(
            session_id=chat.public_session_id(session.state.session_id),
            intent=session.state.title(),
            supported=reason is None,
            reason=reason,
        )

    @endpoint("POST", f"{SESSION}/replay", access="owner", example={"speed": 2})
    async def start(self, session: SessionView, body: StartReplay) -> CreatedSession:
        """Replay a session in a new one."""
        replay = await self.engine.create_replay(session, body.speed, protocol=translate.PROTOCOL)
        return CreatedSession(chat.public_session_id(replay.state.session_id))

    @endpoint("PATCH", f"{SESSION}/replay", access="owner", example={"speed": 5})
    async def change(self, session: SessionView, body: ChangeReplay) -> ReplayResult:
        """Change a replay's speed, or leave it."""
        replay = session.state.settings.replay
        if replay is None:
            raise Conflict("this session is not a replay")
        is_on = replay.is_on and body.status is None
        changed = msgspec.structs.replace(replay, speed=body.speed or replay.speed, is_on=is_on)
        await self.engine.change(session, SettingsChange(replay=changed))
        state = replay_state_of(session.state)
        assert state is not None, "it is a replay"
        return ReplayResult(state)
