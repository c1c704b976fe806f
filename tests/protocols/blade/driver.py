"""Blade's driver of the conversation suite: the core's words said in Blade's, and back."""

import json
from typing import Any, Literal

from tests.conversations import (
    CANCELLED,
    Allow,
    Answer,
    Answers,
    Called,
    Choose,
    Feature,
    Heard,
    Input,
    Outcome,
    Planned,
    Refuse,
    Result,
    Said,
    Seen,
    Server,
    Settled,
    Setup,
    Stop,
    Tell,
    Thought,
)
from tests.protocols.blade.client import Caller, Event, Tab, flat
from tests.protocols.blade.patch_folding import Folded, of_seed

Json = Any
ASK = "AskUserQuestion"


def url_of(server: Server) -> str:
    return str(server.line._client.base_url).rstrip("/")


class BladeDriver:
    """One session over Blade: REST for what was, a socket for what happens."""

    features: frozenset[Feature] = frozenset(
        {"permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history"}
    )
    shows: frozenset[type] = frozenset({Heard, Said, Thought, Called, Settled, Planned})
    stops: dict[Stop, Stop] = {}  # noqa: RUF012  # a constant of the class

    def __init__(self, *, is_raw: bool = False) -> None:
        self.session = ""
        self._is_raw = is_raw
        self._server: Server
        self._tab: Tab | None = None
        self._caller: Caller
        self._folded = Folded()
        self._last = 0
        self._names: dict[str, str] = {}
        self._asked: dict[str, tuple[str, Json]] = {}
        self._seen: list[Event] = []
        self._loops: dict[str, str] = {}

    def connect(self, server: Server) -> None:
        self._server = server
        self._caller = Caller(url_of(server), server.key("alice"))
        self._tab = None

    async def close(self) -> None:
        if self._tab is not None:
            await self._tab.leave()

    async def begin(self, setup: Setup) -> None:
        self.session = await self._caller.session()

    async def run(self, does: Input) -> Outcome:
        tab = await self._opened()
        sees: list[Seen] = []
        events: list[Event] = []
        for payload in self._payloads(does):
            told = await tab.call("chat:send", {"session_id": self.session, **payload})
            assert told["status"] == "ok", told
            events = flat(await tab.until("chat:end"))
            assert events[-1][1]["chat_run_id"] == told["chat_run_id"]
            sees += self._take(events)
        return await self._outcome(sees, events)

    async def start(self, does: Tell, once_said: str) -> None:
        tab = await self._opened()
        await tab.call("chat:send", {"session_id": self.session, "message": does.text})
        said = ""
        self._seen = []
        while said != once_said:
            self._seen += flat(await tab.until("turn:events" if self._is_raw else "turn:patch"))
            said = "".join(each.text for each in self._shown(self._seen) if isinstance(each, Said))
        self._note(self._seen)

    async def rejoin(self) -> Outcome:
        tab = await self._opened(after=self._last)
        rest = flat(await tab.until("chat:end"))
        self._note(rest)
        return await self._outcome(self._shown([*self._seen, *rest]), rest)

    async def cut(self, how: Literal["delete", "stop"]) -> Outcome:
        tab = await self._opened()
        if how == "delete":
            assert (await self._caller.ask("DELETE", f"sessions/{self.session}")).body == {"deleted": True}
            rest = flat(await tab.until("chat:end"))
        else:
            assert await tab.call("chat:stop", {"session_id": self.session}) == {"status": "stopped"}
            rest = flat(await tab.until("chat:end"))
        self._note(rest)
        sees = self._shown([*self._seen, *rest])
        return Outcome(sees, "cancelled" if rest[-1][1]["status"] == "interrupted" else "error")

    async def history(self) -> list[Seen]:
        turns = await self._caller.messages(self.session)
        assert [turn["sequence"] for turn in turns] == sorted(turn["sequence"] for turn in turns)
        return [seen for turn in turns if turn["loop_id"] == "root" for seen in self._turn(turn)]

    async def is_gone(self) -> bool:
        return (await self._caller.ask("GET", f"sessions/{self.session}")).status == 404

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _opened(self, after: int | None = None) -> Tab:
        if self._tab is None:
            self._tab = Tab(url_of(self._server), self._server.key("alice"))
            await self._tab.connect()
            asked: dict[str, Json] = {"session_id": self.session}
            if self._is_raw:
                asked["event_format"] = "raw"
            if after is not None:
                asked |= {"after_sequence": after, "resume": True}
            told = await self._tab.call("session:subscribe", asked)
            assert told["status"] == "ok", told
        return self._tab

    def _payloads(self, does: Input) -> list[dict[str, Json]]:
        match does:
            case Tell(text):
                return [{"message": text}]
            case Answers(answers):
                return [{"message": "", "askuser_answer": self._answer(each)} for each in answers]

    def _answer(self, answer: Answer) -> dict[str, Json]:
        match answer:
            case Allow(name):
                return {"tool_call_id": self._asked[name][0], "selections": {"0": [0]}, "custom": {}}
            case Refuse(name, reason):
                custom = {} if reason is None else {"0": reason}
                return {"tool_call_id": self._asked[name][0], "selections": {"0": [2]}, "custom": custom}
            case Choose(selections, custom):
                call_id, arguments = self._asked[ASK]
                labels = [option["label"] for option in arguments["questions"][0]["options"]]
                chosen = [labels.index(each) for each in selections]
                return {
                    "tool_call_id": call_id,
                    "selections": {"0": chosen} if chosen else {},
                    "custom": {} if custom is None else {"0": custom},
                }
            case Result():
                raise AssertionError("Blade has no form for an application's own result")

    def _take(self, events: list[Event]) -> list[Seen]:
        self._note(events)
        return self._shown(events)

    def _note(self, events: list[Event]) -> None:
        for event in events:
            self._folded.feed(event)
            self._last = event[1].get("stream_sequence", self._last)

    async def _outcome(self, sees: list[Seen], events: list[Event]) -> Outcome:
        await self._check()
        name, end = events[-1]
        assert name == "chat:end"
        return Outcome(sees, stop_of(end))

    async def _check(self) -> None:
        """G2: what the events said of each turn is what the messages say."""
        for turn in await self._caller.messages(self.session):
            if turn["turn_id"] in self._folded.turns:
                assert of_seed(self._folded.turns[turn["turn_id"]]) == of_seed(turn)

    def _shown(self, events: list[Event]) -> list[Seen]:
        """What the root loop showed, in the order in which it came."""
        seen: list[Seen] = []
        for name, payload in events:
            if name == "turn:patch":
                seen += self._patch(payload)
        return seen

    def _patch(self, patch: dict[str, Json]) -> list[Seen]:
        data = patch["data"]
        match patch["patch_type"]:
            case "add_tool_call":
                self._names[data["id"]] = data["tool_name"]
                arguments = json.loads(data["arguments"])
                if data["id"].startswith("perm_"):
                    gated = self._names["tc_" + data["id"].removeprefix("perm_")]
                    self._asked[gated] = data["id"], arguments
                    return []
                self._asked[data["tool_name"]] = data["id"], arguments
                return [Called(data["tool_name"], arguments)] if patch["loop_id"] == "root" else []
            case _ if patch["loop_id"] != "root":
                return []
            case "add_content" if data["type"] == "text":
                return [Said(data["text_delta"])]
            case "add_content" if data["type"] == "thinking":
                return [Thought(data["text_delta"])]
            case "add_content" if data["type"] == "plan_status":
                return [planned(data["content"])]
            case "tool_result" if self._names[data["tool_call_id"]] != ASK:
                return [Settled(self._names[data["tool_call_id"]], data["result"])]
        return []

    def _turn(self, turn: dict[str, Json]) -> list[Seen]:
        seen: list[Seen] = []
        for block in turn["blocks"]:
            if (block["tool_call_id"] or "").startswith("perm_"):
                continue
            match block["type"]:
                case "text":
                    seen.append(Heard(block["content"]) if turn["role"] == "user" else Said(block["content"]))
                case "thinking":
                    seen.append(Thought(block["content"]))
                case "plan_status":
                    seen.append(planned(block["content"]))
                case "tool_use":
                    seen.append(Called(block["tool_name"], block["content"]))
                case "tool_result":
                    seen.append(Settled(block["tool_name"], block["content"]))
        closed = [
            Settled(call["tool_name"], CANCELLED)
            for call in turn["tool_calls"]
            if call["status"] == "cancelled" and not call["id"].startswith("perm_")
        ]
        return [*seen, *closed]


def planned(content: Json) -> Planned:
    return Planned(tuple(step["title"] for step in content["steps"]))


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
    found: Stop = end.get("stop_reason", "end_turn")
    return found
