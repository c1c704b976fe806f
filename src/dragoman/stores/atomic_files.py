"""Atomic file writes: a file is complete or absent, even if the process or the machine crashes."""

import os
from pathlib import Path


def write(path: Path, content: bytes) -> None:
    """Write a file durably, replacing any previous one. Only the server's user may read it.

    The content is written to a temporary file whose name starts with a dot, which is then renamed.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)  # else a power failure may lose the file's name
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
