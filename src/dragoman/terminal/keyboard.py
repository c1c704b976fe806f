"""What a person types: lines with a history, and lines that come while an answer is being written."""

import os
import selectors
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HISTORY_LINES = 1_000
MAX_READ_BYTES = 64 * 1024


class Keyboard:
    """The terminal's own lines.

    Args:
        history: the file that keeps what was typed, for the arrow keys; None keeps nothing.
    """

    def __init__(self, history: Path | None) -> None:
        self._history = history
        self._typed_ahead: deque[str] = deque()
        """Lines that were typed before they were asked for."""
        self._reached_eof = False

    @contextmanager
    def loaded_history(self) -> Iterator[None]:
        """Around everything: the history is read before and kept afterwards."""
        try:
            import readline
        except ImportError:  # not made for this platform: lines without arrow keys
            yield
            return
        readline.set_history_length(HISTORY_LINES)
        readline.set_auto_history(False)
        if self._history is not None:
            with suppress(OSError):
                readline.read_history_file(self._history)
        try:
            yield
        finally:
            if self._history is not None:
                with suppress(OSError):  # no history is no reason to fail
                    self._history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    os.close(os.open(self._history, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                    readline.write_history_file(self._history)

    def read_line(self, prompt: str, *, is_message: bool = False) -> str:
        """A line. `is_kept`: the arrow keys find it again, and it may have been typed before it was asked for.

        An answer to a question never is: what was typed earlier was no answer to it.

        Raises:
            EOFError: there will be no more.
            KeyboardInterrupt: Ctrl-C.
        """
        if is_message and self._typed_ahead:
            text = self._typed_ahead.popleft()
            sys.stderr.write(f"{prompt}{text}\n")
        else:
            try:
                text = self._read_input(prompt)
            except (EOFError, KeyboardInterrupt):
                sys.stderr.write("\n")  # the line that was begun
                sys.stderr.flush()
                raise
        text = text.strip()
        if is_message and text:
            with suppress(ImportError):
                import readline

                readline.add_history(text)
        return text

    def _read_input(self, prompt: str) -> str:
        if self._reached_eof:
            raise EOFError
        if sys.stdout.isatty():
            return input(prompt)
        sys.stderr.write(prompt)  # `input` would write it to where the answer goes
        sys.stderr.flush()
        if text := sys.stdin.readline():
            return text
        raise EOFError

    @contextmanager
    def listening(self, on_line: Callable[[str], bool]) -> Iterator[None]:
        """Meanwhile lines that are typed go to `take`, in another thread; those that it does not want come next."""
        try:
            typed = sys.stdin.fileno()
            is_terminal = os.isatty(typed)
        except (OSError, ValueError):
            is_terminal, typed = False, -1
        if not is_terminal or self._reached_eof:
            yield
            return
        over, end = os.pipe()
        listener = threading.Thread(
            target=self._read_typed_lines, args=(typed, over, on_line), name="keyboard", daemon=True
        )
        listener.start()
        try:
            with _echo_disabled(typed):
                yield
        finally:
            os.close(end)
            listener.join()
            os.close(over)

    def _read_typed_lines(self, typed: int, over: int, on_line: Callable[[str], bool]) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(typed, selectors.EVENT_READ)
            waiting.register(over, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in waiting.select()}
                if over in ready:
                    return
                read = os.read(typed, MAX_READ_BYTES)  # a terminal gives whole lines
                if not read:
                    self._reached_eof = True
                    return
                for line in read.decode(errors="replace").splitlines():
                    if line.strip() and not on_line(line.strip()):
                        self._typed_ahead.append(line)


@contextmanager
def _echo_disabled(terminal: int) -> Iterator[None]:
    """Keys are not shown: they would stand in the middle of what is being drawn."""
    try:
        import termios
    except ImportError:  # not made for this platform
        yield
        return
    before = termios.tcgetattr(terminal)
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
