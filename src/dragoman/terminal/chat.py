"""An interactive conversation in the terminal: sends input, shows events, asks for decisions."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

import msgspec

from dragoman.client import (
    Client,
    ClientError,
    Ended,
    Message,
    NotFound,
    RequestRefused,
    Run,
    Session,
    Unauthorized,
    Unsupported,
)
from dragoman.client.events import Pending
from dragoman.client.images import InvalidImage, to_image_urls
from dragoman.terminal.formatting import image_line, pending_line, strip_control_characters
from dragoman.terminal.keyboard import Keyboard
from dragoman.terminal.prompts import Prompter
from dragoman.terminal.screen import Screen
from dragoman.terminal.server_target import CommandError

HELP = """\
Your input is sent to the agent. Lines that begin with a slash are commands:
  /image PATH    attach an image to your next message
  /answer        ask again for what the run is waiting for
  /stop          stop the run; works during an answer, like Ctrl-C
  /resume        show the newest run again, from its start
  /history       show all messages
  /session       show this conversation's ID and how to continue it later
  /new           start a new conversation
  /quit          exit, like Ctrl-D or pressing Ctrl-C twice; a running run continues on the server"""

PROMPT = "> "


class SessionSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation to open: a new one with an agent, or the one with this id."""

    agent: str = ""
    session: str = ""


class UserLeft(Exception):
    """The user exits while a run is in progress."""


