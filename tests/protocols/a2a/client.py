"""A plain client of A2A for tests: JSON-RPC in both versions, and HTTP+JSON, written by hand."""

import itertools
import json
from collections.abc import Mapping
from typing import Any, Literal
from uuid import uuid4

from tests.asgi_client import Answer, Stream
from tests.protocols.aap.client import Connection

Json = Any
Dialect = Literal["rpc", "http", "old"]

OLD_METHODS = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
    "CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set",
    "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
}


class TaskStream:
    """The stream of a task. Keeps its events and their ids."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.events: list[Json] = []
        self.ids: list[str] = []
        self._body = b""

    async def next(self) -> Json | None:
        """Read the next event; None at the end."""
        while True:
            while b"\n\n" in self._body:
                frame, _, self._body = self._body.partition(b"\n\n")
                if frame.startswith(b":"):
                    continue
                (name, position), (field, data) = (line.split(": ", 1) for line in frame.decode().split("\n"))
                assert (name, field) == ("id", "data")
                event = json.loads(data)
                self.ids.append(position)
                self.events.append(event["result"] if "jsonrpc" in event else event)
                return self.events[-1]
            chunk = await self.stream.chunk()
            if chunk is None:
                return None
            self._body += chunk

    async def until_text(self, text: str) -> None:
        """Read until the artifacts have this text."""
        while text not in self.text():
            assert await self.next() is not None, self.events

    async def rest(self) -> list[Json]:
        """Read to the end."""
        while await self.next() is not None:
            pass
        return self.events

    def text(self) -> str:
        """The text of all artifacts, as far as it has come."""
        return text_in(self.events)

    def statuses(self) -> list[str]:
        """The states that were shown, in order, without prefix."""
        found = []
        for event in self.events:
            shown = event.get("task") or event.get("statusUpdate") or (event if "status" in event else None)
            if shown is not None:
                found.append(state_of(shown))
        return found

    @property
    def task_id(self) -> str:
        first = self.events[0].get("task") or self.events[0]
        return str(first["id"])


def text_in(events: list[Json]) -> str:
    """The text of all artifacts after some events: of the snapshot and of the updates."""
    found: dict[str, str] = {}
    for event in events:
        task = event.get("task") or (event if event.get("kind") == "task" else None)
        if task is not None:
            found = {each["artifactId"]: text_of(each["parts"]) for each in task.get("artifacts", [])}
        update = event.get("artifactUpdate") or (event if event.get("kind") == "artifact-update" else None)
        if update is not None:
            artifact = update["artifact"]
            before = found.get(artifact["artifactId"], "") if update["append"] else ""
            found[artifact["artifactId"]] = before + text_of(artifact["parts"])
    return "".join(found.values())


def text_of(parts: list[Json]) -> str:
    """The text of some parts."""
    return "".join(each.get("text", "") for each in parts)


def state_of(task: Json) -> str:
    """A task's state: `completed`, for example."""
    return str(task["status"]["state"]).removeprefix("TASK_STATE_").lower().replace("_", "-")


def said(task: Json) -> str:
    """What the agent said in a task."""
    return "".join(text_of(each["parts"]) for each in task.get("artifacts", []))


def asked(task: Json) -> list[Json]:
    """The calls that a task waits for."""
    parts = task["status"]["message"]["parts"]
    return [call for part in parts if "data" in part for call in part["data"]["pending"]]


def message(content: Json, **members: Json) -> Json:
    """A message of the user: a text, answers, or parts."""
    parts = [{"text": content}] if isinstance(content, str) else content
    if isinstance(content, dict):
        parts = [{"data": content}]
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": parts, **members}


def answers(*given: Json) -> Json:
    """The content of a message that answers calls."""
    return {"answers": list(given)}


