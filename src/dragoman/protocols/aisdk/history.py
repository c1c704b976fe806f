"""A session's log as the messages of a chat: what a page has that received all streams. Pure.

`MessageFold` applies chunks to a message as the clients do, so a history and the streams come from one translation.
Source: specification of AI SDK, 5.6, 6, 9.
"""

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.core import content as core
from dragoman.core.content import JsonObject
from dragoman.core.events import LoggedEvent, MessageAdded, RunStarted, RunStopped
from dragoman.core.ids import ROOT, SessionId
from dragoman.core.recording import to_step_events
from dragoman.core.stream import Record
from dragoman.protocols.aisdk.translate import TurnChunks, part_of
from dragoman.protocols.aisdk.wire import Chunk, ClientVersion, ShownMessage

HISTORY_BYTES = 8 * 1024 * 1024
"""Maximum size of a history. The newest message is always shown."""


class MessageFold:
    """Builds the parts and the metadata of one message from its chunks."""

    def __init__(self) -> None:
        self.parts: list[JsonObject] = []
        self.metadata: JsonObject = {}
        self._texts: dict[str, JsonObject] = {}
        self._calls: dict[str, JsonObject] = {}
        self._data: dict[tuple[str, str], JsonObject] = {}

    def apply(self, chunk: Chunk) -> None:
        """Apply the next chunk."""
        kind: str = chunk["type"]
        match kind:
            case "start" | "finish":
                self.metadata |= chunk["messageMetadata"]
            case "start-step":
                self.parts.append({"type": "step-start"})
            case "text-start":
                self._add_text(chunk["id"], {"type": "text", "text": "", "state": "streaming"})
            case "reasoning-start":
                self._add_text(chunk["id"], {"type": "reasoning", "id": chunk["id"], "text": "", "state": "streaming"})
            case "text-delta" | "reasoning-delta":
                self._texts[chunk["id"]]["text"] += chunk["delta"]
            case "text-end" | "reasoning-end":
                self._texts[chunk["id"]]["state"] = "done"
            case "file":
                self.parts.append({"type": "file", "mediaType": chunk["mediaType"], "url": chunk["url"]})
            case _ if kind.startswith("data-") and not chunk.get("transient"):
                self._set_data(kind, chunk["id"], chunk["data"])
            case _ if kind.startswith("tool-"):
                self._apply_to_call(kind, chunk)

    def _add_text(self, part_id: str, part: JsonObject) -> None:
        self._texts[part_id] = part
        self.parts.append(part)

    def _set_data(self, kind: str, part_id: str, data: core.Json) -> None:
        if (known := self._data.get((kind, part_id))) is not None:
            known["data"] = data
            return
        self._data[kind, part_id] = part = {"type": kind, "id": part_id, "data": data}
        self.parts.append(part)

    def _apply_to_call(self, kind: str, chunk: Chunk) -> None:
        call_id = chunk["toolCallId"] if "toolCallId" in chunk else chunk["approvalId"]
        if kind == "tool-input-start":
            name = chunk["toolName"]
            named = {"type": "dynamic-tool", "toolName": name} if chunk.get("dynamic") else {"type": f"tool-{name}"}
            self._calls[call_id] = {**named, "toolCallId": call_id, "state": "input-streaming"}
            self.parts.append(self._calls[call_id])
        part = self._calls[call_id]
        if "providerExecuted" in chunk:
            part["providerExecuted"] = chunk["providerExecuted"]
        match kind:
            case "tool-input-available":
                if part["type"] != "dynamic-tool":  # a question takes the place of another call
                    part["type"] = f"tool-{chunk['toolName']}"
                part |= {"state": "input-available", "input": chunk["input"]}
                if "providerMetadata" in chunk:
                    part["callProviderMetadata"] = chunk["providerMetadata"]
            case "tool-approval-request":
                part |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
            case "tool-approval-response":
                part["approval"] = {
                    "id": chunk["approvalId"],
                    "approved": chunk["approved"],
                    **({"reason": chunk["reason"]} if "reason" in chunk else {}),
                }
                part["state"] = "approval-responded"
            case "tool-output-available":
                part |= {"state": "output-available", "output": chunk["output"]}
            case "tool-output-error":
                part |= {"state": "output-error", "errorText": chunk["errorText"]}
            case "tool-output-denied":
                part["state"] = "output-denied"


class ChatHistory:
    """Turns the records of the active branch into messages."""

    def __init__(self, session_id: SessionId, client_version: ClientVersion) -> None:
        self._session_id = session_id
        self._client_version: ClientVersion = client_version
        self._messages: list[ShownMessage] = []
        self._ids: set[str] = set()
        self._run: LoggedEvent | None = None
        """The start of the active run."""
        self._begin_message()

    def feed(self, record: Record) -> None:
        """Add the next record that belongs to the active branch."""
        if isinstance(record, LoggedEvent):
            match record.event:
                case MessageAdded(message=core.UserMessage(loop=loop) as message) if loop == ROOT:
                    self._end_message()
                    self._add_user_message(message)
                    if self._run is not None and isinstance(self._run.event, RunStarted):
                        self._turn.begin(self._run.event.run_id, self._run.at)
                    return
                case MessageAdded(message=core.AssistantMessage() | core.ToolMessage() as seed):
                    for each in to_step_events(seed):
                        self._add(LoggedEvent(record.seq, record.at, None, each))
                    return
                case RunStarted():
                    self._run = record
                case RunStopped():
                    self._run = None
        self._add(record)

    def messages(self, *, with_open_turn: bool) -> list[ShownMessage]:
        """The messages so far, oldest first; optionally without that of an active run."""
        if self._run is None or with_open_turn:
            self._end_message()
        return self._messages

    def _add(self, record: Record) -> None:
        for chunk in self._turn.feed(record):
            self._fold.apply(chunk)

    def _begin_message(self) -> None:
        self._turn = TurnChunks(self._session_id, client_version=self._client_version)
        self._fold = MessageFold()

    def _end_message(self) -> None:
        """Add the agent's message, unless nothing of it is shown: clients refuse a message without parts."""
        fold, turn = self._fold, self._turn
        if fold.parts:
            metadata = turn.start()["messageMetadata"] | fold.metadata
            self._messages.append(
                ShownMessage(id=turn.message_id, role="assistant", parts=fold.parts, metadata=metadata)
            )
        self._begin_message()

    def _add_user_message(self, message: core.UserMessage) -> None:
        own = shown_id(message) if shown_id(message) not in self._ids else message.id
        self._ids.add(own)
        self._messages.append(
            ShownMessage(id=own, role="user", parts=parts_of(message.content), metadata=message.metadata)
        )


def shown_id(message: core.UserMessage) -> str:
    """The id by which pages know a user message: the one that a client gave it, else the server's."""
    return message.client_id or message.id


def parts_of(content: str | tuple[core.InputBlock, ...]) -> list[JsonObject]:
    """A user message's content as parts."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else [part_of(each) for each in content]


def newest_that_fit(messages: Sequence[ShownMessage], limit: int) -> list[ShownMessage]:
    """The newest messages within the limits of one answer."""
    found: list[ShownMessage] = []
    size = 0
    for message in reversed(messages[-limit:]):
        size += len(msgspec.json.encode(message))
        if size > HISTORY_BYTES and found:
            break
        found.append(message)
    return found[::-1]


def count_user_messages(events: Iterable[LoggedEvent]) -> int:
    """How many user messages some events add."""
    return sum(
        isinstance(each.event, MessageAdded) and isinstance(each.event.message, core.UserMessage) for each in events
    )
