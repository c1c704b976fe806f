"""A scripted model for agents of the OpenAI Agents SDK: `assistant.clone(model=ScriptedModel([…]))`."""

from collections.abc import AsyncIterator, Iterable
from uuid import uuid4

from agents import Model, ModelResponse, TResponseInputItem, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)

from dragoman.ports.models import CallRequested, ModelRequest, TextDelta
from dragoman.testing.scripted import Scripted, ScriptedAnswer


class ScriptedModel(Model):
    """Answers each request with the next answer of a script, as `Scripted` does; thinking is left out.

    Args:
        answers: see `Scripted`.
    """

    def __init__(self, answers: Iterable[ScriptedAnswer]) -> None:
        self.inputs: list[str | list[TResponseInputItem]] = []
        """The input of each request."""
        self._script = Scripted(answers)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002  # the SDK's name
        *arguments: object,
        **options: object,
    ) -> ModelResponse:
        """Answer a request (`Model`)."""
        return ModelResponse(
            output=await self._output(system_instructions or "", input), usage=Usage(), response_id=None
        )

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002  # the SDK's name
        *arguments: object,
        **options: object,
    ) -> AsyncIterator[ResponseStreamEvent]:
        """Answer a request with a stream (`Model`)."""
        output = await self._output(system_instructions or "", input)
        for item in output:
            if isinstance(item, ResponseOutputMessage):
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta",
                    delta="".join(part.text for part in item.content if isinstance(part, ResponseOutputText)),
                    item_id=item.id,
                    content_index=0,
                    output_index=0,
                    sequence_number=0,
                    logprobs=[],
                )
        response = Response(
            id=f"resp_{uuid4().hex}",
            created_at=0,
            model="scripted",
            object="response",
            output=output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)

    async def _output(self, instructions: str, given: str | list[TResponseInputItem]) -> list[ResponseOutputItem]:
        self.inputs.append(given)
        text, calls = "", list[ResponseOutputItem]()
        async for event in self._script.stream(ModelRequest(model="scripted", messages=(), instructions=instructions)):
            if isinstance(event, TextDelta):
                text += event.text
            elif isinstance(event, CallRequested):
                call_id = f"call_{uuid4().hex}"
                calls.append(
                    ResponseFunctionToolCall(
                        type="function_call", call_id=call_id, name=event.name, arguments=event.raw
                    )
                )
        if not text:
            return calls
        part = ResponseOutputText(type="output_text", text=text, annotations=[])
        message = ResponseOutputMessage(
            id=f"msg_{uuid4().hex}", type="message", role="assistant", status="completed", content=[part]
        )
        return [message, *calls]
