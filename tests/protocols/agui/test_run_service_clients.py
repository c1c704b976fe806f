"""The streams of the run service as the official clients read them: every event is accepted, by 1.0 and 0.x."""

from typing import Any

import pytest

from tests.protocols.agui.official_clients import VERSIONS, OfficialClients, Version, check
from tests.protocols.agui.run_service import RunServiceClient, new_thread, script
from tests.requirements import requirement
from tests.servers import SocketServer

Json = Any
PAINT = {"name": "paint", "description": "", "parameters": {"type": "object"}}
ADD = {"call": {"name": "add", "input": {"a": 1, "b": 2}}}
RUNS: dict[str, tuple[str, list[str]]] = {
    "text": ("hello", ["assistant"]),
    "everything": (
        script({"think": "hm"}, {"say": "x"}, ADD, {"say": "{result}"}, {"card": {"type": "divider"}}),
        ["reasoning", "assistant", "tool", "assistant"],
    ),
    "a sub-agent": (
        script({"fork": {"description": "d", "script": [{"say": "gold"}]}}, {"say": "{result}"}),
        ["assistant", "tool", "assistant"],
    ),
    "a failure": (script({"say": "half"}, {"fail": "x"}), ["assistant"]),
    "an approval": (script({"call": {"name": "stamp", "input": {"text": "x"}}}), ["assistant"]),
    "a front-end tool": (script({"call": {"name": "paint", "input": {}}}), ["assistant"]),
}


@requirement("runs:events:official-clients")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RUNS)
async def test_official_clients_accept_the_stream(
    socket_server: SocketServer, clients: OfficialClients, name: str, version: Version
) -> None:
    if (name, version) == ("a front-end tool", "0"):
        return  # the service speaks 1.0 alone, whose `pendingToolCallIds` that version refuses (shared rules, 26)
    text, roles = RUNS[name]
    service, thread = RunServiceClient(socket_server.connection, socket_server.key("alice")), new_thread()
    frames = await service.play(thread, text, tools=[PAINT])
    url = f"{socket_server.connection.url}/api/v1/agent/runs/{thread}/events?runId=r-1"
    client = await clients.open(version, url, thread=thread, key=socket_server.key("alice"))
    await clients.send_command("get", agent=client.name)
    ran = check(await client.run())
    assert ran.types == [frame.type for frame in frames]
    assert [message["role"] for message in ran.messages] == roles
    warned = [each for each in clients.console if "Removed unrecognised material" not in str(each)]
    clients.console.clear()  # 1.0 says of every field that this service adds that it leaves it out
    assert warned == []
