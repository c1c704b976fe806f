"""AAP's driver of the conversation suite: the core's words said in AAP's, and back."""

import json
from collections.abc import Callable
from typing import Any, Literal

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
from tests.protocols.aap.client import (
    AapClient,
    Message,
    Session,
    StreamReader,
    client_tool,
    deny,
    enabled_tools,
    grant,
    result,
    user,
)
from tests.protocols.aap.stream import Frame, Mode, blocks_of, check_numbers, check_turn, fold

Json = Any


class AapDriver:
    """One session over AAP, in one mode."""

    features: frozenset[Feature] = frozenset(
        {"client tools", "permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history"}
    )
    observable: frozenset[type] = frozenset(
        {ObservedPrompt, ObservedText, ObservedThinking, ObservedCall, ObservedResult}
    )
    stops: dict[Stop, Stop] = {"max_steps": "error", "cancelled": "error"}  # noqa: RUF012  # a constant of the class

    def __init__(self, mode: Mode, client: Callable[[Server], AapClient]) -> None:
        self.mode = mode
        self._client = client
        self._session: Session | None = None
        self._server: Server | None = None
        self._reading: StreamReader | None = None
        self._frames: list[Frame] = []
        self._names: dict[str, str] = {}
        self._open: dict[str, str] = {}

    def connect(self, server: Server) -> None:
        self._server = server
        if self._session is not None:
            self._session = self._session.as_client(self._client(server))

    @property
    def session(self) -> Session:
        assert self._session is not None, "the session was not begun"
        return self._session

    async def begin(self, setup: Setup) -> None:
        assert self._server is not None
        tools = [client_tool(name) for name in setup.client_tools]
        references = [*enabled_tools(*setup.trusted), *enabled_tools(*setup.untrusted, trust=False)]
        self._session = await self._client(self._server).create(server_tools=references, tools=tools)

    async def run(self, user_input: Input) -> Outcome:
        turn = await self.session.run(self._messages(user_input), self.mode)
        return self._outcome(turn.messages, turn.stop)

    async def start(self, user_input: Prompt, after_text: str) -> None:
        mode = "delta" if self.mode == "none" else self.mode
        self._reading = await self.session.open(user_input.text, stream=mode)
        watching = self._reading if mode == "delta" else await self.session.watch(query="?stream=delta")
        said = ""
        while said != after_text:
            said += (await watching.until("text_delta")).data["delta"]
        self._frames = []
        if watching is not self._reading:
            await watching.disconnect()

    async def rejoin(self) -> Outcome:
        assert self._reading is not None
        seen = self._reading.frames
        rest = await (await self.session.watch(seen[-1].id if seen else "0")).read_to_end()
        return self._complete_turn([*seen, *rest])

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        assert self._reading is not None
        if how == "stop":
            reply = await self.session.client.post(f"{self.session.path}/stop", None)
            assert (reply.status, reply.json) == (200, {"stopped": True})
        else:
            assert (await self.session.delete()).status == 204
        await self._reading.read_to_end()
        return self._complete_turn(self._reading.frames)

    async def history(self) -> list[Observation]:
        return self._observed(await self.session.history())

    async def is_gone(self) -> bool:
        return (await self.session.client.get(self.session.path)).status == 404

    def _messages(self, user_input: Input) -> list[Message]:
        match user_input:
            case Prompt(text):
                return [user(text)]
            case Answers(answers):
                return [self._answer(each) for each in answers]

    def _answer(self, answer: Answer) -> Message:
        match answer:
            case Result(name, text):
                return result(self._open[name], text)
            case Allow(name):
                return grant(self._open[name])
            case Deny(name, reason):
                return deny(self._open[name], reason)
            case Choose(selections, custom, name):
                chosen: dict[str, Json] = {"selections": list(selections)}
                if custom is not None:
                    chosen["custom"] = custom
                return result(self._open[name], json.dumps(chosen))

    def _complete_turn(self, frames: list[Frame]) -> Outcome:
        check_turn(frames, "delta" if self.mode == "none" else self.mode)
        check_numbers(frames)
        return self._outcome(fold(frames), frames[-1].data["stopReason"])

    def _outcome(self, messages: list[Message], stop: Any) -> Outcome:
        return Outcome(self._observed(messages), stop)

    def _observed(self, messages: list[Message]) -> list[Observation]:
        seen: list[Observation] = []
        for message in messages:
            if message["role"] == "user":
                seen.append(ObservedPrompt("".join(block["text"] for block in blocks_of(message["content"]))))
            elif message["role"] == "tool":
                text = "".join(block["text"] for block in blocks_of(message["content"]))
                seen.append(ObservedResult(self._names[message["toolCallId"]], text))
            else:
                seen += [self._block(block) for block in blocks_of(message["content"])]
        return seen

    def _block(self, block: dict[str, Json]) -> Observation:
        match block["type"]:
            case "text":
                return ObservedText(block["text"])
            case "thinking":
                return ObservedThinking(block["thinking"])
            case "tool_use":
                self._names[block["toolCallId"]] = block["name"]
                self._open[block["name"]] = block["toolCallId"]
                return ObservedCall(block["name"], block["input"])
            case kind:
                raise AssertionError(f"no conversation has a block of type {kind}")
