"""What the vendor's Python client does and sees, as JSON on the last line. Runs on Python 3.12, apart from the tests.

python kit.py URL KEY
"""

import asyncio
import json
import sys
from typing import Any

from blade_agent_kit import (  # type: ignore[import-not-found]  # it has an environment of its own
    BladeAgentClient,
    BladeChatError,
    HeadlessError,
    HeadlessRunner,
)

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def script(*steps: dict[str, Any]) -> str:
    return json.dumps({"script": steps})


def payload(event: Any) -> dict[str, Any]:
    """An event's payload, in each generation's form."""
    found: dict[str, Any] = getattr(event, "payload", None) or event.raw
    return found


async def chat_text(client: BladeAgentClient, session: str, message: str, **fields: Any) -> dict[str, Any]:
    """One chat: the words of its last turn, its tools, how it ended."""
    text, calls, end = "", [], None
    async for event in client.chat(session, message, **fields):
        if event.kind == "turn:end":
            turn = payload(event)
            text = "".join(block["content"] for block in turn["blocks"] if block["type"] == "text")
            calls += [[call["id"], call["tool_name"], call["status"]] for call in turn["tool_calls"]]
        elif event.kind == "chat:end":
            end = event
    return {"text": text, "calls": calls, "status": None if end is None else end.status}


async def flows(client: BladeAgentClient) -> dict[str, Any]:
    seen: dict[str, Any] = {"health": (await client.health())["status"]}
    session = await client.create_session("a task")
    seen["intent"] = session.intent
    seen["listed"] = session.id in [each.id for each in await client.list_sessions()]
    seen["env"] = (await client.set_session_env(session.id, {"A": "1"})).raw["env"]
    tools = await chat_text(client, session.id, "add 2 and 3")
    seen["tools"] = [tools["text"], [call[1:] for call in tools["calls"]], tools["status"]]
    asked = await chat_text(client, session.id, "ask me")
    answer = {"tool_call_id": asked["calls"][0][0], "selections": {"0": [1]}, "custom": {}}
    seen["answered"] = (await chat_text(client, session.id, "", askuser_answer=answer))["text"]
    seen["stopped"] = await stopped(client, session.id)
    async for event in client.chat(session.id, script({"say": "one"}, {"wait_ms": 600_000})):
        if event.kind == "turn:patch":
            break
    await asyncio.sleep(0)
    seen["after leaving"] = (await chat_text(client, (await client.create_session()).id, "hello"))["text"]
    seen["failed"] = await failed(client)
    seen["headless"] = await HeadlessRunner(client).run("hello")
    seen["schema"] = (await HeadlessRunner(client).run(script({"say": '{"n": 3}'}), schema=NUMBER))["n"]
    try:
        await HeadlessRunner(client).run(script({"say": "no"}), schema=NUMBER)
    except (BladeChatError, HeadlessError) as error:
        seen["unfit"] = str(error)
    seen["history"] = len((await client.get_history(session.id)).nodes)
    seen["checkpoints"] = len((await client.get_checkpoints(session.id)).items)
    seen["deleted"] = (await client.delete_session(session.id))["deleted"]
    return seen


async def stopped(client: BladeAgentClient, session: str) -> str:
    async for event in client.chat(session, script({"say": "one"}, {"wait_ms": 600_000})):
        if event.kind == "turn:patch":
            await client.stop(session)
        elif event.kind == "chat:end":
            return str(event.status)
    return "no end"


async def failed(client: BladeAgentClient) -> str:
    session = await client.create_session()
    try:
        await chat_text(client, session.id, script({"fail": {"code": "model_error", "message": "The model is gone"}}))
    except BladeChatError as error:
        return str(error)
    return "no error"


async def main() -> None:
    url, key = sys.argv[1:]
    client = BladeAgentClient(url, token=key)
    try:
        seen = await asyncio.wait_for(flows(client), 60)
    finally:
        await client.close()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
