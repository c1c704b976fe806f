"""A screen with colors, live Markdown and a spinner. Needs the extra `cli`.

Finished blocks are printed once and scroll away; only the block that is still growing is redrawn.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TextIO

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown, MarkdownElement, TableDataElement
from rich.padding import Padding
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text as Styled

from dragoman.client import Ended, Image, Message, Notice, Restarted, Text, Thinking, ToolCall, ToolResult
from dragoman.client.events import Event
from dragoman.terminal.formatting import (
    CONNECTION_LOST_LINE,
    INTERRUPTED_LINE,
    RESTARTED_LINE,
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
    """A `Screen` that renders with rich."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, markup=False, highlight=False, emoji=False)
        self._live: Live | None = None
        self._open_block_kind: type[Text] | type[Thinking] = Text
        self._open_block_loop = ""
        self._open_block = ""
        """The text of the block that is still growing."""
        self._last_call_id = ""
        """The call that was printed last."""
        self._started_at = 0.0
        self._disconnected_at: float | None = None
        """When the connection was lost, until the next event."""
        self._is_stopping: Callable[[], bool] = bool
        """Whether the user has already asked to stop the run."""
        self._spinner = Spinner("dots", style="cyan")

    @contextmanager
    def live_display(self, is_stopping: Callable[[], bool] = bool) -> Iterator[None]:
        """Show a spinner, or the growing block, during a run."""
        self._is_stopping = is_stopping
        self._started_at = time.monotonic()
        self._disconnected_at = None
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
        """Show an event of a run."""
        if isinstance(event, Notice) and event.kind == "reconnecting":
            self._flush()
            self._disconnected_at = self._disconnected_at or time.monotonic()
            return
        if self._disconnected_at is not None:
            lost_for_s, self._disconnected_at = int(time.monotonic() - self._disconnected_at), None
            self._print(Styled(f"the connection was lost for {lost_for_s} s", style="yellow"))
        self._show_connected_event(event)

    def _show_connected_event(self, event: Event) -> None:
        match event:
            case Text(text=text, loop=loop) | Thinking(text=text, loop=loop):
                self._stream(Text if isinstance(event, Text) else Thinking, loop, strip_control_characters(text))
            case ToolCall(id=call_id, name=name, arguments=arguments, loop=loop):
                self._last_call_id = call_id
                self._print(Styled(f"⚙ {shorten(call_line(name, arguments))}", style="cyan"), loop)
            case ToolResult(loop=loop):
                lines = result_lines(event)
                if event.call_id != self._last_call_id:  # with several calls, say which one it belongs to
                    lines[0] = f"{strip_control_characters(event.name)}: {lines[0]}"
                self._print(Styled("\n".join([f"  ↳ {lines[0]}", *(f"    {line}" for line in lines[1:])])), loop, "dim")
            case Image(url=url, loop=loop):
                self._print(Styled(image_line(url), style="magenta"), loop)
            case Notice(loop=loop):
                if lines := notice_lines(event):
                    self._print(Styled("\n".join(lines), style="yellow"), loop)
            case Restarted(loop=loop):
                cut_off, self._open_block = self._open_block.strip("\n"), ""
                if cut_off:
                    self._print(Styled(cut_off, style="dim strike"), loop)
                self._print(Styled(RESTARTED_LINE, style="yellow"), loop)
            case Ended():
                self._flush()
                if line := end_line(event):
                    self._print(Styled(line, style="yellow" if event.reason == "cancelled" else "red"))
                self._print(Styled(self._format_usage(event), style="dim"))
            case _:  # decisions are asked for after the run
                self._flush()

    def show_message(self, message: Message) -> None:
        """Show a message of the history."""
        if message.role == "user":
            self._print(Styled("\n".join(f"› {line}" for line in message_lines(message)), style="bold"))
        elif message.role == "assistant" and message.text:
            self._print(_Answer(strip_control_characters(message.text), hyperlinks=False))
            if message.interrupted:
                self._print(Styled(INTERRUPTED_LINE, style="yellow"))
        elif lines := message_lines(message):
            self._print(Styled("\n".join(lines)), "", "dim")

    def show_note(self, text: str) -> None:
        """Show a message of the program."""
        self._print(Styled(strip_control_characters(text), style="dim"))

    def show_prompt(self, lines: Sequence[str]) -> None:
        """Show what a person has to decide."""
        self._print(Styled("\n".join(lines), style="bold yellow"))

    def show_error(self, text: str) -> None:
        """Show an error."""
        self._print(Styled(strip_control_characters(text), style="red"))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _stream(self, kind: type[Text] | type[Thinking], loop: str, text: str) -> None:
        if (kind, loop) != (self._open_block_kind, self._open_block_loop):
            self._flush()
        self._open_block_kind, self._open_block_loop = kind, loop
        finished, self._open_block = split_at_blocks(self._open_block + text)
        if finished:
            self._console.print(self._render(finished))

    def _flush(self) -> None:
        """Print the growing block and start a new one."""
        text, self._open_block = self._open_block, ""
        if text.strip():
            self._console.print(self._render(text))

    def _print(self, content: RenderableType, loop: str = "", style: str = "") -> None:
        self._flush()
        self._console.print(indent(content, loop), style=style)

    def _render(self, text: str) -> RenderableType:
        rendered: RenderableType = Styled(text.strip("\n"), style="dim italic")
        if self._open_block_kind is Text:
            rendered = _Answer(text, hyperlinks=False)
        return indent(rendered, self._open_block_loop)

    def _render_live(self) -> RenderableType:
        if self._open_block.strip():
            return _Tail(self._render(self._open_block))
        is_connected = self._disconnected_at is None
        seconds = int(time.monotonic() - (self._disconnected_at or self._started_at))
        label = "working" if is_connected else CONNECTION_LOST_LINE
        label = f" {label}" + (f", {seconds} s" if seconds >= 2 else "")
        label += " (Ctrl-C again to exit)" if self._is_stopping() else " (Ctrl-C to stop)"
        self._spinner.update(text=Styled(label, style="dim" if is_connected else "yellow"))
        return self._spinner

    def _format_usage(self, ended: Ended) -> str:
        seconds = f"{time.monotonic() - self._started_at:.1f} s"
        if ended.usage is None or not (ended.usage.input_tokens or ended.usage.output_tokens):
            return seconds
        return f"tokens: {ended.usage.input_tokens} in, {ended.usage.output_tokens} out, {seconds}"


