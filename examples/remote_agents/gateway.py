"""Serves an agent that runs elsewhere, on every protocol.

Start `agui_server.py` first, then `dragoman serve examples/remote_agents/gateway.py`.
"""

import os

from dragoman import RemoteAgent

parrot = RemoteAgent(
    "ag-ui",
    os.environ.get("PARROT_URL", "http://127.0.0.1:9000/agent"),
    headers=lambda info: {"X-User": info.user},
)
