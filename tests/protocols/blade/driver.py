"""Blade's driver of the conversation suite: translates the suite's inputs and observations."""

import json
from typing import Any, Literal

from tests.conversations import (
    CANCELLED,
    QUESTIONS,
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
from tests.protocols.blade.client import Event, RestClient, SocketClient, flat
from tests.protocols.blade.patch_folding import FoldedTurns, of_seed

Json = Any


def url_of(server: Server) -> str:
    return str(server.connection.url)


class BladeDriver:
    """One session over Blade: REST for what was, a socket for what happens."""

    features: frozenset[Feature] = frozenset(
        {"permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history", "rewind"}
    )
    observable: frozenset[type] = frozenset(
        {ObservedPrompt, ObservedText, ObservedThinking, ObservedCall, ObservedResult, ObservedPlan}
    )
    stops: dict[Stop, Stop] = {}  # noqa: RUF012  # a constant of the class

    def __init__(self, *, is_raw: bool = False) -> None:
        self.session = ""
        self._is_raw = is_raw
        self._server: Server
        self._socket: SocketClient | None = None
        self._caller: RestClient
        self._projection = FoldedTurns()
        self._last = 0
        self._names: dict[str, str] = {}
        self._questions: dict[str, tuple[str, Json]] = {}
        self._observed_so_far: list[Event] = []
        self._loops: dict[str, str] = {}

    def connect(self, server: Server) -> None:
        self._server = server
        self._caller = RestClient(url_of(server), server.key("alice"))
        self._socket = None

    async def close(self) -> None:
        if self._socket is not None:
            await self._socket.leave()

    async def begin(self, setup: Setup) -> None:
        self.session = await self._caller.session()

    async def run(self, user_input: Input) -> Outcome:
        tab = await self._opened()
        sees: list[Observation] = []
        events: list[Event] = []
        for payload in self._payloads(user_input):
            reply = await tab.call("chat:send", {"session_id": self.session, **payload})
            assert reply["status"] == "ok", reply
            events = flat(await tab.until("chat:end"))
            assert events[-1][1]["chat_run_id"] == reply["chat_run_id"]
            sees += self._take(events)
        return await self._outcome(sees, events)

    async def start(self, user_input: Prompt, after_text: str) -> None:
        tab = await self._opened()
        await tab.call("chat:send", {"session_id": self.session, "message": user_input.text})
        texts = ""
        self._observed_so_far = []
        while texts != after_text:
            self._observed_so_far += flat(await tab.until("turn:events" if self._is_raw else "turn:patch"))
            texts = "".join(
                each.text for each in self._observed(self._observed_so_far) if isinstance(each, ObservedText)
            )
        self._note(self._observed_so_far)

    async def rejoin(self) -> Outcome:
        tab = await self._opened(after=self._last)
        rest = flat(await tab.until("chat:end"))
        self._note(rest)
        return await self._outcome(self._observed([*self._observed_so_far, *rest]), rest)

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        tab = await self._opened()
        if how == "delete":
            assert (await self._caller.request("DELETE", f"sessions/{self.session}")).body == {"deleted": True}
            rest = flat(await tab.until("chat:end"))
        else:
            assert await tab.call("chat:stop", {"session_id": self.session}) == {"status": "stopped"}
            rest = flat(await tab.until("chat:end"))
        self._note(rest)
        sees = self._observed([*self._observed_so_far, *rest])
        return Outcome(sees, "cancelled" if rest[-1][1]["status"] == "interrupted" else "error")

    async def rewind(self, prompt: str) -> None:
        """Go back to the checkpoint before the newest message, which is the prompt."""
        path = f"sessions/{self.session}"
        newest = (await self._caller.get(f"{path}/checkpoints"))[-1]
        reply = await self._caller.request("POST", f"{path}/rewind", {"checkpoint_id": newest["checkpoint_id"]})
        assert reply.body["message"] == prompt

    async def history(self) -> list[Observation]:
        turns = await self._caller.messages(self.session)
        assert [turn["sequence"] for turn in turns] == sorted(turn["sequence"] for turn in turns)
        return [seen for turn in turns if turn["loop_id"] == "root" for seen in self._turn(turn)]

    async def is_gone(self) -> bool:
        return (await self._caller.request("GET", f"sessions/{self.session}")).status == 404

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _opened(self, after: int | None = None) -> SocketClient:
        if self._socket is None:
            self._socket = SocketClient(url_of(self._server), self._server.key("alice"))
            await self._socket.connect()
            query: dict[str, Json] = {"session_id": self.session}
            if self._is_raw:
                query["event_format"] = "raw"
            if after is not None:
                query |= {"after_sequence": after, "resume": True}
            reply = await self._socket.call("session:subscribe", query)
            assert reply["status"] == "ok", reply
        return self._socket

    def _payloads(self, user_input: Input) -> list[dict[str, Json]]:
        match user_input:
            case Prompt(text):
                return [{"message": text}]
            case Answers(answers):
                return [{"message": "", "askuser_answer": self._answer(each)} for each in answers]

    def _answer(self, answer: Answer) -> dict[str, Json]:
        match answer:
            case Allow(name):
                return {"tool_call_id": self._questions[name][0], "selections": {"0": [0]}, "custom": {}}
            case Deny(name, reason):
                custom = {} if reason is None else {"0": reason}
                return {"tool_call_id": self._questions[name][0], "selections": {"0": [2]}, "custom": custom}
            case Choose(selections, custom, name):
                call_id, arguments = self._questions[name]
                labels = [option["label"] for option in arguments["questions"][0]["options"]]
                chosen = [labels.index(each) for each in selections]
                return {
                    "tool_call_id": call_id,
                    "selections": {"0": chosen} if chosen else {},
                    "custom": {} if custom is None else {"0": custom},
                }
            case Result():
                raise AssertionError("Blade has no form for an application's own result")

    def _take(self, events: list[Event]) -> list[Observation]:
        self._note(events)
        return self._observed(events)

    def _note(self, events: list[Event]) -> None:
        for event in events:
            self._projection.feed(event)
            self._last = event[1].get("stream_sequence", self._last)

    async def _outcome(self, observed: list[Observation], events: list[Event]) -> Outcome:
        await self._check()
        name, end = events[-1]
        assert name == "chat:end"
        return Outcome(observed, stop_of(end))

    async def _check(self) -> None:
        """Check G2: the turns of the events equal those of the messages."""
        for turn in await self._caller.messages(self.session):
            if turn["turn_id"] in self._projection.turns:
                assert of_seed(self._projection.turns[turn["turn_id"]]) == of_seed(turn)

    def _observed(self, events: list[Event]) -> list[Observation]:
        """The observations of the root loop, in order."""
        seen: list[Observation] = []
        for name, payload in events:
            if name == "turn:patch":
                seen += self._patch(payload)
        return seen

    def _patch(self, patch: dict[str, Json]) -> list[Observation]:
        data = patch["data"]
        match patch["patch_type"]:
            case "add_tool_call":
                self._names[data["id"]] = data["tool_name"]
                arguments = json.loads(data["arguments"])
                if is_about_a_call(data["id"]):
                    gated = self._names["tc_" + data["id"].partition("_")[2]]
                    self._questions[gated] = data["id"], arguments
                    return []
                self._questions[data["tool_name"]] = data["id"], arguments
                return [ObservedCall(data["tool_name"], arguments)] if patch["loop_id"] == "root" else []
            case _ if patch["loop_id"] != "root":
                return []
            case "add_content" if data["type"] == "text":
                return [ObservedText(data["text_delta"])]
            case "add_content" if data["type"] == "thinking":
                return [ObservedThinking(data["text_delta"])]
            case "add_content" if data["type"] == "plan_status":
                return [planned(data["content"])]
            case "tool_result" if self._names[data["tool_call_id"]] not in QUESTIONS:
                return [ObservedResult(self._names[data["tool_call_id"]], text_of(data["result"]))]
        return []

    def _turn(self, turn: dict[str, Json]) -> list[Observation]:
        seen: list[Observation] = []
        for block in turn["blocks"]:
            if is_about_a_call(block["tool_call_id"] or ""):
                continue
            match block["type"]:
                case "text":
                    seen.append(
                        ObservedPrompt(block["content"]) if turn["role"] == "user" else ObservedText(block["content"])
                    )
                case "thinking":
                    seen.append(ObservedThinking(block["content"]))
                case "plan_status":
                    seen.append(planned(block["content"]))
                case "tool_use":
                    seen.append(ObservedCall(block["tool_name"], block["content"]))
                case "tool_result":
                    seen.append(ObservedResult(block["tool_name"], text_of(block["content"])))
        closed = [
            ObservedResult(call["tool_name"], CANCELLED)
            for call in turn["tool_calls"]
            if call["status"] == "cancelled" and not is_about_a_call(call["id"])
        ]
        return [*seen, *closed]


def is_about_a_call(call_id: str) -> bool:
    """Whether this is a question about another call: whether it may run, or what it asks itself."""
    return call_id.startswith(("perm_", "ask"))


def text_of(result: Json) -> str:
    """A result as text; those of server tools may be any JSON."""
    return result if isinstance(result, str) else json.dumps(result)


def planned(content: Json) -> ObservedPlan:
    return ObservedPlan(tuple(step["title"] for step in content["steps"]))


def stop_of(end: dict[str, Json]) -> Stop:
    """The core's word for how a chat ended."""
    if end["status"] == "failed":
        return "error"
    if end["status"] == "interrupted":
        return "cancelled"
    if end["finish_reason"] == "max_turns":
        return "max_steps"
    if end["waiting_for_input"]:
        return "tool_use"
    result: Stop = end.get("stop_reason", "end_turn")
    return result
