"""Sends a second message while a chat of the same client runs. Prints what the first chat said, as JSON.

python refused.py URL KEY. Runs on Python 3.12, apart from the tests.
"""

import asyncio
import contextlib
import json
import sys

from blade_agent_kit import (  # type: ignore[import-not-found]  # it has an environment of its own
    BladeAgentClient,
    BladeChatError,
)
from kit import chat_text, script  # type: ignore[import-not-found]  # in the script's folder


async def second_message(client: BladeAgentClient, session: str) -> None:
    with contextlib.suppress(BladeChatError):
        await chat_text(client, session, "again")


async def main() -> None:
    url, key = sys.argv[1:]
    client = BladeAgentClient(url, token=key)
    texts, second = [], None
    try:
        session = (await client.create_session()).id
        async for event in client.chat(session, script({"say": "one"}, {"wait_ms": 2_000}, {"say": "two"})):
            if event.kind == "turn:patch" and second is None:
                second = asyncio.create_task(second_message(client, session))
            if event.kind == "turn:end":
                turn = getattr(event, "payload", None) or event.raw
                texts.append("".join(block["content"] for block in turn["blocks"]))
            elif event.kind == "chat:end":
                texts.append(event.status)
        if second is not None:
            await second
    finally:
        await client.close()
    sys.stdout.write(json.dumps(texts[1:]) + "\n")


asyncio.run(main())
