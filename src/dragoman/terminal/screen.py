"""Output of conversations: the `Screen` interface, and the plain screens for pipes and programs."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TextIO

import msgspec

from dragoman.client import Ended, Image, Message, Notice, Restarted, Text, Thinking, ToolCall, ToolResult
from dragoman.client.events import Event
from dragoman.terminal.formatting import (
    CONNECTION_LOST_LINE,
    RECONNECTED_LINE,
    RESTARTED_LINE,
    call_line,
    end_line,
    image_line,
    message_lines,
    notice_lines,
    result_lines,
    strip_control_characters,
)


class Screen(Protocol):
    """Shows a conversation."""

    def live_display(self, is_stopping: Callable[[], bool] = ...) -> AbstractContextManager[object]:
        """Surround a run's events; may show that the run is in progress, and what Ctrl-C does."""

    def show_event(self, event: Event) -> None:
        """Show an event of a run."""

    def show_message(self, message: Message) -> None:
        """Show a message of the history."""

    def show_note(self, text: str) -> None:
        """Show a message of the program, which may contain text from the server."""

    def show_prompt(self, lines: Sequence[str]) -> None:
        """Show what a person has to decide. The lines are free of control characters."""

    def show_error(self, text: str) -> None:
        """Show an error."""


class PlainScreen:
    """Plain text. In a pipe only the answer goes to standard output; everything else goes to standard error.

    Args:
        out: where the answer goes.
        err: where everything else goes; the same as `out` in a terminal.
        is_raw: do not strip control characters from the answer.
    """

    def __init__(self, out: TextIO, err: TextIO, *, is_raw: bool) -> None:
        self._out = out
        self._err = err
        self._is_raw = is_raw
        self._open_line_kind: type[Event] | None = None
        """The kind of text on the last line, if that has not been ended."""
        self._is_disconnected = False

    def live_display(self, is_stopping: Callable[[], bool] = bool) -> AbstractContextManager[object]:
        """Show nothing while waiting for events."""
        return nullcontext()

    def show_event(self, event: Event) -> None:
        """Show an event of a run."""
        is_disconnected = isinstance(event, Notice) and event.kind == "reconnecting"
        if is_disconnected != self._is_disconnected:
            self._write_info_lines([CONNECTION_LOST_LINE if is_disconnected else RECONNECTED_LINE])
        self._is_disconnected = is_disconnected
        match event:
            case Text(text=text, loop=""):
                self._write_text(text if self._is_raw else strip_control_characters(text), Text)
            case Text(text=text) | Thinking(text=text):
                if self._out is self._err:
                    self._write_text(strip_control_characters(text), Thinking)
            case ToolCall(name=name, arguments=arguments):
                self._write_info_lines([f"* {call_line(name, arguments)}"])
            case ToolResult():
                self._write_info_lines([f"  = {line}" for line in result_lines(event)])
            case Image(url=url):
                self._end_line()
                self._write_line(url if self._is_raw else image_line(url))
            case Notice():
                self._write_info_lines(notice_lines(event))
            case Restarted():
                self._write_info_lines([RESTARTED_LINE])
            case Ended():
                self._end_line()
                if line := end_line(event):
                    self.show_error(line)
            case _:  # decisions are asked for after the run
                pass

    def show_message(self, message: Message) -> None:
        """Show a message of the history."""
        lines = message_lines(message)
        mark = "> " if message.role == "user" else ""
        self._write_info_lines([f"{mark}{line}" for line in lines])

    def show_note(self, text: str) -> None:
        """Show a message of the program."""
        self._write_info_lines(strip_control_characters(text).splitlines())

    def show_prompt(self, lines: Sequence[str]) -> None:
        """Show what a person has to decide."""
        self._write_info_lines(lines)

    def show_error(self, text: str) -> None:
        """Show an error."""
        self._write_info_lines([f"dragoman: {strip_control_characters(text)}"])

    def _write_text(self, text: str, kind: type[Event]) -> None:
        if kind is not self._open_line_kind:
            self._end_line()
            if kind is Thinking:
                self._out.write("(thinking) ")
        self._out.write(text)
        self._out.flush()
        self._open_line_kind = kind

    def _end_line(self) -> None:
        if self._open_line_kind is not None:
            self._out.write("\n")
            self._out.flush()
        self._open_line_kind = None

    def _write_line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def _write_info_lines(self, lines: Sequence[str]) -> None:
        if lines:
            self._end_line()
            self._err.writelines(line + "\n" for line in lines)
            self._err.flush()


class JsonLinesScreen:
    """Writes every event as one line of JSON, for programs."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err

    def live_display(self, is_stopping: Callable[[], bool] = bool) -> AbstractContextManager[object]:
        """Show nothing while waiting for events."""
        return nullcontext()

    def show_event(self, event: Event) -> None:
        """Show an event of a run."""
        self._write_json(event)

    def show_message(self, message: Message) -> None:
        """Show a message of the history."""
        self._write_json(message)

    def show_note(self, text: str) -> None:
        """Show a message of the program."""
        self._err.write(strip_control_characters(text) + "\n")

    def show_prompt(self, lines: Sequence[str]) -> None:
        """Show what a person has to decide."""
        self.show_note("\n".join(lines))

    def show_error(self, text: str) -> None:
        """Show an error."""
        self.show_note(f"dragoman: {text}")

    def _write_json(self, value: Event | Message) -> None:
        self._out.write(msgspec.json.encode(value).decode() + "\n")
        self._out.flush()


def screen_for(*, is_plain: bool) -> Screen:
    """The screen for standard output: with colors in a terminal if the extra `cli` is installed, else plain."""
    if not sys.stdout.isatty():
        return PlainScreen(sys.stdout, sys.stderr, is_raw=True)
    if not is_plain:
        try:
            from dragoman.terminal.rich_screen import RichScreen
        except ImportError:  # the extra `cli` is not installed
            pass
        else:
            return RichScreen(sys.stdout)
    return PlainScreen(sys.stdout, sys.stdout, is_raw=False)
