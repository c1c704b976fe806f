"""Leaves chats with the vendor's Python client and starts the next one. Prints what each of them said, as JSON.

python leaving.py URL KEY COUNT. Runs on Python 3.12, apart from the tests.
"""

import asyncio
import json
import sys

from blade_agent_kit import BladeAgentClient  # type: ignore[import-not-found]  # it has an environment of its own
from kit import chat_text, script  # type: ignore[import-not-found]  # in the script's folder


async def leave_and_start_next(client: BladeAgentClient, session: str, answer: str, *, looks_first: bool) -> list[str]:
    left = client.chat(session, script({"say": "old"}, {"wait_ms": 600_000}))
    async for event in left:
        if event.kind == "turn:patch":
            break
    await left.close()
    while looks_first and (await client.get_session(session)).raw["status"] == "running":
        pass
    seen = await chat_text(client, session, script({"say": answer}))
    return [seen["text"], seen["status"]]


async def main() -> None:
    url, key, count = sys.argv[1:]
    client = BladeAgentClient(url, token=key)
    try:
        session = (await client.create_session()).id
        seen = [
            await leave_and_start_next(client, session, f"{number}", looks_first=number % 2 == 1)
            for number in range(int(count))
        ]
    finally:
        await client.close()
    sys.stdout.write(json.dumps(seen) + "\n")


asyncio.run(main())
