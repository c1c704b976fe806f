"""`dragoman chat` from its start to its end: a conversation at a terminal, or one message in a pipe."""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dragoman.client import Client, ClientError, Ended, Unsupported
from dragoman.client.images import urls_of
from dragoman.client.transports import ProtocolName
from dragoman.terminal.chat import Chat, Left, Wanted, explained
from dragoman.terminal.keyboard import Keyboard
from dragoman.terminal.saved_sessions import Remembered, last, remember
from dragoman.terminal.screen import JsonLines, Screen, screen_for
from dragoman.terminal.server_target import NoPlace, knock

HISTORY = "history"
LEFT = 130
"""The exit code of a program that Ctrl-C ended."""


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """What `dragoman chat` was asked for.

    Args:
        url: the server.
        key: its key.
        protocol: which of the four.
        again: the command that comes back to this server.
        state: the folder in which the last conversation and the typed lines are kept.
        agent: with whom; the server's first, if not given.
        session: an earlier conversation, by its id.
        is_last: the last conversation there.
        message: what is said; the terminal is not read then.
        images: pictures that go with it.
        allows_all: every tool may run.
        is_plain: no colours and no Markdown.
        is_json: events as lines of JSON.
    """

    url: str
    key: str | None
    protocol: ProtocolName
    again: str
    state: Path
    agent: str = ""
    session: str = ""
    is_last: bool = False
    message: str = ""
    images: Sequence[str] = ()
    allows_all: bool = False
    is_plain: bool = False
    is_json: bool = False


def chat(talk: Talk) -> int:
    """Hold the conversation; gives the exit code.

    Raises:
        NoPlace: there is no such server or conversation; the message says what to do.
    """
    knock(talk.url)
    is_typed = sys.stdin.isatty() and not talk.message and not talk.is_json
    keyboard = Keyboard(talk.state / HISTORY) if is_typed else None
    screen = JsonLines(sys.stdout, sys.stderr) if talk.is_json else screen_for(is_plain=talk.is_plain)
    try:
        with Client(talk.url, key=talk.key, protocol=talk.protocol) as client:
            held = Chat(client, _wanted(talk, client), screen, keyboard, again=talk.again, allows_all=talk.allows_all)
            try:
                if keyboard is None:
                    return _say_once(talk, held)
                _greet(talk, held, screen)
                with keyboard.ready():
                    held.talk()
                return 0
            finally:
                _part(talk, held, screen, is_typed=is_typed)
    except ClientError as error:
        raise NoPlace(explained(error)) from error


def _say_once(talk: Talk, chat: Chat) -> int:
    piped = "" if sys.stdin.isatty() else sys.stdin.read().strip("\n")
    text = "\n\n".join(each for each in (talk.message, piped) if each)
    if not text and not talk.images:
        raise NoPlace("a message was expected, as --message TEXT or on standard input")
    try:
        ended = chat.say(text, urls_of(talk.images))
    except Left:
        return LEFT
    return code_of(ended)


def code_of(ended: Ended) -> int:
    """The exit code: 0 for an answer, 1 for none, 3 when something waits."""
    if ended.pending:
        return 3
    if ended.reason == "cancelled":
        return LEFT
    return 1 if ended.reason in ("error", "interrupted", "refusal") else 0


def _wanted(talk: Talk, client: Client) -> Wanted:
    """Which conversation it is about."""
    if talk.session:
        known = last(talk.state, talk.url, talk.protocol)
        agent = known.agent if known and known.session == talk.session else ""
        return Wanted(session=talk.session, agent=talk.agent or agent or _first_agent(talk))
    if talk.is_last:
        if known := last(talk.state, talk.url, talk.protocol):
            return Wanted(session=known.session, agent=talk.agent or known.agent)
        try:
            newest = next(client.sessions(), None)
        except Unsupported:
            newest = None
        if newest is None:
            raise NoPlace(f"there is no earlier conversation with {talk.url} over {talk.protocol}")
        return Wanted(session=newest.id, agent=talk.agent or newest.agent)
    return Wanted(agent=talk.agent or _first_agent(talk))


def _first_agent(talk: Talk) -> str:
    """The agent of those who name none. AG-UI needs one; a server like ours tells its own over AAP."""
    if talk.protocol not in ("aap", "ag-ui"):
        return ""
    try:
        with Client(talk.url, key=talk.key, protocol="aap") as client:
            agents = client.agents()
    except ClientError:
        if talk.protocol == "aap":
            raise
        agents = ()
    return agents[0].name if agents else ""


def _greet(talk: Talk, chat: Chat, screen: Screen) -> None:
    whom = chat.agent or "the server's agent"
    screen.note(f"{whom} at {talk.url} over {talk.protocol}; /help tells more, Ctrl-D leaves")


def _part(talk: Talk, chat: Chat, screen: Screen, *, is_typed: bool) -> None:
    """Remember the conversation, and say how to come back."""
    if chat.session is None:
        return
    remember(talk.state, talk.url, talk.protocol, Remembered(session=chat.session.id, agent=chat.agent))
    if is_typed:
        screen.note(f"come back with: {talk.again} --last  or with --session {chat.session.id}")
