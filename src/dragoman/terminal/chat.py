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
from dragoman.client.images import NoImage, urls_of
from dragoman.terminal.formatting import clean, pending_line, picture_line
from dragoman.terminal.keyboard import Keyboard
from dragoman.terminal.prompts import Asker
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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversation: a new one with an agent, or the one with that id."""

    agent: str = ""
    session: str = ""


class Left(Exception):
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
        wanted: Wanted,
        screen: Screen,
        keyboard: Keyboard | None,
        *,
        again: str,
        allows_all: bool,
    ) -> None:
        self._client = client
        self._agent = wanted.agent
        self._screen = screen
        self._keyboard = keyboard
        self._again = again
        self._asker = Asker(screen.ask if keyboard else _to_nobody, self._line, allows_all=allows_all)
        self._pending: tuple[Pending, ...] = ()
        self._images: list[str] = []
        self._stopping: list[threading.Thread] = []
        self._is_stopping = False
        self._failures: deque[str] = deque()
        self.session: Session | None = None
        """None before the first message: a conversation that says nothing leaves nothing behind."""
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": self._help,
            "/image": self._attach,
            "/answer": self._ask_again,
            "/stop": self._stop_unseen,
            "/resume": self._follow_again,
            "/history": self._history,
            "/session": self._tell_session,
            "/new": self._begin_anew,
        }
        if wanted.session:
            self.session = client.open(wanted.session, agent=wanted.agent)
            self._agent = self.session.agent or wanted.agent

    @property
    def agent(self) -> str:
        """Whom it is with, as far as that is known."""
        return self.session.agent if self.session else self._agent

    # --- one message ------------------------------------------------------------------------------------------------

    def say(self, text: str, images: tuple[str, ...] = ()) -> Ended:
        """Say something, and follow the answer to its end, through all that is asked on the way.

        Raises:
            Left: the person left meanwhile.
        """
        if self.session is None:
            self.session = self._client.create(self._agent)
        return self._follow(self.session.run(text, images=images))

    def answer(self, session: Session) -> Ended | None:
        """Ask what the session waits for, and follow the run that goes on."""
        answers = self._asker.all(self._pending)
        return self._follow(session.answer(*answers)) if answers else None

    def _follow(self, run: Run) -> Ended:
        assert self.session is not None, "a run has a session"
        while True:
            ended = self._events(run)
            self._pending = ended.pending
            if not ended.pending:
                return ended
            answers = self._asker.all(ended.pending)
            if not answers:
                waits = "".join(f"\n  {pending_line(each)}" for each in ended.pending)
                how = "/answer asks again" if self._keyboard else f"{self._again} --session {self.session.id} asks"
                self._screen.note(f"it waits for{waits}\n{how}")
                return ended
            run = self.session.answer(*answers)

    def _events(self, run: Run) -> Ended:
        """Show a run. Ctrl-C or `/stop` stops it, a second Ctrl-C leaves it."""
        self._is_stopping = False
        ended: Ended | None = None
        try:
            with run, self._screen.answering(), self._heard():
                for event in run:
                    self._tell_failures()
                    self._screen.show(event)
                    if isinstance(event, Ended):
                        ended = event
        finally:
            for each in self._stopping:
                each.join(timeout=2.0)
            self._stopping.clear()
            self._tell_failures()
        assert ended is not None, "a run's last event is its end"
        return ended

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Ctrl-C and lines that are typed mean the run."""

        def interrupted(number: int, frame: FrameType | None) -> None:
            if self._is_stopping:
                raise Left
            self._stop()

        before = signal.signal(signal.SIGINT, interrupted)
        try:
            if self._keyboard is None:
                yield
            else:
                with self._keyboard.listening(self._typed):
                    yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _typed(self, line: str) -> bool:
        if line == "/stop":
            self._stop()
            return True
        return False

    def _stop(self) -> None:
        """Stop the run beside reading it: its end is part of what is read."""
        self._is_stopping = True
        stopper = threading.Thread(target=self._stop_it, name="stop", daemon=True)
        self._stopping.append(stopper)
        stopper.start()

    def _tell_failures(self) -> None:
        """Say what went wrong with stopping: here, because a screen is for one thread."""
        while self._failures:
            self._screen.note(self._failures.popleft())

    def _stop_it(self) -> None:
        assert self.session is not None, "a run has a session"
        try:
            self.session.stop()
        except ClientError as error:
            self._failures.append(f"it could not be stopped: {error}; Ctrl-C leaves")
        except CancelledError:  # the person left meanwhile
            pass

    # --- the whole conversation -------------------------------------------------------------------------------------

    def talk(self) -> None:
        """Read and answer until the person leaves."""
        assert self._keyboard is not None, "somebody types"
        if self.session is not None:
            self._guarded(self._come_back)
        is_leaving = False
        while True:
            try:
                line = self._keyboard.line(PROMPT, is_kept=True)
            except EOFError:
                break
            except KeyboardInterrupt:
                if is_leaving:
                    break
                is_leaving = True
                self._screen.note("Ctrl-C once more leaves")
                continue
            is_leaving = False
            if line in ("/quit", "/exit"):
                break
            if line and not self._guarded(partial(self._take, line)):
                break

    def _guarded(self, work: Callable[[], object]) -> bool:
        """Do it; what goes wrong is told. False when the person left."""
        try:
            work()
        except Left:
            return False
        except KeyboardInterrupt:
            self._screen.note("left alone")
        except ClientError as error:
            self._screen.problem(explained(error))
        return True

    def _take(self, line: str) -> None:
        if not line.startswith("/"):
            images, self._images = tuple(self._images), []
            self.say(line, images)
            return
        command, _, rest = line.partition(" ")
        if command in self._commands:
            self._commands[command](rest.strip())
        else:
            self._screen.note(f"there is no {command}; /help tells what there is")

    def _help(self, _: str) -> None:
        self._screen.note(HELP)

    def _follow_again(self, _: str) -> None:
        if session := self._begun():
            self._follow(session.resume())

    def _history(self, _: str) -> None:
        if session := self._begun():
            self._show(session.history())

    def _tell_session(self, _: str) -> None:
        if session := self._begun():
            self._screen.note(f"{session.id}\ncome back with: {self._again} --session {session.id}")

    def _begin_anew(self, _: str) -> None:
        self.session, self._pending = None, ()
        self._screen.note("a new conversation begins with what you say next")

    def _begun(self) -> Session | None:
        if self.session is None:
            self._screen.note("nothing has been said yet")
        return self.session

    def _attach(self, path: str) -> None:
        if not path:
            self._screen.note("/image PATH or URL")
            return
        try:
            (url,) = urls_of([unquoted(path)])
        except NoImage as error:
            self._screen.problem(str(error))
            return
        self._images.append(url)
        self._screen.note(f"{picture_line(url)} goes with your next message")

    def _ask_again(self, _: str = "") -> None:
        if session := self._begun():
            if not self._pending:
                self._pending = session.info().pending
            if not self._pending:
                self._screen.note("it waits for nothing")
                return
            self.answer(session)

    def _stop_unseen(self, _: str) -> None:
        if session := self._begun():
            session.stop()
            self._screen.note("stopped")

    def _come_back(self) -> None:
        """Show what was said before, and go on where the session is: a run is followed, a question asked again."""
        assert self.session is not None, "it was opened"
        session = self.session
        info = session.info()
        try:
            messages = session.history()
        except Unsupported:  # the newest answer, at least, can be read again
            messages = ()
        is_known = bool(info.status)
        self._show(messages if info.status in ("idle", "waiting") else up_to_last_word(messages))
        self._pending = info.pending
        if info.status == "waiting" and self._pending:
            self._ask_again()
        elif info.status != "idle":
            try:
                self._follow(session.resume())
            except ClientError:
                if is_known:
                    raise
                self._show(messages[len(up_to_last_word(messages)) :])  # nothing runs there

    def _show(self, messages: tuple[Message, ...]) -> None:
        for each in messages:
            self._screen.message(each)

    def _line(self, prompt: str) -> str:
        if self._keyboard is None:
            raise EOFError
        return self._keyboard.line(prompt)


def _to_nobody(lines: Sequence[str]) -> None:
    """Nobody is there to be asked."""


def up_to_last_word(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The messages without what the agent made of the last thing that was said."""
    said = [place for place, each in enumerate(messages) if each.role == "user"]
    return messages[: said[-1] + 1] if said else messages


def unquoted(path: str) -> str:
    """A path as terminals write it when a file is dropped on them."""
    if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"":
        return path[1:-1]
    return path.replace("\\ ", " ")


def explained(error: ClientError) -> str:
    """An error in one sentence, with what to do about it where that is known."""
    said = clean(str(error))
    match error:
        case Unauthorized():
            return f"{said}. Give a key with --key; on the server's machine `dragoman keys create --name me` makes one"
        case NotFound():
            return said
        case _ if error.request_id:
            return f"{said} (request {clean(error.request_id)})"
        case _:
            return said
