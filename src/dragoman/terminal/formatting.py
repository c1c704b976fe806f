"""What happens in a conversation, in lines for a terminal. Pure.

Whatever comes from a server may have been written by anybody: `clean` takes out what a terminal would obey.
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
"""Of a tool's result; the rest is counted."""
MAX_LINE_CHARACTERS = 300

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, escape sequences with them, and what turns the direction of writing around."""


def strip_control_characters(text: str) -> str:
    """The text without what a terminal obeys; line ends and tabs stay."""
    return _CONTROL_CHARACTERS.sub("", text.replace("\r\n", "\n"))


def as_json(value: Json) -> str:
    """A value in one line."""
    return strip_control_characters(msgspec.json.encode(value).decode())


def call_line(name: str, arguments: JsonObject) -> str:
    """A call as code would write it, whole: a person may have to decide on it."""
    shown = ", ".join(f"{strip_control_characters(key)}={as_json(value)}" for key, value in arguments.items())
    return f"{strip_control_characters(name)}({shown})"


def result_lines(result: ToolResult) -> list[str]:
    """What a call gave, cut to a few lines."""
    lines = [shorten(line) for line in strip_control_characters(result.text).splitlines()]
    if len(lines) > MAX_RESULT_LINES:
        left = len(lines) - MAX_RESULT_LINES + 1
        lines = [*lines[: MAX_RESULT_LINES - 1], f"… {left} more lines"]
    return [*lines, *(image_line(url) for url in result.images)] or ["(nothing)"]


def shorten(line: str) -> str:
    """A line cut to what is worth reading in passing."""
    return line if len(line) <= MAX_LINE_CHARACTERS else line[:MAX_LINE_CHARACTERS] + " …"


def image_line(url: str) -> str:
    """A picture, which a terminal cannot show."""
    if url.startswith("data:"):
        kind, _, content = url[len("data:") :].partition(",")
        return f"[picture: {strip_control_characters(kind.partition(';')[0])}, {len(content) * 3 // 4} bytes]"
    return f"[picture: {strip_control_characters(url)}]"


def notice_lines(notice: Notice) -> list[str]:
    """What is worth telling of a notice; most of them are for programs."""
    content = notice.content
    match notice.kind:
        case "reconnecting":
            return ["the connection was lost; it comes back by itself"]
        case "plan":
            return _plan_lines(content)
        case "compaction":
            return ["what was said so far has been summed up"]
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
    """How a run ended, where that is worth a line."""
    problem = ended.problem
    because = (
        f": {strip_control_characters(problem.message)} ({strip_control_characters(problem.code)})" if problem else ""
    )
    match ended.reason:
        case "end_turn" | "tool_use":
            return ""
        case "cancelled":
            return "stopped"
        case "max_tokens":
            return "the answer was cut off: the model's limit of tokens was reached" + because
        case "max_steps":
            return "stopped: the agent's limit of steps was reached" + because
        case "refusal":
            return "the model refused to answer" + because
        case "interrupted":
            return "the run was interrupted" + because
        case "error":
            return "the run failed" + because
        case _:
            assert_never(ended.reason)


def pending_line(pending: Pending) -> str:
    """What waits for an answer."""
    match pending:
        case Permission(name=name, arguments=arguments):
            return f"a permission for {call_line(name, arguments)}"
        case Question(questions=questions):
            return "an answer to: " + " / ".join(strip_control_characters(each.question) for each in questions)
        case ClientCall(name=name, arguments=arguments):
            return f"the application's result of {call_line(name, arguments)}"
        case _:
            assert_never(pending)


def message_lines(message: Message) -> list[str]:
    """An entry of a history."""
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
    return lines
