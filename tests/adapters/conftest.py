"""The worlds of the engine's tests, for agents of other frameworks."""

from tests.engine.conftest import any_world, log_records, world

__all__ = ["any_world", "log_records", "world"]
