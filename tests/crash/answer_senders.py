"""Answers to calls over every protocol, genuine and forged, as anybody with a key can send them."""

import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid4

import aiohttp
import httpx2
import socketio  # type: ignore[import-untyped]  # the library is not annotated

from tests.protocols.agentscope.client import approval, output, request_body

Json = Any
Form = Literal["grant", "deny", "text", "choice"]
"""What an answer looks like: a permission, a result or free text, or a choice among options."""
AGENT = "shop"
DEADLINE_S = 20.0


class Answer(NamedTuple):
    """An answer to a call of a session."""

    session_id: str
    call_id: str
    form: Form
    text: str


class Caller:
    """Somebody with a key."""

    def __init__(self, url: str, key: str, http: httpx2.AsyncClient) -> None:
        self.url = url
        self.key = key
        self._http = http

    async def request(self, method: str, path: str, body: Json = None, **headers: str) -> httpx2.Response:
        """Send a request and read its whole response."""
        own = {"authorization": f"Bearer {self.key}", **headers}
        return await self._http.request(method, f"{self.url}{path}", json=body, headers=own)


@contextlib.asynccontextmanager
async def calling(url: str, key: str) -> AsyncIterator[Caller]:
    """Somebody with a key, who talks to one server."""
    async with httpx2.AsyncClient(timeout=DEADLINE_S) as http:
        yield Caller(url, key, http)


async def send_over_aap(caller: Caller, answer: Answer) -> int:
    """Answer in a turn of AAP."""
    message: Json = {"toolCallId": answer.call_id}
    if answer.form in ("grant", "deny"):
        message |= {"role": "tool_permission", "granted": answer.form == "grant"}
    else:
        message |= {"role": "tool", "content": answer.text}
    path = f"/aap/v3/sessions/{answer.session_id}/turns"
    return (await caller.request("POST", path, {"messages": [message], "stream": "none"})).status_code


async def send_over_ag_ui(caller: Caller, answer: Answer) -> int:
    """Answer in a run of AG-UI: an interrupt, or for a text a tool's result."""
    body: Json = {"threadId": answer.session_id, "runId": str(uuid4()), "protocolVersion": "1.0", "messages": []}
    if answer.form == "text":
        body["messages"] = [{"id": str(uuid4()), "role": "tool", "toolCallId": answer.call_id, "content": answer.text}]
    else:
        payload = {"selections": [answer.text]} if answer.form == "choice" else {"approved": answer.form == "grant"}
        body["resume"] = [{"interruptId": answer.call_id, "status": "resolved", "payload": payload}]
    headers = {"x-run-on-disconnect": "continue"}
    return (await caller.request("POST", f"/ag-ui/{AGENT}", body, **headers)).status_code


async def send_over_run_service(caller: Caller, answer: Answer) -> int:
    """Answer over the run service."""
    given: Json = {"callId": answer.call_id}
    match answer.form:
        case "text":
            given["result"] = answer.text
        case "choice":
            given["selections"] = [answer.text]
        case _:
            given["granted"] = answer.form == "grant"
    path = f"/api/v1/agent/runs/{answer.session_id}/answers"
    return (await caller.request("POST", path, {"answers": [given]})).status_code


async def send_over_agent_api(caller: Caller, answer: Answer) -> int:
    """Answer over the Agent API."""
    if answer.form in ("grant", "deny"):
        message = approval(answer.call_id, approve=answer.form == "grant")
    else:
        message = output(answer.call_id, answer.text)
    body = request_body(message, session_id=answer.session_id, stream=False)
    return (await caller.request("POST", "/process", body)).status_code


async def send_over_blade(caller: Caller, answer: Answer) -> int:
    """Answer over Blade's socket. The options of a permission are allow, always allow, and deny."""
    given: Json = {"tool_call_id": f"tc_{answer.call_id}", "selections": {"0": [2 if answer.form == "deny" else 0]}}
    if answer.form == "text":
        given = {"tool_call_id": f"tc_{answer.call_id}", "custom": {"0": answer.text}}
    sent = {"session_id": f"sess_{answer.session_id}", "message": "", "askuser_answer": given}
    async with aiohttp.ClientSession() as http:  # its own would stay open if the server dies now
        socket = socketio.AsyncClient(reconnection=False, http_session=http)
        await socket.connect(caller.url, auth={"token": caller.key}, transports=["websocket"], wait_timeout=DEADLINE_S)
        try:
            await socket.call("chat:send", sent, timeout=DEADLINE_S)
        finally:
            await socket.disconnect()
    return 200


async def send_over_openai(caller: Caller, answer: Answer) -> int:
    """Answer an item of a conversation of OpenAI's API, or one that looks like one."""
    conversation = f"conv_{answer.session_id.replace('-', '')}"
    items = await caller.request("GET", f"/v1/conversations/{conversation}/items?order=desc")
    encoded = base64.urlsafe_b64encode(UUID(answer.call_id).bytes).decode().rstrip("=")
    found = [str(item.get("call_id") or item["id"]) for item in items.json().get("data", ()) if encoded in str(item)]
    item_id = found[0] if found else f"mcpr_{conversation[5:]}_{encoded}"
    given: Json = {"type": "function_call_output", "call_id": item_id, "output": answer.text}
    if answer.form in ("grant", "deny"):
        approve = answer.form == "grant"
        given = {"type": "mcp_approval_response", "approval_request_id": item_id, "approve": approve}
    body = {"model": AGENT, "conversation": conversation, "input": [given]}
    headers = {"x-dragoman-on-disconnect": "continue"}
    return (await caller.request("POST", "/v1/responses", body, **headers)).status_code


