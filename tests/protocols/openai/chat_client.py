"""A plain client of Chat Completions. It checks in every answer what is true of all of them."""

import json
from typing import Any

from tests.asgi_client import Stream
from tests.event_reader import EventReader
from tests.protocols.aap.client import Reply
from tests.protocols.openai.client import OpenAiClient

Json = Any

CHUNK_FACTS = ("id", "object", "created", "model", "service_tier", "system_fingerprint")


def user(content: Json) -> Json:
    """A message of the user."""
    return {"role": "user", "content": content}


def assistant(content: Json, *calls: Json) -> Json:
    """A message of the agent, as clients send it back."""
    return {"role": "assistant", "content": content} | ({"tool_calls": list(calls)} if calls else {})


def tool_result(call: Json, content: Json) -> Json:
    """What a tool of the application returned."""
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def function_tool(name: str, **facts: Json) -> Json:
    """A tool of the application."""
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **facts}}


def parse(body: bytes) -> list[Json]:
    """Parse whole frames: chunks as JSON, an error, and `[DONE]`."""
    chunks: list[Json] = []
    for frame in body.decode().removesuffix("\n\n").split("\n\n"):
        if not frame.startswith(":"):
            assert frame.startswith("data: ")
            assert "\n" not in frame
            data = frame.removeprefix("data: ")
            chunks.append(data if data == "[DONE]" else json.loads(data))
    return chunks


class ChatStream(EventReader):
    """Reads the chunks of an answer."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, parse)

    async def until_said(self, text: str) -> None:
        """Read until the whole content is `text`."""
        while self.text() != text:
            assert await self.more(), self.events

    def text(self, kind: str = "content") -> str:
        """What was said so far."""
        deltas = [choice["delta"] for chunk in self.events if "id" in chunk for choice in chunk["choices"]]
        return "".join(delta.get(kind) or "" for delta in deltas)

    async def end(self) -> Json:
        """Read and check the rest; return the answer as JSON answers have it, or `{"error": …}`."""
        *chunks, done = await self.read_to_end()
        assert done == "[DONE]"
        if "error" in chunks[-1]:
            return chunks[-1]
        usage = chunks.pop()["usage"] if not chunks[-1]["choices"] else None
        first, *_, last = chunks
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert last["choices"][0]["delta"] == {}
        for chunk in chunks:
            assert [chunk[name] for name in CHUNK_FACTS] == [first[name] for name in CHUNK_FACTS]
            assert chunk["object"] == "chat.completion.chunk"
            (choice,) = chunk["choices"]
            assert (choice["index"], choice["logprobs"]) == (0, None)
            assert (choice["finish_reason"] is None) == (chunk is not last)
            assert ("usage" in chunk) == (usage is not None)
            assert chunk.get("usage") is None
        return {
            "message": self._message(chunks),
            "finish_reason": last["choices"][0]["finish_reason"],
            **({} if usage is None else {"usage": usage}),
        }

    def _message(self, chunks: list[Json]) -> Json:
        calls: list[Json] = []
        for delta in (chunk["choices"][0]["delta"] for chunk in chunks):
            for part in delta.get("tool_calls", ()):
                if part["index"] == len(calls):
                    calls.append({key: each for key, each in part.items() if key != "index"})
                else:
                    calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        content, thinking = self.text(), self.text("reasoning_content")
        return {
            "role": "assistant",
            "content": None if calls and not content else content,
            "refusal": None,
            **({"reasoning_content": thinking} if thinking else {}),
            **({"tool_calls": calls} if calls else {}),
        }


class ChatClient:
    """A client with one key, and perhaps a session key."""

    def __init__(self, http: OpenAiClient, session: str | None = None) -> None:
        self.http = http
        self.headers = {} if session is None else {"x-dragoman-session": session}

    async def send(self, *messages: Json, headers: dict[str, str] | None = None, **more: Json) -> Reply:
        """Send a request and read the whole answer."""
        body = {"model": "rehearsal", "messages": list(messages), **more}
        return await self.http.request("POST", "/chat/completions", body, headers=self.headers | (headers or {}))

    async def complete(self, *messages: Json, **more: Json) -> Json:
        """Get an answer as JSON; return its only choice and the usage."""
        reply = await self.send(*messages, **more)
        assert reply.status == 200, reply.json
        assert reply.json["object"] == "chat.completion"
        (choice,) = reply.json["choices"]
        assert (choice.pop("index"), choice.pop("logprobs")) == (0, None)
        return {**choice, "usage": reply.json["usage"]}

    async def say(self, *messages: Json, **more: Json) -> str:
        """Get an answer; return its content."""
        return str((await self.complete(*messages, **more))["message"]["content"])

    async def stream(self, *messages: Json, headers: dict[str, str] | None = None, **more: Json) -> ChatStream:
        """Start a streamed answer."""
        body = {"model": "rehearsal", "messages": list(messages), "stream": True, **more}
        stream = await self.http.open("POST", "/chat/completions", body, headers=self.headers | (headers or {}))
        assert stream.status == 200, await stream.read()
        return ChatStream(stream)

    async def refused(self, *messages: Json, **more: Json) -> tuple[int, str, str]:
        """Send a request that must be refused; return the status, the code and the field at fault."""
        headers = self.headers | more.pop("headers", {})
        body = {"model": "rehearsal", "messages": list(messages), **more}
        return await self.http.refused("POST", "/chat/completions", body, headers=headers)
