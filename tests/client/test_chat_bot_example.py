"""`examples/chat_bot.py`: threads are sessions, also for a bot that was restarted."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from dragoman.client import AsyncClient
from tests.servers import SocketServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat_bot.py"
STAMP = '{"script": [{"call": {"name": "stamp", "input": {"text": "x"}}}, {"say": "so: {result}"}]}'


class RecordingChat:
    """A chat that remembers what each message says, by thread and in order."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []

    async def post(self, thread: str, text: str) -> str:
        self.messages.append((thread, text))
        return str(len(self.messages) - 1)

    async def edit(self, thread: str, message: str, text: str) -> None:
        self.messages[int(message)] = (thread, text)


@pytest.fixture(scope="module")
def chat_bot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chat_bot", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_bot_asks_in_its_threads_and_finds_them_after_a_restart(
    chat_bot: ModuleType, socket_server: SocketServer
) -> None:
    chat = RecordingChat()
    async with AsyncClient(socket_server.connection.url, key=socket_server.key("bob")) as client:
        bot = chat_bot.Bot(client, "rehearsal", chat)
        await bot.start()
        await bot.receive("1", STAMP)
        await bot.receive("2", "add 20 and 22")
        restarted = chat_bot.Bot(client, "rehearsal", chat)
        await restarted.start()
        await restarted.receive("1", "yes")
        await restarted.receive("2", "ask me")
        await restarted.receive("2", "neither")
    assert chat.messages[:3] == [
        ("1", "May I run stamp {'text': 'x'}? Answer yes or no."),
        ("2", "The sum is 42."),
        ("1", "so: stamped x"),
    ]
    (question_thread, question), (answer_thread, answer) = chat.messages[3:]
    assert (question_thread, answer_thread, answer) == ("2", "2", "You chose neither.")
    assert question.endswith(")")
