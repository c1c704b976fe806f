"""A small client of the Agent API that needs only the standard library. It prints the answer as it arrives, and asks
for approval where a tool requires it.

    python examples/agentscope_client.py http://127.0.0.1:8000 KEY "add 1 and 2"
"""

import argparse
import json
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

Event = dict[str, Any]


def process(url: str, key: str, session_id: str, messages: list[Event]) -> Iterator[Event]:
    """Send messages to a session, and yield the events of the response."""
    body = json.dumps({"session_id": session_id, "input": messages}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/process", body, headers)) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def decide(request: Event) -> Event:
    """Ask the user at the terminal whether to approve a call."""
    call = request["content"][0]["data"]
    print(f"? {call['name']} {call['arguments']} [y/n]", flush=True)
    answer = {"approval_request_id": call["id"], "approve": input().strip() == "y"}
    return {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": answer}]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends a message to an agent and prints the answer.")
    parser.add_argument("url", help="address of the server, such as http://127.0.0.1:8000")
    parser.add_argument("key", help="API key")
    parser.add_argument("text", help="the message")
    arguments = parser.parse_args()
    url, key, session_id = arguments.url, arguments.key, str(uuid4())
    messages: list[Event] = [{"role": "user", "content": [{"type": "text", "text": arguments.text}]}]
    while messages:
        response: Event = {}
        for event in process(url, key, session_id, messages):
            if event["object"] == "content" and event["delta"] and event["type"] == "text":
                print(event["text"], end="", flush=True)
            elif event["object"] == "response":
                response = event
        if response["error"]:
            sys.exit(f"{response['error']['code']}: {response['error']['message']}")
        requests = [message for message in response["output"] if message["type"] == "mcp_approval_request"]
        messages = [each for request in requests for each in (request, decide(request))]
    print()


if __name__ == "__main__":
    main()
