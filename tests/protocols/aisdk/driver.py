"""The AI SDK's driver of the conversation suite: what a page sends, and the chunks and messages as observations."""

import json
from collections.abc import Iterable
from typing import Any, Literal
from uuid import uuid4

from tests.asgi_client import Stream
from tests.conversations import (
    QUESTIONS,
    Allow,
    Answer,
    Choose,
    Deny,
    Feature,
    Input,
    Observation,
    ObservedCall,
    ObservedPlan,
    ObservedPrompt,
    ObservedResult,
    ObservedText,
    ObservedThinking,
    Outcome,
    Prompt,
    Result,
    Server,
    Setup,
    Stop,
)
from tests.protocols.aisdk.client import Chunk, Pages, Reply, parse, user

Json = Any
STOPS: dict[str, Stop] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content-filter": "refusal",
    "tool-calls": "tool_use",
    "other": "cancelled",
    "error": "error",
}


class AiSdkDriver:
    """One chat of one page, which has the messages as the server shows them."""

    features: frozenset[Feature] = frozenset(
        {"client tools", "permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history"}
    )
    observable: frozenset[type] = frozenset(
        {ObservedPrompt, ObservedText, ObservedThinking, ObservedCall, ObservedResult, ObservedPlan}
    )
    stops: dict[Stop, Stop] = {}  # noqa: RUF012  # a constant of the class

    def __init__(self) -> None:
        self._pages: Pages | None = None
        self._chat = f"chat {uuid4()}"
        self._tools: Json = None
        self._clients: frozenset[str] = QUESTIONS
        self._names: dict[str, str] = {}
        self._reasons: dict[str, str | None] = {}
        self._running: Stream | None = None
        self._head = b""

    @property
    def pages(self) -> Pages:
        assert self._pages is not None
        return self._pages

    def connect(self, server: Server) -> None:
        self._pages = Pages(server.connection, server.key("alice"))

    async def begin(self, setup: Setup) -> None:
        self._tools = {name: {"parameters": {"type": "object"}} for name in setup.client_tools}
        self._clients |= frozenset(setup.client_tools)

    async def run(self, user_input: Input) -> Outcome:
        return self._outcome((await self.pages.request("POST", "", await self._body(user_input))).chunks)

    async def start(self, user_input: Prompt, after_text: str) -> None:
        self._running = await self.pages.open("POST", "", await self._body(user_input))
        self._head = b""
        while after_text not in Reply(200, self._running.headers, self._head + b"data: [DONE]\n\n").text:
            self._head += await self._running.chunk() or b""

    async def rejoin(self) -> Outcome:
        path = f"/{self._chat.replace(' ', '%20')}/stream?startIndex=0"
        return self._outcome((await self.pages.request("GET", path)).chunks)

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        path = f"/{self._chat.replace(' ', '%20')}"
        if how == "delete":
            assert (await self.pages.request("DELETE", path)).status == 204
        else:
            assert (await self.pages.request("POST", f"{path}/stop")).json == {"stopped": True}
        assert self._running is not None
        return self._outcome(parse(self._head + await self._running.read())[1])

    async def history(self) -> list[Observation]:
        return list(self._observed_in_history(await self.pages.history(self._chat)))

    async def is_gone(self) -> bool:
        return await self.pages.history(self._chat) == []

    # --- what is sent ---------------------------------------------------------------------------------------------

    async def _body(self, user_input: Input) -> Json:
        messages = await self.pages.history(self._chat)
        if isinstance(user_input, Prompt):
            messages.append(user(user_input.text, str(uuid4())))
        else:
            for answer in user_input.answers:
                self._give(messages[-1], answer)
        return {"id": self._chat, "messages": messages, "tools": self._tools}

    def _give(self, message: Json, answer: Answer) -> None:
        names = QUESTIONS if isinstance(answer, Choose) else {answer.name}
        part = next(each for each in message["parts"][::-1] if each["type"].removeprefix("tool-") in names)
        match answer:
            case Result(_, text):
                part |= {"state": "output-available", "output": text}
            case Choose(_, custom) if custom is not None:
                part |= {"state": "output-available", "output": custom}
            case Choose(selections):
                part |= {"state": "output-available", "output": {"selections": list(selections)}}
            case Allow() | Deny():
                reason = answer.reason if isinstance(answer, Deny) else None
                self._reasons[part["toolCallId"]] = reason
                given = {"id": part["toolCallId"], "approved": isinstance(answer, Allow)}
                part |= {"state": "approval-responded", "approval": {**given, **({"reason": reason} if reason else {})}}

    # --- what was seen --------------------------------------------------------------------------------------------

    def _outcome(self, chunks: list[Chunk]) -> Outcome:
        finished = chunks[-1]
        reason = finished.get("messageMetadata", {}).get("stopReason")
        stop: Stop = "max_steps" if reason == "max_steps" else STOPS[finished.get("finishReason", "other")]
        return Outcome(list(self._observed_in_stream(chunks)), stop)

    def _observed_in_stream(self, chunks: Iterable[Chunk]) -> Iterable[Observation]:
        for chunk in chunks:
            match chunk["type"]:
                case "text-delta":
                    yield ObservedText(chunk["delta"])
                case "reasoning-delta":
                    yield ObservedThinking(chunk["delta"])
                case "data-plan":
                    yield ObservedPlan(tuple(step["title"] for step in chunk["data"]["steps"]))
                case "tool-input-available" if chunk["toolCallId"] in self._names:
                    pass  # a page has one part for a call, which now waits
                case "tool-input-available":
                    self._names[chunk["toolCallId"]] = chunk["toolName"]
                    yield ObservedCall(chunk["toolName"], chunk["input"])
                case "tool-output-available" | "tool-output-error" | "tool-output-denied":
                    if (name := self._names[chunk["toolCallId"]]) not in self._clients:
                        yield ObservedResult(name, self._result(chunk))

    def _result(self, shown: Json) -> str:
        """The text of a result. That of a denied call is fixed (shared rules, 18)."""
        if "output" in shown:
            output = shown["output"]
            return output if isinstance(output, str) else json.dumps(output, separators=(",", ":"))
        if "errorText" in shown:
            return str(shown["errorText"])
        reason = self._reasons.get(shown["toolCallId"])
        return f"Tool call denied: {reason}" if reason else "Tool call denied"

    def _observed_in_history(self, messages: Iterable[Json]) -> Iterable[Observation]:
        for message in messages:
            results: list[Observation] = []
            for part in message["parts"]:
                kind = part["type"]
                if message["role"] == "user":
                    yield ObservedPrompt(part["text"])
                elif kind == "step-start":
                    yield from results
                    results = []
                elif kind in ("text", "reasoning"):
                    yield (ObservedText if kind == "text" else ObservedThinking)(part["text"])
                elif kind == "data-plan":
                    yield ObservedPlan(tuple(step["title"] for step in part["data"]["steps"]))
                elif kind.startswith("tool-"):
                    name = kind.removeprefix("tool-")
                    yield ObservedCall(name, part["input"])
                    if part["state"].startswith("output-"):
                        results.append(ObservedResult(name, self._result(part)))
            yield from results
