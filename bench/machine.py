"""The properties of the machine that figures depend on, without anything that identifies it."""

import os
import platform
import sqlite3
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def facts() -> dict[str, str]:
    """The lines above the table of figures."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_kib = int(Path("/proc/meminfo").read_text().split(None, 2)[1])
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": f"{model}, {os.cpu_count()} cores: the server on one, the load generator on the other",
        "memory": f"{memory_kib / 2**20:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "uvloop": version("uvloop"),
        "uvicorn": version("uvicorn"),
        "SQLite": f"{sqlite3.sqlite_version}, WAL, synchronous=FULL",
    }
