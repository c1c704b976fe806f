"""The size of the measurements: quick, or full for the figures in the documentation."""

import msgspec


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of rounds and their lengths. Times are in seconds."""

    rounds: int
    burst_s: float
    paced_deltas: int
    capacity_s: float
    searches_capacity: bool
    idle_streams: tuple[int, ...]
    old_messages: int
    history_turns: int
    starts: int
    commits: int
    readers: int
    storm_runs: int


FULL = Effort(
    rounds=7,
    burst_s=2,
    paced_deltas=300,
    capacity_s=6,
    searches_capacity=True,
    idle_streams=(1000, 5000),
    old_messages=10_000,
    history_turns=100,
    starts=7,
    commits=200,
    readers=1000,
    storm_runs=5000,
)
QUICK = Effort(
    rounds=3,
    burst_s=0.5,
    paced_deltas=75,
    capacity_s=3,
    searches_capacity=False,
    idle_streams=(1000,),
    old_messages=2000,
    history_turns=30,
    starts=3,
    commits=50,
    readers=300,
    storm_runs=1500,
)
