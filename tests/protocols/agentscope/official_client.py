"""The published Python client with its own SSE parser and schemas. Every stream of these tests is checked with it.

Its package imports a server and a framework that the client does not need. A stand-in for that package has the same
path, but imports nothing.
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
    """Undo the package's changes to the root logger, which it configures on import."""
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
    """Captures the client's log: it logs what it cannot read, and otherwise ignores it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def suppress_client_logs() -> Iterator[None]:
    """Check that the published client logs nothing in this block."""
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
    """An event as the published client decodes it. If it differs from the event, the client has lost something."""
    with suppress_client_logs():
        event = published.parse_event_from_json(data)
    assert event is not None, data
    return event.model_dump()


def simple_text_request(text: str, **more: Json) -> Json:
    """A request as the helper of the published client makes it."""
    return published.create_simple_text_request(text, **more).model_dump(exclude_none=True)


async def events_of(url: str, key: str, body: Json) -> AsyncIterator[Json]:
    """The events that the published asynchronous client yields for a request."""
    client = published.HTTPAgentAPIClient(url, token=key, timeout=20.0)
    async for event in client.astream(schemas.AgentRequest(**body)):
        yield event.model_dump()


def events_in_turn(url: str, key: str, body: Json) -> list[Json]:
    """The events that the published blocking client yields for a request."""
    client = published.HTTPAgentAPIClient(url, token=key, timeout=20.0)
    return [event.model_dump() for event in client.stream(schemas.AgentRequest(**body))]
