"""A model of the OpenAI Agents SDK that plays scripts. It keeps nothing: it finds its place in the input.

A script is a list of responses, a response is a list of words, calls and other output items. How many responses a turn
has had is read off the results in its input: every response but the last makes calls.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from agents import Model, ModelResponse
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails


class CallOf(NamedTuple):
    """Call a tool. `arguments` may be text that is no JSON."""

    tool: str
    arguments: Mapping[str, Any] | str = {}  # never changed
    id: str | None = None


class Reason(NamedTuple):
    """Think aloud. The item has encrypted content that later requests must send back."""

    text: str


class Item(NamedTuple):
    """An output item of another kind."""

    fields: Mapping[str, Any]


class Fail(NamedTuple):
    """Raise an error in place of an answer."""

    error: Exception


Action = str | CallOf | Reason | Item | Fail | Callable[[], Awaitable[object]]
Script = Sequence[Sequence[Action]]


class PlayedModel(Model):
    """Plays the script that the newest message of the user names; by default it repeats the message."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = scripts
        self.requests: list[list[Any]] = []
        """The input of each model call."""
        self.tools: list[list[str]] = []
        """The names of the tools and handoffs that each model call offered."""

    def script_for(self, prompts: Sequence[str]) -> Script:
        """The script of a turn, by the messages of the user up to its own."""
        return self.scripts.get(prompts[-1], [[prompts[-1]]])

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        outputs = [event.item async for event in self.stream_response(*args, **kwargs) if is_done(event)]
        return ModelResponse(output=outputs, usage=_no_usage(), response_id=None)

    async def stream_response(
        self, system_instructions: str | None, input: Any, model_settings: Any, tools: Any, output_schema: Any,  # noqa: A002
        handoffs: Any, tracing: Any, **ids: Any,
    ) -> AsyncIterator[Any]:  # fmt: skip
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        self.requests.append(items)
        self.tools.append([*(tool.name for tool in tools), *(each.tool_name for each in handoffs)])
        place = max(place for place, item in enumerate(items) if item.get("role") == "user")
        script = self.script_for([_text(item["content"]) for item in items if item.get("role") == "user"])
        results = sum(str(item.get("type", "")).endswith("_output") for item in items[place:])
        number, calls = 0, 0
        while calls < results:
            calls += sum(isinstance(action, CallOf) for action in script[number])
            number += 1
        async for event in _play(script[number], f"{place}_{number}"):
            yield event


def is_done(event: Any) -> bool:
    """Whether an event has a finished output item."""
    return isinstance(event, ResponseOutputItemDoneEvent)


async def _play(actions: Sequence[Action], label: str) -> AsyncIterator[Any]:
    outputs: list[Any] = []
    words: list[str] = []

    def finish_message() -> None:
        if words:
            part = ResponseOutputText(type="output_text", text="".join(words), annotations=[])
            outputs.append(
                ResponseOutputMessage(
                    id=f"msg_{label}", type="message", role="assistant", status="completed", content=[part]
                )
            )
            words.clear()

    for place, action in enumerate(actions):
        if not isinstance(action, str) and not callable(action):
            finish_message()
        match action:
            case str():
                words.append(action)
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta",
                    delta=action,
                    content_index=0,
                    item_id=f"msg_{label}",
                    output_index=0,
                    sequence_number=0,
                    logprobs=[],
                )
                await asyncio.sleep(0)
            case Reason(text):
                yield ResponseReasoningSummaryTextDeltaEvent(
                    type="response.reasoning_summary_text.delta",
                    delta=text,
                    item_id="rs",
                    output_index=0,
                    sequence_number=0,
                    summary_index=0,
                )
                summary = [Summary(type="summary_text", text=text)]
                outputs.append(
                    ResponseReasoningItem(
                        id=f"rs_{label}", type="reasoning", summary=summary, encrypted_content="secret"
                    )
                )
            case CallOf(tool, arguments, call_id):
                text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
                outputs.append(
                    ResponseFunctionToolCall(
                        type="function_call", call_id=call_id or f"call_{label}_{place}", name=tool, arguments=text
                    )
                )
            case Item(fields):
                outputs.append(msgspec_to_item(fields))
            case Fail(error):
                raise error
            case _:
                await action()
    finish_message()
    for item in outputs:
        yield ResponseOutputItemDoneEvent(
            type="response.output_item.done", item=item, output_index=0, sequence_number=0
        )
    yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=_response(outputs))


def msgspec_to_item(fields: Mapping[str, Any]) -> Any:
    """An output item of any kind from its JSON."""
    from pydantic import TypeAdapter

    return TypeAdapter(ResponseOutputItem).validate_python(dict(fields))


def _response(outputs: list[Any]) -> Response:
    return Response(
        id="resp",
        created_at=0,
        model="played",
        object="response",
        output=outputs,
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
        usage=ResponseUsage(
            input_tokens=3,
            output_tokens=2,
            total_tokens=5,
            input_tokens_details=InputTokensDetails(cached_tokens=1, cache_write_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=1),
        ),
    )


def _no_usage() -> Any:
    from agents import Usage

    return Usage()


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
