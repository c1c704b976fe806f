"""A real server that speaks S3 for the tests, from a wheel: rclone over a folder, one for each session of tests."""

import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

KEY, SECRET = "dragoman", "secret-of-tests"
_URL = re.compile(r"Starting s3 server on \[(http://[^/]+)/\]")


BUCKET = "bucket-of-tests"


class Server(NamedTuple):
    """A running server with one bucket."""

    url: str
    numbers: Iterator[int]

    def new(self) -> str:
        """The address of an empty place in the bucket."""
        return f"s3://{BUCKET}/some/where-{next(self.numbers)}?endpoint={self.url}"


@contextmanager
def server() -> Iterator[Server]:
    """A server that runs until the end."""
    folder = Path(tempfile.mkdtemp(prefix="dragoman-s3-"))
    (folder / BUCKET).mkdir()  # now: the server remembers for minutes which ones there are
    program = Path(sysconfig.get_path("scripts")) / "rclone"
    flags = ["--config", "/dev/null", "--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}"]
    process = subprocess.Popen([program, "serve", "s3", folder, *flags], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None, "it was asked for"
        found = next((match for line in process.stderr if (match := _URL.search(line))), None)
        assert found is not None, "the server ended before it served"
        yield Server(found[1], count(1))
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """The session's server."""
    with server() as made:
        yield made


@pytest.fixture
def bucket(s3: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a place of the test's own, and in the environment who may use it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return s3.new()
