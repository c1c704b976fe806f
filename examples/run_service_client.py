"""A small client of the AG-UI run service, with nothing but the standard library: it submits a run, follows its events
through lost connections, asks before a tool runs that needs a person's word, and shows the day's history.

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
    """The service at an address, for the holder of a key."""

    def __init__(self, url: str, key: str) -> None:
        self.base = f"{url}/api/v1/agent"
        self.key = key

    def request(self, path: str, body: Event | None = None, *, after: str = "") -> HTTPResponse:
        """Send a request; its answer, open."""
        content = None if body is None else json.dumps(body).encode()
        given = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        if after:
            given["Last-Event-ID"] = after
        answer: HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(f"{self.base}{path}", content, given), timeout=60
        )
        return answer

    def post(self, path: str, body: Event) -> Event:
        with self.request(path, body) as answer:
            accepted: Event = json.load(answer)
            return accepted

    def events(self, thread: str, run: str) -> Iterator[Event]:
        """The events of a run to its end, each once, whatever happens to the connection meanwhile."""
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
    """Ask the person at the terminal about a call."""
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
    with service.request(f"/history?threadId={thread}") as answer:
        for told in json.load(answer)["messages"]:
            print(f"{told['seq']} {told['role']}: {told['content']}")


if __name__ == "__main__":
    main()
