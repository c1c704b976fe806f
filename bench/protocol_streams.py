"""Benchmark of paced streams over the protocols of applications: what a stream costs, compared with one over AAP."""

from bench import load
from bench.ai_sdk import AiSdkClient
from bench.effort import Effort
from bench.figures import Figure, Target
from bench.load import Client, Paced
from bench.openai import ChatClient, ResponsesClient
from bench.stats import lateness, quantile, spread
from bench.streams import CAPACITY_MAX_LATENESS_MS, CAPACITY_PERIOD_MS, emit
from bench.subjects import Dragoman, Workspace

STREAMS = 500
SPREAD_S = 2
MAX_RATIO = 1.1
"""A core serves as many streams as their cost allows: at this ratio, 10 % fewer than over AAP."""


async def protocol_streams(workspace: Workspace, effort: Effort) -> list[Figure]:
    """Server CPU per delta of streams with 20 deltas/s, and their lateness, over each protocol in the same rounds."""
    count = round(effort.capacity_s * 1000 / CAPACITY_PERIOD_MS)
    text = emit(count, "{i3} ", CAPACITY_PERIOD_MS)
    answer = "".join(f"{index:03} " for index in range(count))
    results: dict[str, list[Paced]] = {}
    with Dragoman(workspace) as ours:
        subjects: dict[str, Client] = {
            "AAP": ours.client,
            "Responses": ResponsesClient(ours.server, "", ours.key),
            "Chat Completions": ChatClient(ours, "paced", answer),
            "AI SDK": AiSdkClient(ours, "paced"),
        }
        connections = await ours.client.connect(STREAMS)
        sessions = {name: await ours.client.create("paced", STREAMS) for name in subjects}
        for _ in range(max(1, effort.rounds // 2)):
            for name, client in subjects.items():
                paced = await load.pace(client, connections, sessions[name], text, spread_s=SPREAD_S)
                results.setdefault(name, []).append(paced)
        load.close(connections)
        invalid = await ours.verify([session for each in sessions.values() for session in each])
    figures: list[Figure] = []
    for name, rounds in results.items():
        cost = [each.cpu_s / (STREAMS * count) * 1e6 for each in rounds]
        late = [
            [at * 1e3 for stream in each.arrivals for at in lateness(stream, CAPACITY_PERIOD_MS / 1000)]
            for each in rounds
        ]
        ratio = [own.cpu_s / aap.cpu_s for own, aap in zip(rounds, results["AAP"], strict=True)]
        lines = [
            ("server CPU per delta", "µs", spread(cost), None),
            ("  relative to AAP", "×", spread(ratio), Target(MAX_RATIO)),
            ("lateness p99", "ms", spread([quantile(each, 0.99) for each in late]), Target(CAPACITY_MAX_LATENESS_MS)),
        ]
        figures += [
            Figure(
                row="protocol_streams",
                subject=f"dragoman, {name}",
                metric=metric,
                unit=unit,
                value=value,
                target=target,
                invalid=invalid,
            )
            for metric, unit, value, target in lines
        ]
    return figures
