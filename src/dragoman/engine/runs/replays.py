"""Replays: the log of a recorded session is copied into another session, at a speed, without running the agent.

A replay is a session like any other, with a log of its own. The turns are read from the log of the recorded session,
which cannot change; deleting that session ends the replay.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal

import msgspec

from dragoman.core import admission
from dragoman.core.agent import Agent, AgentError, Run, RunnableTool
from dragoman.core.answers import STOPPED_RESULT
from dragoman.core.content import Call, StreamedBlockKind, Text, Thinking, ToolMessage
from dragoman.core.events import (
    BlockClosed,
    CallSettled,
    Event,
    ProtocolName,
    Replay,
    SettingsChange,
    SettingsChanged,
    StopReason,
)
from dragoman.core.ids import LoopId, MessageId, SessionId, UserId
from dragoman.core.inputs import Create
from dragoman.core.recording import MAX_PAUSE_S, IdRemapper, RecordedTurn, TurnSplitter, with_delays
from dragoman.core.refusals import Conflict, SessionBusy, SessionNotFound
from dragoman.core.session import SessionState
from dragoman.core.stream import Piece
from dragoman.core.tools import AgentSpec
from dragoman.engine.runs.run_context import LoopRun
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.environment import Ids
from dragoman.ports.log import EventLog

PAGE = 400
MIN_PAUSE_S = 0.005
"""Shorter pauses are added up until they reach this length."""

FindSession = Callable[[UserId, str], Awaitable[SessionView]]
"""Finds a session of an owner. Raises SessionNotFound."""
Sleep = Callable[[float], Awaitable[object]]


def is_replay(state: SessionState) -> bool:
    """Whether the session's runs replay a recording."""
    return state.settings.replay is not None and state.settings.replay.is_on


