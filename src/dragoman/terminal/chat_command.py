"""`dragoman chat`: an interactive conversation in a terminal, or a single message in a pipe."""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dragoman.client import Client, ClientError, Ended, Unsupported
from dragoman.client.images import to_image_urls
from dragoman.client.transports import ClientProtocol
from dragoman.terminal.chat import Chat, SessionSelection, UserLeft, describe_error
from dragoman.terminal.keyboard import Keyboard
from dragoman.terminal.saved_sessions import SavedSession, load_last_session, save_last_session
from dragoman.terminal.screen import JsonLinesScreen, Screen, screen_for
from dragoman.terminal.server_target import CommandError, InvalidArgument, check_reachable

HISTORY_FILE = "history"
EXIT_INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `dragoman chat`.

    Args:
        url: the server's address.
        key: the API key.
        protocol: the protocol.
        resume_command: the command that connects to this server again.
        state_folder: stores the ids of the last conversations and the input history.
        agent: the agent's name; empty for the server's first.
        session: the id of a conversation to continue.
        resumes_last: continue the last conversation with this server.
        message: send this message and read no input.
        images: images to attach to the message.
        allows_all: allow all tools without asking.
        is_plain: no colors and no Markdown.
        is_json: print events as lines of JSON.
    """

    url: str
    key: str | None
    protocol: ClientProtocol
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
    """Run the conversation and return the exit code.

    Raises:
        InvalidArgument: there is nothing to send.
        CommandError: the server or the conversation does not exist, or a request failed.
    """
    check_reachable(options.url)
    is_interactive = sys.stdin.isatty() and not (options.message or options.images or options.is_json)
    keyboard = Keyboard(options.state_folder / HISTORY_FILE) if is_interactive else None
    screen = JsonLinesScreen(sys.stdout, sys.stderr) if options.is_json else screen_for(is_plain=options.is_plain)
    try:
        with Client(options.url, key=options.key, protocol=options.protocol) as client:
            chat = Chat(
                client,
                _select_session(options, client),
                screen,
                keyboard,
                resume_command=options.resume_command,
                allows_all=options.allows_all,
            )
            try:
                if keyboard is None:
                    return _send_single_message(options, chat)
                _show_greeting(options, chat, screen)
                with keyboard.loaded_history():
                    chat.run_interactive()
                return 0
            finally:
                _save_session(options, chat, screen, is_interactive=is_interactive)
    except ClientError as error:
        raise CommandError(describe_error(error)) from error


def _send_single_message(options: ChatOptions, chat: Chat) -> int:
    piped = "" if sys.stdin.isatty() else sys.stdin.read().strip("\n")
    text = "\n\n".join(each for each in (options.message, piped) if each)
    if not text and not options.images:
        raise InvalidArgument("expected a message: --message TEXT, or text on standard input")
    try:
        ended = chat.send(text, to_image_urls(options.images))
    except UserLeft:
        return EXIT_INTERRUPTED
    return exit_code_for(ended)


def exit_code_for(ended: Ended) -> int:
    """The exit code: 0 for an answer, 1 for none, 3 if the run is waiting, 130 after a stop."""
    if ended.pending:
        return 3
    if ended.reason == "cancelled":
        return EXIT_INTERRUPTED
    return 1 if ended.reason in ("error", "interrupted", "refusal") else 0


def _select_session(options: ChatOptions, client: Client) -> SessionSelection:
    """Find the conversation that the options ask for."""
    if options.session:
        saved = load_last_session(options.state_folder, options.url, options.protocol)
        agent = saved.agent if saved and saved.session == options.session else ""
        return SessionSelection(session=options.session, agent=options.agent or agent or _default_agent(options))
    if options.resumes_last:
        if saved := load_last_session(options.state_folder, options.url, options.protocol):
            return SessionSelection(session=saved.session, agent=options.agent or saved.agent)
        try:
            newest = next(client.sessions(), None)
        except Unsupported:
            newest = None
        if newest is None:
            raise CommandError(f"no earlier conversation with {options.url} over {options.protocol}")
        return SessionSelection(session=newest.id, agent=options.agent or newest.agent)
    return SessionSelection(agent=options.agent or _default_agent(options))


def _default_agent(options: ChatOptions) -> str:
    """The agent to use if none is named, for protocols without a default: the server's first.

    AG-UI cannot list agents; Dragoman servers list theirs over AAP.
    """
    if options.protocol not in ("aap", "ag-ui", "openai-chat"):
        return ""
    is_ag_ui = options.protocol == "ag-ui"
    try:
        with Client(options.url, key=options.key, protocol="aap" if is_ag_ui else options.protocol) as client:
            agents = client.agents()
    except ClientError:
        if not is_ag_ui:
            raise
        agents = ()
    return agents[0].name if agents else ""


def _show_greeting(options: ChatOptions, chat: Chat, screen: Screen) -> None:
    agent = chat.agent or "the server's agent"
    screen.show_note(f"{agent} at {options.url} over {options.protocol}; /help for help, Ctrl-D to exit")


def _save_session(options: ChatOptions, chat: Chat, screen: Screen, *, is_interactive: bool) -> None:
    """Save the conversation's id, and say how to continue it."""
    if chat.session is None:
        return
    save_last_session(
        options.state_folder, options.url, options.protocol, SavedSession(session=chat.session.id, agent=chat.agent)
    )
    if is_interactive:
        screen.show_note(f"to continue: {options.resume_command} --last  (or --session {chat.session.id})")
