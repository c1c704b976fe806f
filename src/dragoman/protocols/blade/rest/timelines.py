"""What the runs of a session did and when, over Blade's REST: an extension. Reads the log, at any age."""

from itertools import takewhile

from dragoman.core.events import LoggedEvent, RunStarted
from dragoman.core.refusals import NotFound
from dragoman.core.timeline import Timeline, input_of_step, timeline_of
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade.projection.timeline import to_model_input, to_run_timeline
from dragoman.protocols.blade.rest.endpoints import SESSION, BladeHandlers, endpoint
from dragoman.protocols.blade.wire import timeline as wire
from dragoman.protocols.blade.wire.chat import parse_run_id, public_turn_id
from dragoman.protocols.kit.runs import find_run_in

MAX_TRAILING_EVENTS = 200
"""How many events after the end of a turn are read: those that cancel what it left open."""


class TimelineHandlers(BladeHandlers):
    """Handlers of timelines."""

    @endpoint("GET", f"{SESSION}/runs/{{run}}", access="reader")
    async def get(self, session: SessionView, run: str) -> wire.RunTimeline:
        """Get the timeline of a chat, with the chats that only answer its calls."""
        return to_run_timeline(await self._load(session, run))

    @endpoint("GET", f"{SESSION}/runs/{{run}}/steps/{{turn}}", access="reader")
    async def get_input(self, session: SessionView, run: str, turn: str) -> wire.ModelInput:
        """Get the messages before a model call, as far as the log has them."""
        timeline = await self._load(session, run)
        step = next((each for each in timeline.steps if public_turn_id(each.message_id) == turn), None)
        if step is None:
            raise NotFound("there is no such model call in this run")
        return to_model_input(input_of_step(await self.engine.history.events(session, 0, step.first_seq), step.loop))

    async def _load(self, session: SessionView, name: str) -> Timeline:
        """Load the turn of a run. Raises NotFound."""
        history = self.engine.history
        row = await find_run_in(self.engine, session, parse_run_id(name))
        if row is None:
            raise NotFound("there is no such run in this session")
        turn = await history.turn_at(session, row.first_seq)
        if turn is None:
            raise NotFound("the run has not started")
        last = turn.newest.last_seq
        up_to = None if last is None else last + MAX_TRAILING_EVENTS
        events = await history.events(session, turn.first.first_seq - 1, up_to)

        def is_of_turn(logged: LoggedEvent) -> bool:
            return not isinstance(logged.event, RunStarted) or turn.includes(logged.event.run_id)

        return timeline_of(list(takewhile(is_of_turn, events)))
