"""One run of a remote agent: what is sent, to which remote session, and how the run ends.

A turn is sent with a key, and only after the key and the input are durable. So a turn that a crash of this server
interrupted is sent again with the same key, if the remote server runs each key once. If not, `OnLost` decides.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Literal, NoReturn

import msgspec
import structlog

from dragoman.client import events as remote
from dragoman.client.codec import TurnInput, UserInput
from dragoman.client.errors import (
    Busy,
    ClientError,
    NotFound,
    RequestRefused,
    TimedOut,
    Unauthorized,
    Unreachable,
    Unsupported,
)
from dragoman.core.agent import AgentError, Recorded, Run
from dragoman.core.answers import INTERRUPTED_RESULT
from dragoman.core.content import Message, ToolMessage
from dragoman.core.events import StopReason
from dragoman.core.inputs import Decision
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.gateway.conversion import to_answer, to_user_input
from dragoman.gateway.remote_history import CONTEXT_MESSAGES, RemoteHistory
from dragoman.gateway.remote_run import RemoteRun
from dragoman.gateway.remote_server import MAX_ERROR_CHARS, RemoteServer, error_text
from dragoman.gateway.remote_session import (
    Link,
    Position,
    find_new_input,
    results_in_turn,
)

Events = AsyncGenerator[remote.Event, None]
OnLost = Literal["fail", "retry"]
"""What happens to a run whose rest cannot be had: it fails, or its message is sent again."""

RECENT_MESSAGES = 20
"""The messages that are read to find out whether the remote session still has what our user sees."""
MAX_RETRIES = 2
"""How often a message is sent again with `on_lost="retry"`."""
MAX_KEPT_BYTES = 1024 * 1024
"""How much of a history is kept in the remote server's own form."""
BUSY_DELAYS_S = (0.1, 0.5, 2.0)
"""How long to wait before a turn is sent again that the remote server refused because another run was active."""
UNAVAILABLE_STATUSES = (502, 503, 504)
_KEY_PREFIX = "remote/"
_DECODER = msgspec.json.Decoder(Link)

log = structlog.get_logger(__name__)


