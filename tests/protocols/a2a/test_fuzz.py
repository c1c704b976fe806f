"""Nearly valid requests in both versions and over both bindings: the server never fails."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.abuse.mutation import mutated
from tests.protocols.a2a.client import A2aClient, Dialect, Json, message, old_params
from tests.requirements import requirement
from tests.servers import running_server

REQUESTS = 250


def requests_of(dialect: Dialect, task: Json) -> list[tuple[str, Json]]:
    """Valid requests, none of which waits: paths and bodies."""
    image = {"raw": "iVBORw0KGgo=", "mediaType": "image/png"}
    sent = {"message": message([{"text": "hello"}, image, {"data": {"a": [1]}}], contextId=task["contextId"])}
    answer = {"message": message({"answers": [{"callId": "c", "granted": True}]}, taskId=task["id"])}
    calls: list[tuple[str, str, Json]] = [
        ("SendMessage", "/message:send", {**sent, "configuration": {"historyLength": 1, "acceptedOutputModes": []}}),
        ("SendMessage", "/message:send", answer),
        ("SendStreamingMessage", "/message:stream", sent),
        ("GetTask", "", {"id": task["id"], "historyLength": 3}),
        ("CancelTask", f"/tasks/{task['id']}:cancel", {"id": task["id"]}),
        ("SubscribeToTask", f"/tasks/{task['id']}:subscribe", {"id": task["id"]}),
        ("ListTasks", "", {"contextId": "fuzzed", "pageSize": 3, "status": "TASK_STATE_WORKING"}),
    ]
    if dialect == "http":
        return [(path, params) for _, path, params in calls if path]
    old = {"SendMessage": "message/send", "SendStreamingMessage": "message/stream", "GetTask": "tasks/get"}
    return [
        ("", {"jsonrpc": "2.0", "id": 1, "method": old.get(name, name), "params": old_params(params)})
        if dialect == "old"
        else ("", {"jsonrpc": "2.0", "id": 1, "method": name, "params": params})
        for name, _, params in calls
    ]


@requirement("a2a:abuse:fuzz")
@pytest.mark.parametrize("dialect", ["rpc", "http", "old"])
async def test_tampered_requests_never_make_the_server_fail(tmp_path: Path, dialect: Dialect) -> None:
    rng, statuses = random.Random(dialect), Counter[int]()
    async with running_server(tmp_path, requests_per_minute=0) as server:
        alice = A2aClient(server.connection, server.key("alice"), dialect=dialect)
        task = await alice.send("hello", contextId="fuzzed")
        for number in range(REQUESTS):
            path, body = rng.choice(requests_of(dialect, task))
            raw = mutated(rng, body)
            stream = await alice.open_raw("POST", path, raw, {})
            answer = await stream.read()
            statuses[stream.status] += 1
            assert stream.status < 500, (number, raw, answer)
            assert b"-32603" not in answer, (number, raw, answer)
            if stream.headers.get("content-type") == "application/json" and answer:
                assert isinstance(json.loads(answer), dict)
    assert sum(statuses.values()) == REQUESTS
    assert statuses[200] > 5, statuses
