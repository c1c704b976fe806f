"""Where in a graph's checkpoints a session continues: at a thread's head, before it in a branch, or at the beginning.

lg-run/LOOP/now          the newest run: its first message, its thread and the thread's head when it began
lg-run/LOOP/at/MESSAGE   the checkpoint in which the conversation up to that message is
"""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from langgraph.checkpoint.base import BaseCheckpointSaver

from dragoman.adapters.langgraph_saver import Saver
from dragoman.core.agent import Run
from dragoman.core.content import Message, UserMessage
from dragoman.core.ids import ROOT

KEPT_TURNS = 50
"""How many turns can be branched from with the graph's own state. Earlier ones are rebuilt from the log."""


class Place(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where a run is in its graph's checkpoints."""

    message: str
    """The id of the run's first message."""
    thread: str
    head: str | None = None
    """The thread's newest checkpoint when the run began: once there is a newer one, the input is in the graph."""
    fork: str | None = None
    """The checkpoint from which the run forks off; None: the head."""


class _Turn(msgspec.Struct):
    thread: str
    checkpoint: str


class Places:
    """The places of one run's session."""

    def __init__(self, run: Run, saver: BaseCheckpointSaver[Any]) -> None:
        self._run = run
        self._saver = saver
        self._below = f"lg-run/{run.loop}/"

    async def find(self, turn: Sequence[Message]) -> tuple[Place, Sequence[Message]]:
        """The place of the run, and the messages that its graph does not know and has to be given before the turn's."""
        first = turn[0].id
        stored = await self._run.kept(f"{self._below}now", limit=1)
        now = next((msgspec.json.decode(value, type=Place) for value in stored.values()), None)
        if now is not None and now.message == first:
            return now, ()
        place, before = await self._begin(first, {each.id for each in turn}, now)
        place.head = await self.head(place.thread)
        if place.fork == place.head:
            place.fork = None
        await self._run.keep({f"{self._below}now": msgspec.json.encode(place)}, durable=False)
        return place, before

    async def _begin(self, first: str, turn: set[str], now: Place | None) -> tuple[Place, Sequence[Message]]:
        history: list[Message] = []
        async with aclosing(self._run.history()) as newest_first:
            async for message in newest_first:
                if message.id in turn:
                    continue
                if not history and (at := await self._at(message.id)) is not None:
                    return Place(message=first, thread=at.thread, fork=at.checkpoint), ()
                history.append(message)
                if now is not None and isinstance(message, UserMessage):
                    if message.id == now.message:  # its run was stopped or failed: the graph is where it stopped
                        return Place(message=first, thread=now.thread), ()
                    now = None
        base = str(self._run.session_id) if self._run.loop == ROOT else f"{self._run.session_id}:{self._run.loop}"
        thread = base if await self.head(base) is None else f"{base}:{first}"
        return Place(message=first, thread=thread), history[::-1]

    async def _at(self, message: str) -> _Turn | None:
        found = await self._run.kept(f"{self._below}at/{message}", limit=1)
        return next((msgspec.json.decode(value, type=_Turn) for value in found.values()), None)

    async def head(self, thread: str) -> str | None:
        """The newest checkpoint of a thread."""
        found = await self._saver.aget_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
        return None if found is None else found.checkpoint["id"]

    async def finish(self, thread: str, *, keeps_all: bool) -> None:
        """Note where the turn ended, for branches, and drop the checkpoints inside it."""
        checkpoint = await self.head(thread)
        async with aclosing(self._run.history()) as newest_first:
            last = await anext(newest_first, None)
        if checkpoint is None or last is None:
            return
        below = f"{self._below}at/"
        stored = await self._run.kept(below, limit=10 * KEPT_TURNS)
        turns = {key: msgspec.json.decode(value, type=_Turn) for key, value in stored.items()}
        turns[f"{below}{last.id}"] = _Turn(thread, checkpoint)
        oldest = sorted(turns, key=lambda key: turns[key].checkpoint)[:-KEPT_TURNS]
        writes: dict[str, bytes | None] = dict.fromkeys(oldest)
        if not keeps_all and isinstance(self._saver, Saver):
            kept = {turn.checkpoint for key, turn in turns.items() if key not in writes}
            await self._saver.drop_between(thread, kept, is_finished=True)
        ended = msgspec.json.encode(turns[f"{below}{last.id}"])
        await self._run.keep({**writes, f"{below}{last.id}": ended}, durable=False)
