"""The published Python client, with its own SSE parser and its own schemas: the judge of every stream here.

Its package also holds a server and a framework, which it imports on the way; only the client's half is wanted, so the
package between is a stand-in that holds the same modules and imports nothing by itself.
"""

import logging
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

Json = Any

PACKAGE = "agentscope_runtime.engine"


@contextmanager
def _root_logger_left_alone() -> Iterator[None]:
    """The package sets the root logger up when it is imported."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


with _root_logger_left_alone():
    spec = find_spec("agentscope_runtime")
    assert spec is not None
    assert spec.origin is not None
    stand_in = ModuleType(PACKAGE)
    stand_in.__path__ = [str(Path(spec.origin).parent / "engine")]
    sys.modules.setdefault(PACKAGE, stand_in)
    from agentscope_runtime.engine.helpers import agent_api_client as published  # type: ignore[import-untyped]  # the package has no types
    from agentscope_runtime.engine.schemas import agent_schemas as schemas  # type: ignore[import-untyped]  # nor here


class LogCapture(logging.Handler):
    """Keeps what the client logs: it logs what it cannot read, and goes on as if nothing were wrong."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def suppress_client_logs() -> Iterator[None]:
    """Within this, the published client logs nothing at all."""
    warned, level = LogCapture(), published.logger.level
    published.logger.addHandler(warned)
    published.logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        published.logger.removeHandler(warned)
        published.logger.setLevel(level)
    assert warned.messages == []


def read(data: Json) -> Json:
    """What the published client makes of an event; the same event, or it has lost something."""
    with suppress_client_logs():
        event = published.parse_event_from_json(data)
    assert event is not None, data
    return event.model_dump()


async def events_of(url: str, key: str, body: Json) -> AsyncIterator[Json]:
    """The events that the published client gives for a request, as it goes on."""
    client = published.HTTPAgentAPIClient(url, token=key, timeout=20.0)
    async for event in client.astream(schemas.AgentRequest(**body)):
        yield event.model_dump()


def events_in_turn(url: str, key: str, body: Json) -> list[Json]:
    """The same with its other half, which blocks."""
    client = published.HTTPAgentAPIClient(url, token=key, timeout=20.0)
    return [event.model_dump() for event in client.stream(schemas.AgentRequest(**body))]
