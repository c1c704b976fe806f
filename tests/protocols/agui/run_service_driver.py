"""The run service's driver of the conversation suite: its steps as requests, and its events as observations."""

import json
from typing import Any, Literal

from tests.conversations import (
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
from tests.protocols.agui.endpoint import Endpoint
from tests.protocols.agui.run_service import Frame, RunServiceClient, StreamReader, new_thread, run_input

Json = Any
OBSERVABLE_IN_STREAM: frozenset[type] = frozenset(
    {ObservedPrompt, ObservedText, ObservedThinking, ObservedCall, ObservedResult}
)
"""What a stream has a form for."""
OBSERVABLE_IN_HISTORY: frozenset[type] = frozenset({ObservedPrompt, ObservedText})
"""What the history has a form for."""


class RunServiceDriver:
    """One thread over the run service; its streams are compared whole, or its history beside them."""

    features: frozenset[Feature] = frozenset(
        {"client tools", "permissions", "questions", "sub-agents", "delete", "stop", "rejoin"}
    )
    stops: dict[Stop, Stop] = {}  # noqa: RUF012  # a constant of the class

    def __init__(self, *, compares_history: bool) -> None:
        self.observable = OBSERVABLE_IN_HISTORY if compares_history else OBSERVABLE_IN_STREAM
        self.features = self.features | {"history"} if compares_history else self.features
        self._server: Server | None = None
        self._thread = new_thread()
        self._tools: list[Json] = []
        self._runs: list[str] = []
        self._watch: StreamReader | None = None
        self._names: dict[str, str] = {}
        self._open: dict[str, str] = {}

    @property
    def service(self) -> RunServiceClient:
        assert self._server is not None
        return RunServiceClient(self._server.connection, self._server.key("alice"))

    def connect(self, server: Server) -> None:
        self._server = server

    async def begin(self, setup: Setup) -> None:
        self._tools = [
            {"name": name, "description": f"Do {name}.", "parameters": {"type": "object"}}
            for name in setup.client_tools
        ]

    async def run(self, user_input: Input) -> Outcome:
        return self._outcome(await self.service.events(self._thread, await self._say(user_input)))

    async def start(self, user_input: Prompt, after_text: str) -> None:
        run = await self._say(user_input)
        self._watch = watch = StreamReader(await self.service.open(self._thread, f"?runId={run}"))
        while text_of_frames(watch.frames) != after_text:
            chunk = await watch.stream.chunk()
            assert chunk is not None
            watch.raw += chunk

    async def rejoin(self) -> Outcome:
        assert self._watch is not None
        observed = self._watch.frames
        return self._outcome([*observed, *await self.service.events(self._thread, self._runs[-1], observed[-1].id)])

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        assert self._watch is not None
        if how == "delete":
            assert (await self.service.request("DELETE", f"/sessions/{self._thread}")).status == 204
        else:
            stopped = await self.service.post(f"/runs/{self._thread}/cancel?runId={self._runs[-1]}", b"")
            assert stopped.json["accepted"] is True
        return self._outcome(await self._watch.read_to_end())

    async def history(self) -> list[Observation]:
        """The whole history; it agrees with the events, and with the standard endpoint of the same thread."""
        messages: list[Json] = []
        before: str | None = None
        while True:
            day = await self.service.history(self._thread, before)
            messages = [*day["messages"], *messages]
            before = day["day"]
            if not day["hasMore"]:
                break
        listed = [(each["role"], each["id"], each["content"]) for each in messages]
        assert [each["seq"] for each in messages] == sorted({each["seq"] for each in messages})
        answers = [each for each in listed if each[0] == "assistant"]
        assert answers == [
            ("assistant", frame.event["messageId"], frame.event["answer"])
            for run in self._runs
            for frame in await self.service.events(self._thread, run)
            if frame.type == "TEXT_MESSAGE_END"
        ]
        assert listed == await self._on_the_standard_endpoint()
        return [ObservedPrompt(content) if role == "user" else ObservedText(content) for role, _, content in listed]

    async def _on_the_standard_endpoint(self) -> list[tuple[str, str, str]]:
        assert self._server is not None
        endpoint = Endpoint(self._server.connection, self._server.key("alice"))
        body = {"threadId": self._thread, "runId": "hydrate", "messages": [], "protocolVersion": "1.0"}
        reply = await endpoint.request("POST", "rehearsal", body)
        (snapshot,) = [event for event in reply.events if event["type"] == "MESSAGES_SNAPSHOT"]
        return [
            (each["role"], each["id"], each["content"])
            for each in snapshot["messages"]
            if each["role"] in ("user", "assistant") and each.get("content") and "subagentRunId" not in each
        ]

    async def is_gone(self) -> bool:
        return (await self.service.get(f"/history?threadId={self._thread}")).status == 404

    # --- saying ---------------------------------------------------------------------------------------------------

    async def _say(self, user_input: Input) -> str:
        """Say it; the run that it starts, by its client's name."""
        if isinstance(user_input, Prompt):
            run = f"r-{len(self._runs)}"
            body = run_input(self._thread, user_input.text, run, tools=self._tools)
            body["messages"][0]["id"] = new_thread()
            await self.service.submit(body)
        else:
            answers, run = [self._answer(each) for each in user_input.answers], ""
            for place, answer in enumerate(answers):  # one by one: the run goes on with the last (shared rules, 20)
                reply = await self.service.post(f"/runs/{self._thread}/answers", {"answers": [answer]})
                assert reply.status == 202, reply
                assert bool(reply.json["pending"]) == (place < len(answers) - 1)
                run = reply.json["runId"]
        self._runs.append(run)
        return run

    def _answer(self, answer: Answer) -> Json:
        match answer:
            case Result(name, text):
                return {"callId": self._open[name], "result": text}
            case Allow(name):
                return {"callId": self._open[name], "granted": True}
            case Deny(name, None):
                return {"callId": self._open[name], "granted": False}
            case Deny(name, reason):
                return {"call_id": self._open[name], "granted": False, "reason": reason}
            case Choose(_, custom, name) if custom is not None:
                return {"callId": self._open[name], "custom": custom}
            case Choose(selections, _, name):
                return {"callId": self._open[name], "selections": list(selections)}

    # --- what was observed --------------------------------------------------------------------------------------------

    def _outcome(self, frames: list[Frame]) -> Outcome:
        observed: list[Observation] = []
        for frame in frames:
            event = frame.event
            match frame.type:
                case "TEXT_MESSAGE_CONTENT":
                    observed.append(ObservedText(event["delta"]))
                case "REASONING_MESSAGE_CONTENT":
                    observed.append(ObservedThinking(event["delta"]))
                case "TOOL_CALL_START":
                    self._names[event["toolCallId"]] = event["toolCallName"]
                    self._open[event["toolCallName"]] = event["toolCallId"]
                case "TOOL_CALL_ARGS":
                    observed.append(ObservedCall(event["toolCallName"], event["args"]))
                case "TOOL_CALL_RESULT":
                    assert event["tool_name"] == self._names[event["toolCallId"]]
                    observed.append(ObservedResult(event["tool_name"], event["result"]))
        return Outcome(observed, stop_reason(frames[-1].event))


def text_of_frames(frames: list[Frame]) -> str:
    return "".join(frame.event["delta"] for frame in frames if frame.type == "TEXT_MESSAGE_CONTENT")


def stop_reason(event: Json) -> Stop:
    """Why a run stopped, by its last event."""
    if event["type"] == "RUN_ERROR":
        return "max_steps" if event["code"] == "max_steps" else "error"
    assert event["type"] == "RUN_FINISHED", json.dumps(event)
    outcome = event["outcome"]
    if outcome["type"] == "cancelled":
        return "cancelled"
    if outcome["type"] == "interrupt" or "pendingToolCallIds" in outcome:
        return "tool_use"
    stop: Stop = event.get("metadata", {}).get("dragoman", {}).get("stopReason", "end_turn")
    return stop
