"""Talk to an agent over Blade in the terminal: the session over REST, the conversation over Socket.IO.

    pip install python-socketio aiohttp
    BLADE_KEY=sk-dragoman-… python examples/blade_client.py http://127.0.0.1:8000

Answers appear as they are generated. When the agent asks a question, type the number of an option, or your own answer.
An empty line ends the conversation.
"""

import asyncio
import json
import os
import sys
from typing import Any

import aiohttp
import socketio  # type: ignore[import-untyped]  # the library is not annotated

Payload = dict[str, Any]


class Conversation:
    """A session, its turns, and the question that is waiting for an answer."""

    def __init__(self, socket: socketio.AsyncClient, session_id: str) -> None:
        self.socket = socket
        self.session_id = session_id
        self.ended = asyncio.Event()
        self.question: str | None = None
        self.turns: dict[str, Payload] = {}
        socket.on("turn:start", self.on_turn)
        socket.on("turn:patch", self.on_patch)
        socket.on("turn:end", self.on_turn)  # contains the whole turn, and replaces what was folded from patches
        socket.on("chat:end", self.on_end)
        socket.on("system:error", self.on_error)

    async def say(self, message: str, **fields: Payload) -> None:
        """Send a message, and wait until the agent has finished."""
        self.ended.clear()
        self.question = None
        payload = {"session_id": self.session_id, "message": message, **fields}
        acknowledgment = await self.socket.call("chat:send", payload)
        if acknowledgment["status"] == "ok":
            await self.ended.wait()
        print()

    async def answer(self, text: str) -> None:
        """Answer the pending question with the number of an option or with a text."""
        chosen = {"selections": {"0": [int(text) - 1]}} if text.isdigit() else {"custom": {"0": text}}
        await self.say("", askuser_answer={"tool_call_id": self.question, **chosen})

    async def on_turn(self, turn: Payload) -> None:
        self.turns[turn["turn_id"]] = turn

    async def on_patch(self, patch: Payload) -> None:
        turn, data = self.turns[patch["turn_id"]], patch["data"]
        if turn["parent_fork_tool_call_id"]:
            return  # from a sub-agent: its result arrives with the call that started it
        if patch["patch_type"] == "add_content" and data["type"] == "text":
            print(data["text_delta"], end="", flush=True)
        elif patch["patch_type"] == "add_tool_call":
            self.show_call(data)

    def show_call(self, call: Payload) -> None:
        if call["tool_name"] != "AskUserQuestion":
            print(f"[{call['display_name']} {call['arguments']}]")
            return
        self.question = call["id"]
        for question in json.loads(call["arguments"])["questions"]:
            print(question["question"])
            for number, option in enumerate(question.get("options", []), 1):
                print(f"  {number}. {option['label']}")

    async def on_end(self, _: Payload) -> None:
        self.ended.set()

    async def on_error(self, error: Payload) -> None:
        print(f"[{error['code']}: {error['message']}]")


async def main(url: str, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.request("POST", f"{url}/api/sessions", json={}, headers=headers) as response:
        session_id = (await response.json())["session_id"]
    socket = socketio.AsyncClient()
    conversation = Conversation(socket, session_id)
    # Long polling would have to reach the same server each time; with several servers, use WebSocket only.
    await socket.connect(url, auth={"token": key}, transports=["websocket"])
    await socket.call("session:subscribe", {"session_id": session_id})
    while text := (await asyncio.to_thread(input, "> ")).strip():
        await (conversation.answer(text) if conversation.question else conversation.say(text))
    await socket.disconnect()


if __name__ == "__main__":
    if "BLADE_KEY" not in os.environ:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000", os.environ["BLADE_KEY"]))
