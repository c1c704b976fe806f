"""A client never sees a secret, even if a tool reveals it."""

from collections.abc import AsyncIterator

import pytest

from dragoman import Run, SecretOption, ToolContext, ToolFailed, agent, tool
from tests.requirements import requirement
from tests.servers import AppServerFactory

CANARY = "canary-7f31-secret"


@tool(exposed=False)
def leak_secret(how: str, context: ToolContext) -> str | dict[str, str]:
    """Reveal the secret."""
    if how == "raise":
        raise ToolFailed(f"the service refused {context.options['key']}")
    return {"key": context.options["key"]} if how == "object" else f"the key is {context.options['key']}"


@agent(tools=[leak_secret], options=[SecretOption(name="key")], history=True)
async def leaky_agent(run: Run) -> AsyncIterator[str]:
    yield f"It said: {await run.call(leak_secret, how=run.text)}"


@requirement("aap:secrets:never-shown", "aap:secrets:never-stored-plain")
@pytest.mark.parametrize("how", ["text", "object", "raise"])
async def test_a_secret_that_a_tool_leaks_is_never_visible(open_app_server: AppServerFactory, how: str) -> None:
    async with open_app_server(agents=[leaky_agent]) as server:
        session = await server.aap_client("alice").create("leaky_agent", options={"key": CANARY})
        turn = await session.run(how)
        history = await session.history()
        stored = (server.folder / "dragoman.db").read_bytes() + (server.folder / "dragoman.db-wal").read_bytes()
    assert CANARY not in str(turn) + str(history)
    assert "***" in str(history)
    assert CANARY.encode() not in stored
