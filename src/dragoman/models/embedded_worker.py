"""The process that holds the embedded model: llama.cpp's own server, behind a socket in a private folder.

Run by `embedded` with its interpreter, never imported by the server: it needs xllamacpp and the standard library only.
It reads one line of JSON from standard input, says `ready` on standard output, and ends when its input ends, so that
it outlives its parent under no circumstances, `kill -9` included.
"""

import json
import os
import shutil
import signal
import sys
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

NICENESS = 5
"""The event loop goes first when both want a core."""


def main() -> None:
    """Serve until the parent is gone."""
    # Signals go to a whole group (Ctrl-C) or service (systemd); the parent decides when its conversations are over.
    _ignore_signals()
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever the engine prints lands in the log, not in the parent's reading
    settings = json.loads(sys.stdin.readline())
    sys.path[:] = settings["sys_path"]
    os.nice(NICENESS)
    server = _serve(settings)
    _ignore_signals()  # the engine installed handlers of its own
    os.write(answer, b"ready\n")
    os.close(answer)
    while os.read(0, 4096):
        pass
    shutil.rmtree(Path(settings["socket"]).parent, ignore_errors=True)
    os._exit(0 if server else 1)  # an orderly end would wait for the answers that are being written


def _ignore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _serve(settings: dict[str, Any]) -> object:
    xllamacpp = import_module("xllamacpp")  # it can be found only now that the path is set
    params = xllamacpp.CommonParams()
    for name, value in settings["params"].items():
        *path, last = name.split(".")
        setattr(reduce(getattr, path, params), last, value)
    params.hostnames = [settings["socket"]]
    params.api_keys = [settings["api_key"]]
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
