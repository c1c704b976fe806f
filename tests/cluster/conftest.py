"""What the tests of the cluster share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def bundled_folder() -> Iterator[Path]:
    """A data folder that the user who runs PostgreSQL can enter, with a path that is short enough for its socket."""
    parent = Path(tempfile.mkdtemp(prefix="dragoman-bundled-"))
    parent.chmod(0o755)
    yield parent / "data"
    shutil.rmtree(parent)
