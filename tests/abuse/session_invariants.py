"""What must hold for a session after any abuse."""

from typing import Any

from tests.protocols.aap.client import Message, Session, user

Json = Any


def blocks_of(message: Message) -> list[Json]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def results_by_call(history: list[Message]) -> dict[str, list[Json]]:
    """The results of each call in the order of the calls. Each result must follow its call."""
    results: dict[str, list[Json]] = {}
    for message in history:
        if message["role"] == "assistant":
            for block in blocks_of(message):
                if block["type"] == "tool_use":
                    assert block["toolCallId"] not in results, "two calls have one id"
                    results[block["toolCallId"]] = []
        elif message["role"] == "tool":
            results[message["toolCallId"]].append(message["content"])
    return results


async def assert_session_consistent(session: Session) -> list[Message]:
    """Check that the session is idle, every call has exactly one result, and the next message is answered.

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
