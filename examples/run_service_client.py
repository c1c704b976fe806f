"""A small client of the AG-UI run service that needs only the standard library. It submits a run, follows its events
even when the connection is lost, asks for approval where a tool requires it, and prints the day's history.

    python examples/run_service_client.py http://127.0.0.1:8000 KEY "add 1 and 2"
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any
from uuid import uuid4

Event = dict[str, Any]
CONNECTION_ERRORS = (urllib.error.URLError, ConnectionError, HTTPException, TimeoutError)


class RunService:
    """The run service at an address, with an API key."""

    def __init__(self, url: str, key: str) -> None:
        self.base = f"{url}/api/v1/agent"
        self.key = key

    def request(self, path: str, body: Event | None = None, *, after: str = "") -> HTTPResponse:
        """Send a request, and return the open response."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        if after:
            headers["Last-Event-ID"] = after
        response: HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(f"{self.base}{path}", content, headers), timeout=60
        )
        return response

    def post(self, path: str, body: Event) -> Event:
        with self.request(path, body) as response:
            accepted: Event = json.load(response)
            return accepted

    def events(self, thread: str, run: str) -> Iterator[Event]:
        """All events of a run, each once, even if the connection is lost in between."""
        last, is_over = "0-0", False
        while not is_over:
            try:
                with self.request(f"/runs/{thread}/events?runId={run}", after=last) as stream:
                    for line in stream:
                        if line.startswith(b"id: "):
                            last = line[4:].decode().strip()
                        elif line.startswith(b"data: "):
                            event = json.loads(line[6:])
                            is_over = event["type"] in ("RUN_FINISHED", "RUN_ERROR")
                            yield event
            except urllib.error.HTTPError as error:
                sys.exit(f"{error.code}: {error.read().decode()}")
            except CONNECTION_ERRORS:
                time.sleep(0.2)


def decide(interrupt: Event) -> Event:
    """Ask the user at the terminal whether to approve a call."""
    print(f"? {interrupt['message']} [y/n]", flush=True)
    return {"callId": interrupt["id"], "granted": input().strip() == "y"}


def main() -> None:
    url, key, text = sys.argv[1:]
    service, thread, run = RunService(url, key), str(uuid4()), str(uuid4())
    message = {"id": str(uuid4()), "role": "user", "content": text}
    service.post(
        "/runs",
        {"threadId": thread, "runId": run, "messages": [message], "forwardedProps": {"agent_type": "worker"}},
    )
    while run:
        end: Event = {}
        for event in service.events(thread, run):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                print(event["delta"], end="", flush=True)
            end = event
        if end["type"] == "RUN_ERROR":
            sys.exit(end["message"])
        interrupts = end["outcome"].get("interrupts", [])
        answers = {"answers": [decide(interrupt) for interrupt in interrupts]}
        run = service.post(f"/runs/{thread}/answers", answers)["runId"] if interrupts else ""
    print()
    with service.request(f"/history?threadId={thread}") as response:
        for message in json.load(response)["messages"]:
            print(f"{message['seq']} {message['role']}: {message['content']}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main()