class Play:
    """One played run.

    Args:
        run: our run.
        server: the remote server.
        agent: the agent's name there; empty for its first.
        headers: sent with each request.
        on_lost: see `OnLost`.
    """

    def __init__(self, run: Run, server: RemoteServer, agent: str, headers: Mapping[str, str], on_lost: OnLost) -> None:
        self._run = run
        self._server = server
        self._transport = server.transport.with_headers(headers)
        self._history = RemoteHistory(run, server, self._transport, agent)
        self._on_lost = on_lost
        self._key = f"{_KEY_PREFIX}{run.loop}"
        self._retries = 0

    async def play(self) -> StopReason | None:
        """Answer the input, or continue where the log ends."""
        kept = (await self._run.kept(self._key)).get(self._key)
        link = None if kept is None else _DECODER.decode(kept)
        recorded = self._run.recorded()
        try:
            if link is not None and link.run_id == self._run.run_id and not link.is_over:
                return await self._take_up(link)
            if any(each.state == "waiting" for each in recorded):
                for each in recorded:
                    each.suspend()  # the server died between the end of the turn and the end of the run
                return None
            if link is not None and any(each.answer is not None for each in recorded):
                return await self._send_answers(link, recorded)
            return await self._send_messages(link)
        except ClientError as error:
            if link is not None and not link.is_over:
                await self._give_up(link)
            self._fail(error)

    # --- what to send ---------------------------------------------------------------------------------------------

    async def _send_messages(self, link: Link | None) -> StopReason | None:
        """Send the new messages, in the remote session if it has what our user sees, else in a new one."""
        new = find_new_input(await self._history.messages(RECENT_MESSAGES), link)
        if link is None or not new.continues or self._history.is_resent(link.handle):
            new = find_new_input(await self._history.messages(), link)
        if not new.messages:
            return None
        user_input = to_user_input(new.messages)
        if link is not None and not self._history.takes_messages(link.handle):
            new = new._replace(continues=False)
        if link is not None and new.continues:
            handle = link.handle
            self._history.configure(handle, new.history)
            link = msgspec.structs.replace(link, waiting={}, has_transcript=False)
        else:
            handle = await self._history.new_session(new.history, self._retries)
            user_input = self._history.with_transcript(new.history, user_input)
            link = Link(handle=handle, has_transcript=self._history.needs_transcript)
        link.steps, link.input_id = 0, new.messages[-1].id
        return await self._send(link, user_input, new.history)

    async def _send_answers(self, link: Link, recorded: Sequence[Recorded]) -> StopReason | None:
        """Send what our user and application have answered."""
        history = await self._history.messages_for(link.handle)
        self._history.configure(link.handle, history)
        pending = {each.call_id: each for each in link.handle.pending}
        answers: list[remote.Answer] = []
        settled: list[Recorded] = []
        for each in recorded:
            asked = pending.get(link.waiting.get(each.call.call_id, ""))
            if asked is not None and each.answer is not None:
                answers.append(to_answer(asked, each.answer))
                settled.append(each)
        if not answers:
            return await self._send_messages(link)
        return await self._send(link, tuple(answers), history, settled)

    async def _send(
        self, link: Link, turn_input: TurnInput, history: Sequence[Message], answered: Sequence[Recorded] = ()
    ) -> StopReason | None:
        """Send a turn, after it is durable that it is sent."""
        link.turn += 1
        link.run_id, link.handle.run_id, link.handle.sequence = self._run.run_id, "", -1
        link.answers = () if isinstance(turn_input, UserInput) else turn_input
        link.history_from = history[0].id if history else ""
        link.history_until = history[-1].id if history else ""
        link.is_over = link.is_lost = False
        metadata = self._run.metadata
        link.handle.state = self._run.state
        link.handle.context = tuple(msgspec.to_builtins(each) for each in metadata.context)
        link.handle.forwarded = None if metadata.forwarded is msgspec.UNSET else metadata.forwarded
        await self._keep(link)
        for each in answered:
            await _settle_answered(each)
        checkpoint = self._checkpoint(link)
        events = self._transport.run_turn(link.handle, turn_input, link.key, checkpoint)
        return await self._exchange(link, Position(), events, turn_input)

    def _checkpoint(self, link: Link) -> Callable[[], Awaitable[None]]:
        """A function that keeps what taking up the turn needs beyond what its remote session is now."""
        before = msgspec.structs.replace(link.handle, emitted_lengths={**link.handle.emitted_lengths})

        async def keep() -> None:
            now = link.handle
            handle = msgspec.structs.replace(before, id=now.id, run_id=now.run_id, sequence=now.sequence)
            await self._keep(msgspec.structs.replace(link, handle=handle))

        return keep

    async def _take_up(self, link: Link) -> StopReason | None:
        """Go on with a turn that a crash of this server interrupted."""
        await self._transport.identify()
        history, user_input = await self._history.sent_input(link)
        self._history.configure(link.handle, history)
        if link.has_transcript:
            user_input = self._history.with_transcript(history, user_input)
        turn_input = link.answers or user_input
        events = await self._transport.take_up(link.handle, turn_input, link.key, self._checkpoint(link))
        if events is None:
            return await self._begin_again(link)
        _, position, turn = results_in_turn(await self._run.turn())
        position = position if position is not None and turn == link.turn else Position()
        return await self._exchange(link, position, events, turn_input)

    async def _begin_again(self, link: Link) -> StopReason | None:
        """Send a message again whose answer is lost, in a new session, if that is the rule."""
        if self._on_lost != "retry" or link.answers or self._retries >= MAX_RETRIES:
            await self._give_up(link)
            raise AgentError(
                "remote_lost",
                "The connection to the remote agent was lost, and its answer cannot be resumed: send the message again",
            )
        self._retries += 1
        self._run.repeat_step()
        for each in self._run.recorded():
            await each.done(INTERRUPTED_RESULT, outcome="interrupted")
        return await self._send_anew(link, steps=link.steps)

    async def _send_anew(self, link: Link, steps: int = 0) -> StopReason | None:
        """Send a message again, in a new session."""
        history, user_input = await self._history.sent_input(link)
        handle = await self._history.new_session(history, self._retries)
        user_input = self._history.with_transcript(history, user_input)
        again = Link(
            handle=handle,
            turn=link.turn,
            steps=steps,
            input_id=link.input_id,
            has_transcript=self._history.needs_transcript,
        )
        return await self._send(again, user_input, history)

    # --- the exchange ---------------------------------------------------------------------------------------------

    async def _exchange(
        self, link: Link, position: Position, events: Events, turn_input: TurnInput
    ) -> StopReason | None:
        """Write the events of a turn, and keep what the next one needs.

        Args:
            link: the remote session.
            position: what the log has of the turn.
            events: the events. The turn is sent when the first one is asked for.
            turn_input: what is sent.
        """
        breaker = self._server.breaker
        origins, _, _ = results_in_turn(await self._run.turn())
        if not breaker.allows_request():
            await self._give_up(link)
            wait_s = max(1, round(breaker.wait_s))
            raise AgentError("remote_unavailable", f"The remote agent cannot be reached; try again in {wait_s} s")
        remote_run = RemoteRun(self._run, link, origins, position)
        try:
            await self._server.wait_for_stop(link.handle.id)
            await self._transport.identify()
            ended = await self._follow(link, turn_input, remote_run, events)
        except asyncio.CancelledError:
            breaker.release()
            if not self._run.is_handed_over:
                self._server.stop_later(self._transport, link.handle)
            raise
        except ClientError as error:
            is_reached = remote_run.has_events or not isinstance(error, Unreachable)
            self._server.record(reached=is_reached)
            if isinstance(error, Unreachable) and not error.may_retry:  # it may have arrived, and cannot be resumed
                log.warning("remote run lost", agent=self._server.name, session=link.handle.id, error=error_text(error))
                return await self._begin_again(link)
            if isinstance(error, NotFound) and not (remote_run.has_events or self._retries or link.answers):
                self._retries += 1  # the server has deleted the session
                return await self._send_anew(link)
            await self._give_up(link)
            raise
        except AgentError:  # this run may have no more steps
            breaker.release()
            self._server.stop_later(self._transport, link.handle)
            await self._give_up(link)
            raise
        except BaseException:  # such as a store that fails: else no other run could probe the server
            breaker.release()
            raise
        self._server.record(reached=True)
        if remote_run.allowed:
            history = await self._history.messages_for(link.handle)
            self._history.configure(link.handle, history)
            return await self._send(link, remote_run.allowed, history)
        link.is_over, link.answers = True, ()
        await self._keep(link)
        return _reason_of(ended)

    async def _follow(self, link: Link, turn_input: TurnInput, remote_run: RemoteRun, events: Events) -> remote.Ended:
        """Read a turn to its end. One is sent again while a run that was just stopped has not ended there."""
        for delay_s in BUSY_DELAYS_S:
            try:
                return await remote_run.follow(events)
            except Busy:
                await asyncio.sleep(delay_s)
                events = self._transport.run_turn(link.handle, turn_input, link.key, self._checkpoint(link))
        return await remote_run.follow(events)

    async def _give_up(self, link: Link) -> None:
        """Keep that the rest of the turn is lost, so that the next one begins a new session."""
        link.is_over = link.is_lost = True
        link.answers = ()
        await self._keep(link)

    async def _keep(self, link: Link) -> None:
        is_known = link.is_over and not link.is_lost and self._history.keeps_messages(link.handle)
        messages = link.handle.messages if is_known else []
        if len(messages) > CONTEXT_MESSAGES or len(msgspec.json.encode(messages)) > MAX_KEPT_BYTES:
            messages = []  # the next turn begins a new session
        handle = msgspec.structs.replace(link.handle, messages=messages)
        if link.is_over and not handle.pending:
            handle.tool_names = {}
        encoded = msgspec.json.encode(msgspec.structs.replace(link, handle=handle))
        await self._run.keep({self._key: encoded})

    # --- failures -------------------------------------------------------------------------------------------------

    def _fail(self, error: ClientError) -> NoReturn:
        """End the run with an error for clients. The address of the remote server stays in the log."""
        log.warning("remote run failed", agent=self._server.name, url=self._server.url, error=error_text(error))
        match error:
            case Busy():
                failure = AgentError("remote_busy", "The remote agent is busy with another run of this session")
            case Unauthorized():
                failure = AgentError("remote_refused", "The remote server refused the credentials")
            case RequestRefused() if error.status in UNAVAILABLE_STATUSES:
                failure = AgentError("remote_unavailable", f"The remote agent is unavailable: {error_text(error)}")
            case RequestRefused() if error.status >= 500:
                failure = AgentError("remote_error", f"The remote agent failed: {error_text(error)}")
            case RequestRefused():
                failure = AgentError("remote_refused", f"The remote agent refused the request: {error_text(error)}")
            case TimedOut():
                failure = AgentError("remote_unavailable", "The remote agent did not answer in time")
            case Unreachable():
                failure = AgentError("remote_unavailable", "The remote agent cannot be reached")
            case Unsupported():
                failure = AgentError(
                    "remote_refused", "The remote server does not support the request: see the log of this server"
                )
            case _:
                failure = AgentError("remote_invalid", "The remote agent's answer does not follow its protocol")
        raise failure from error


async def _settle_answered(recorded: Recorded) -> None:
    """Settle a call with its answer, unless the answer is a decision: then the remote server has its result."""
    answer = recorded.answer
    if isinstance(answer, ToolMessage):
        is_choice = recorded.call.name == ASK_USER_QUESTION and answer.raw is not msgspec.UNSET
        value = answer.raw if is_choice else answer.content
        await recorded.done(value, outcome="failed" if answer.is_error else "done")
    elif isinstance(answer, Decision) and answer.granted:
        await recorded.start()


def _reason_of(ended: remote.Ended) -> StopReason | None:
    """Why our run ends. Raises AgentError."""
    problem = ended.problem
    match ended.reason:
        case "end_turn" | "tool_use":
            return None
        case "max_tokens" | "refusal" | "max_steps":
            return ended.reason
        case "cancelled":
            raise AgentError("remote_stopped", "The remote agent's run was stopped there")
        case "interrupted":
            raise AgentError("remote_interrupted", "The remote agent's server restarted while it answered")
        case "error":
            message = problem.message[:MAX_ERROR_CHARS] if problem is not None else ""
            raise AgentError("remote_error", message or "The remote agent failed, and gave no reason")
