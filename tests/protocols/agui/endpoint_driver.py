"""AG-UI's driver of the conversation suite: its steps through an official client, and the events as observations."""

import json
from collections.abc import Iterable
from typing import Any, Literal
from uuid import uuid4

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
from tests.protocols.agui.endpoint import Endpoint
from tests.protocols.agui.official_clients import (
    Agent,
    Event,
    Message,
    OfficialClients,
    RunResult,
    Version,
    check,
    user,
)

Json = Any
STOPS: tuple[Stop, ...] = ("max_tokens", "refusal")


class EndpointDriver:
    """One thread through one client of one version. After a restart it is a new client with the old messages."""

    features: frozenset[Feature] = frozenset(
        {"client tools", "permissions", "questions", "sub-agents", "stop", "rejoin", "history", "rewind"}
    )
    observable: frozenset[type] = frozenset(
        {ObservedPrompt, ObservedText, ObservedThinking, ObservedCall, ObservedResult, ObservedPlan}
    )
    stops: dict[Stop, Stop] = {}  # noqa: RUF012  # a constant of the class

    def __init__(self, official: OfficialClients, version: Version) -> None:
        self._official = official
        self._version = version
        self._server: Server | None = None
        self._agent: Agent | None = None
        self._thread = str(uuid4())
        self._tools: list[Json] = []
        self._messages: list[Message] = []
        self._interrupts: list[Json] = []
        self._names: dict[str, str] = {}
        self._open: dict[str, str] = {}
        self._running: Any = None

    def connect(self, server: Server) -> None:
        self._server, self._agent = server, None

    async def begin(self, setup: Setup) -> None:
        self._tools = [
            {"name": name, "description": f"Do {name}.", "parameters": {"type": "object"}}
            for name in setup.client_tools
        ]

    async def run(self, user_input: Input) -> Outcome:
        agent = await self._client()
        ran = check(await agent.run(tools=self._tools, **await self._say(agent, user_input)))
        return self._outcome(ran)

    async def start(self, user_input: Prompt, after_text: str) -> None:
        agent = await self._client()
        self._running = agent.begin(tools=self._tools, **await self._say(agent, user_input))
        await agent.wait_for_text(after_text)

    async def rejoin(self) -> Outcome:
        await self._running
        self._official.console.clear()  # a client says there that its connection broke
        agent = await self._open_agent("/connect", [])
        ran = check(await agent.run())
        last = max(place for place, each in enumerate(ran.messages) if each["role"] == "user")
        outcome = Outcome(
            list(self._observed_in_history(ran.messages[last + 1 :])), self._stop(ran, bool(ran.interrupts))
        )
        self._keep(ran)
        return outcome

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        assert how == "stop", "the standard endpoint deletes nothing"
        assert self._server is not None
        endpoint = Endpoint(self._server.connection, self._server.key("alice"))
        reply = await endpoint.request("POST", f"rehearsal/stop/{self._thread}")
        assert (reply.status, reply.json) == (200, {"stopped": True})
        return self._outcome(check(await self._running))

    async def rewind(self, prompt: str) -> None:
        """Show no message from the prompt on: the next one is sent with what is shown."""
        said = [each["content"] if each["role"] == "user" else None for each in self._messages]
        self._messages, self._interrupts, self._agent = self._messages[: said.index(prompt)], [], None

    async def history(self) -> list[Observation]:
        agent = await self._open_agent("", [])
        ran = check(await agent.run())
        stored = {each["id"]: each for each in ran.messages}
        for message in self._messages:  # what was streamed is what is stored
            if message["role"] not in ("user", "tool"):
                assert stored[message["id"]]["role"] == message["role"]
                for name in ("content", "toolCalls"):
                    assert (message.get(name) or None) == stored[message["id"]].get(name)
        return list(self._observed_in_history(ran.messages))

    async def is_gone(self) -> bool:
        raise NotImplementedError("the standard endpoint deletes nothing")

    # --- the client -----------------------------------------------------------------------------------------------

    async def _client(self) -> Agent:
        if self._agent is None:
            self._agent = await self._open_agent("", self._messages)
        return self._agent

    async def _open_agent(self, route: str, messages: list[Message]) -> Agent:
        assert self._server is not None
        url = f"{self._server.connection.url}/ag-ui/rehearsal{route}"
        key = self._server.key("alice")
        return await self._official.open(self._version, url, thread=self._thread, key=key, messages=messages)

    async def _say(self, agent: Agent, user_input: Input) -> dict[str, Json]:
        """Say it; what else the run needs."""
        if isinstance(user_input, Prompt):
            await agent.say(user(user_input.text, str(uuid4())))
            cancelled = [{"interruptId": each["id"], "status": "cancelled"} for each in self._interrupts]
            return {"resume": cancelled} if cancelled else {}
        resume: list[Json] = []
        for answer in user_input.answers:
            if isinstance(answer, Result):
                call_id = self._open[answer.name]
                await agent.say({"id": str(uuid4()), "role": "tool", "toolCallId": call_id, "content": answer.text})
            else:
                resume.append(self._entry(answer))
        return {"resume": resume} if resume else {}

    def _entry(self, answer: Answer) -> Json:
        match answer:
            case Allow(name):
                return self._resolved(name, {"approved": True})
            case Deny(name, None):
                return {"interruptId": self._open[name], "status": "cancelled"}
            case Deny(name, reason):
                return self._resolved(name, {"approved": False, "reason": reason})
            case Choose(_, custom, name) if custom is not None:
                return self._resolved(name, custom)
            case Choose(selections, _, name):
                return self._resolved(name, {"selections": list(selections)})
            case Result():
                raise AssertionError("a result is a message")

    def _resolved(self, name: str, payload: Json) -> Json:
        return {"interruptId": self._open[name], "status": "resolved", "payload": payload}

    # --- what was seen --------------------------------------------------------------------------------------------

    def _keep(self, ran: RunResult) -> None:
        self._messages, self._interrupts = ran.messages, ran.interrupts

    def _outcome(self, ran: RunResult) -> Outcome:
        self._keep(ran)
        open_calls: set[str] = set()
        sees = list(self._observed_in_stream(ran.events, open_calls))
        return Outcome(sees, self._stop(ran, bool(open_calls)))

    def _stop(self, ran: RunResult, waits: bool) -> Stop:
        if ran.run_error is not None:
            code = ran.run_error["code"]
            return code if code in ("max_steps", "cancelled") else "error"
        assert ran.finished is not None
        outcome = ran.finished.get("outcome")
        if outcome is None:  # as clients of 0.x get it while calls are pending
            assert self._version == "0"
            return "tool_use"
        if outcome["type"] == "cancelled":
            return "cancelled"
        reason = ran.finished.get("metadata", {}).get("dragoman", {}).get("stopReason")
        if reason is not None:
            return reason  # type: ignore[no-any-return]
        if self._version == "1":
            assert waits == (outcome["type"] == "interrupt" or "pendingToolCallIds" in outcome)
        return "tool_use" if waits else "end_turn"

    def _observed_in_stream(self, events: Iterable[Event], open_calls: set[str]) -> Iterable[Observation]:
        """The observations of a stream. Calls without a result stay in `open_calls`."""
        arguments: dict[str, str] = {}
        for event in events:
            if "subagentRunId" in event:
                continue
            match event["type"]:
                case "TEXT_MESSAGE_CONTENT":
                    yield ObservedText(event["delta"])
                case "REASONING_MESSAGE_CONTENT":
                    yield ObservedThinking(event["delta"])
                case "TOOL_CALL_START":
                    self._names[event["toolCallId"]] = event["toolCallName"]
                    self._open[event["toolCallName"]] = event["toolCallId"]
                    arguments[event["toolCallId"]] = ""
                case "TOOL_CALL_ARGS":
                    arguments[event["toolCallId"]] += event["delta"]
                case "TOOL_CALL_END":
                    open_calls.add(event["toolCallId"])
                    yield ObservedCall(self._names[event["toolCallId"]], json.loads(arguments[event["toolCallId"]]))
                case "TOOL_CALL_RESULT":
                    open_calls.discard(event["toolCallId"])
                    if self._names[event["toolCallId"]] not in QUESTIONS:  # what the person said is no news
                        yield ObservedResult(self._names[event["toolCallId"]], event["content"])
                case "ACTIVITY_SNAPSHOT":
                    yield ObservedPlan(tuple(step["title"] for step in event["content"]["steps"]))

    def _observed_in_history(self, messages: Iterable[Message]) -> Iterable[Observation]:
        """The observations of a history."""
        for message in messages:
            if "subagentRunId" in message:
                continue
            match message["role"]:
                case "user":
                    yield ObservedPrompt(message["content"])
                case "reasoning":
                    yield ObservedThinking(message["content"])
                case "activity":
                    yield ObservedPlan(tuple(step["title"] for step in message["content"]["steps"]))
                case "tool":
                    yield ObservedResult(self._names[message["toolCallId"]], message["content"])
                case "assistant":
                    if message.get("content"):
                        yield ObservedText(message["content"])
                    for call in message.get("toolCalls", ()):
                        self._names[call["id"]] = call["function"]["name"]
                        yield ObservedCall(call["function"]["name"], json.loads(call["function"]["arguments"]))
