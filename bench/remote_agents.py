"""The agents of the benchmark's gateway: one remote agent per protocol, on the server that the environment names."""

import os
from typing import get_args

from dragoman import RemoteAgent
from dragoman.client.transports import ClientProtocol

URL, KEY = os.environ["BENCH_REMOTE_URL"], os.environ["BENCH_REMOTE_KEY"]

for protocol in get_args(ClientProtocol):
    url = URL + ("/ag-ui/paced" if protocol == "ag-ui" else "")
    globals()[protocol] = RemoteAgent(protocol, url, agent="paced", key=KEY, name=f"remote-{protocol}")
