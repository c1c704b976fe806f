"""The driver of the conversation suite for Chat Completions: it resends the whole conversation, with a session key."""

from typing import Any, Literal
from uuid import uuid4

from tests.conversations import (
    Choose,
    Feature,
    Input,
    Observation,
    ObservedText,
    ObservedThinking,
    Outcome,
    Prompt,
    Result,
    Server,
    Setup,
    Stop,
)
from tests.protocols.openai.chat_client import ChatClient, ChatStream, function_tool, tool_result, user
from tests.protocols.openai.client import OpenAiClient

Json = Any
STOPS: dict[str, Stop] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
PARAGRAPH = "\n\n"


class ChatDriver:
    """One session over Chat Completions, which shows no server calls and has no approvals."""

    features: frozenset[Feature] = frozenset({"client tools", "questions", "sub-agents", "stop"})
    observable: frozenset[type] = frozenset({ObservedText, ObservedThinking})
    stops: dict[Stop, Stop] = {"max_steps": "error", "cancelled": "error"}  # noqa: RUF012  # as the protocol of drivers has it

    def __init__(self) -> None:
        self._key = f"conversation {uuid4()}"
        self._messages: list[Json] = []
        self._tools: list[Json] = []
        self._chat: ChatClient
        self._reading: ChatStream

    def connect(self, server: Server) -> None:
        self._chat = ChatClient(OpenAiClient(server.connection, server.key("alice")), self._key)

    async def begin(self, setup: Setup) -> None:
        self._tools = [function_tool(name) for name in setup.client_tools]

    async def run(self, user_input: Input) -> Outcome:
        await self._send(user_input)
        return await self._outcome()

    async def start(self, user_input: Prompt, after_text: str) -> None:
        await self._send(user_input)
        await self._reading.until_said(after_text)

    async def rejoin(self) -> Outcome:
        raise AssertionError("Chat Completions cannot read an answer again")

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        assert how == "stop"
        await self._reading.stream.disconnect()
        text = self._reading.text()
        self._messages.append({"role": "assistant", "content": text})
        return Outcome([ObservedText(text)], "error")

    async def history(self) -> list[Observation]:
        raise AssertionError("Chat Completions have no history")

    async def is_gone(self) -> bool:
        raise AssertionError("Chat Completions cannot delete a session")

    async def _send(self, user_input: Input) -> None:
        if isinstance(user_input, Prompt):
            self._messages.append(user(user_input.text))
        else:
            calls = {each["function"]["name"]: each for each in self._messages[-1].get("tool_calls", ())}
            for each in user_input.answers:
                match each:
                    case Result(name, text):
                        self._messages.append(tool_result(calls[name], text))
                    case Choose(selections, custom):
                        self._messages.append(user(custom or selections[0]))
                    case _:
                        raise AssertionError("text never decides about an approval")
        more: Json = {"tools": self._tools} if self._tools else {}
        self._reading = await self._chat.stream(*self._messages, **more)

    async def _outcome(self) -> Outcome:
        answer = await self._reading.end()
        text, thinking = self._reading.text(), self._reading.text("reasoning_content")
        observed: list[Observation] = [ObservedThinking(thinking)] if thinking else []
        if "error" in answer:
            if text:
                self._messages.append({"role": "assistant", "content": text})
            return Outcome([*observed, ObservedText(text.replace(PARAGRAPH, ""))] if text else observed, "error")
        message = {key: value for key, value in answer["message"].items() if key != "reasoning_content"}
        self._messages.append(message)
        if self._messages[-2] == user("ask me"):  # the question is text, and not an answer
            return Outcome(observed, "tool_use")
        return Outcome(
            [*observed, ObservedText(text.replace(PARAGRAPH, ""))] if text else observed,
            STOPS[answer["finish_reason"]],
        )
