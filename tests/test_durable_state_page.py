"""The example of docs/durable-state.md, served: it works, and no protocol shows its private values."""

from pathlib import Path
from zipfile import ZipFile

import httpx2

from dragoman.server.loading import load
from tests.protocols.aap.client import Session
from tests.protocols.agui.endpoint import an_input
from tests.protocols.aisdk.client import Pages
from tests.servers import running_socket_server
from tests.test_one_session import ProtocolClients

PAGE = Path(__file__).parent.parent / "docs" / "durable-state.md"
SECRETS = ("receipt", "exchange_rate")


async def test_no_protocol_shows_what_the_example_stores_for_itself(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0], encoding="utf-8")
    (cashier,) = load(str(app))
    async with running_socket_server(tmp_path / "data", agents=[cashier], rehearsal=False) as server:
        clients = ProtocolClients(server, "alice", agent="cashier")
        clients.ag_ui.agent = "cashier"
        clients.ai_sdk = Pages(server.connection, server.key("alice"), "cashier")
        session = await clients.aap.create("cashier")
        shown = [str(await session.run("5")), str(await clients.ag_ui.run(an_input("7", thread=session.id)))]
        shown += [str(await clients.runs.play(session.id, "8", forwardedProps={"agent_type": "cashier"}))]
        shown += [str(await clients.agentscope.run("9", session_id=session.id))]
        answers = (await clients.histories_by_protocol(session.id))["aap"]
        assert [each for each in answers if each.startswith("paid")] == [
            "paid 5, 5 in this session",
            "paid 7, 12 in this session",
            "paid 8, 20 in this session",
            "paid 9, 29 in this session",
        ]
        await clients.tab.connect()
        shown += [str(await clients.tab.send(f"sess_{session.id}", "1"))]
        await clients.tab.leave()
        shown += [str(await Session(clients.aap, session.id).history())]
        shown += [str(await clients.ai_sdk.history(session.id))]
        shown += [str(await clients.ag_ui.hydrate(session.id)), str(await clients.ag_ui.messages(session.id))]
        shown += [str((await clients.runs.get(f"/history?threadId={session.id}")).json)]
        shown += [str(await clients.blade.messages(f"sess_{session.id}"))]
        async with httpx2.AsyncClient(base_url=clients.blade.url, timeout=20) as http:
            headers = {"authorization": f"Bearer {clients.blade.key}"}
            archive = await http.get(f"/api/sessions/sess_{session.id}/export", headers=headers)
        (tmp_path / "archive.zip").write_bytes(archive.content)
        with ZipFile(tmp_path / "archive.zip") as files:
            shown += [files.read(name).decode() for name in files.namelist()]
        assert all(shown)
        assert [(secret, each) for each in shown for secret in SECRETS if secret in each] == []
