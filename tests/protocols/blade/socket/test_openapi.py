"""What the OpenAPI document says of Blade is what answers."""

from dragoman.protocols.blade.rest import replays, server, session_openapi, sessions, turns
from tests.protocols.blade.client import RestClient
from tests.requirements import requirement


@requirement("blade:server:described")
async def test_every_route_is_described_and_no_other(alice: RestClient) -> None:
    engine, about = object(), object()
    answering = [
        *server.routes(engine, about),  # type: ignore[arg-type]  # nothing is asked of them here
        *sessions.routes(engine, memory_default=True),  # type: ignore[arg-type]  # as above
        *turns.routes(engine),  # type: ignore[arg-type]  # as above
        *replays.routes(engine),  # type: ignore[arg-type]  # as above
    ]
    assert {(each.method, f"/{each.path}") for each in answering} == {
        (each.method, each.path) for each in session_openapi.ROUTES
    }
    document = await alice.document()
    assert {"/api/sessions", "/api/sessions/{session}/rewind", "/api/memories"} <= set(document["paths"])