async def send_over_ai_sdk(caller: Caller, answer: Answer) -> int:
    """Answer a part of a message of the AI SDK, or one that looks like one."""
    path = f"/ai-sdk/{AGENT}"
    stored = await caller.request("GET", f"{path}/{answer.session_id}/messages?open=1")
    messages: list[Json] = stored.json() if stored.status_code == 200 else []
    parts = [part for each in messages for part in each["parts"] if part.get("toolCallId") == answer.call_id]
    if not parts:
        parts = [{"type": "tool-pay", "toolCallId": answer.call_id, "input": {}}]
        messages.append({"id": str(uuid4()), "role": "assistant", "parts": parts})
    if answer.form in ("grant", "deny"):
        decision = {"id": answer.call_id, "approved": answer.form == "grant"}
        parts[0] |= {"state": "approval-responded", "approval": decision}
    else:
        chosen = {"selections": {"0": [answer.text]}}
        parts[0] |= {"state": "output-available", "output": chosen if answer.form == "choice" else answer.text}
    return (await caller.request("POST", path, {"id": answer.session_id, "messages": messages})).status_code


async def send_over_mcp(caller: Caller, answer: Answer) -> int:
    """Fill in a form of MCP."""
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    host = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "h", "version": "1"},
    }
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": host}
    begun = await caller.request("POST", "/mcp", begin, **headers)
    content = {"grant": {"decision": "allow"}, "deny": {"decision": "deny"}}.get(answer.form)
    if content is None:
        content = {"answer_0" if answer.form == "choice" else "custom_0": answer.text}
    form = {"jsonrpc": "2.0", "id": f"q-{answer.session_id}-{answer.call_id}"}
    given = {**form, "result": {"action": "accept", "content": content}}
    headers["mcp-session-id"] = begun.headers.get("mcp-session-id", "")
    return (await caller.request("POST", "/mcp", given, **headers)).status_code


async def send_over_a2a(caller: Caller, answer: Answer) -> int:
    """Answer in the newest task of a context of A2A, or in one that looks like it."""
    path, version = f"/a2a/{AGENT}", {"a2a-version": "1.0"}
    listed = await caller.request("GET", f"{path}/tasks?contextId={answer.session_id}", **version)
    tasks: list[Json] = listed.json().get("tasks", []) if listed.status_code == 200 else []
    given: Json = {"callId": answer.call_id}
    match answer.form:
        case "text":
            given["result"] = answer.text
        case "choice":
            given["selections"] = {"0": [answer.text]}
        case _:
            given["granted"] = answer.form == "grant"
    message: Json = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"data": {"answers": [given]}}]}
    message |= {"contextId": answer.session_id, "taskId": tasks[0]["id"] if tasks else str(uuid4())}
    return (await caller.request("POST", f"{path}/message:send", {"message": message}, **version)).status_code


Sender = Callable[[Caller, Answer], Awaitable[int]]
SENDERS: Mapping[str, Sender] = MappingProxyType(
    {
        "aap": send_over_aap,
        "ag-ui": send_over_ag_ui,
        "run service": send_over_run_service,
        "agent api": send_over_agent_api,
        "blade": send_over_blade,
        "openai": send_over_openai,
        "ai sdk": send_over_ai_sdk,
        "mcp": send_over_mcp,
        "a2a": send_over_a2a,
    }
)
GENUINE: Mapping[str, Mapping[str, Form]] = MappingProxyType(
    {
        "permission": dict.fromkeys(SENDERS, "grant"),
        "question": {
            "aap": "text",
            "ag-ui": "choice",
            "run service": "choice",
            "agent api": "text",
            "blade": "choice",
            "ai sdk": "choice",
            "mcp": "choice",
            "a2a": "choice",
        },
        "client": dict.fromkeys(("aap", "ag-ui", "run service", "agent api", "openai", "ai sdk", "a2a"), "text"),
    }
)
"""By kind of call and protocol: the form of an answer that the call accepts."""
FORGED: Mapping[str, tuple[tuple[str, Form], ...]] = MappingProxyType(
    {
        "permission": (
            *((name, "text") for name in SENDERS if name != "blade"),  # there a text denies, with a reason
            ("ag-ui", "choice"),
            ("run service", "choice"),
            ("ai sdk", "choice"),
            ("mcp", "choice"),
        ),
        "question": tuple((name, "grant") for name in SENDERS if name != "blade"),  # there both are a choice
        "client": (
            *((name, "grant") for name in SENDERS),
            ("run service", "choice"),
            ("mcp", "text"),
            ("mcp", "choice"),
        ),
    }
)
"""By kind of call: the protocol and form of answers that the call accepts from nobody."""
