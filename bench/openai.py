"""Benchmark of OpenAI's API: the cost of a delta over Responses, compared with AAP in the same rounds."""

import msgspec

from bench import wire
from bench.agentscope import data_of, per_delta
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Session
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


async def openai(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over Responses and over AAP."""

    def client_of(ours: Dragoman) -> Client:
        return ResponsesClient(ours.server, "", ours.key)

    return await per_delta(workspace, effort, "openai", client_of, Target(2.5))
