"""Benchmark of the AI SDK: the cost of a delta, compared with AAP in the same rounds."""

import uuid

import msgspec

from bench import wire
from bench.agentscope import per_delta
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Session
from bench.subjects import Dragoman, Workspace
from bench.wire import Exchange


class _Chunk(msgspec.Struct):
    delta: str = ""


_CHUNK = msgspec.json.Decoder(_Chunk)


class AiSdkClient(Client):
    """A page that sends its newest message."""

    requests_differ = True

    def __init__(self, ours: Dragoman, agent: str) -> None:
        super().__init__(ours.server, f"/ai-sdk/{agent}", ours.key)

    def turn(self, session: Session, text: str) -> bytes:
        """The request that runs a turn."""
        message = {"id": str(uuid.uuid4()), "role": "user", "parts": [{"type": "text", "text": text}]}
        return self.request("POST", "", {"id": session.id, "messages": [message]})

    def record_turn(self, session: Session, text: str, exchange: Exchange) -> wire.Deltas:
        """Parse a finished stream, record its text, and return its deltas.

        Raises:
            InvalidResponse: the stream has no end.
        """
        *chunks, done = wire.events(exchange)
        if done.data != b"[DONE]":
            raise wire.InvalidResponse(f"the stream ended with {done}")
        deltas = [(_CHUNK.decode(chunk.data).delta, chunk.at) for chunk in chunks]
        session.turns.append((text, wire.joined(deltas)))
        return deltas


async def ai_sdk(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over the AI SDK and over AAP."""

    def client_of(ours: Dragoman) -> Client:
        return AiSdkClient(ours, "rehearsal")

    return await per_delta(workspace, effort, "ai_sdk", client_of, Target(2.5))
