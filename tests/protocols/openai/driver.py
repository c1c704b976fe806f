"""The driver of the conversation suite: maps its inputs to requests of Responses, and responses to observations."""

import json
from collections.abc import Iterable
from typing import Any, Literal

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
from tests.protocols.openai.client import OpenAiClient, StreamReader, approval, function, output
from tests.protocols.openai.stream import Event, check

Json = Any
DETAILS: dict[str, Stop] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
ASKED = ("function_call", "mcp_approval_request")


class OpenAiDriver:
    """One conversation over Responses. Turns continue it alternately by its id and by the last response."""

    def __init__(self) -> None:
        features: set[Feature] = {"client tools", "permissions", "questions", "sub-agents", "stop", "delete", "rejoin"}
        self.features: frozenset[Feature] = frozenset({*features, "history"})
        self.observable = frozenset({ObservedPrompt, ObservedText, ObservedThinking, ObservedCall, ObservedResult})
        self.stops: dict[Stop, Stop] = {}
        self._conversation = ""
        self._tools: list[Json] = []
        self._open: dict[str, Json] = {}
        self._last: str | None = None
        self._turns = 0
        self._reading: StreamReader | None = None
        self._client: OpenAiClient

    def connect(self, server: Server) -> None:
        self._client = OpenAiClient(server.connection, server.key("alice"))

    async def begin(self, setup: Setup) -> None:
        self._tools = [function(name) for name in (*setup.client_tools, "AskUserQuestion")]
        self._conversation = (await self._client.post("/conversations", {}))["id"]

    async def run(self, user_input: Input) -> Outcome:
        reader = await self._stream(user_input)
        await reader.end()
        return self._outcome(reader.events)

    async def start(self, user_input: Prompt, after_text: str) -> None:
        self._reading = await self._stream(user_input, background=True)
        await self._reading.wait_for_text(after_text)

    async def rejoin(self) -> Outcome:
        assert self._reading is not None
        observed = self._reading.events
        rest = await self._client.replay(observed[0]["response"]["id"], observed[-1]["sequence_number"])
        events = [*observed, *await rest.read_to_end()]
        check(events)
        return self._outcome(events)

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        assert self._reading is not None
        if how == "delete":
            await self._client.delete(f"/conversations/{self._conversation}")
        else:
            await self._client.post(f"/responses/{self._reading.events[0]['response']['id']}/cancel", {})
        await self._reading.end()
        return self._outcome(self._reading.events)

    async def history(self) -> list[Observation]:
        path = f"/conversations/{self._conversation}/items?order=asc&limit=100"
        return [each for item in (await self._client.get(path))["data"] for each in self._observed(item)]

    async def is_gone(self) -> bool:
        refused = await self._client.refused("GET", f"/conversations/{self._conversation}")
        return refused[:2] == (404, "conversation_not_found")

    async def _stream(self, user_input: Input, **more: Json) -> StreamReader:
        self._turns += 1
        is_by_response = self._last is not None and self._turns % 2
        more["previous_response_id" if is_by_response else "conversation"] = (
            self._last if is_by_response else self._conversation
        )
        given: Json = user_input.text if isinstance(user_input, Prompt) else list(map(self._answer, user_input.answers))
        reader = await self._client.stream(given, tools=self._tools, **more)
        await reader.until(1)
        self._last = reader.events[0]["response"]["id"]
        return reader

    def _answer(self, answer: Answer) -> Json:
        match answer:
            case Result(name, text):
                return output(self._open[name]["call_id"], text)
            case Allow(name):
                return approval(self._open[name], approve=True)
            case Deny(name, reason):
                return approval(self._open[name], approve=False, reason=reason)
            case Choose(selections, custom):
                chosen: dict[str, Json] = {"selections": list(selections)}
                if custom is not None:
                    chosen["custom"] = custom
                asked = next(self._open[name] for name in QUESTIONS if name in self._open)
                return output(asked["call_id"], json.dumps(chosen))

    def _outcome(self, events: list[Event]) -> Outcome:
        response = events[-2]["response"]
        self._open |= {item["name"]: item for item in response["output"] if item["type"] in ASKED}
        items = {each["item"]["id"]: each["item"] for each in events if each["type"] == "response.output_item.done"}
        observed: list[Observation] = []
        for event in events:
            item = items.get((event.get("item") or {}).get("id"))
            if item is None:
                continue
            whole = self._observed(item)
            if event["type"] == "response.output_item.added":
                observed += [each for each in whole if not isinstance(each, ObservedResult)]
            else:
                observed += [each for each in whole if isinstance(each, ObservedResult)]
        return Outcome(observed, _stop(response))

    def _observed(self, item: Json) -> list[Observation]:
        match item["type"]:
            case "message" if item["role"] == "user":
                return [ObservedPrompt("".join(part["text"] for part in item["content"]))]
            case "message":
                return [ObservedText(part["text"]) for part in item["content"]]
            case "reasoning":
                return [ObservedThinking(part["text"]) for part in item["summary"]]
            case "function_call" | "mcp_approval_request":
                self._open[item["name"]] = item
                return [ObservedCall(item["name"], json.loads(item["arguments"]))]
            case "function_call_output":
                name = next(name for name, each in self._open.items() if each.get("call_id") == item["call_id"])
                return [ObservedResult(name, item["output"])]
            case "mcp_call":
                call = ObservedCall(item["name"], json.loads(item["arguments"]))
                text = item["output"] if item["error"] is None else item["error"]["content"]
                if item["status"] == "incomplete":
                    return []
                result = ObservedResult(item["name"], text)
                return [result] if item["approval_request_id"] else [call, result]
        return []


def _stop(response: Json) -> Stop:
    match response["status"]:
        case "cancelled":
            return "cancelled"
        case "incomplete":
            return DETAILS[response["incomplete_details"]["reason"]]
        case "failed":
            return "max_steps" if response["error"]["code"] == "max_steps" else "error"
    return "tool_use" if _waits(response["output"]) else "end_turn"


def _waits(items: Iterable[Json]) -> bool:
    """Whether a call of the response waits for its client."""
    return any(item["type"] in ASKED for item in items)
