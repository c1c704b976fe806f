"""A language model that gives the answers of a script, and records the requests that it gets."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any

import msgspec

from dragoman.core.answers import compact_json
from dragoman.core.content import AssistantMessage, Message, ToolMessage, Usage, text_of
from dragoman.ports.models import (
    CallRequested,
    Finished,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)

Part = str | ThinkingDelta | CallRequested | Finished | ModelFailed
"""A part of an answer: text, `think(…)`, `call(…)`, an end other than the usual one, or a failure."""
Answer = Part | Sequence[Part]
"""What the model answers to one request: a part, or several in order."""
ScriptedAnswer = Answer | Callable[[ModelRequest], Answer]


class ScriptEnded(ModelFailed):
    """The model was called more often than its script has answers."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.shown_message = text


class Scripted:
    """A model that answers each request with the next answer of a script.

        Scripted([call("add", a=20, b=22), "It is 42."])

    Args:
        answers: an answer is a text, `think(…)`, `call(…)`, a list of those, an exception of `dragoman.ports.models`
            such as `ModelUnavailable("…")`, or a function that gets the request and returns one of these.
        name: the name under which the messages record it.
        context_window: how many tokens it takes; None: unknown.
        usage: the tokens that each answer reports.
    """

    def __init__(
        self,
        answers: Iterable[ScriptedAnswer],
        *,
        name: str = "scripted",
        context_window: int | None = None,
        usage: Usage = Usage(input_tokens=10, output_tokens=5),  # noqa: B008  # frozen
    ) -> None:
        if isinstance(answers, str):
            raise TypeError(f"expected a list of answers, got the text {answers!r}: write Scripted([{answers!r}])")
        self.name = name
        self.context_window = context_window
        self.usage = usage
        self.answers: tuple[ScriptedAnswer, ...] = tuple(answers)
        """The script."""
        self.requests: list[ModelRequest] = []
        """What the model was asked, in order: `instructions`, `messages`, `tools`, `parameters` and so on."""

    def __repr__(self) -> str:
        return f"<Scripted: {len(self.requests)} requests, {len(self.answers)} answers>"

    def read(self, request: int = -1) -> list[str]:
        """The messages of a request as one line each, such as `user: Hi`, `assistant: add({"a":1})` and `tool: 2`.

        Args:
            request: the request's index; the newest by default.

        Raises:
            IndexError: there was no such request.
        """
        if not -len(self.requests) <= request < len(self.requests):
            raise IndexError(f"request {request} of {len(self.requests)}: the model was not called that often")
        return list(map(to_line, self.requests[request].messages))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Answer a request with the next answer (`Model`)."""
        place = len(self.requests)
        self.requests.append(request)
        if place >= len(self.answers):
            last = to_line(request.messages[-1]) if request.messages else "nothing"
            raise ScriptEnded(
                f"the scripted model has {len(self.answers)} answers and was called {place + 1} times; "
                f"the newest message of this call: {last}"
            )
        answer = self.answers[place]
        parts = answer(request) if callable(answer) else answer
        has_calls = False
        for part in [parts] if isinstance(parts, Part) else parts:
            if isinstance(part, ModelFailed):
                raise part
            if isinstance(part, Finished):
                yield part
                return
            has_calls = has_calls or isinstance(part, CallRequested)
            yield TextDelta(part) if isinstance(part, str) else part
        yield Finished(stop="tool_use" if has_calls else "end_turn", usage=self.usage)


def call(tool: str, /, **arguments: Any) -> CallRequested:  # noqa: ANN401  # a tool's arguments
    """A call of a tool by a scripted model.

    Args:
        tool: the tool's name.
        arguments: its arguments.
    """
    raw = msgspec.json.encode(arguments).decode()
    return CallRequested(id=f"call_{tool}", name=tool, input=arguments, raw=raw)


def think(text: str) -> ThinkingDelta:
    """Reasoning of a scripted model."""
    return ThinkingDelta(text)


def to_line(message: Message) -> str:
    """A message as a line for tests: its role, its text, and its calls with their arguments."""
    role = type(message).__name__.removesuffix("Message").lower()
    calls = message.calls() if isinstance(message, AssistantMessage) else ()
    named = [f"{each.name}({compact_json(each.input)})" for each in calls]
    failed = ["failed"] if isinstance(message, ToolMessage) and message.is_error and not message.content else []
    return " ".join(filter(None, [f"{role}:", text_of(message.content), *named, *failed]))
