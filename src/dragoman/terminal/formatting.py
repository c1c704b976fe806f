"""Formats events and messages as lines for a terminal. Pure.

Text from a server may have been written by anybody, so `strip_control_characters` removes everything that a terminal
would interpret.
"""

import re
from collections.abc import Mapping, Sequence
from typing import assert_never

import msgspec

from dragoman.client.events import (
    ClientCall,
    Ended,
    Image,
    Message,
    Notice,
    Pending,
    Permission,
    Question,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.core.content import Json, JsonObject

MAX_RESULT_LINES = 8
"""Lines shown of a tool's result; the others are counted."""
MAX_LINE_CHARACTERS = 300
CONNECTION_LOST_LINE = "connection lost; reconnecting"
"""Shown once for each time that the server cannot be reached, however often the client tries."""
RECONNECTED_LINE = "connected again"
RESTARTED_LINE = "the server restarted: the last words were cut off and are repeated"
INTERRUPTED_LINE = "[cut off]"
"""Ends a message of the history that a stop or a crash interrupted."""

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, which begin all escape sequences, and characters that change the direction of text."""


def strip_control_characters(text: str) -> str:
    """Remove everything that a terminal would interpret, except line feeds and tabs."""
    return _CONTROL_CHARACTERS.sub("", text.replace("\r\n", "\n"))


def as_json(value: Json) -> str:
    """A value as JSON on one line."""
    return strip_control_characters(msgspec.json.encode(value).decode())


def call_line(name: str, arguments: JsonObject) -> str:
    """A call in the notation of code, on one line. It is never cut, because a person may have to decide on it."""
    formatted = ", ".join(
        f"{key if key.isidentifier() else as_json(key)}={as_json(value)}" for key, value in arguments.items()
    )
    return f"{on_one_line(name)}({formatted})"


def on_one_line(text: str) -> str:
    """A text without line breaks, so that it cannot look like lines of this program."""
    return " ".join(strip_control_characters(text).split())


def result_lines(result: ToolResult) -> list[str]:
    """A call's result, cut to a few lines."""
    lines = [shorten(line) for line in strip_control_characters(result.text).splitlines()]
    if len(lines) > MAX_RESULT_LINES:
        hidden = len(lines) - MAX_RESULT_LINES + 1
        lines = [*lines[: MAX_RESULT_LINES - 1], f"… {hidden} more lines"]
    return [*lines, *(image_line(url) for url in result.images)] or ["(empty)"]


def shorten(line: str) -> str:
    """Cut a long line."""
    return line if len(line) <= MAX_LINE_CHARACTERS else line[:MAX_LINE_CHARACTERS] + " …"


def image_line(url: str) -> str:
    """A placeholder for an image."""
    if url.startswith("data:"):
        kind, _, content = url[len("data:") :].partition(",")
        return f"[image: {strip_control_characters(kind.partition(';')[0])}, {len(content) * 3 // 4} bytes]"
    return f"[image: {strip_control_characters(url)}]"


def notice_lines(notice: Notice) -> list[str]:
    """The lines for a notice; most notices are for programs and have none."""
    content = notice.content
    match notice.kind:
        case "plan":
            return _plan_lines(content)
        case "compaction":
            return ["the conversation so far has been summarized"]
        case _:
            return []


def _plan_lines(content: Json) -> list[str]:
    steps = content.get("steps") if isinstance(content, Mapping) else None
    if not isinstance(steps, Sequence) or isinstance(steps, str):
        return []
    marks = {"done": "[x]", "completed": "[x]", "in_progress": "[>]", "skipped": "[-]"}
    lines = ["plan"]
    for step in steps:
        if isinstance(step, Mapping):
            title = strip_control_characters(str(step.get("title") or step.get("description") or "")).replace("\n", " ")
            lines.append(f"  {marks.get(str(step.get('status')), '[ ]')} {shorten(title)}")
    return lines


def end_line(ended: Ended) -> str:
    """The line for the end of a run; empty if it ended normally."""
    problem = ended.problem
    reason = (
        f": {strip_control_characters(problem.message)} ({strip_control_characters(problem.code)})" if problem else ""
    )
    match ended.reason:
        case "end_turn" | "tool_use":
            return ""
        case "cancelled":
            return "stopped"
        case "max_tokens":
            return "the answer was cut off at the model's token limit" + reason
        case "max_steps":
            return "stopped at the agent's step limit" + reason
        case "refusal":
            return "the model refused to answer" + reason
        case "interrupted":
            return "the run was interrupted" + reason
        case "error":
            return "the run failed" + reason
        case _:
            assert_never(ended.reason)


def pending_line(pending: Pending) -> str:
    """The line for a pending request."""
    match pending:
        case Permission(name=name, arguments=arguments, is_repeat=True):
            return f"permission to run again, as it may have run already: {call_line(name, arguments)}"
        case Permission(name=name, arguments=arguments):
            return f"permission to run {call_line(name, arguments)}"
        case Question(questions=questions):
            return "an answer to: " + " / ".join(strip_control_characters(each.question) for each in questions)
        case ClientCall(name=name, arguments=arguments):
            return f"the result of the client tool {call_line(name, arguments)}"
        case _:
            assert_never(pending)


def message_lines(message: Message) -> list[str]:
    """The lines for a message of a history."""
    lines: list[str] = []
    for block in message.blocks:
        match block:
            case Text(text=text):
                lines += strip_control_characters(text).splitlines()
            case Thinking(text=text):
                lines += [f"(thinking) {line}" for line in strip_control_characters(text).splitlines()]
            case Image(url=url):
                lines.append(image_line(url))
            case ToolCall(name=name, arguments=arguments):
                lines.append(f"* {shorten(call_line(name, arguments))}")
            case ToolResult():
                lines += [f"  = {line}" for line in result_lines(block)]
            case Question():
                lines.append(f"? {' / '.join(strip_control_characters(each.question) for each in block.questions)}")
            case Notice():
                lines += notice_lines(block)
            case _:
                assert_never(block)
    return [*lines, INTERRUPTED_LINE] if message.interrupted else lines
