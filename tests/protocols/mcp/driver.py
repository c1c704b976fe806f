"""MCP's driver of the conversation suite. A host shows forms; of a run only the texts are observed."""

import json
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
    ObservedPrompt,
    ObservedText,
    Outcome,
    Prompt,
    Server,
    Setup,
    Stop,
)
from tests.protocols.mcp.client import FORMS, NEW, OLD, CallStream, McpClient

Json = Any


class McpDriver:
    """One session over MCP, in a version with sessions or in the new one."""

    features: frozenset[Feature] = frozenset({"permissions", "questions", "sub-agents", "stop"})
    observable: frozenset[type] = frozenset({ObservedPrompt, ObservedText})

    def __init__(self, version: str = OLD) -> None:
        self.stops: dict[Stop, Stop] = {}
        self.version = version
        self._client: McpClient | None = None
        self._session_id = ""
        self._prompt: Json = {}
        self._asked: Json = None
        self._stream: CallStream | None = None

    def connect(self, server: Server) -> None:
        session = None if self._client is None else self._client.session
        self._client = McpClient(server.connection, server.key("alice"), version=self.version, capabilities=FORMS)
        self._client.session = session

    async def begin(self, setup: Setup) -> None:
        assert not setup.client_tools or self.version, (
            "a host brings no tools; conversations that need them are left out"
        )
        if self.version != NEW:
            await self.client.initialize()

    @property
    def client(self) -> McpClient:
        assert self._client is not None, "it is connected first"
        return self._client

    async def run(self, user_input: Input) -> Outcome:
        if isinstance(user_input, Prompt):
            self._prompt = {"message": user_input.text, "session_id": self._session_id}
            return await self._read(await self._say(user_input.text))
        if self.version == NEW:
            return await self._repeat(user_input)
        outcome = Outcome([], "tool_use")
        for answer in user_input.answers:
            action, content = form_answer(answer)
            assert await self.client.answer_form(self._asked, action, **content) == 202
            outcome = await self._read(await self._say(""))
        return outcome

    async def start(self, user_input: Prompt, after_text: str) -> None:
        self._stream = await self._say(user_input.text, token="t", request_id="started")
        while not any(each["message"].endswith(after_text) for each in self._stream.progress()):
            assert await self._stream.next() is not None

    async def rejoin(self) -> Outcome:
        raise AssertionError("results leave out what a crash cut off: `test_calls.py` kills a server")

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        assert how == "stop", "MCP has no way to delete a session"
        assert self._stream is not None
        if self.version == NEW:
            await self._stream.stream.disconnect()
        else:
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "started"}}
            assert (await self.client.post(cancelled)).status == 202
            await self._stream.rest()
        return await self._read(await self._say(""))

    async def history(self) -> list[Observation]:
        raise AssertionError("MCP shows conversations as Markdown: `test_calls.py` reads one")

    async def is_gone(self) -> bool:
        raise AssertionError("MCP has no way to delete a session")

    async def _say(self, text: str, **options: Json) -> CallStream:
        return await self.client.open(text, session_id=self._session_id, **options)

    async def _repeat(self, answers: Answers) -> Outcome:
        """Send the call again, with answers to the forms of its result."""
        given = [form_answer(each) for each in answers.answers]
        responses = {
            key: {"action": action, "content": content}
            for key, (action, content) in zip(self._asked["inputRequests"], given, strict=True)
        }
        more = {"requestState": self._asked["requestState"], "inputResponses": responses}
        return await self._read(await self.client.open(**self._prompt, more=more))

    async def _read(self, stream: CallStream) -> Outcome:
        """Read to the result, or to a form."""
        while (message := await stream.next()) is not None:
            if message.get("method") == "elicitation/create":
                self._asked, self._session_id = message, message["id"][2:38]
                return Outcome([], "tool_use")
            if "result" in message:
                return await self._outcome(message["result"])
        raise AssertionError("the stream ended without a result")

    async def _outcome(self, result: Json) -> Outcome:
        if result.get("resultType") == "input_required":
            self._asked = result
            newest = (await self.client.request("resources/list"))["resources"][0]["uri"]
            self._session_id = self._session_id or newest.rpartition("/")[2]
            return Outcome([], "tool_use")
        structured = result["structuredContent"]
        assert json.loads(json.dumps(structured)) == structured
        self._session_id = structured["session_id"]
        texts: list[Observation] = [ObservedText(each) for each in structured["text"].split("\n\n") if each]
        return Outcome(texts, "tool_use" if structured["status"] == "input_required" else structured["stop_reason"])


def form_answer(answer: Answer) -> tuple[str, Json]:
    """What a person does with the form of a call."""
    match answer:
        case Allow():
            return "accept", {"decision": "allow"}
        case Deny(_, reason):
            return "accept", {"decision": "deny", **({"reason": reason} if reason else {})}
        case Choose(selections, custom):
            return "accept", {"custom_0": custom} if custom else {"answer_0": selections[0]}
        case _:
            raise AssertionError("a host runs no tools")
