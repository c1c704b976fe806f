"""The Agent API's driver of the conversation suite: maps its inputs to requests, and responses to observations."""

import json
from typing import Any, Literal
from uuid import uuid4

from tests.conversations import (
    Allow,
    Answer,
    Answers,
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
from tests.protocols.aap.client import AapClient
from tests.protocols.aap.stream import blocks_of
from tests.protocols.agentscope import official_client
from tests.protocols.agentscope.client import AgentScopeClient, StreamReader, approval, output, request_body, tool
from tests.protocols.agentscope.stream import Event, check

Json = Any

FINISHES: dict[str, Stop] = {"length": "max_tokens", "content_filter": "refusal"}


class AgentScopeDriver:
    """One session over the Agent API. With `with_history`, its history is read through AAP, which has no plans."""

    def __init__(self, *, with_history: bool = True, is_official: bool = False) -> None:
        features: set[Feature] = {"client tools", "permissions", "questions", "sub-agents", "stop", "rejoin"}
        self.features: frozenset[Feature] = frozenset(features | ({"history"} if with_history else set()))
        self.observable: frozenset[type] = frozenset(
            {ObservedPrompt, ObservedText, ObservedThinking, ObservedCall, ObservedResult}
            | (set() if with_history else {ObservedPlan})
        )
        self.stops: dict[Stop, Stop] = {}
        self._is_official = is_official
        self._session = f"conversation-{uuid4()}"
        self._tools: list[Json] = []
        self._open: dict[str, str] = {}
        self._requests: dict[str, Event] = {}
        self._names: dict[str, str] = {}
        self._reading: StreamReader | None = None
        self._server: Server
        self._runtime: AgentScopeClient

    def connect(self, server: Server) -> None:
        self._server = server
        self._runtime = AgentScopeClient(server.connection, server.key("alice"))

    async def begin(self, setup: Setup) -> None:
        self._tools = [tool(name) for name in setup.client_tools]

    async def run(self, user_input: Input) -> Outcome:
        if self._is_official:
            url = self._server.connection.url + "/process"
            with official_client.suppress_client_logs():
                events = [
                    event
                    async for event in official_client.events_of(url, self._server.key("alice"), self._body(user_input))
                ]
            return self._outcome(check(events))
        return self._outcome(await (await self._runtime.stream(self._body(user_input))).end())

    async def start(self, user_input: Prompt, after_text: str) -> None:
        self._reading = await self._runtime.stream(self._body(user_input))
        await self._reading.wait_for_text(after_text)

    async def rejoin(self) -> Outcome:
        assert self._reading is not None
        observed = self._reading.events
        rest = await self._runtime.replay(observed[0]["id"], observed[-1]["sequence_number"])
        return self._outcome(check([*observed, *await rest.read_to_end()]))

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        assert how == "stop", "the Agent API has no way to delete a session"
        assert self._reading is not None
        assert await self._runtime.stop(session_id=self._session)
        return self._outcome(await self._reading.end())

    async def history(self) -> list[Observation]:
        aap = AapClient(self._server.connection, self._server.key("alice"))
        reply = (await aap.get(f"/sessions/{self._session}/history?type=full")).json
        observed: list[Observation] = []
        for message in reply["history"]["full"]:
            text = "".join(block.get("text", "") for block in blocks_of(message["content"]))
            if message["role"] == "user":
                observed.append(ObservedPrompt(text))
            elif message["role"] == "tool":
                observed.append(ObservedResult(self._names[message["toolCallId"]], text))
            else:
                observed += map(self._block, blocks_of(message["content"]))
        return observed

    async def is_gone(self) -> bool:
        raise AssertionError("the Agent API has no way to delete a session")

    def _block(self, block: Json) -> Observation:
        match block["type"]:
            case "text":
                return ObservedText(block["text"])
            case "thinking":
                return ObservedThinking(block["thinking"])
            case _:
                self._names[block["toolCallId"]] = block["name"]
                return ObservedCall(block["name"], block["input"])

    def _body(self, user_input: Input) -> Json:
        more = {"session_id": self._session, "tools": self._tools or None}
        match user_input:
            case Prompt(text):
                return request_body(text, **more)
            case Answers(answers):
                return request_body(*(each for answer in answers for each in self._answer(answer)), **more)

    def _answer(self, answer: Answer) -> list[Json]:
        match answer:
            case Result(name, text):
                return [output(self._open[name], text)]
            case Allow(name):
                return [self._requests[name], approval(self._open[name], approve=True)]
            case Deny(name, reason):
                return [self._requests[name], approval(self._open[name], approve=False, reason=reason)]
            case Choose(selections, custom, name):
                chosen: dict[str, Json] = {"selections": list(selections)}
                if custom is not None:
                    chosen["custom"] = custom
                return [output(self._open[name], json.dumps(chosen))]

    def _outcome(self, end: Event) -> Outcome:
        observed = [each for message in end["output"] for each in self._observed(message)]
        return Outcome(observed, self._stop(end))

    def _stop(self, end: Event) -> Stop:
        if end["status"] == "canceled":
            return "cancelled"
        if end["status"] == "failed":
            return "max_steps" if end["error"]["code"] == "MAX_STEPS" else "error"
        answered = {
            message["content"][0]["data"]["call_id"] for message in end["output"] if message["type"].endswith("_output")
        }
        if any(
            message["type"] in ("function_call", "mcp_approval_request")
            and (message["content"][0]["data"].get("call_id") or message["content"][0]["data"]["id"]) not in answered
            for message in end["output"]
        ):
            return "tool_use"
        last = end["output"][-1] if end["output"] else None
        return FINISHES.get(((last and last["metadata"]) or {}).get("finish_reason", ""), "end_turn")

    def _observed(self, message: Event) -> list[Observation]:
        match message["type"]:
            case "message":
                return [
                    ObservedText(content["text"])
                    if content["type"] == "text"
                    else ObservedPlan(tuple(step["title"] for step in content["data"]["plan"]["steps"]))
                    for content in message["content"]
                ]
            case "reasoning":
                return [ObservedThinking(content["text"]) for content in message["content"]]
        payload = message["content"][0]["data"]
        name = payload["name"]
        if message["type"].endswith("_output"):
            return [ObservedResult(name, payload["output"])]
        call_id = payload.get("call_id") or payload["id"]
        is_new = call_id not in self._names
        self._names[call_id], self._open[name], self._requests[name] = name, call_id, message
        return [ObservedCall(name, json.loads(payload["arguments"]))] if is_new else []
