"""The history that a client of AG-UI sends with each request, because the server is not known to keep it. Pure."""

from collections.abc import Sequence
from uuid import uuid4

from dragoman.client.codec import SessionHandle
from dragoman.core.content import Json, JsonObject


class RecordedMessages:
    """The messages of a thread. Nothing is recorded of sub-agents, or once the server is known to keep the history.

    `sent` are the messages of the request, which belong to the thread once its run has started.
    """

    def __init__(self, handle: SessionHandle, sent: Sequence[JsonObject]) -> None:
        self._handle = handle
        self._sent = sent

    def add_sent(self) -> None:
        """Add the messages of the request, once."""
        if self._is_recorded():
            self._handle.messages.extend(self._sent)
        self._sent = ()

    def add_text(self, message_id: str, text: str, loop: str) -> None:
        """Add text of the agent to its message."""
        if self._is_recorded(loop):
            message = self._agent_message(message_id)
            message["content"] = (message.get("content") or "") + text

    def add_call(self, message_id: str, call_id: str, name: str, arguments: str, loop: str) -> None:
        """Add a call to the agent's message."""
        if self._is_recorded(loop):
            call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments or "{}"}}
            self._agent_message(message_id).setdefault("toolCalls", []).append(call)

    def add_result(self, message_id: str, call_id: str, content: Json, loop: str) -> None:
        """Add the result of a call."""
        if self._is_recorded(loop):
            message = {"id": message_id or uuid4().hex, "role": "tool", "toolCallId": call_id, "content": content}
            self._handle.messages.append(message)

    def replace(self, messages: Sequence[JsonObject]) -> list[JsonObject]:
        """Replace everything by a snapshot. Returns the messages of the current turn that it adds."""
        if not self._is_recorded():
            return []
        known, self._handle.messages = self._handle.messages, list(messages)
        return _new_messages(known, messages)

    def _is_recorded(self, loop: str = "") -> bool:
        return not loop and not self._handle.server_keeps_history

    def _agent_message(self, message_id: str) -> JsonObject:
        """The agent's message with this id; a new one if there is none."""
        messages = self._handle.messages
        for each in reversed(messages):
            if each["id"] == message_id and each["role"] == "assistant":
                return each
        messages.append({"id": message_id, "role": "assistant"})
        return messages[-1]


def since_last_user(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The messages after the user's last one."""
    last_user_index = max((index for index, each in enumerate(messages) if each.get("role") == "user"), default=-1)
    return [*messages[last_user_index + 1 :]]


def _new_messages(known: Sequence[JsonObject], messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The messages of the current turn that a snapshot adds: some servers send whole answers only in snapshots.

    A snapshot of what was stored before the user's new message adds nothing.
    """

    def user_count(each: Sequence[JsonObject]) -> int:
        return sum(message.get("role") == "user" for message in each)

    if user_count(messages) < user_count(known):
        return []
    spoken = [
        text for each in since_last_user(known) if each.get("role") == "assistant" and (text := each.get("content"))
    ]
    new: list[JsonObject] = []
    for message in since_last_user(messages):
        text = message.get("content") if message.get("role") == "assistant" else None
        if text in spoken:  # under an ID of the server's store, maybe
            spoken.remove(text)
            message = {**message, "content": None}
        new.append(message)
    return new
