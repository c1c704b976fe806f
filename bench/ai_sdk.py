"""Benchmark of the AI SDK: the cost of a delta, compared with AAP in the same rounds."""

import uuid

import msgspec

from bench import wire
from bench.agentscope import data_of, per_delta
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Session
from bench.subjects import Dragoman, Workspace
from bench.wire import Exchange


class _Chunk(msgspec.Struct):
    type: str
    delta: str = ""


_CHUNK = msgspec.json.Decoder(_Chunk)


class AiSdkClient(Client):
    """A page that sends its newest message."""

    requests_differ = True

    def turn(self, session: Session, text: str) -> bytes:
        """The request that runs a turn."""
        message = {"id": str(uuid.uuid4()), "role": "user", "parts": [{"type": "text", "text": text}]}
        return self.request("POST", "/ai-sdk/rehearsal", {"id": session.id, "messages": [message]})

    def record_turn(self, session: Session, text: str, exchange: Exchange) -> list[wire.Event]:
        """Parse a finished stream and record its text. Raises InvalidResponse if the stream has no end."""
        *chunks, done = data_of(wire.body(exchange))
        if done != b"[DONE]":
            raise wire.InvalidResponse(f"the stream ended with {done!r}")
        session.turns.append((text, "".join(_CHUNK.decode(chunk).delta for chunk in chunks)))
        return []


async def ai_sdk(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over the AI SDK and over AAP."""

    def client_of(ours: Dragoman) -> Client:
        return AiSdkClient(ours.server, "", ours.key)

    return await per_delta(workspace, effort, "ai_sdk", client_of, Target(2.5))
