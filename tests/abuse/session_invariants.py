"""What must hold of a session whatever was done to it."""

from typing import Any

from tests.protocols.aap.client import Message, Session, user

Json = Any


def blocks_of(message: Message) -> list[Json]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def results_by_call(history: list[Message]) -> dict[str, list[Json]]:
    """The results of each call, in the order of the calls; each result has an earlier call."""
    found: dict[str, list[Json]] = {}
    for message in history:
        if message["role"] == "assistant":
            for block in blocks_of(message):
                if block["type"] == "tool_use":
                    assert block["toolCallId"] not in found, "two calls have one id"
                    found[block["toolCallId"]] = []
        elif message["role"] == "tool":
            found[message["toolCallId"]].append(message["content"])
    return found


async def assert_session_consistent(session: Session) -> list[Message]:
    """The session is at rest, every call has exactly one result, and the next message is answered.

    Returns:
        The history before that message.
    """
    info = await session.info()
    assert (info["_meta"]["status"], info["_meta"].get("pending")) == ("idle", None)
    history = await session.history()
    assert [len(results) for results in results_by_call(history).values() if len(results) != 1] == []
    turn = await session.run([user("are you there")])
    assert (turn.stop, turn.text) == ("end_turn", "You said: are you there")
    return history
