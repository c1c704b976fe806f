"""Benchmark of OpenAI's API: the cost of a delta over Responses and Chat Completions, compared with AAP."""

import msgspec

from bench import wire
from bench.agentscope import per_delta
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Session
from bench.streams import TURN_DELTAS
from bench.subjects import Dragoman, Workspace
from bench.wire import Exchange

_TEXT = "response.output_text.delta"
_DELTA = msgspec.json.Decoder(wire.Delta)


class ResponsesClient(Client):
    """A client of Responses that continues conversations."""

    def turn(self, session: Session, text: str) -> bytes:
        """The request that runs a turn."""
        conversation = f"conv_{session.id.replace('-', '')}"
        return self.request("POST", "/v1/responses", {"conversation": conversation, "input": text, "stream": True})

    def record_turn(self, session: Session, text: str, exchange: Exchange) -> wire.Deltas:
        """Parse a finished response, record its folded text, and return its deltas.

        Raises:
            InvalidResponse: the response did not complete.
        """
        *frames, done = wire.events(exchange)
        if (frames[-1].name, done.data) != ("response.completed", b"[DONE]"):
            raise wire.InvalidResponse(f"the response ended with {frames[-1]}, {done}")
        deltas = [(_DELTA.decode(each.data).delta, each.at) for each in frames if each.name == _TEXT]
        session.turns.append((text, wire.joined(deltas)))
        return deltas


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
    """A client of Chat Completions without a session key: each turn has a session that ends with its answer.

    `answer` is what the agent says: there is no history to compare its text with.
    """

    def __init__(self, ours: Dragoman, agent: str, answer: str) -> None:
        super().__init__(ours.server, "", ours.key)
        self._agent = agent
        self._answer = answer

    def turn(self, session: Session, text: str) -> bytes:
        """The request that runs a turn."""
        body = {"model": self._agent, "messages": [{"role": "user", "content": text}], "stream": True}
        return self.request("POST", "/v1/chat/completions", body)

    def record_turn(self, session: Session, text: str, exchange: Exchange) -> wire.Deltas:
        """Parse a finished answer and return its deltas.

        Raises:
            InvalidResponse: the answer is not complete.
        """
        *frames, done = wire.events(exchange)
        choices = [(choice, frame.at) for frame in frames for choice in _CHUNK.decode(frame.data).choices]
        deltas = [(choice.delta.content, at) for choice, at in choices]
        end = choices[-1][0].finish_reason
        if (end, done.data, wire.joined(deltas)) != ("stop", b"[DONE]", self._answer):
            raise wire.InvalidResponse(f"the answer ended with {choices[-1]}, {done}")
        return deltas


async def chat(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over Chat Completions and over AAP."""

    def client_of(ours: Dragoman) -> Client:
        return ChatClient(ours, "rehearsal", "abcd " * TURN_DELTAS)

    return await per_delta(workspace, effort, "openai_chat", client_of, Target(2.5))


async def openai(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over Responses and over AAP."""

    def client_of(ours: Dragoman) -> Client:
        return ResponsesClient(ours.server, "", ours.key)

    return await per_delta(workspace, effort, "openai", client_of, Target(2.5))
