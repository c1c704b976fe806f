"""Files that are there whole or not at all, whatever becomes of the process or the machine meanwhile."""

import os
from pathlib import Path


def write(path: Path, content: bytes) -> None:
    """Write a file that only the server's user may read, durably, in place of what was there.

    It is written beside its place, under a name that begins with a dot, and moved there.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)  # else a power cut may take the file's name
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
