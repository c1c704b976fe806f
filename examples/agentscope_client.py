"""A small client of the Agent API, with nothing but the standard library: it prints the answer as it comes, and asks
before a tool runs that needs a person's word.

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
    """Send messages into a session; the events of the response."""
    body = json.dumps({"session_id": session_id, "input": messages}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/process", body, headers)) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def decide(request: Event) -> Event:
    """Ask the person at the terminal about a call."""
    call = request["content"][0]["data"]
    print(f"? {call['name']} {call['arguments']} [y/n]", flush=True)
    answer = {"approval_request_id": call["id"], "approve": input().strip() == "y"}
    return {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": answer}]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Says something to an agent and prints what it answers.")
    parser.add_argument("url", help="where the server is, such as http://127.0.0.1:8000")
    parser.add_argument("key", help="an API key of it")
    parser.add_argument("text", help="what to say")
    asked_for = parser.parse_args()
    url, key, session_id = asked_for.url, asked_for.key, str(uuid4())
    messages: list[Event] = [{"role": "user", "content": [{"type": "text", "text": asked_for.text}]}]
    while messages:
        response: Event = {}
        for event in process(url, key, session_id, messages):
            if event["object"] == "content" and event["delta"] and event["type"] == "text":
                print(event["text"], end="", flush=True)
            elif event["object"] == "response":
                response = event
        if response["error"]:
            sys.exit(f"{response['error']['code']}: {response['error']['message']}")
        asked = [message for message in response["output"] if message["type"] == "mcp_approval_request"]
        messages = [each for request in asked for each in (request, decide(request))]
    print()


if __name__ == "__main__":
    main()
