"""A screen with colours, with Markdown as it is written, and with a sign of life while nothing comes: the extra `cli`.

What is whole is printed for good and scrolls away; only the block that is still being written is drawn anew.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.padding import Padding
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text as Styled

from dragoman.client import Ended, Image, Message, Notice, Text, Thinking, ToolCall, ToolResult
from dragoman.client.events import Event
from dragoman.terminal.formatting import (
    call_line,
    end_line,
    image_line,
    message_lines,
    notice_lines,
    result_lines,
    shorten,
    strip_control_characters,
)

FRAMES_PER_S = 12
SUB_AGENT_INDENT = 4


class RichScreen:
    """See `dragoman.terminal.screen.Screen`."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, markup=False, highlight=False, emoji=False)
        self._live: Live | None = None
        self._open_block_kind: type[Text] | type[Thinking] = Text
        self._open_block_loop = ""
        self._open_block = ""
        """The block that is still being written."""
        self._last_call_id = ""
        """Whose line came last."""
        self._started_at = 0.0
        self._spinner = Spinner("dots", style="cyan")

    @contextmanager
    def live_display(self) -> Iterator[None]:
        """See `Screen`."""
        self._started_at = time.monotonic()
        self._live = Live(
            get_renderable=self._render_live,
            console=self._console,
            refresh_per_second=FRAMES_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        try:
            with self._live:
                try:
                    yield
                finally:
                    self._flush()
        finally:
            self._live = None

    def show_event(self, event: Event) -> None:
        """See `Screen`."""
        match event:
            case Text(text=text, loop=loop) | Thinking(text=text, loop=loop):
                self._stream(Text if isinstance(event, Text) else Thinking, loop, strip_control_characters(text))
            case ToolCall(id=call_id, name=name, arguments=arguments, loop=loop):
                self._last_call_id = call_id
                self._print(Styled(f"⚙ {shorten(call_line(name, arguments))}", style="cyan"), loop)
            case ToolResult(loop=loop):
                lines = result_lines(event)
                if event.call_id != self._last_call_id:  # of several calls: which of them
                    lines[0] = f"{strip_control_characters(event.name)}: {lines[0]}"
                self._print(Styled("\n".join([f"  ↳ {lines[0]}", *(f"    {line}" for line in lines[1:])])), loop, "dim")
            case Image(url=url, loop=loop):
                self._print(Styled(image_line(url), style="magenta"), loop)
            case Notice(loop=loop):
                if lines := notice_lines(event):
                    self._print(Styled("\n".join(lines), style="yellow"), loop)
            case Ended():
                self._flush()
                if line := end_line(event):
                    self._print(Styled(line, style="yellow" if event.reason == "cancelled" else "red"))
                self._print(Styled(self._format_usage(event), style="dim"))
            case _:  # what a person is asked is asked afterwards
                self._flush()

    def show_message(self, message: Message) -> None:
        """See `Screen`."""
        if message.role == "user":
            self._print(Styled("\n".join(f"› {line}" for line in message_lines(message)), style="bold"))
        elif message.role == "assistant" and message.text:
            self._print(Markdown(strip_control_characters(message.text), hyperlinks=False))
        elif lines := message_lines(message):
            self._print(Styled("\n".join(lines)), "", "dim")

    def show_note(self, text: str) -> None:
        """See `Screen`."""
        self._print(Styled(strip_control_characters(text), style="dim"))

    def show_prompt(self, lines: Sequence[str]) -> None:
        """See `Screen`."""
        self._print(Styled("\n".join(lines), style="bold yellow"))

    def show_error(self, text: str) -> None:
        """See `Screen`."""
        self._print(Styled(strip_control_characters(text), style="red"))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _stream(self, kind: type[Text] | type[Thinking], loop: str, text: str) -> None:
        if (kind, loop) != (self._open_block_kind, self._open_block_loop):
            self._flush()
        self._open_block_kind, self._open_block_loop = kind, loop
        whole, self._open_block = split_at_blocks(self._open_block + text)
        if whole:
            self._console.print(self._render(whole))

    def _flush(self) -> None:
        """Print what was being written for good."""
        rest, self._open_block = self._open_block, ""
        if rest.strip():
            self._console.print(self._render(rest))

    def _print(self, what: RenderableType, loop: str = "", style: str = "") -> None:
        self._flush()
        self._console.print(indent(what, loop), style=style)

    def _render(self, text: str) -> RenderableType:
        drawn: RenderableType = Styled(text.strip("\n"), style="dim italic")
        if self._open_block_kind is Text:
            drawn = Markdown(text, hyperlinks=False)
        return indent(drawn, self._open_block_loop)

    def _render_live(self) -> RenderableType:
        if self._open_block.strip():
            return _Tail(self._render(self._open_block))
        seconds = int(time.monotonic() - self._started_at)
        words = " working" + (f", {seconds} s" if seconds >= 2 else "") + " (Ctrl-C stops it)"
        self._spinner.update(text=Styled(words, style="dim"))
        return self._spinner

    def _format_usage(self, ended: Ended) -> str:
        seconds = f"{time.monotonic() - self._started_at:.1f} s"
        if ended.usage is None or not (ended.usage.input_tokens or ended.usage.output_tokens):
            return seconds
        return f"{ended.usage.input_tokens} tokens in, {ended.usage.output_tokens} out, {seconds}"


class _Tail:
    """The last lines of something, as many as fit on the screen: more could not be drawn anew."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._content, options.update(height=None), pad=False)
        for line in lines[-max(console.height - 2, 1) :]:
            yield from line
            yield Segment.line()


def indent(what: RenderableType, loop: str) -> RenderableType:
    """What a sub-agent does stands to the right."""
    return Padding(what, (0, 0, 0, SUB_AGENT_INDENT)) if loop else what


def split_at_blocks(text: str) -> tuple[str, str]:
    """The blocks of a Markdown text that nothing coming can change any more, and the rest.

    A block ends with an empty line outside a fence, when the line after it is no part of a list's entry.
    """
    fence = ""
    cut = start = 0
    was_empty = False
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if not fence and was_empty and bare and not line.startswith((" ", "\t")):
            cut = start
        was_empty = not bare and line.endswith("\n")
        if fence:
            if bare.startswith(fence) and not bare.strip(fence[0]):
                fence = ""
        elif bare.startswith(("```", "~~~")):
            fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
        start += len(line)
    return text[:cut], text[cut:]
