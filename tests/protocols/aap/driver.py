"""AAP's driver of the conversation suite: the core's words said in AAP's, and back."""

import json
from collections.abc import Callable
from typing import Any, Literal

from tests.conversations import (
    Allow,
    Answer,
    Answers,
    Called,
    Choose,
    Feature,
    Heard,
    Input,
    Outcome,
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
from tests.protocols.aap.client import Face, Message, Reading, Session, client_tool, deny, grant, on, result, user
from tests.protocols.aap.stream import Frame, Mode, blocks_of, check_numbers, check_turn, fold

Json = Any


class AapDriver:
    """One session over AAP, in one mode."""

    features: frozenset[Feature] = frozenset(
        {"client tools", "permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history"}
    )
    shows: frozenset[type] = frozenset({Heard, Said, Thought, Called, Settled})
    stops: dict[Stop, Stop] = {"max_steps": "error", "cancelled": "error"}  # noqa: RUF012  # a constant of the class

    def __init__(self, mode: Mode, face: Callable[[Server], Face]) -> None:
        self.mode = mode
        self._face = face
        self._session: Session | None = None
        self._server: Server | None = None
        self._reading: Reading | None = None
        self._frames: list[Frame] = []
        self._names: dict[str, str] = {}
        self._open: dict[str, str] = {}

    def connect(self, server: Server) -> None:
        self._server = server
        if self._session is not None:
            self._session = self._session.seen_by(self._face(server))

    @property
    def session(self) -> Session:
        assert self._session is not None, "the session was not begun"
        return self._session

    async def begin(self, setup: Setup) -> None:
        assert self._server is not None
        tools = [client_tool(name) for name in setup.client_tools]
        references = [*on(*setup.trusted), *on(*setup.asking, trust=False)]
        self._session = await self._face(self._server).create(server_tools=references, tools=tools)

    async def run(self, does: Input) -> Outcome:
        turn = await self.session.run(self._messages(does), self.mode)
        return self._outcome(turn.messages, turn.stop)

    async def start(self, does: Tell, once_said: str) -> None:
        mode = "delta" if self.mode == "none" else self.mode
        self._reading = await self.session.open(does.text, stream=mode)
        watching = self._reading if mode == "delta" else await self.session.watch(query="?stream=delta")
        said = ""
        while said != once_said:
            said += (await watching.until("text_delta")).data["delta"]
        self._frames = []
        if watching is not self._reading:
            await watching.leave()

    async def rejoin(self) -> Outcome:
        assert self._reading is not None
        seen = self._reading.frames
        rest = await (await self.session.watch(seen[-1].id if seen else "0")).rest()
        return self._whole([*seen, *rest])

    async def cut(self, how: Literal["delete", "stop"]) -> Outcome:
        assert self._reading is not None
        if how == "stop":
            reply = await self.session.face.post(f"{self.session.path}/stop", None)
            assert (reply.status, reply.json) == (200, {"stopped": True})
        else:
            assert (await self.session.delete()).status == 204
        await self._reading.rest()
        return self._whole(self._reading.frames)

    async def history(self) -> list[Seen]:
        return self._seen(await self.session.history())

    async def is_gone(self) -> bool:
        return (await self.session.face.get(self.session.path)).status == 404

    def _messages(self, does: Input) -> list[Message]:
        match does:
            case Tell(text):
                return [user(text)]
            case Answers(answers):
                return [self._answer(each) for each in answers]

    def _answer(self, answer: Answer) -> Message:
        match answer:
            case Result(name, text):
                return result(self._open[name], text)
            case Allow(name):
                return grant(self._open[name])
            case Refuse(name, reason):
                return deny(self._open[name], reason)
            case Choose(selections, custom):
                chosen: dict[str, Json] = {"selections": list(selections)}
                if custom is not None:
                    chosen["custom"] = custom
                return result(self._open["AskUserQuestion"], json.dumps(chosen))

    def _whole(self, frames: list[Frame]) -> Outcome:
        check_turn(frames, "delta" if self.mode == "none" else self.mode)
        check_numbers(frames)
        return self._outcome(fold(frames), frames[-1].data["stopReason"])

    def _outcome(self, messages: list[Message], stop: Any) -> Outcome:
        return Outcome(self._seen(messages), stop)

    def _seen(self, messages: list[Message]) -> list[Seen]:
        seen: list[Seen] = []
        for message in messages:
            if message["role"] == "user":
                seen.append(Heard("".join(block["text"] for block in blocks_of(message["content"]))))
            elif message["role"] == "tool":
                text = "".join(block["text"] for block in blocks_of(message["content"]))
                seen.append(Settled(self._names[message["toolCallId"]], text))
            else:
                seen += [self._block(block) for block in blocks_of(message["content"])]
        return seen

    def _block(self, block: dict[str, Json]) -> Seen:
        match block["type"]:
            case "text":
                return Said(block["text"])
            case "thinking":
                return Thought(block["thinking"])
            case "tool_use":
                self._names[block["toolCallId"]] = block["name"]
                self._open[block["name"]] = block["toolCallId"]
                return Called(block["name"], block["input"])
            case kind:
                raise AssertionError(f"no conversation has a block of type {kind}")
