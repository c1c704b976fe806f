"""Benchmark of OpenAI's API: the cost of a delta over Responses and Chat Completions, compared with AAP."""

import msgspec

from bench import wire
from bench.agentscope import data_of, per_delta
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Session
from bench.streams import TURN_DELTAS
from bench.subjects import Dragoman, Workspace
from bench.wire import Exchange


class StreamEvent(msgspec.Struct):
    """The members of an event that are needed to fold the text."""

    type: str
    delta: str = ""


_EVENT = msgspec.json.Decoder(StreamEvent)


class ResponsesClient(Client):
    """A client of Responses that continues conversations."""

    def turn(self, session: Session, text: str) -> bytes:
        """The request that runs a turn."""
        conversation = f"conv_{session.id.replace('-', '')}"
        return self.request("POST", "/v1/responses", {"conversation": conversation, "input": text, "stream": True})

    def record_turn(self, session: Session, text: str, exchange: Exchange) -> list[wire.Event]:
        """Parse a finished response and record its folded text.

        Raises:
            InvalidResponse: the response did not complete.
        """
        *frames, done = data_of(wire.body(exchange))
        events = [_EVENT.decode(data) for data in frames]
        if (events[-1].type, done) != ("response.completed", b"[DONE]"):
            raise wire.InvalidResponse(f"the response ended with {events[-1]}, {done!r}")
        deltas = (event.delta for event in events if event.type == "response.output_text.delta")
        session.turns.append((text, "".join(deltas)))
        return []


class Chunk(msgspec.Struct):
    """The members of a chunk that are needed to fold the text."""

    choices: list["ChunkChoice"] = []


class ChunkChoice(msgspec.Struct):
    """What a chunk adds."""

    delta: "ChunkDelta"
    finish_reason: str | None = None


class ChunkDelta(msgspec.Struct):
    """A part of the answer."""

    content: str = ""


_CHUNK = msgspec.json.Decoder(Chunk)


class ChatClient(Client):
    """A client of Chat Completions without a session key: each turn has a session that ends with its answer."""

    def turn(self, session: Session, text: str) -> bytes:
        """The request that runs a turn."""
        body = {"model": "rehearsal", "messages": [{"role": "user", "content": text}], "stream": True}
        return self.request("POST", "/v1/chat/completions", body)

    def record_turn(self, session: Session, text: str, exchange: Exchange) -> list[wire.Event]:
        """Parse a finished answer. Its session is gone, so there is no history to compare its text with.

        Raises:
            InvalidResponse: the answer is not complete.
        """
        *frames, done = data_of(wire.body(exchange))
        choices = [choice for data in frames for choice in _CHUNK.decode(data).choices]
        said = "".join(choice.delta.content for choice in choices)
        if (choices[-1].finish_reason, done, said) != ("stop", b"[DONE]", "abcd " * TURN_DELTAS):
            raise wire.InvalidResponse(f"the answer ended with {choices[-1]}, {done!r}")
        return []


async def chat(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over Chat Completions and over AAP."""

    def client_of(ours: Dragoman) -> Client:
        return ChatClient(ours.server, "", ours.key)

    return await per_delta(workspace, effort, "openai_chat", client_of, Target(2.5))


async def openai(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over Responses and over AAP."""

    def client_of(ours: Dragoman) -> Client:
        return ResponsesClient(ours.server, "", ours.key)

    return await per_delta(workspace, effort, "openai", client_of, Target(2.5))
