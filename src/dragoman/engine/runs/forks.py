"""Forks: calls that run a sub-agent, in a loop of its own below that of the call."""

from types import MappingProxyType

from dragoman.core.agent import Agent, Paused
from dragoman.core.answers import FAILED_RUN_RESULT, settle_call
from dragoman.core.content import AssistantMessage, MessageStatus, text_of
from dragoman.core.events import MessageClosed
from dragoman.core.ids import CallId, LoopId, RunId, fork_loop
from dragoman.core.open_calls import OpenCall
from dragoman.engine.runs.run_context import LoopRun
from dragoman.engine.sessions.live_session import LiveSession


async def run_fork(parent: LoopRun, call: OpenCall, agent: Agent, *, after_crash: bool) -> str:
    """Start or continue the sub-agent of a call. Returns its last text when it has ended.

    Raises:
        Paused: one of its calls waits for the application.
        BaseException: whatever the sub-agent raises.
    """
    run = await _loop_of(parent, call, agent, after_crash=after_crash)
    await agent.play(run)
    while run.has_new_denials():
        await agent.play(run)
    run.finish()
    if run.settle_unfinished():
        raise Paused
    turn = await run.services.history.turn(run.live, run.loop)
    texts = [text_of(message.content) for message in turn if isinstance(message, AssistantMessage)]
    return next((text for text in reversed(texts) if text), "")


async def _loop_of(parent: LoopRun, call: OpenCall, agent: Agent, *, after_crash: bool) -> LoopRun:
    """The loop of a call's sub-agent, ready to start or continue."""
    defaults = {option.name: option.default for option in agent.spec.options}
    run = LoopRun(
        parent.live,
        parent.run_id,
        agent,
        parent.services,
        loop=fork_loop(call.call.call_id),
        options=MappingProxyType({**defaults, **parent.options}),
        kept_values=parent.kept_values,
        root=parent.root,
        after_crash=after_crash,
    )
    run.state, run.budget = parent.state, parent.budget
    if run.live.state.calls_in_loop(run.loop):
        await run.restore_answers()
        await run.services.calls.settle(run)
    return run


def close_fork(parent: LoopRun, call_id: CallId) -> None:
    """Close what the sub-agent of a call left open: it failed, or swallowed an exception that it should pass on."""
    live, loop = parent.live, fork_loop(call_id)
    close_loop(live, parent.run_id, loop, "failed")
    for call in reversed(live.state.calls_in_loop(loop)):
        close_fork(parent, call.call.call_id)
        parent.append((settle_call(call, "cancelled", FAILED_RUN_RESULT, parent.services.ids.new),))


def close_loop(live: LiveSession, run_id: RunId, loop: LoopId, status: MessageStatus) -> None:
    """Close the open message of a loop, if it has one, with its content so far."""
    opened = live.state.open_messages.get(loop)
    if opened is not None and not live.has_ended:
        live.close_block(loop, run_id)
        live.append((MessageClosed(message_id=opened.message_id, loop=loop, status=status),), run_id)
