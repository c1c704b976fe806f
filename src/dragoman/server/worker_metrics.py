"""The metrics of all workers of a server in one scrape, whichever worker gets the request.

Each worker listens on a Unix socket in the data folder, and writes its metrics to whoever connects. They are not added
up: a worker that restarts begins at zero, which would look like negative growth of a sum.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dragoman.engine.instrumentation import metrics
from dragoman.server.admin_socket import bind_socket, short_socket_path

ANSWER_TIMEOUT_S = 2.0
"""How long to wait for another worker, whose event loop may be blocked. Its metrics are missing then."""


class WorkerMetrics:
    """The metrics of one worker and of all others.

    Args:
        folder: the data folder that the workers share.
        number: this worker's number.
        count: the number of workers.
        update_gauges: sets this worker's metrics that are sampled, not counted.
    """

    def __init__(self, folder: Path, number: int, count: int, update_gauges: Callable[[], None]) -> None:
        self._folder = folder
        self._number = number
        self._count = count
        self._update_gauges = update_gauges
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Start listening."""
        listening = bind_socket(self._folder, _socket_file(self._number))
        self._server = await asyncio.start_unix_server(self._serve, sock=listening)

    async def close(self) -> None:
        """Stop listening. The next worker of this number replaces the socket's file."""
        if self._server is not None:
            self._server.close()

    async def exposition(self) -> bytes:
        """The metrics of all workers that answer, each with the label `worker`."""
        others = [number for number in range(self._count) if number != self._number]
        answers = await asyncio.gather(*(self._ask(number) for number in others))
        self._update_gauges()
        by_worker = {self._number: metrics.exposition()}
        by_worker |= {number: answer for number, answer in zip(others, answers, strict=True) if answer}
        return metrics.merged_exposition(dict(sorted(by_worker.items())))

    async def _serve(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._update_gauges()
        with suppress(ConnectionError):
            writer.write(metrics.exposition())
            await writer.drain()
        writer.close()

    async def _ask(self, number: int) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                with short_socket_path(self._folder, _socket_file(number)) as path:
                    reader, writer = await asyncio.open_unix_connection(path)
                try:
                    return await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):  # it is starting or stopping, or it is blocked
            return b""


def _socket_file(number: int) -> str:
    return f"metrics-{number}.sock"
