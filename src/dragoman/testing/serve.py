"""Serve an app in a test: the real server with all protocols, in a thread, on a free port and a temporary store."""

import asyncio
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from threading import Thread
from typing import NamedTuple

import msgspec

from dragoman.core.agent import Agent
from dragoman.core.content import Json
from dragoman.core.ids import UserId
from dragoman.ports.models import Model
from dragoman.server.app import Application, build
from dragoman.server.loading import as_agent
from dragoman.server.logging import logging_warnings
from dragoman.server.runner import Server, bind_socket, url_of, uvicorn_config
from dragoman.settings import Settings

START_TIMEOUT_S = 60.0
"""How long the server may take to start, with its agents, their models and their MCP servers."""


class Served(NamedTuple):
    """A server that runs.

    Args:
        url: its address, such as `http://127.0.0.1:41234`.
        key: an API key with all scopes, of the user `tester`.
    """

    url: str
    key: str


@contextmanager
def serve(
    *agents: object, model: Model | None = None, environ: Mapping[str, str] | None = None, **settings: Json
) -> Iterator[Served]:
    """Serve agents until the block is left.

        with serve("app.py", model=Scripted(["Hello!"])) as server:
            with Client(server.url, key=server.key) as client:
                assert client.create().ask("Hi").text == "Hello!"

    Args:
        agents: agents of any kind, or files such as `app.py` and `app.py:NAME`. None: the rehearsal agent.
        model: the model of all agents that have no model object of their own.
        environ: where models find their providers' keys; by default nothing.
        settings: any setting by its name in Python, such as `ag_ui=False`.

    Raises:
        Exception: the server cannot start; the message says why.
    """
    with TemporaryDirectory(prefix="dragoman-") as folder, logging_warnings():
        chosen = {
            "host": "127.0.0.1",
            "port": 0,
            "data": folder,
            "synchronous": "normal",
            "drain_s": 0,
            "console": False,
            "rehearsal": not agents,
            "agents": tuple(each for each in agents if isinstance(each, str)),
            "agent_error_details": True,
            **settings,
        }
        app = build(
            msgspec.convert(chosen, Settings),
            agents=[_to_agent(each) for each in agents if not isinstance(each, str)],
            environ=environ,
            resolve_model=None if model is None else lambda _: model,
        )
        thread = _ServerThread(app)
        thread.start()
        try:
            yield thread.started.result(START_TIMEOUT_S)
        finally:
            thread.stop()


def _to_agent(value: object) -> Agent:
    agent = as_agent(value, "agent")
    if agent is None:
        raise TypeError(f"expected an agent or the name of a file, got {value!r}")
    return agent


class _ServerThread(Thread):
    """A thread with an event loop and a server in it."""

    def __init__(self, app: Application) -> None:
        super().__init__(name="dragoman-test-server", daemon=True)
        self.started: Future[Served] = Future()
        self._app = app
        self._server: Server | None = None

    def run(self) -> None:
        """Serve until `stop`."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # the root of a thread: the test gets it
            if not self.started.done():
                self.started.set_exception(error)

    def stop(self) -> None:
        """Stop the server, and wait until it has closed its stores."""
        if self._server is not None:
            self._server.handle_exit(signal.SIGTERM, None)
        self.join()

    async def _serve(self) -> None:
        settings = self._app.settings
        listening = bind_socket(settings.host, settings.port)
        with listening:
            async with self._app.running():
                key, _ = await self._app.keys.create("test", user=UserId("tester"), scopes=("admin",))
                served = Served(url_of(settings.host, listening.getsockname()[1]), key)

                async def announce() -> None:
                    self.started.set_result(served)

                config = uvicorn_config(self._app.asgi_app, settings, self._app.memory)
                self._server = Server(config, self._app.drain, announce)
                await self._server.serve(sockets=[listening])
