"""The server's metrics, in one place. Their names are an interface for operators (docs/observability.md).

Metrics change only on the event loop, so counting is one addition without locks. The Prometheus client is imported only
when the metrics are requested.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ALL_METRICS: "list[_Labelled]" = []


class _Labelled(ABC):
    """A metric: one number without labels, else one for each combination of label values."""

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:  # noqa: A002  # Prometheus's word
        self.name = name
        self.help = help
        self.label_names = tuple(labels)
        self.children: dict[tuple[str, ...], Self] = {}
        if name:
            _ALL_METRICS.append(self)

    def labels(self, **values: str) -> Self:
        """The number with these labels. Values must be few: never an id, a client's name, or a path."""
        key = tuple(map(values.__getitem__, self.label_names))
        child = self.children.get(key)
        if child is None:
            assert len(values) == len(self.label_names), f"{self.name} has the labels {self.label_names}"
            child = self.children[key] = self._child()
        return child

    @abstractmethod
    def family(self) -> "Metric":
        """The metric in the form of the Prometheus client."""

    def _child(self) -> Self:
        return type(self)("", "")

    def _parts(self) -> Iterator[tuple[tuple[str, ...], Self]]:
        """The numbers with the values of their labels."""
        if self.label_names:
            yield from self.children.items()
        else:
            yield (), self


class Counter(_Labelled):
    """A metric that only grows. Its exposed name ends in `_total`."""

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:  # noqa: A002  # Prometheus's word
        super().__init__(name, help, labels)
        self.value = 0.0

    def inc(self, by: float = 1) -> None:
        """Increase the number."""
        self.value += by

    def family(self) -> "Metric":
        """The metric in the form of the Prometheus client."""
        from prometheus_client.metrics_core import CounterMetricFamily

        counter = CounterMetricFamily(self.name, self.help, labels=self.label_names)
        for values, part in self._parts():
            counter.add_metric(values, part.value)
        return counter


class Gauge(Counter):
    """A metric that goes up and down."""

    def dec(self, by: float = 1) -> None:
        """Decrease the number."""
        self.value -= by

    def set(self, value: float) -> None:
        """Set the current value."""
        self.value = value

    def family(self) -> "Metric":
        """The metric in the form of the Prometheus client."""
        from prometheus_client.metrics_core import GaugeMetricFamily

        gauge = GaugeMetricFamily(self.name, self.help, labels=self.label_names)
        for values, part in self._parts():
            gauge.add_metric(values, part.value)
        return gauge


class Histogram(_Labelled):
    """Counts of values below each bound."""

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002  # Prometheus's word
        labels: Sequence[str] = (),
        *,
        bounds: Sequence[float] = (),
    ) -> None:
        super().__init__(name, help, labels)
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Record a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def family(self) -> "Metric":
        """The metric in the form of the Prometheus client."""
        from prometheus_client.metrics_core import HistogramMetricFamily

        histogram = HistogramMetricFamily(self.name, self.help, labels=self.label_names)
        for values, part in self._parts():
            histogram.add_metric(values, part._buckets(), part.sum)
        return histogram

    def _child(self) -> Self:
        return type(self)("", "", bounds=self.bounds)

    def _buckets(self) -> list[tuple[str, float]]:
        names = [*(str(bound) for bound in self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


INFO = Gauge("dragoman_info", "The server, by its version", ["version"])
RUNS_STARTED = Counter("dragoman_runs_started", "Runs that started or were recovered after a restart")
RUNS_STOPPED = Counter("dragoman_runs_stopped", "Runs that ended, by stop reason", ["reason"])
RUNS_ACTIVE = Gauge("dragoman_runs_active", "Runs in progress")
RUNS_WAITING = Gauge("dragoman_runs_waiting_for_agent", "Sessions whose run waits until a server serves its agent")
SESSIONS_IN_MEMORY = Gauge("dragoman_sessions_in_memory", "Sessions in memory")
DELTAS = Counter("dragoman_deltas", "Deltas that agents emitted")
PIECES = Counter("dragoman_pieces", "Pieces of open blocks that became durable: merged deltas")
EVENTS = Counter("dragoman_events", "Events that became durable")
COMMITS = Counter("dragoman_commits", "Commits of the log, by outcome", ["outcome"])
COMMIT_SECONDS = Histogram(
    "dragoman_commit_seconds",
    "Time from the start of a commit until it is durable",
    bounds=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
SESSIONS_UNREADABLE = Counter(
    "dragoman_sessions_unreadable", "Attempts to read a session whose stored data cannot be decoded"
)
BUS_CONNECTED = Gauge("dragoman_bus_connected", "Whether the bus between servers is there")
BUS_HINTS = Counter("dragoman_bus_hints", "Hints between servers, by what became of them here", ["outcome"])
REMOTE_AVAILABLE = Gauge(
    "dragoman_remote_agent_available",
    "Whether the server of a remote agent can be reached",
    ["agent"],
)
STREAMS_OPEN = Gauge("dragoman_streams_open", "Open streams, by protocol", ["protocol"])
REQUESTS_REFUSED = Counter("dragoman_refused", "Requests that were refused, by protocol and code", ["protocol", "code"])
REQUESTS_FAILED = Counter("dragoman_failed", "Requests that failed by a fault of the server, by protocol", ["protocol"])
TOOL_CALLS = Counter("dragoman_tool_calls", "Calls of server tools, by outcome", ["outcome"])
SCHEDULE_FIRES = Counter(
    "dragoman_schedule_fires", "Times of schedules that came due, by what became of them", ["outcome"]
)
SERVERS = Gauge("dragoman_servers", "Servers that share the store, this one included")
RUNS_TAKEN_OVER = Counter(
    "dragoman_runs_taken_over", "Sessions whose run was taken over from a server that stopped or died"
)
LEASES_LOST = Counter("dragoman_leases_lost", "How often this server did not renew its lease in time")
MODEL_CALLS = Counter("dragoman_model_calls", "Calls of models, by model and outcome", ["model", "outcome"])
MODEL_TOKENS = Counter("dragoman_model_tokens", "Tokens that models read and wrote", ["model", "direction"])
MODEL_SECONDS = Histogram(
    "dragoman_model_first_seconds",
    "Time from a model call's start to its first word",
    ["model"],
    bounds=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)

ALL_METRICS: tuple[_Labelled, ...] = tuple(_ALL_METRICS)
"""All metrics, in the order of their definition."""


def exposition() -> bytes:
    """The metrics in the Prometheus text format, including those of the process."""
    from prometheus_client import generate_latest

    return generate_latest(_registry())


def merged_exposition(by_worker: Mapping[int, bytes]) -> bytes:
    """The expositions of several workers as one, each number with the label `worker`."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.metrics_core import Metric
    from prometheus_client.parser import text_string_to_metric_families

    families: dict[str, Metric] = {}
    for worker, exposed in by_worker.items():
        for family in text_string_to_metric_families(exposed.decode()):
            merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                merged.samples.append(sample._replace(labels={**sample.labels, "worker": str(worker)}))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families.values()))
    return generate_latest(registry)


class _Families:
    """Provides given metrics to a registry."""

    def __init__(self, families: "Iterable[Metric]") -> None:
        self._families = families

    def collect(self) -> "Iterable[Metric]":
        return self._families


@cache
def _registry() -> "CollectorRegistry":
    from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Collector())
    return registry


class _Collector:
    """Provides our metrics to the client's registry."""

    def collect(self) -> "Iterator[Metric]":
        for metric in ALL_METRICS:
            yield metric.family()
