"""A conversation in a terminal: what is typed goes to the agent, what it does is shown, what it asks is asked."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from types import FrameType

import msgspec

from dragoman.client import (
    Client,
    ClientError,
    Ended,
    Message,
    NotFound,
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

HELP = """\
What you type goes to the agent. Lines that begin with a slash are for the terminal:
  /image PATH    a picture that goes with your next message
  /answer        be asked again what the run waits for
  /stop          stop the run; also while the answer is being written, as Ctrl-C does
  /resume        follow the newest run again, from its start
  /history       what has been said
  /session       this conversation's id, and how to come back to it
  /new           begin another conversation
  /quit          leave, as Ctrl-D and a second Ctrl-C do; what runs goes on at the server"""

PROMPT = "> "


class SessionSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversation: a new one with an agent, or the one with that id."""

    agent: str = ""
    session: str = ""


class UserLeft(Exception):
    """The person leaves while a run is under way."""


class Chat:
    """One conversation after the other, with one server.

    Args:
        client: the server.
        wanted: the first conversation.
        screen: where it is shown.
        keyboard: where a person types; None when nobody does.
        again: the command that comes back to this server; a conversation's flag is put behind it.
        allows_all: no permission is asked for.
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
        self._prompter = Prompter(
            screen.show_prompt if keyboard else _discard_lines, self._read_line, allows_all=allows_all
        )
        self._pending: tuple[Pending, ...] = ()
        self._images: list[str] = []
        self._stop_threads: list[threading.Thread] = []
        self._is_stopping = False
        self._stop_failures: deque[str] = deque()
        self.session: Session | None = None
        """None before the first message: a conversation that says nothing leaves nothing behind."""
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
            self.session = client.open(selection.session, agent=selection.agent)
            self._agent = self.session.agent or selection.agent

    @property
    def agent(self) -> str:
        """Whom it is with, as far as that is known."""
        return self.session.agent if self.session else self._agent

    # --- one message ------------------------------------------------------------------------------------------------

    def send(self, text: str, images: tuple[str, ...] = ()) -> Ended:
        """Say something, and follow the answer to its end, through all that is asked on the way.

        Raises:
            Left: the person left meanwhile.
        """
        if self.session is None:
            self.session = self._client.create(self._agent)
        return self._follow_run(self.session.run(text, images=images))

    def answer_pending(self, session: Session) -> Ended | None:
        """Ask what the session waits for, and follow the run that goes on."""
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
                waits = "".join(f"\n  {pending_line(each)}" for each in ended.pending)
                how = (
                    "/answer asks again"
                    if self._keyboard
                    else f"{self._resume_command} --session {self.session.id} asks"
                )
                self._screen.show_note(f"it waits for{waits}\n{how}")
                return ended
            run = self.session.answer(*answers)

    def _show_run(self, run: Run) -> Ended:
        """Show a run. Ctrl-C or `/stop` stops it, a second Ctrl-C leaves it."""
        self._is_stopping = False
        ended: Ended | None = None
        try:
            with run, self._screen.live_display(), self._stop_controls():
                for event in run:
                    self._show_stop_failures()
                    self._screen.show_event(event)
                    if isinstance(event, Ended):
                        ended = event
        finally:
            for each in self._stop_threads:
                each.join(timeout=2.0)
            self._stop_threads.clear()
            self._show_stop_failures()
        assert ended is not None, "a run's last event is its end"
        return ended

    @contextmanager
    def _stop_controls(self) -> Iterator[None]:
        """Ctrl-C and lines that are typed mean the run."""

        def interrupted(number: int, frame: FrameType | None) -> None:
            if self._is_stopping:
                raise UserLeft
            self._stop_in_background()

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            if self._keyboard is None:
                yield
            else:
                with self._keyboard.listening(self._on_typed_line):
                    yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _on_typed_line(self, line: str) -> bool:
        if line == "/stop":
            self._stop_in_background()
            return True
        return False

    def _stop_in_background(self) -> None:
        """Stop the run beside reading it: its end is part of what is read."""
        self._is_stopping = True
        stopper = threading.Thread(target=self._send_stop, name="stop", daemon=True)
        self._stop_threads.append(stopper)
        stopper.start()

    def _show_stop_failures(self) -> None:
        """Say what went wrong with stopping: here, because a screen is for one thread."""
        while self._stop_failures:
            self._screen.show_note(self._stop_failures.popleft())

    def _send_stop(self) -> None:
        assert self.session is not None, "a run has a session"
        try:
            self.session.stop()
        except ClientError as error:
            self._stop_failures.append(f"it could not be stopped: {error}; Ctrl-C leaves")
        except CancelledError:  # the person left meanwhile
            pass

    # --- the whole conversation -------------------------------------------------------------------------------------

    def run_interactive(self) -> None:
        """Read and answer until the person leaves."""
        assert self._keyboard is not None, "somebody types"
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
                self._screen.show_note("Ctrl-C once more leaves")
                continue
            is_leaving = False
            if line in ("/quit", "/exit"):
                break
            if line and not self._run_reporting_errors(partial(self._handle_line, line)):
                break

    def _run_reporting_errors(self, action: Callable[[], object]) -> bool:
        """Do it; what goes wrong is told. False when the person left."""
        try:
            action()
        except UserLeft:
            return False
        except KeyboardInterrupt:
            self._screen.show_note("left alone")
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
            self._screen.show_note(f"there is no {command}; /help tells what there is")

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
            self._screen.show_note(f"{session.id}\ncome back with: {self._resume_command} --session {session.id}")

    def _start_new_session(self, _: str) -> None:
        self.session, self._pending = None, ()
        self._screen.show_note("a new conversation begins with what you say next")

    def _require_session(self) -> Session | None:
        if self.session is None:
            self._screen.show_note("nothing has been said yet")
        return self.session

    def _attach_image(self, path: str) -> None:
        if not path:
            self._screen.show_note("/image PATH or URL")
            return
        try:
            (url,) = to_image_urls([unquote_path(path)])
        except InvalidImage as error:
            self._screen.show_error(str(error))
            return
        self._images.append(url)
        self._screen.show_note(f"{image_line(url)} goes with your next message")

    def _prompt_again(self, _: str = "") -> None:
        if session := self._require_session():
            if not self._pending:
                self._pending = session.info().pending
            if not self._pending:
                self._screen.show_note("it waits for nothing")
                return
            self.answer_pending(session)

    def _stop_detached_run(self, _: str) -> None:
        if session := self._require_session():
            session.stop()
            self._screen.show_note("stopped")

    def _show_reopened_session(self) -> None:
        """Show what was said before, and go on where the session is: a run is followed, a question asked again."""
        assert self.session is not None, "it was opened"
        session = self.session
        info = session.info()
        try:
            messages = session.history()
        except Unsupported:  # the newest answer, at least, can be read again
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
                self._show_messages(messages[len(until_last_user_message(messages)) :])  # nothing runs there

    def _show_messages(self, messages: tuple[Message, ...]) -> None:
        for each in messages:
            self._screen.show_message(each)

    def _read_line(self, prompt: str) -> str:
        if self._keyboard is None:
            raise EOFError
        return self._keyboard.read_line(prompt)


def _discard_lines(lines: Sequence[str]) -> None:
    """Nobody is there to be asked."""


def until_last_user_message(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages without what the agent made of the last thing that was said."""
    said = [place for place, each in enumerate(messages) if each.role == "user"]
    return messages[: said[-1] + 1] if said else messages


def unquote_path(path: str) -> str:
    """A path as terminals write it when a file is dropped on them."""
    if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"":
        return path[1:-1]
    return path.replace("\\ ", " ")


def describe_error(error: ClientError) -> str:
    """An error in one sentence, with what to do about it where that is known."""
    said = strip_control_characters(str(error))
    match error:
        case Unauthorized():
            return f"{said}. Give a key with --key; on the server's machine `dragoman keys create --name me` makes one"
        case NotFound():
            return said
        case _ if error.request_id:
            return f"{said} (request {strip_control_characters(error.request_id)})"
        case _:
            return said
