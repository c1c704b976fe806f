"""All rows by name, in the order in which they run."""

from collections.abc import Callable, Coroutine, Mapping

from bench import ag_ui, blade, multi_server, sessions, streams
from bench.agentscope import agentscope
from bench.effort import Effort
from bench.figures import Figure
from bench.subjects import Workspace

Row = Callable[[Workspace, Effort], Coroutine[None, None, list[Figure]]]

ROWS: Mapping[str, Row] = {
    "sat": streams.saturation,
    "tick": streams.tick,
    "agentscope": agentscope,
    "paced": streams.paced,
    "hold": streams.capacity,
    "greedy": streams.greedy,
    "idle": sessions.idle,
    "history": sessions.history,
    "stalled": sessions.stalled,
    "cold": sessions.cold,
    "first": sessions.first,
    "commits": sessions.commits,
    "ag-ui": ag_ui.ag_ui,
    "blade": blade.blade,
    "across": multi_server.cross_server,
    "takeover": multi_server.takeover,
    "nodes": multi_server.scaling,
}
