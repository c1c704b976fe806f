"""Summaries on request, outside of any run. They count as runs against their user's limits."""

from collections.abc import Sequence

from dragoman.core import admission
from dragoman.core.agent import Agent, Summarizer, Summary
from dragoman.core.content import Message, Usage, UserMessage
from dragoman.core.events import CompactionMade
from dragoman.core.ids import UserId
from dragoman.core.refusals import SessionBusy
from dragoman.engine.runs.run_limit import RunLimit
from dragoman.engine.runs.write_access import WriteAccess
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.engine.sessions.history import History
from dragoman.engine.sessions.live_session import LiveSession

MAX_MESSAGES = 100_000
"""Maximum number of messages in one compaction."""


class Compaction:
    """Has agents summarize messages."""

    def __init__(self, history: History, write_access: WriteAccess, run_limit: RunLimit, budgets: TokenBudgets) -> None:
        self._history = history
        self._write_access = write_access
        self._run_limit = run_limit
        self._budgets = budgets

    async def compact(self, agent: Agent, live: LiveSession) -> CompactionMade | None:
        """Have the agent of a session summarize all but its newest messages; see `Engine.compact`."""
        if admission.is_busy(live.state):
            raise SessionBusy
        await self._budgets.require(live.state.owner, self._budgets.limited_key())
        with await self._run_limit.reserve(live.state.owner):
            compaction = await self._compaction_of(agent, live)
        if compaction is None:
            return None
        before = live.state.seq
        async with self._write_access.acquire(live):
            if live.state.seq != before:
                raise SessionBusy("the session changed meanwhile")
            await live.until_durable(live.append((compaction,), None))
        return compaction

    async def summarize(self, user: UserId, agent: Summarizer, messages: Sequence[Message]) -> Summary | None:
        """Have an agent summarize messages of no session; see `Engine.summarize`."""
        await self._budgets.require(user, self._budgets.limited_key())
        with await self._run_limit.reserve(user):
            return await self._summary(user, agent, messages, None)

    async def _summary(
        self, user: UserId, agent: Summarizer, messages: Sequence[Message], previous: str | None
    ) -> Summary | None:
        """A summary, whose tokens are counted for the user and the key of the current request."""
        summary = await agent.summarize(messages, previous)
        if summary is not None and summary.usage != Usage():
            await self._budgets.count(user, self._budgets.limited_key(), summary.usage)
        return summary

    async def _compaction_of(self, agent: Agent, live: LiveSession) -> CompactionMade | None:
        before, compacted = live.state.seq, live.state.compaction
        messages = [placed.message for placed in await self._history.context(live, MAX_MESSAGES)]
        turns = sum(isinstance(message, UserMessage) for message in messages) + (compacted is not None)
        if len(messages) < 2 or turns < 2 or not isinstance(agent, Summarizer):
            return None
        previous = None if compacted is None else compacted.summary
        summary = await self._summary(live.state.owner, agent, messages, previous)
        up_to, archived = (0, 0) if summary is None else await self._history.extent_before(live, summary.keep_from)
        if live.state.seq != before:
            raise SessionBusy("the session went on meanwhile")
        if summary is None or not up_to or summary.tokens_after >= summary.tokens_before:
            return None
        return CompactionMade(
            summary=summary.text,
            up_to=up_to,
            archived_count=archived,
            tokens_before=summary.tokens_before,
            tokens_after=summary.tokens_after,
            trigger="manual",
        )
