"""What holds for every test."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from structlog.dev import ConsoleRenderer, plain_traceback

from tests.extent import extent

# The thousands of objects that a test run imports and collects stay until its end: looking through them for garbage,
# again and again, takes a tenth of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """Leave what exists now out of further collections."""
    gc.freeze()
    gc.enable()


# Shells start what runs in the background with SIGINT ignored, and programs that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "dragoman.testing.fixtures",
    "tests.browser",
    "tests.buses.nats_server",
    "tests.stores.postgres",
    "tests.stores.s3",
]

# What compares on behalf of tests tells what differed, as tests do.
pytest.register_assert_rewrite(
    "tests.buses.contract",
    "tests.conversations",
    "tests.engine.log_checker",
    "tests.protocols.aap.client",
    "tests.protocols.aap.stream",
    "tests.protocols.agui.endpoint_driver",
    "tests.protocols.agui.endpoint",
    "tests.protocols.agui.official_clients",
    "tests.protocols.agui.endpoint_streams",
    "tests.stores.blob_contract",
    "tests.stores.contract",
)

# A busy machine is no fault of the code, so that nothing here is judged by how long an example took; what fails is
# printed in a form that can be pasted into `@reproduce_failure`. CI judges a change and plays the same examples each
# time; at a desk they are new ones.
settings.register_profile(
    "dragoman",
    deadline=None,
    max_examples=extent(100, 50),
    print_blob=True,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dragoman")


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are processors: many tests wait for other processes or for a clock."""
    return min((os.cpu_count() or 1) + 1, 8)


# As structlog sets itself up, but with plain traces: its coloured ones, with every variable, take up to a second each.
LOG = [*structlog.get_config()["processors"][:-1], ConsoleRenderer(exception_formatter=plain_traceback)]


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """A test that sets the log up, or plays a run in its own context, leaves nothing of it to the next one."""
    structlog.contextvars.clear_contextvars()
    structlog.configure(processors=[*LOG])
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio, as the server does."""
    return "asyncio"
