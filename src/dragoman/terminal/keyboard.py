"""Reads lines from the terminal, with a history, also while an answer is being shown."""

import os
import select
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
    """Line input from the terminal.

    Args:
        history: the file for the input history, which the arrow keys recall; None for no history.
    """

    def __init__(self, history: Path | None) -> None:
        self._history = history
        self._typed_ahead: deque[str] = deque()
        """Lines that were typed during an answer and are the next messages."""
        self._reached_eof = False

    @contextmanager
    def loaded_history(self) -> Iterator[None]:
        """Load the input history on entry and save it on exit."""
        try:
            import readline
        except ImportError:  # not available on this platform
            yield
            return
        readline.set_history_length(HISTORY_LINES)
        readline.set_auto_history(False)
        # Lines that are pasted together are one message. Python turns this off.
        readline.parse_and_bind("set enable-bracketed-paste on")
        if self._history is not None:
            with suppress(OSError):
                readline.read_history_file(self._history)
        try:
            yield
        finally:
            if self._history is not None:
                with suppress(OSError):  # the history is optional
                    self._history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    os.close(os.open(self._history, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                    readline.write_history_file(self._history)

    def read_line(self, prompt: str, *, is_message: bool = False) -> str:
        """Read a line.

        Args:
            prompt: shown before the line.
            is_message: the line is a message: it goes into the history, and may have been typed ahead. Answers to
                questions are never taken from lines that were typed before the question was shown.

        Raises:
            EOFError: the input has ended.
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        if is_message and self._typed_ahead:
            text = self._typed_ahead.popleft()
            sys.stderr.write(f"{prompt}{text}\n")
        else:
            try:
                text = self._read_input(prompt)
            except (EOFError, KeyboardInterrupt):
                sys.stderr.write("\n")  # ends the prompt's line
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
        sys.stderr.write(prompt)  # `input` would write the prompt to standard output, where the answer goes
        sys.stderr.flush()
        if text := sys.stdin.readline():
            return text
        raise EOFError

    def keep_typed_lines(self) -> None:
        """Keep lines typed until now as the next messages, and drop the beginning of a line."""
        try:
            import termios

            terminal = sys.stdin.fileno()
            if not os.isatty(terminal):
                return
        except (ImportError, OSError, ValueError):  # not available on this platform, or there is no standard input
            return
        while not self._reached_eof and select.select([terminal], [], [], 0)[0]:
            self._read_available(terminal, _take_none)
        termios.tcflush(terminal, termios.TCIFLUSH)

    @contextmanager
    def listening(self, on_line: Callable[[str], bool]) -> Iterator[None]:
        """Pass typed lines to `on_line`, in a thread. Lines for which it returns False become the next messages."""
        try:
            terminal = sys.stdin.fileno()
            is_terminal = os.isatty(terminal)
        except (OSError, ValueError):
            is_terminal, terminal = False, -1
        if not is_terminal or self._reached_eof:
            yield
            return
        stop_reader, stop_writer = os.pipe()
        listener = threading.Thread(
            target=self._read_typed_lines, args=(terminal, stop_reader, on_line), name="keyboard", daemon=True
        )
        listener.start()
        try:
            with _echo_disabled(terminal):
                yield
        finally:
            os.close(stop_writer)
            listener.join()
            os.close(stop_reader)

    def _read_typed_lines(self, terminal: int, stop_reader: int, on_line: Callable[[str], bool]) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(terminal, selectors.EVENT_READ)
            selector.register(stop_reader, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if stop_reader in ready:
                    return
                self._read_available(terminal, on_line)
                if self._reached_eof:
                    return

    def _read_available(self, terminal: int, on_line: Callable[[str], bool]) -> None:
        read = os.read(terminal, MAX_READ_BYTES)  # a terminal returns whole lines
        self._reached_eof = not read
        for line in read.decode(errors="replace").splitlines():
            if line.strip() and not on_line(line.strip()):
                self._typed_ahead.append(line)


def _take_none(line: str) -> bool:
    return False


@contextmanager
def _echo_disabled(terminal: int) -> Iterator[None]:
    """Turn off echo, so that typed keys do not appear within the answer."""
    try:
        import termios
    except ImportError:  # not available on this platform
        yield
        return
    attributes = termios.tcgetattr(terminal)
    without_echo = [*attributes]
    without_echo[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, without_echo)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, attributes)
