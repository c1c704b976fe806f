"""The process that runs the embedded model: llama.cpp's own server, on a socket in a private folder.

`embedded` runs it as a script; the server never imports it. It needs only xllamacpp and the standard library. It reads
one line of JSON from standard input, prints `ready` on standard output, and exits when its input is closed, so that it
never outlives its parent, not even after `kill -9`.
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
"""The server's event loop has priority when both need a core."""


def main() -> None:
    """Serve until the parent exits."""
    # A signal may go to the whole process group (Ctrl-C) or service (systemd). The parent decides when to stop.
    _ignore_signals()
    parent_output = os.dup(1)
    os.dup2(2, 1)  # the engine's own output goes to the log, not to the parent
    settings = json.loads(sys.stdin.readline())
    sys.path[:] = settings["sys_path"]
    os.nice(NICENESS)
    server = _serve(settings)
    _ignore_signals()  # the engine has installed its own handlers
    os.write(parent_output, b"ready\n")
    os.close(parent_output)
    while os.read(0, 4096):
        pass
    shutil.rmtree(Path(settings["socket"]).parent, ignore_errors=True)
    os._exit(0 if server else 1)  # an orderly exit would wait for unfinished answers


def _ignore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _serve(settings: dict[str, Any]) -> object:
    xllamacpp = import_module("xllamacpp")  # not before `sys.path` is set
    params = xllamacpp.CommonParams()
    for name, value in settings["params"].items():
        *path, last = name.split(".")
        setattr(reduce(getattr, path, params), last, value)
    params.hostnames = [settings["socket"]]
    params.api_keys = [settings["api_key"]]
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
