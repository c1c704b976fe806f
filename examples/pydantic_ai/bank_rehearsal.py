"""The same agent with a model that plays a script: `dragoman serve bank_rehearsal.py` needs no key."""

from collections.abc import AsyncIterator

from bank import support as _support  # type: ignore[import-not-found]  # the file beside this one
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

STEPS = ("balance", "block_card")


async def _answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    done = 0
    for message in messages:
        if isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts):
            done = 0
        done += isinstance(message, ModelResponse)
    if done < len(STEPS):
        yield "One moment. "
        yield {0: DeltaToolCall(name=STEPS[done], json_args='{"customer": "Ann"}', tool_call_id=f"step_{done}")}
    else:
        for word in ("Your card ", "is ", "taken care of."):
            yield word


_support.model = FunctionModel(stream_function=_answer)
support = _support
