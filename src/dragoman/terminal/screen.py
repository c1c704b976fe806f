"""Where a conversation is shown: what every screen can do, and the plain ones, for pipes and for programs."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TextIO

import msgspec

from dragoman.client import Ended, Image, Message, Notice, Text, Thinking, ToolCall, ToolResult
from dragoman.client.events import Event
from dragoman.terminal.formatting import (
    call_line,
    clean,
    end_line,
    message_lines,
    notice_lines,
    picture_line,
    result_lines,
)


class Screen(Protocol):
    """Where a conversation is shown."""

    def answering(self) -> AbstractContextManager[object]:
        """Around the events of a run: something is shown while nothing comes."""

    def show(self, event: Event) -> None:
        """An event of a run."""

    def message(self, message: Message) -> None:
        """An entry of the history."""

    def note(self, text: str) -> None:
        """Words of the program's own, with names that a server told."""

    def ask(self, lines: Sequence[str]) -> None:
        """What a person has to decide."""

    def problem(self, text: str) -> None:
        """What went wrong."""


class Plain:
    """Text as it comes. In a pipe the answer alone is on standard output; what is for people is on standard error.

    Args:
        out: where the answer goes.
        aside: where everything else goes; the same as `out` on a terminal.
        is_raw: the answer as it came, for a program; else without what a terminal obeys.
    """

    def __init__(self, out: TextIO, aside: TextIO, *, is_raw: bool) -> None:
        self._out = out
        self._aside = aside
        self._is_raw = is_raw
        self._open: type[Event] | None = None
        """What the last line, which has no end yet, is a part of."""

    def answering(self) -> AbstractContextManager[object]:
        """See `Screen`."""
        return nullcontext()

    def show(self, event: Event) -> None:
        """See `Screen`."""
        match event:
            case Text(text=text, loop=""):
                self._write(text if self._is_raw else clean(text), Text)
            case Text(text=text) | Thinking(text=text):
                if self._out is self._aside:
                    self._write(clean(text), Thinking)
            case ToolCall(name=name, arguments=arguments):
                self._tell([f"* {call_line(name, arguments)}"])
            case ToolResult():
                self._tell([f"  = {line}" for line in result_lines(event)])
            case Image(url=url):
                self._end_line()
                self._line(url if self._is_raw else picture_line(url))
            case Notice():
                self._tell(notice_lines(event))
            case Ended():
                self._end_line()
                if line := end_line(event):
                    self.problem(line)
            case _:  # what a person is asked is asked afterwards
                pass

    def message(self, message: Message) -> None:
        """See `Screen`."""
        lines = message_lines(message)
        mark = "> " if message.role == "user" else ""
        self._tell([f"{mark}{line}" for line in lines])

    def note(self, text: str) -> None:
        """See `Screen`."""
        self._tell(clean(text).splitlines())

    def ask(self, lines: Sequence[str]) -> None:
        """See `Screen`."""
        self._tell(lines)

    def problem(self, text: str) -> None:
        """See `Screen`."""
        self._tell([f"dragoman: {clean(text)}"])

    def _write(self, text: str, kind: type[Event]) -> None:
        if kind is not self._open:
            self._end_line()
            if kind is Thinking:
                self._out.write("(thinking) ")
        self._out.write(text)
        self._out.flush()
        self._open = kind

    def _end_line(self) -> None:
        if self._open is not None:
            self._out.write("\n")
            self._out.flush()
        self._open = None

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def _tell(self, lines: Sequence[str]) -> None:
        if lines:
            self._end_line()
            self._aside.writelines(line + "\n" for line in lines)
            self._aside.flush()


class JsonLines:
    """Every event as one line of JSON, for programs."""

    def __init__(self, out: TextIO, aside: TextIO) -> None:
        self._out = out
        self._aside = aside

    def answering(self) -> AbstractContextManager[object]:
        """See `Screen`."""
        return nullcontext()

    def show(self, event: Event) -> None:
        """See `Screen`."""
        self._line(event)

    def message(self, message: Message) -> None:
        """See `Screen`."""
        self._line(message)

    def note(self, text: str) -> None:
        """See `Screen`."""
        self._aside.write(clean(text) + "\n")

    def ask(self, lines: Sequence[str]) -> None:
        """See `Screen`."""
        self.note("\n".join(lines))

    def problem(self, text: str) -> None:
        """See `Screen`."""
        self.note(f"dragoman: {text}")

    def _line(self, value: Event | Message) -> None:
        self._out.write(msgspec.json.encode(value).decode() + "\n")
        self._out.flush()


def screen_for(*, is_plain: bool) -> Screen:
    """Where it is shown: with colours where a person looks and they are installed."""
    if not sys.stdout.isatty():
        return Plain(sys.stdout, sys.stderr, is_raw=True)
    if not is_plain:
        try:
            from dragoman.terminal.rich_screen import RichScreen
        except ImportError:  # the extra `cli` is not there
            pass
        else:
            return RichScreen(sys.stdout)
    return Plain(sys.stdout, sys.stdout, is_raw=False)
