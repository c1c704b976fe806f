"""What readers of a log get in place of the calls of internal tools, which no client sees. Pure.

The events keep their places, so that all positions stay the same. Only agents read the calls themselves.
"""

from collections.abc import Sequence
from typing import get_args

from dragoman.core.events import Event, LoggedEvent, UnknownEvent
from dragoman.core.stream import Record

_PLACEHOLDER = UnknownEvent(event_type="internal", payload=b'{"type":"internal"}')
_TYPES = frozenset(each for each in get_args(Event) if "internal" in each.__struct_fields__)


def without_internal_calls(records: Sequence[Record]) -> Sequence[Record]:
    """The records as clients may see them."""
    for record in records:
        if type(record) is LoggedEvent and type(record.event) in _TYPES and _is_internal(record):
            return [_hidden(each) if type(each) is LoggedEvent and _is_internal(each) else each for each in records]
    return records


def visible_events(events: Sequence[LoggedEvent]) -> Sequence[LoggedEvent]:
    """The events as clients may see them."""
    return [_hidden(each) if _is_internal(each) else each for each in events]


def _is_internal(logged: LoggedEvent) -> bool:
    return type(logged.event) in _TYPES and logged.event.internal  # type: ignore[union-attr]  # `in` does not narrow


def _hidden(logged: LoggedEvent) -> LoggedEvent:
    return LoggedEvent(logged.seq, logged.at, logged.run_id, _PLACEHOLDER)
