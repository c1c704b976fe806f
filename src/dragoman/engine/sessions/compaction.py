"""Compaction on request, outside of any run."""

from dragoman.core.agent import Agent, Summarizer
from dragoman.core.content import UserMessage
from dragoman.core.events import CompactionMade
from dragoman.core.refusals import SessionBusy
from dragoman.engine.sessions.history import History
from dragoman.engine.sessions.live_session import LiveSession

MAX_MESSAGES = 100_000
"""Maximum number of messages in one compaction."""


async def compact_session(agent: Agent, history: History, live: LiveSession) -> CompactionMade | None:
    """Have the agent summarize all but a session's newest messages.

    Returns:
        The compaction; None if there are fewer than two turns, if it would save no tokens, or if the agent cannot.

    Raises:
        SessionBusy: the session changed in the meantime.
    """
    before, compacted = live.state.seq, live.state.compaction
    messages = [placed.message for placed in await history.context(live, MAX_MESSAGES)]
    turns = sum(isinstance(message, UserMessage) for message in messages) + (compacted is not None)
    if len(messages) < 2 or turns < 2 or not isinstance(agent, Summarizer):
        return None
    summary = await agent.summarize(messages, None if compacted is None else compacted.summary)
    up_to, archived = (0, 0) if summary is None else await history.extent_before(live, summary.keep_from)
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
