"""Benchmark of the Agent API: the cost of a delta, compared with AAP in the same rounds."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import msgspec

from bench import load, wire
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Session
from bench.stats import spread
from bench.streams import CONNECTIONS, TURN_DELTAS, emit
from bench.subjects import Baseline, Dragoman, Workspace
from bench.wire import Exchange


class Content(msgspec.Struct):
    """The members of an event that are needed to fold the text."""

    object: str
    status: str
    delta: bool = False
    text: str = ""


_EVENT = msgspec.json.Decoder(Content)


class AgentScopeClient(Client):
    """A client of the Agent API."""

    def turn(self, session: Session, text: str) -> bytes:
        """The request that runs a turn."""
        message = {"role": "user", "content": [{"type": "text", "text": text}]}
        return self.request("POST", "/process", {"session_id": session.id, "input": [message]})

    def record_turn(self, session: Session, text: str, exchange: Exchange) -> wire.Deltas:
        """Parse a finished response and record its folded text.

        Raises:
            InvalidResponse: the response did not complete.
        """
        events = [_EVENT.decode(data) for data in data_of(wire.body(exchange))]
        if (events[-1].object, events[-1].status) != ("response", "completed"):
            raise wire.InvalidResponse(f"the response ended with {events[-1]}")
        session.turns.append((text, "".join(event.text for event in events if event.delta)))
        return []


def data_of(body: bytes) -> list[bytes]:
    """The data of each frame of a stream."""
    return [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]


async def agentscope(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of an agent that never waits, over the Agent API and over AAP."""

    def client_of(ours: Dragoman) -> Client:
        return AgentScopeClient(ours.server, "", ours.key)

    return await per_delta(workspace, effort, "agentscope", client_of, Target(3))


async def per_delta(
    workspace: Workspace, effort: Effort, row: str, client_of: Callable[[Dragoman], Client], target: Target
) -> list[Figure]:
    """Server CPU per delta over a protocol, for sessions that were created over AAP, and over AAP itself."""
    text = emit(TURN_DELTAS, "abcd ")
    with ExitStack() as running:
        baseline = running.enter_context(Baseline(workspace, "tick"))
        ours = running.enter_context(Dragoman(workspace))
        measured = client_of(ours)
        subjects: Sequence[tuple[str, Client]] = [
            (baseline.name, baseline.client),
            ("dragoman, AAP", ours.client),
            ("dragoman", measured),
        ]
        connections = [await client.connect(CONNECTIONS) for _, client in subjects]
        sessions = [
            await client.create("rehearsal", CONNECTIONS) for client in (baseline.client, ours.client, ours.client)
        ]
        costs: list[list[float]] = [[] for _ in subjects]
        for number in range(effort.rounds + 1):
            for at, (_, client) in enumerate(subjects):
                seconds = effort.burst_s if number else 0.3
                burst = await load.saturate(client, connections[at], sessions[at], text, seconds)
                if number:  # the first round warms up
                    costs[at].append(burst.cpu_s / (burst.turns * TURN_DELTAS) * 1e6)
        invalid = await ours.verify([*sessions[1], *sessions[2]])
    return [
        Figure(
            row=row,
            subject=name,
            metric="server CPU per delta",
            unit="µs",
            value=spread(cost),
            ratios={"tick": spread([cost_us / base for cost_us, base in zip(cost, costs[0], strict=True)])},
            target=target if client is measured else None,
            invalid="" if client is baseline.client else invalid,
        )
        for (name, client), cost in zip(subjects, costs, strict=True)
    ]
