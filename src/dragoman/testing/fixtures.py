"""Fixtures for pytest: `pytest_plugins = ["dragoman.testing.fixtures"]` in `conftest.py`."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from dragoman.core.content import Json
from dragoman.ports.models import Model
from dragoman.testing.serve import Served, serve


class ServeAgents(Protocol):
    """The fixture `serve_agents`."""

    def __call__(self, *agents: object, model: Model | None = None, **settings: Json) -> Served:
        """Start a server that runs until the end of the test; see `dragoman.testing.serve`."""


@pytest.fixture
def serve_agents() -> Iterator[ServeAgents]:
    """Serve agents on a free port until the end of the test, as in `serve_agents(assistant, model=Scripted([…]))`."""
    with ExitStack() as stack:

        def start(*agents: object, model: Model | None = None, **settings: Json) -> Served:
            return stack.enter_context(serve(*agents, model=model, **settings))

        yield start