class Replays:
    """Creates and replays recordings.

    Args:
        find_session: finds recorded sessions.
        log: contains their events.
        attachments: holds their large contents.
        ids: makes ids.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        *,
        find_session: FindSession,
        log: EventLog,
        attachments: Attachments,
        ids: Ids,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.sleep = sleep
        self._find_session = find_session
        self._log = log
        self._attachments = attachments
        self._ids = ids

    async def make_recording(self, source: SessionView, speed: Literal[1, 2, 5] = 1) -> Replay:
        """A session's active branch as a recording; `total` is 0 if it has no complete turn."""
        replay = Replay(
            source=source.state.session_id,
            up_to=source.durable_cursor.seq,
            hidden_ranges=source.state.hidden_ranges,
            total=0,
            speed=speed,
        )
        return msgspec.structs.replace(replay, total=len([turn.last_seq async for turn in self._turns(replay)]))

    async def request_for(self, source: SessionView, speed: Literal[1, 2, 5], protocol: ProtocolName) -> Create:
        """The request that creates a session which replays another one.

        Raises:
            SessionBusy: a run of the recorded session is active or queued.
            Conflict: the recorded session has no complete turn.
        """
        if admission.is_busy(source.state):
            raise SessionBusy
        await source.until_durable(source.state.seq)
        recording = await self.make_recording(source, speed)
        if not recording.total:
            raise Conflict("the session has no completed turn")
        settings = source.state.settings
        return Create(
            protocol=protocol,
            agent=source.state.agent,
            tools=settings.tools,
            client_tools=settings.client_tools,
            memory_enabled=settings.memory_enabled,
            change=SettingsChange(
                title=source.state.title() or None,
                model=settings.model,
                variant=settings.variant,
                env=settings.env,
                options=settings.options,
                replay=recording,
            ),
        )

    async def next_turn(self, session: SessionView) -> RecordedTurn | None:
        """The next turn of a replay, with its attachments restored; None at the end.

        Raises:
            SessionNotFound: the recorded session is gone.
        """
        replay = session.state.settings.replay
        if replay is None or replay.position >= replay.total:
            return None
        await self._find_session(session.state.owner, replay.source)  # its id may belong to another owner by now
        async with aclosing(self._turns(replay)) as turns:
            turn = await anext(turns, None)
        if turn is None:
            return None
        return turn._replace(user_messages=await self._attachments.restore(replay.source, turn.user_messages))

    def player_for(self, agent: Agent) -> Agent:
        """The agent that replays a recording in place of the session's agent."""
        return ReplayAgent(self, agent)

    async def _turns(self, replay: Replay) -> AsyncGenerator[RecordedTurn, None]:
        """The recorded turns after event `after`, in order."""
        splitter, after = TurnSplitter(replay.hidden_ranges), replay.after
        while after < replay.up_to:
            page = await self._log.events(replay.source, after, min(PAGE, replay.up_to - after))
            if not page:
                break
            for logged in page:
                if (turn := splitter.feed(logged)) is not None:
                    yield turn
            after = page[-1].seq
        if (last := splitter.close(replay.up_to)) is not None:
            yield last

    async def play(self, run: LoopRun) -> StopReason:
        """Replay the next turn into the run's session.

        Raises:
            AgentError: the recorded run failed, or the recording is over.
        """
        replay = run.live.state.settings.replay
        assert replay is not None, "the session is a replay"
        try:
            turn = await self.next_turn(run.live)
        except SessionNotFound as error:
            raise AgentError("recording_gone", "The recorded session was deleted") from error
        if turn is None:
            raise AgentError("recording_over", "The recording is over")
        advanced = msgspec.structs.replace(replay, after=turn.last_seq, position=replay.position + 1)
        run.append((SettingsChanged(change=SettingsChange(replay=advanced)),))
        await self._play_turn(run, turn, replay.source)
        run.append(admission.cancel_open_calls(run.live.state, STOPPED_RESULT, self._ids.new))
        if turn.stop is None or turn.stop.reason == "tool_use":  # the calls that it waited for are settled
            return "end_turn"
        if turn.stop.reason == "error":
            raise AgentError(turn.stop.code or "agent_error", turn.stop.message or "The agent failed")
        return turn.stop.reason

    async def _play_turn(self, run: LoopRun, turn: RecordedTurn, source: SessionId) -> None:
        remapper = IdRemapper(self._ids.new)
        pending_s = 0.0
        for pause_s, record in with_delays(turn):
            pending_s += min(pause_s / _current_speed(run.live), MAX_PAUSE_S)
            if pending_s >= MIN_PAUSE_S:
                await self.sleep(pending_s)
                pending_s = 0.0
            copy = remapper.remap(record)
            if isinstance(copy, Piece):
                _append_delta(run.live, copy.message_id, copy.index, copy.kind, copy.loop, copy.text)
                await run.drain()
            elif copy is not None:
                await self._play_event(run, copy, source)

    async def _play_event(self, run: LoopRun, event: Event, source: SessionId) -> None:
        match event:
            case BlockClosed(block=Text() | Thinking() as block, loop=loop):
                if loop not in run.live.blocks:  # it was not streamed in pieces
                    kind: StreamedBlockKind = "text" if isinstance(block, Text) else "thinking"
                    _append_delta(run.live, event.message_id, event.index, kind, loop, block.text)
                run.live.close_block(loop, run.run_id)
            case CallSettled(result=result):
                run.append((msgspec.structs.replace(event, result=await self._copy_attachments(result, source, run)),))
            case _:
                run.append((event,))

    async def _copy_attachments(self, message: ToolMessage, source: SessionId, run: LoopRun) -> ToolMessage:
        """The message with its attachments copied from one session to another."""
        [restored] = await self._attachments.restore(source, [message])
        [stored] = await self._attachments.put(run.session_id, [restored])
        return stored


def _append_delta(
    live: LiveSession, message_id: MessageId, index: int, kind: StreamedBlockKind, loop: LoopId, text: str
) -> None:
    """Add text to a loop's open block, or open it."""
    block = live.blocks.get(loop) or live.open_block(message_id, index, kind, loop)
    block.pending_deltas.append(text)
    live.schedule_commit()


def _current_speed(live: LiveSession) -> int:
    """The speed of a replay, which may change while it runs."""
    replay = live.state.settings.replay
    return 1 if replay is None else replay.speed


class ReplayAgent:
    """Plays a recording in place of the agent whose runs were recorded; declares what that agent declares."""

    def __init__(self, replays: Replays, agent: Agent) -> None:
        self._replays = replays
        self._agent = agent

    @property
    def spec(self) -> AgentSpec:
        """The declaration of the recorded agent."""
        return self._agent.spec

    def tool(self, name: str) -> RunnableTool | None:
        """The recorded agent's tool of that name."""
        return self._agent.tool(name)

    def child(self, call: Call) -> Agent | None:
        """The recorded agent's sub-agent for a call."""
        return self._agent.child(call)

    async def play(self, run: Run) -> StopReason | None:
        """Play the recorded turn that belongs to this run."""
        assert isinstance(run, LoopRun), "the engine runs every loop with its own context"
        return await self._replays.play(run)