class _Cell(TableDataElement):
    """A cell of a table. A long word is broken, where rich would cut it off and lose the rest."""

    def __init__(self, justify: JustifyMethod) -> None:
        super().__init__(justify)
        self.content.overflow = "fold"


class _Answer(Markdown):
    """Markdown that loses nothing in a narrow terminal."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "th_open": _Cell, "td_open": _Cell}


class _Tail:
    """The last lines of a text, as many as fit on the screen: more could not be redrawn."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._content, options.update(height=None), pad=False)
        for line in lines[-max(console.height - 2, 1) :]:
            yield from line
            yield Segment.line()


def indent(content: RenderableType, loop: str) -> RenderableType:
    """Indent what a sub-agent does."""
    return Padding(content, (0, 0, 0, SUB_AGENT_INDENT)) if loop else content


def split_at_blocks(text: str) -> tuple[str, str]:
    """Split a Markdown text into the blocks that further text cannot change, and the rest.

    A block ends at an empty line outside of a fence, if the line after it does not belong to a list item.
    """
    fence = ""
    cut = start = 0
    was_empty = False
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if not fence and was_empty and stripped and not line.startswith((" ", "\t")):
            cut = start
        was_empty = not stripped and line.endswith("\n")
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[: len(stripped) - len(stripped.lstrip(stripped[0]))]
        start += len(line)
    return text[:cut], text[cut:]
