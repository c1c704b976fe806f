"""Benchmark of A2A: the cost of a delta over JSON-RPC, compared with AAP in the same rounds."""

import uuid

import msgspec

from bench import wire
from bench.agentscope import data_of, per_delta
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Session
from bench.subjects import Dragoman, Workspace
from bench.wire import Exchange


class _Part(msgspec.Struct):
    text: str = ""


class _Artifact(msgspec.Struct):
    parts: list[_Part]


class _ArtifactUpdate(msgspec.Struct):
    artifact: _Artifact


class _Status(msgspec.Struct):
    state: str


class _StatusUpdate(msgspec.Struct):
    status: _Status


class _Result(msgspec.Struct, rename="camel"):
    artifact_update: _ArtifactUpdate | None = None
    status_update: _StatusUpdate | None = None


class _Event(msgspec.Struct):
    result: _Result


_EVENT = msgspec.json.Decoder(_Event)


class A2aClient(Client):
    """An agent that sends messages into contexts."""

    requests_differ = True

    def turn(self, session: Session, text: str) -> bytes:
        """The request that runs a turn."""
        parts = [{"text": text}]
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "contextId": session.id, "parts": parts}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
        return self.request("POST", "/a2a/rehearsal?A2A-Version=1.0", call)

    def record_turn(self, session: Session, text: str, exchange: Exchange) -> wire.Deltas:
        """Parse a finished stream and record its text. Raises InvalidResponse if the task did not complete."""
        results = [_EVENT.decode(data).result for data in data_of(wire.body(exchange))]
        last = results[-1].status_update
        if last is None or last.status.state != "TASK_STATE_COMPLETED":
            raise wire.InvalidResponse(f"the stream ended with {results[-1]}")
        updates = [each.artifact_update for each in results if each.artifact_update is not None]
        session.turns.append((text, "".join(part.text for update in updates for part in update.artifact.parts)))
        return []


async def a2a(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over A2A and over AAP."""

    def client_of(ours: Dragoman) -> Client:
        return A2aClient(ours.server, "", ours.key)

    return await per_delta(workspace, effort, "a2a", client_of, Target(2.5))
