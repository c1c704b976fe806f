"""An MCP server of version 2025-06-18 over stdio, without any SDK: its tools ask the user in the middle of a call."""

import json
import sys
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {
        "seats": {"type": "integer", "title": "Seats", "minimum": 1},
        "meal": {"type": "string", "enum": ["fish", "pasta"]},
    },
    "required": ["seats"],
}
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": name == "quote"}}
    for name in ("book", "quote", "plain", "wait")
]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    asked: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if method == "initialize":
            info = {"name": "older", "version": "1"}
            send(id=id_, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list":
            send(id=id_, result={"tools": TOOLS})
        elif method == "tools/call" and message["params"]["name"] == "plain":
            send(id=id_, result={"content": [{"type": "text", "text": "plain"}]})
        elif method == "tools/call" and message["params"]["name"] == "wait":
            continue
        elif method == "tools/call":
            with Path(sys.argv[1]).open("a") as calls:
                calls.write("called\n")
            asked[f"ask-{id_}"] = id_
            params = {"message": "Which train seat?", "requestedSchema": SCHEMA}
            send(id=f"ask-{id_}", method="elicitation/create", params=params)
        elif method is None and id_ in asked:
            text = json.dumps(message.get("result", message.get("error")), sort_keys=True)
            send(id=asked.pop(id_), result={"content": [{"type": "text", "text": text}]})
        elif id_ is not None:
            send(id=id_, error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main()
