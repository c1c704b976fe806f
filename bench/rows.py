"""All rows of the benchmark by name, in the order in which they run."""

from collections.abc import Callable, Coroutine, Mapping

from bench import ag_ui, blade, multi_server, sessions, streams
from bench.a2a import a2a
from bench.agentscope import agentscope
from bench.ai_sdk import ai_sdk
from bench.crowds import fan_out, start_storm
from bench.effort import Effort
from bench.figures import Figure
from bench.frameworks.row import frameworks
from bench.gateway import gateway
from bench.openai import chat, openai
from bench.protocol_streams import protocol_streams
from bench.rejoin import rejoin
from bench.subjects import Workspace

Row = Callable[[Workspace, Effort], Coroutine[None, None, list[Figure]]]

ROWS: Mapping[str, Row] = {
    "saturation": streams.saturation,
    "yielding": streams.yielding,
    "agentscope": agentscope,
    "ai_sdk": ai_sdk,
    "a2a": a2a,
    "openai": openai,
    "openai_chat": chat,
    "paced_streams": streams.paced_streams,
    "sustained_streams": streams.sustained_streams,
    "protocol_streams": protocol_streams,
    "fan_out": fan_out,
    "rejoin": rejoin,
    "start_storm": start_storm,
    "noisy_neighbor": streams.noisy_neighbor,
    "idle_memory": sessions.idle_memory,
    "long_history": sessions.long_history,
    "stalled_reader": sessions.stalled_reader,
    "cold_start": sessions.cold_start,
    "first_delta": sessions.first_delta,
    "commits_per_run": sessions.commits_per_run,
    "ag_ui": ag_ui.ag_ui,
    "blade": blade.blade,
    "gateway": gateway,
    "frameworks": frameworks,
    "cross_server": multi_server.cross_server,
    "takeover": multi_server.takeover,
    "scaling": multi_server.scaling,
}
