"""Files with agents of Pydantic AI, served as they are: the example, and a program that is killed where it hurts."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")

from dragoman.agents.loading import load
from tests.protocols.aap.client import AapClient, Session, enabled_tools, grant
from tests.protocols.agui.endpoint import an_input
from tests.servers import running_socket_server, server_process
from tests.test_one_session import ProtocolClients

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pydantic_ai"

PROGRAM = """
import asyncio
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

FOLDER = Path({folder!r})


async def pause(name):
    if not (FOLDER / ("pass " + name)).exists():
        (FOLDER / ("reached " + name)).touch()
        await asyncio.sleep(3600)


async def answer(messages, info):
    done = sum(isinstance(message, ModelResponse) for message in messages)
    if done == 0:
        yield {{place: DeltaToolCall(name=name, json_args="{{}}", tool_call_id=name)
               for place, name in enumerate(("quick", "slow"))}}
    elif done == 1:
        yield {{0: DeltaToolCall(name="pay", json_args="{{}}", tool_call_id="pay")}}
    else:
        yield "all "
        await pause("answer")
        yield "done"


agent = Agent(FunctionModel(stream_function=answer))


def note(name):
    with (FOLDER / "executed").open("a") as file:
        file.write(name + " ")


@agent.tool_plain
async def quick() -> str:
    note("quick")
    return "quick ok"


@agent.tool_plain
async def slow() -> str:
    note("slow")
    await pause("slow")
    return "slow ok"


@agent.tool_plain(requires_approval=True)
def pay() -> str:
    note("pay")
    return "paid"
"""


def test_the_example_with_a_providers_model_is_recognized() -> None:
    assert [agent.spec.name for agent in load(str(EXAMPLES / "bank.py"))] == ["support"]


async def test_the_example_is_served_on_every_protocol(tmp_path: Path) -> None:
    (support,) = load(str(EXAMPLES / "bank_rehearsal.py"))
    assert [tool.spec.name for tool in support.spec.tools] == ["caller", "balance", "block_card"]
    async with running_socket_server(tmp_path / "data", agents=[support], rehearsal=False) as server:
        clients = ProtocolClients(server, "alice", agent="support")
        clients.ag_ui.agent = "support"
        session = await clients.aap.create("support", server_tools=enabled_tools("balance", "block_card"))
        turn = await session.run("block my card", "delta")
        assert (turn.stop, turn.text) == ("end_turn", "One moment. One moment. Your card is taken care of.")
        assert list(turn.results.values()) == ["123.45", "the card of Ann is blocked"]
        shown = str(await clients.ag_ui.run(an_input("once more", thread=session.id)))
        assert "the card of Ann is blocked" in shown
        for answers in (await clients.histories_by_protocol(session.id)).values():
            assert sum("taken care of" in each for each in answers) == 2


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Wait for another process."""
    async with asyncio.timeout(60):
        while not await reached():  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_program_that_is_killed_in_a_tool_while_it_waits_and_in_its_answer_runs_no_tool_twice(
    tmp_path: Path,
) -> None:
    app = tmp_path / "app.py"
    app.write_text(PROGRAM.format(folder=str(tmp_path)), encoding="utf-8")

    async def exists(name: str) -> bool:
        return (tmp_path / name).exists()

    async def is_at_rest(session: Session) -> bool:
        return bool((await session.info())["_meta"]["status"] != "running")

    async with server_process(tmp_path / "data", agents=app) as server:

        def reopened(session: Session) -> Session:
            return session.as_client(AapClient(server.connection, server.key("alice")))

        client = AapClient(server.connection, server.key("alice"))
        session = await client.create(
            "agent", server_tools=[*enabled_tools("quick", "slow"), *enabled_tools("pay", trust=False)]
        )
        await session.open("go")
        await until(partial(exists, "reached slow"))  # quick is done by now: the tools of a step run side by side
        await server.crash()
        session = reopened(session)
        await until(partial(is_at_rest, session))
        assert (await session.info())["_meta"]["status"] == "waiting"
        await server.crash()
        session = reopened(session)
        (pending,) = (await session.info())["_meta"]["pending"]
        assert (pending["name"], pending["kind"]) == ("pay", "permission")
        await session.open([grant(pending["toolCallId"])])
        await until(partial(exists, "reached answer"))
        (tmp_path / "pass answer").touch()
        await server.crash()
        session = reopened(session)
        await until(partial(is_at_rest, session))
        history = await session.history()
    assert (tmp_path / "executed").read_text() == "quick slow pay "
    results = [message["content"] for message in history if message["role"] == "tool"]
    assert results == ["quick ok", "Tool call interrupted: the server restarted", "paid"]
    last = history[-1]["content"]
    assert last == "all done" or last[-1]["text"] == "all done"
