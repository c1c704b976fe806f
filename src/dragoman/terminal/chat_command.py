"""`dragoman chat` from its start to its end: a conversation at a terminal, or one message in a pipe."""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dragoman.client import Client, ClientError, Ended, Unsupported
from dragoman.client.images import to_image_urls
from dragoman.client.transports import ProtocolName
from dragoman.terminal.chat import Chat, SessionSelection, UserLeft, describe_error
from dragoman.terminal.keyboard import Keyboard
from dragoman.terminal.saved_sessions import SavedSession, load_last_session, save_last_session
from dragoman.terminal.screen import JsonLinesScreen, Screen, screen_for
from dragoman.terminal.server_target import CommandError, check_reachable

HISTORY_FILE = "history"
EXIT_INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
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
    resume_command: str
    state_folder: Path
    agent: str = ""
    session: str = ""
    resumes_last: bool = False
    message: str = ""
    images: Sequence[str] = ()
    allows_all: bool = False
    is_plain: bool = False
    is_json: bool = False


def run_chat(options: ChatOptions) -> int:
    """Hold the conversation; gives the exit code.

    Raises:
        NoPlace: there is no such server or conversation; the message says what to do.
    """
    check_reachable(options.url)
    is_typed = sys.stdin.isatty() and not options.message and not options.is_json
    keyboard = Keyboard(options.state_folder / HISTORY_FILE) if is_typed else None
    screen = JsonLinesScreen(sys.stdout, sys.stderr) if options.is_json else screen_for(is_plain=options.is_plain)
    try:
        with Client(options.url, key=options.key, protocol=options.protocol) as client:
            held = Chat(
                client,
                _select_session(options, client),
                screen,
                keyboard,
                resume_command=options.resume_command,
                allows_all=options.allows_all,
            )
            try:
                if keyboard is None:
                    return _send_single_message(options, held)
                _show_greeting(options, held, screen)
                with keyboard.loaded_history():
                    held.run_interactive()
                return 0
            finally:
                _save_session(options, held, screen, is_typed=is_typed)
    except ClientError as error:
        raise CommandError(describe_error(error)) from error


def _send_single_message(options: ChatOptions, chat: Chat) -> int:
    piped = "" if sys.stdin.isatty() else sys.stdin.read().strip("\n")
    text = "\n\n".join(each for each in (options.message, piped) if each)
    if not text and not options.images:
        raise CommandError("a message was expected, as --message TEXT or on standard input")
    try:
        ended = chat.send(text, to_image_urls(options.images))
    except UserLeft:
        return EXIT_INTERRUPTED
    return exit_code_for(ended)


def exit_code_for(ended: Ended) -> int:
    """The exit code: 0 for an answer, 1 for none, 3 when something waits."""
    if ended.pending:
        return 3
    if ended.reason == "cancelled":
        return EXIT_INTERRUPTED
    return 1 if ended.reason in ("error", "interrupted", "refusal") else 0


def _select_session(options: ChatOptions, client: Client) -> SessionSelection:
    """Which conversation it is about."""
    if options.session:
        known = load_last_session(options.state_folder, options.url, options.protocol)
        agent = known.agent if known and known.session == options.session else ""
        return SessionSelection(session=options.session, agent=options.agent or agent or _default_agent(options))
    if options.resumes_last:
        if known := load_last_session(options.state_folder, options.url, options.protocol):
            return SessionSelection(session=known.session, agent=options.agent or known.agent)
        try:
            newest = next(client.sessions(), None)
        except Unsupported:
            newest = None
        if newest is None:
            raise CommandError(f"there is no earlier conversation with {options.url} over {options.protocol}")
        return SessionSelection(session=newest.id, agent=options.agent or newest.agent)
    return SessionSelection(agent=options.agent or _default_agent(options))


def _default_agent(options: ChatOptions) -> str:
    """The agent of those who name none. AG-UI needs one; a server like ours tells its own over AAP."""
    if options.protocol not in ("aap", "ag-ui"):
        return ""
    try:
        with Client(options.url, key=options.key, protocol="aap") as client:
            agents = client.agents()
    except ClientError:
        if options.protocol == "aap":
            raise
        agents = ()
    return agents[0].name if agents else ""


def _show_greeting(options: ChatOptions, chat: Chat, screen: Screen) -> None:
    whom = chat.agent or "the server's agent"
    screen.show_note(f"{whom} at {options.url} over {options.protocol}; /help tells more, Ctrl-D leaves")


def _save_session(options: ChatOptions, chat: Chat, screen: Screen, *, is_typed: bool) -> None:
    """Remember the conversation, and say how to come back."""
    if chat.session is None:
        return
    save_last_session(
        options.state_folder, options.url, options.protocol, SavedSession(session=chat.session.id, agent=chat.agent)
    )
    if is_typed:
        screen.show_note(f"come back with: {options.resume_command} --last  or with --session {chat.session.id}")
