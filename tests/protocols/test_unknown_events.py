"""An event of a type that only a later release knows: every protocol shows the session as if it were not there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.core.events import UnknownEvent, decode, encode
from dragoman.core.ids import UserId
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import to_live_session
from dragoman.protocols.blade.projection.loader import load_projection
from tests.protocols.a2a.client import A2aClient
from tests.protocols.agentscope.client import AgentScopeClient
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient
from tests.protocols.aisdk.client import Pages
from tests.protocols.every_protocol import for_every_protocol
from tests.protocols.openai.client import OpenAiClient
from tests.requirements import requirement
from tests.servers import AppServer, running_server

MOOD_CHANGED = decode(b'{"type": "mood_changed", "mood": 3}')


async def everything_shown(server: AppServer, engine: Engine, session_id: str) -> Mapping[str, Any]:
    """The session as each protocol shows it."""
    alice = server.aap_client("alice")
    key = server.key("alice")
    history = (await alice.get(f"/sessions/{session_id}/history?type=full")).json
    snapshot = await Endpoint(server.connection, key).messages(session_id)
    service = RunServiceClient(server.connection, key)
    days = (await service.get(f"/history?threadId={session_id}")).json
    async with engine.session(UserId("alice"), session_id) as live:
        run_id, projection = live.state.last_run, await load_projection(engine, live)
    response = (
        await AgentScopeClient(server.connection, key).request("GET", f"/process/responses/response_{run_id}")
    ).json
    openai = OpenAiClient(server.connection, key)
    items = await openai.get(f"/conversations/conv_{session_id.replace('-', '')}/items")
    own = await openai.get(f"/responses/resp_{str(run_id).replace('-', '')}")
    task = await A2aClient(server.connection, key).get(str(run_id))
    page = await Pages(server.connection, key).history(session_id)
    return for_every_protocol(
        {
            "aap": history,
            "agui": snapshot,
            "run_service": days,
            "agentscope": response,
            "openai": [items, own],
            "ai_sdk": page,
            "a2a": task,
            "blade": [repr(each.turn) for each in projection.turns.all],
        },
        without={"mcp": "its resources show messages only"},
    )


@requirement("ag-ui-b:hydrate:snapshot")
async def test_every_protocol_skips_events_of_unknown_types(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        engine: Engine = server.connection.app.engine  # type: ignore[attr-defined]  # the app is the server's
        session = await server.aap_client("alice").create()
        await Endpoint(server.connection, server.key("alice")).run(an_input("one", thread=session.id))
        before = await everything_shown(server, engine, session.id)
        async with engine.session(UserId("alice"), session.id) as view:
            live = to_live_session(view)
            assert isinstance(MOOD_CHANGED, UnknownEvent)
            await live.until_durable(live.append((MOOD_CHANGED,), None))
        assert await everything_shown(server, engine, session.id) == before
        assert (await session.run("two")).stop == "end_turn"
        async with engine.session(UserId("alice"), session.id) as view:
            events = [logged.event for logged in await engine.history.events(view, 0)]
        assert [encode(each) for each in events if isinstance(each, UnknownEvent)] == [encode(MOOD_CHANGED)]
