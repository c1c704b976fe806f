"""Secret options: what the server shows of them, and what it leaves to the tools."""

from collections.abc import AsyncIterator

import pytest

from dragoman import Run, SecretOption, ToolContext, ToolFailed, agent, tool
from tests.requirements import requirement
from tests.servers import AppServerFactory

PIN = "12345678"


@tool(exposed=False)
def report(how: str, context: ToolContext) -> str | dict[str, object]:
    """Return something that contains the digits of the secret, or fail with it."""
    if how == "sum":
        return str(123_456_780 + 1)
    if how == "raise":
        raise ToolFailed(f"the service rejected {context.options['pin']}")
    return {"paid": 12_345_678}


@agent(tools=[report], options=[SecretOption(name="pin")], history=True)
async def teller(run: Run) -> AsyncIterator[str]:
    yield f"It said: {await run.call(report, how=run.text)}"


@requirement("aap:secrets:results-unchanged")
@pytest.mark.parametrize(
    ("how", "result"),
    [
        ("sum", "123456781"),
        ("object", '{"paid":12345678}'),
        ("raise", "Tool execution failed: the service rejected 12345678"),
    ],
)
async def test_a_result_reaches_clients_and_model_as_the_tool_returned_it(
    open_app_server: AppServerFactory, how: str, result: str
) -> None:
    async with open_app_server(agents=[teller]) as server:
        session = await server.aap_client("alice").create("teller", options={"pin": PIN})
        turn = await session.run(how)
        (message,) = [each for each in await session.history() if each["role"] == "tool"]
        assert list(turn.results.values()) == [message["content"]] == [result]
        assert (await session.info())["agent"]["options"] == {"pin": "***"}
