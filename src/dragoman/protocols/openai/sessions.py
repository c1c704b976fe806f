"""New sessions, which no list shows at first, and how long they are kept. Source: section 4.4."""

from dragoman.core.content import Message
from dragoman.core.events import Lifetime, SettingsChange
from dragoman.core.ids import SessionId, UserId
from dragoman.core.input_checks import check_content
from dragoman.core.inputs import Create
from dragoman.core.refusals import Invalid
from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.openai.handlers import OpenAiOptions
from dragoman.protocols.openai.translate import PROTOCOL

POLLED_FOR_S = 600
"""How long an answer that is not stored can still be had: in the background, or by repeating an idempotency key."""
DAY_S, HOUR_S = 86_400, 3600


class NewSessions:
    """Creates sessions."""

    def __init__(self, engine: Engine, options: OpenAiOptions) -> None:
        self._engine = engine
        self._options = options

    def unlisted(self, is_stored: bool, *, is_repeatable: bool = False) -> SettingsChange:
        """The settings of a session that no list shows.

        Args:
            is_stored: whether it is kept for some days, not for its answer alone.
            is_repeatable: whether the answer can be had for a while if it is not stored.
        """
        kept_s = self._options.keep_days * DAY_S
        lifetime = Lifetime(idle_s=kept_s, waiting_s=kept_s)
        if not is_stored:
            idle_s = POLLED_FOR_S if is_repeatable else 0
            lifetime = Lifetime(idle_s=idle_s, waiting_s=self._options.wait_hours * HOUR_S)
        return SettingsChange(unlisted=True, lifetime=lifetime)

    async def create(
        self, owner: UserId, agent: str | None, seeds: tuple[Message, ...], change: SettingsChange
    ) -> SessionView:
        """A session for a response, with the past that its client sent."""
        create = Create(
            protocol=PROTOCOL,
            agent=agent or self._engine.default_agent,
            tools="all",
            seeds=seeds,
            claims_calls=True,
            change=change,
        )
        return await self._engine.create(owner, create, run_follows=True)

    async def create_draft(
        self,
        owner: UserId,
        *,
        agent: str | None = None,
        session_id: SessionId | None = None,
        labels: dict[str, str],
        seeds: tuple[Message, ...],
    ) -> SessionView:
        """A conversation without a response, whose agent is not decided yet. Raises Invalid, and then there is none."""
        create = Create(
            protocol=PROTOCOL,
            agent=agent or self._engine.default_agent,
            session_id=session_id,
            tools="all",
            labels=labels,
            change=self.unlisted(is_stored=True),
        )
        draft = await self._engine.create(owner, create)
        async with self._engine.first_request(draft, is_new=True):
            if seeds:
                await self._engine.add_seeds(draft, seeds)
        return draft

    async def recreate(self, draft: SessionView, agent: AgentSpec) -> SessionView:
        """Replace a draft by one with another agent, under the same id.

        Raises:
            Invalid: the agent does not take what the draft contains. Then the draft stays.
        """
        state = draft.state
        seeds = tuple(await self._engine.history.messages(draft))
        try:
            for message in seeds:
                check_content(agent, message.content, self._engine.limits, "")
        except Invalid as error:
            error.path = "model"
            raise
        await self._engine.delete(draft)
        return await self.create_draft(
            state.owner, agent=agent.name, session_id=state.session_id, labels=state.settings.labels, seeds=seeds
        )


def is_ephemeral(session: SessionView) -> bool:
    """Whether a session is there for one answer only, although that may be repeated for a while."""
    settings = session.state.settings
    return settings.unlisted and settings.lifetime is not None and settings.lifetime.idle_s <= POLLED_FOR_S


def is_draft(session: SessionView) -> bool:
    """Whether a conversation has no response yet, so that its agent is not decided."""
    return session.state.last_run is None and session.state.settings.unlisted
