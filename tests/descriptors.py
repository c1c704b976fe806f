"""A process without free file descriptors."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_free_descriptors() -> Iterator[None]:
    """Let this process open no more files."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(each) for each in os.listdir("/proc/self/fd")}
    lowest_free = next(number for number in range(len(used) + 1) if number not in used)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