class Chat:
    """Conversations with one server, one after the other.

    Args:
        client: the client for the server.
        selection: the first conversation.
        screen: the output.
        keyboard: the input; None if nobody can be asked.
        resume_command: the command that connects to this server again, without a conversation's flag.
        allows_all: allow all tools without asking.
    """

    def __init__(
        self,
        client: Client,
        selection: SessionSelection,
        screen: Screen,
        keyboard: Keyboard | None,
        *,
        resume_command: str,
        allows_all: bool,
    ) -> None:
        self._client = client
        self._agent = selection.agent
        self._screen = screen
        self._keyboard = keyboard
        self._resume_command = resume_command
        self._prompter = Prompter(self._show_prompt, self._read_line, allows_all=allows_all)
        self._pending: tuple[Pending, ...] = ()
        self._images: list[str] = []
        self._stop_threads: list[threading.Thread] = []
        self._is_stopping = False
        self._has_output = False
        self._stop_failures: deque[str] = deque()
        self.session: Session | None = None
        """None until the first message, so that an unused conversation leaves no session behind."""
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": self._show_help,
            "/image": self._attach_image,
            "/answer": self._prompt_again,
            "/stop": self._stop_detached_run,
            "/resume": self._resume_run,
            "/history": self._show_history,
            "/session": self._show_session_id,
            "/new": self._start_new_session,
        }
        if selection.session:
            self.session = open_session(client, selection.session, agent=selection.agent)
            self._agent = self.session.agent or selection.agent

    @property
    def agent(self) -> str:
        """The agent's name, if known."""
        return self.session.agent if self.session else self._agent

    # --- one message ------------------------------------------------------------------------------------------------

    def send(self, text: str, images: tuple[str, ...] = ()) -> Ended:
        """Send a message and show the run to its end, asking for decisions on the way.

        Raises:
            UserLeft: the user exited before the end.
        """
        if self.session is not None:
            return self._follow_run(self.session.run(text, images=images))
        self.session = self._client.create(self._agent, declared_approval=True)
        self._has_output = False
        try:
            return self._follow_run(self.session.run(text, images=images))
        except RequestRefused:
            if not self._has_output:  # the message was refused: it leaves no empty conversation behind
                with suppress(ClientError):
                    self.session.delete()
                self.session = None
            raise

    def answer_pending(self, session: Session) -> Ended | None:
        """Ask for what the session is waiting for, and show the run that continues."""
        answers = self._prompter.collect_answers(self._pending)
        return self._follow_run(session.answer(*answers)) if answers else None

    def _follow_run(self, run: Run) -> Ended:
        assert self.session is not None, "a run has a session"
        while True:
            ended = self._show_run(run)
            self._pending = ended.pending
            if not ended.pending:
                return ended
            answers = self._prompter.collect_answers(ended.pending)
            if not answers:
                pending = "".join(f"\n  {pending_line(each)}" for each in ended.pending)
                how = "/answer" if self._keyboard else f"{self._resume_command} --session {self.session.id}"
                self._screen.show_note(f"waiting for:{pending}\nto answer: {how}")
                return ended
            run = self.session.answer(*answers)

    def _show_run(self, run: Run) -> Ended:
        """Show a run. Ctrl-C or `/stop` stops it; a second Ctrl-C exits."""
        self._is_stopping = False
        ended: Ended | None = None
        try:
            with run, self._screen.live_display(lambda: self._is_stopping), self._stop_controls():
                for event in run:
                    self._has_output = True
                    self._show_stop_failures()
                    self._screen.show_event(event)
                    if isinstance(event, Ended):
                        ended = event
        finally:
            for each in self._stop_threads:
                each.join(timeout=2.0)
            self._stop_threads.clear()
            self._show_stop_failures()
        assert ended is not None, "a run's last event is Ended"
        return ended

    @contextmanager
    def _stop_controls(self) -> Iterator[None]:
        """Direct Ctrl-C and typed lines to the run."""

        def on_interrupt(number: int, frame: FrameType | None) -> None:
            if self._is_stopping:
                raise UserLeft
            self._stop_in_background()

        previous_handler = signal.signal(signal.SIGINT, on_interrupt)
        try:
            if self._keyboard is None:
                yield
            else:
                with self._keyboard.listening(self._on_typed_line):
                    yield
        finally:
            signal.signal(signal.SIGINT, previous_handler)

    def _on_typed_line(self, line: str) -> bool:
        if line == "/stop":
            self._stop_in_background()
            return True
        return False

    def _stop_in_background(self) -> None:
        """Send the stop request in a thread, while this one reads the run to its end."""
        self._is_stopping = True
        thread = threading.Thread(target=self._send_stop, name="stop", daemon=True)
        self._stop_threads.append(thread)
        thread.start()

    def _show_stop_failures(self) -> None:
        """Show why stopping failed. Called in the main thread, because screens are not thread-safe."""
        while self._stop_failures:
            self._screen.show_note(self._stop_failures.popleft())

    def _send_stop(self) -> None:
        assert self.session is not None, "a run has a session"
        try:
            self.session.stop()
        except ClientError as error:
            self._stop_failures.append(f"cannot stop the run: {error}. Press Ctrl-C to exit")
        except CancelledError:  # the user exited in the meantime
            pass

    # --- the whole conversation -------------------------------------------------------------------------------------

    def run_interactive(self) -> None:
        """Read input and show answers until the user exits."""
        assert self._keyboard is not None, "interactive use needs a keyboard"
        if self.session is not None:
            self._run_reporting_errors(self._show_reopened_session)
        is_leaving = False
        while True:
            try:
                line = self._keyboard.read_line(PROMPT, is_message=True)
            except EOFError:
                break
            except KeyboardInterrupt:
                if is_leaving:
                    break
                is_leaving = True
                self._screen.show_note("press Ctrl-C again to exit")
                continue
            is_leaving = False
            if line in ("/quit", "/exit"):
                break
            if line and not self._run_reporting_errors(partial(self._handle_line, line)):
                break

    def _run_reporting_errors(self, action: Callable[[], object]) -> bool:
        """Perform an action and show its errors. Returns False if the user exited."""
        try:
            action()
        except UserLeft:
            return False
        except KeyboardInterrupt:
            self._screen.show_note("cancelled")
        except ClientError as error:
            self._screen.show_error(describe_error(error))
        return True

    def _handle_line(self, line: str) -> None:
        if not line.startswith("/"):
            images, self._images = tuple(self._images), []
            self.send(line, images)
            return
        command, _, rest = line.partition(" ")
        if command in self._commands:
            self._commands[command](rest.strip())
        else:
            self._screen.show_note(f"unknown command {command}; /help lists all commands")

    def _show_help(self, _: str) -> None:
        self._screen.show_note(HELP)

    def _resume_run(self, _: str) -> None:
        if session := self._require_session():
            self._follow_run(session.resume())

    def _show_history(self, _: str) -> None:
        if session := self._require_session():
            self._show_messages(session.history())

    def _show_session_id(self, _: str) -> None:
        if session := self._require_session():
            self._screen.show_note(f"{session.id}\nto continue later: {self._resume_command} --session {session.id}")

    def _start_new_session(self, _: str) -> None:
        self.session, self._pending = None, ()
        self._screen.show_note("your next message starts a new conversation")

    def _require_session(self) -> Session | None:
        if self.session is None:
            self._screen.show_note("this conversation has no messages yet")
        return self.session

    def _attach_image(self, path: str) -> None:
        if not path:
            self._screen.show_note("usage: /image PATH or URL")
            return
        try:
            (url,) = to_image_urls([unquote_path(path)])
        except InvalidImage as error:
            self._screen.show_error(str(error))
            return
        self._images.append(url)
        self._screen.show_note(f"attached to your next message: {image_line(url)}")

    def _prompt_again(self, _: str = "") -> None:
        if session := self._require_session():
            if not self._pending:
                self._pending = session.info().pending
            if not self._pending:
                self._screen.show_note("nothing is waiting for an answer")
                return
            self.answer_pending(session)

    def _stop_detached_run(self, _: str) -> None:
        if session := self._require_session():
            session.stop()
            self._screen.show_note("stopped")

    def _show_reopened_session(self) -> None:
        """Show the messages of an opened session, then follow its run or ask its pending question again."""
        assert self.session is not None, "the session was opened"
        session = self.session
        info = session.info()
        try:
            messages = session.history()
        except Unsupported:  # the newest run can still be shown
            messages = ()
        is_known = bool(info.status)
        self._show_messages(messages if info.status in ("idle", "waiting") else until_last_user_message(messages))
        self._pending = info.pending
        if info.status == "waiting" and self._pending:
            self._prompt_again()
        elif info.status != "idle":
            try:
                self._follow_run(session.resume())
            except ClientError:
                if is_known:
                    raise
                self._show_messages(messages[len(until_last_user_message(messages)) :])  # no run is in progress

    def _show_messages(self, messages: tuple[Message, ...]) -> None:
        for each in messages:
            self._screen.show_message(each)

    def _show_prompt(self, lines: Sequence[str]) -> None:
        """Show a question. What was typed before it is not its answer. Without a keyboard nobody can be asked."""
        if self._keyboard is not None:
            self._keyboard.keep_typed_lines()
            self._screen.show_prompt(lines)

    def _read_line(self, prompt: str) -> str:
        if self._keyboard is None:
            raise EOFError
        return self._keyboard.read_line(prompt)


def until_last_user_message(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages up to the user's last one, inclusive."""
    user_indexes = [index for index, each in enumerate(messages) if each.role == "user"]
    return messages[: user_indexes[-1] + 1] if user_indexes else messages


def unquote_path(path: str) -> str:
    """Undo the quoting that terminals apply to the path of a dropped file."""
    if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"":
        return path[1:-1]
    return path.replace("\\ ", " ")


def open_session(client: Client, session_id: str, agent: str = "") -> Session:
    """Open the session that the user named. If there is none, the CommandError says how to find the right ID."""
    try:
        return client.open(session_id, agent=agent)
    except NotFound as error:
        advice = "`dragoman sessions list` shows your conversations and their IDs"
        raise CommandError(f"{describe_error(error)}: {strip_control_characters(session_id)}. {advice}") from error


def describe_error(error: ClientError) -> str:
    """An error as one line, with what to do about it if that is known."""
    message = strip_control_characters(str(error))
    match error:
        case Unauthorized():
            return (
                f"{message}. Pass a key with --key; `dragoman keys create --name me` on the server's machine makes one"
            )
        case NotFound():
            return message
        case _ if error.request_id:
            return f"{message} (request {strip_control_characters(error.request_id)})"
        case _:
            return message
