"""A bot for a chat application with threads, such as Slack, on the Python client.

Each thread is a session. Answers grow by editing one message, approvals and questions are asked in the thread, and a
bot that is restarted finds its threads again. `Chat` is what the application has to offer: with Slack, `post` and
`edit` are `chat.postMessage` and `chat.update`. Here it is your terminal: a line is a message, `2: hello` writes to
thread 2.

python examples/chat_bot.py http://127.0.0.1:8000 KEY rehearsal
"""

import asyncio
import sys
import time
from collections import defaultdict
from typing import Protocol

from dragoman.client import (
    Allow,
    Answer,
    AsyncClient,
    AsyncRun,
    AsyncSession,
    Choice,
    ClientError,
    Deny,
    Ended,
    Permission,
    Question,
    Restarted,
    Result,
    Text,
)

EDIT_EVERY_S = 0.5
YES = {"ok", "yes", "y"}


class Chat(Protocol):
    """The chat application."""

    async def post(self, thread: str, text: str) -> str:
        """Post a message to a thread; its ID."""

    async def edit(self, thread: str, message: str, text: str) -> None:
        """Replace the text of a message."""


class Bot:
    """Talks to an agent in the threads of a chat."""

    def __init__(self, client: AsyncClient, agent: str, chat: Chat) -> None:
        self._client = client
        self._agent = agent
        self._chat = chat
        self._sessions: dict[str, AsyncSession] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self) -> None:
        """Find the threads of an earlier bot."""
        async for known in self._client.sessions():
            session = await self._client.open(known.id)
            thread = (await session.info()).labels.get("thread")
            if thread is not None:
                self._sessions.setdefault(thread, session)

    async def receive(self, thread: str, text: str) -> None:
        """Answer a message: a new one, or what a person decided about a call that waits."""
        async with self._turns[thread]:
            await self._answer(thread, text)

    async def _answer(self, thread: str, text: str) -> None:
        session = self._sessions.get(thread)
        if session is None:
            session = await self._client.create(self._agent, labels={"thread": thread}, declared_approval=True)
            self._sessions[thread] = session
        pending = (await session.info()).pending
        run = session.answer(*(answer_to(call, text) for call in pending)) if pending else session.run(text)
        await self._show(thread, run)

    async def _show(self, thread: str, run: AsyncRun) -> None:
        said, shown, message, shown_at = "", "", "", 0.0
        async for event in run:
            match event:
                case Text(text=text):
                    said += text
                case Restarted(text=text):  # the server crashed, and says this again
                    said = said.removesuffix(text)
                case Ended(pending=pending, problem=problem):
                    questions = [question_of(call) for call in pending]
                    said = "\n".join(filter(None, [said, *questions, problem.message if problem else ""]))
                case _:
                    continue
            is_due = isinstance(event, Ended) or time.monotonic() - shown_at > EDIT_EVERY_S
            if said == shown or not is_due:
                continue
            shown, shown_at = said, time.monotonic()
            if message:
                await self._chat.edit(thread, message, said)
            else:
                message = await self._chat.post(thread, said)


def question_of(call: object) -> str:
    """What people are asked about a call that waits."""
    match call:
        case Permission(name=name, arguments=arguments):
            return f"May I run {name} {arguments}? Answer yes or no."
        case Question(questions=(first, *_)):
            return f"{first.question} ({', '.join(option.label for option in first.options)})"
        case _:
            return f"This bot cannot answer {call}."


def answer_to(call: object, text: str) -> Answer:
    """A person's text as the answer to a call that waits."""
    match call:
        case Permission(call_id=call_id):
            return Allow(call_id=call_id) if text.lower() in YES else Deny(call_id=call_id, reason=text)
        case Question(call_id=call_id, questions=(first, *_)):
            labels = {option.label.lower(): option.label for option in first.options}
            label = labels.get(text.lower())
            return Choice.of(label, call_id=call_id) if label else Choice.of(custom=text, call_id=call_id)
        case _:
            return Result(call_id=getattr(call, "call_id", ""), text=text)


class Terminal:
    """A chat in a terminal, which shows each version of a message."""

    async def post(self, thread: str, text: str) -> str:
        print(f"{thread}> {text}")
        return thread

    async def edit(self, thread: str, message: str, text: str) -> None:
        print(f"{thread}> {text}")


async def main(url: str, key: str, agent: str = "assistant") -> None:
    async with AsyncClient(url, key=key) as client, asyncio.TaskGroup() as threads:
        bot = Bot(client, agent, Terminal())
        await bot.start()
        while line := await asyncio.to_thread(sys.stdin.readline):
            head, _, rest = line.partition(":")
            thread, text = (head, rest) if head.isdigit() else ("1", line)
            threads.create_task(bot.receive(thread, text.strip()))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python examples/chat_bot.py URL KEY [AGENT]")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except* ClientError as errors:  # an invalid key, an unknown agent, no connection, ...
        sys.exit(str(errors.exceptions[0]))