class A2aClient:
    """A client of one agent, in one version over one binding."""

    def __init__(
        self,
        connection: Connection,
        key: str | None,
        *,
        agent: str = "rehearsal",
        dialect: Dialect = "rpc",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.connection = connection
        self.key = key
        self.agent = agent
        self.dialect = dialect
        self.extra = dict(headers or {})
        self._ids = itertools.count(1)

    # --- tasks ----------------------------------------------------------------------------------------------------

    async def send(self, content: Json, *, more: Json = None, **members: Json) -> Json:
        """Send a message; returns its task when that rests."""
        answer = await self.call("SendMessage", {"message": message(content, **members), **(more or {})})
        return answer if self.dialect == "old" else answer["task"]

    async def open(self, content: Json, *, more: Json = None, **members: Json) -> TaskStream:
        """Send a message; returns the stream of its task."""
        params = {"message": message(content, **members), **(more or {})}
        return await self.stream("SendStreamingMessage", params)

    async def get(self, task_id: str, **params: Json) -> Json:
        """Get a task."""
        return await self.call("GetTask", {"id": task_id, **params})

    async def list(self, **params: Json) -> Json:
        """List tasks."""
        return await self.call("ListTasks", params)

    async def cancel(self, task_id: str) -> Json:
        """Cancel a task."""
        return await self.call("CancelTask", {"id": task_id})

    async def subscribe(self, task_id: str, after: str | None = None) -> TaskStream:
        """Follow a task."""
        headers = {} if after is None else {"last-event-id": after}
        return await self.stream("SubscribeToTask", {"id": task_id}, **headers)

    # --- methods --------------------------------------------------------------------------------------------------

    async def call(self, method: str, params: Json) -> Json:
        """Call a method; returns its result."""
        answer = await self.request(method, params)
        body = json.loads(answer.body)
        assert answer.status == 200, body
        assert not (isinstance(body, dict) and body.get("error")), body
        return body if self.dialect == "http" else body["result"]

    async def error(self, method: str, params: Json) -> tuple[int, str]:
        """Call a method that fails; returns JSON-RPC's code and the reason, or the field at fault."""
        answer = await self.request(method, params)
        return error_of(answer)

    async def stream(self, method: str, params: Json, **headers: str) -> TaskStream:
        """Call a method that streams."""
        stream = await self._open(method, params, {"accept": "text/event-stream", **headers})
        assert stream.headers["content-type"].startswith("text/event-stream"), await stream.read()
        return TaskStream(stream)

    async def request(self, method: str, params: Json, **headers: str) -> Answer:
        """Call a method; returns the answer as it came."""
        stream = await self._open(method, params, headers)
        return Answer(stream.status, stream.headers, await stream.read())

    async def _open(self, method: str, params: Json, headers: Mapping[str, str]) -> Stream:
        if self.dialect == "http":
            return await self._open_http(method, params, headers)
        name = OLD_METHODS.get(method, method) if self.dialect == "old" else method
        sent = old_params(params) if self.dialect == "old" else params
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": name, "params": sent}
        return await self.open_raw("POST", "", json.dumps(body).encode(), headers)

    async def _open_http(self, method: str, params: Json, headers: Mapping[str, str]) -> Stream:
        task = params.get("id", "")
        verb, path = {
            "SendMessage": ("POST", "/message:send"),
            "SendStreamingMessage": ("POST", "/message:stream"),
            "GetTask": ("GET", f"/tasks/{task}"),
            "ListTasks": ("GET", "/tasks"),
            "CancelTask": ("POST", f"/tasks/{task}:cancel"),
            "SubscribeToTask": ("POST", f"/tasks/{task}:subscribe"),
            "CreateTaskPushNotificationConfig": ("POST", f"/tasks/{task}/pushNotificationConfigs"),
            "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
        }[method]
        if verb == "POST":
            return await self.open_raw(verb, path, json.dumps(params).encode(), headers)
        query = "&".join(f"{name}={json.dumps(value).strip(chr(34))}" for name, value in params.items() if name != "id")
        return await self.open_raw(verb, f"{path}?{query}", b"", headers)

    async def open_raw(self, verb: str, path: str, body: bytes, headers: Mapping[str, str]) -> Stream:
        """Send a request to the agent's address."""
        sent = {"content-type": "application/json", **self.extra, **headers}
        if self.dialect != "old":
            sent.setdefault("a2a-version", "1.0")
        if self.key is not None:
            sent.setdefault("authorization", f"Bearer {self.key}")
        return await self.connection.open(verb, f"/a2a/{self.agent}{path}", headers=list(sent.items()), body=body)


def error_of(answer: Answer) -> tuple[int, str]:
    """The code of an error, and its reason or the field at fault."""
    error = json.loads(answer.body.removeprefix(b"data: "))["error"]  # an event, if a stream is refused in 0.3
    found = error.get("data") or error.get("details") or [{}]
    violations = found[0].get("fieldViolations")
    return error["code"], violations[0]["field"] if violations else found[0].get("reason", "")


def old_params(params: Json) -> Json:
    """The parameters with the names of version 0.3."""
    found = dict(params)
    if "message" in params:
        parts = [
            {"kind": next(name for name in ("text", "data", "raw", "url") if name in each), **each}
            for each in params["message"]["parts"]
        ]
        for part in parts:
            if part["kind"] in ("raw", "url"):
                value = {"bytes": part.pop("raw")} if part["kind"] == "raw" else {"uri": part.pop("url")}
                part["kind"], part["file"] = "file", {**value, "mimeType": part.pop("mediaType", None)}
        found["message"] = {**params["message"], "kind": "message", "role": "user", "parts": parts}
    if "configuration" in params:
        configuration = dict(params["configuration"])
        configuration["blocking"] = not configuration.pop("returnImmediately", False)
        found["configuration"] = configuration
    return found
