"""Call an agent over A2A: `python a2a_client.py URL KEY MESSAGE`. Needs `pip install a2a-sdk`.

URL is the address of an agent, such as `http://127.0.0.1:8000/a2a/assistant`. It asks its questions at the terminal.
"""

import asyncio
import sys
from typing import Any

import httpx
from a2a.client import ClientConfig, create_client
from a2a.helpers import get_data_parts, get_text_parts, new_data_message, new_text_message
from a2a.types import Message, Role, SendMessageRequest, TaskState, TaskStatus


def ask(status: TaskStatus, task_id: str) -> Message:
    """Show what the agent waits for, and make a message of the user's answer."""
    print(*get_text_parts(status.message.parts), sep="\n")
    typed = input("> ")
    if status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
        return new_text_message(typed, task_id=task_id, role=Role.ROLE_USER)
    (asked,) = get_data_parts(status.message.parts)  # a text approves nothing: the answer names the call
    answers: list[Any] = [
        {"callId": call["callId"], "granted": typed.lower() in ("y", "yes")} for call in asked["pending"]
    ]
    return new_data_message({"answers": answers}, task_id=task_id, role=Role.ROLE_USER)


async def main(url: str, key: str, text: str) -> None:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=120) as http:
        client = await create_client(url, client_config=ClientConfig(httpx_client=http))
        message: Message | None = new_text_message(text, role=Role.ROLE_USER)
        while message is not None:
            request, message = SendMessageRequest(message=message), None
            async for event in client.send_message(request):
                print(*get_text_parts(event.artifact_update.artifact.parts), sep="", end="", flush=True)
                status = event.status_update.status
                if status.state in (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED):
                    message = ask(status, event.status_update.task_id)
                elif status.state == TaskState.TASK_STATE_FAILED:
                    print(*get_text_parts(status.message.parts), file=sys.stderr)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:4]))
