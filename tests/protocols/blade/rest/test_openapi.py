"""What the OpenAPI document tells of Blade's data is what there is."""

from typing import Any, cast

from dragoman.protocols.blade.rest import archives, keys, memories, openapi, schedules, sharing
from dragoman.protocols.kit.openapi import document
from tests.requirements import requirement
from tests.servers import AppServer, running_server


@requirement("blade:rest:described")
def test_every_route_is_described_and_every_description_has_its_route() -> None:
    nothing = cast("Any", None)
    routes = [
        *memories.routes(nothing),
        *keys.routes(nothing),
        *schedules.routes(nothing, nothing, nothing),
        *sharing.routes(nothing, nothing),
        *archives.routes(nothing),
    ]
    there_is = {(route.method, "/" + route.path, route.is_open) for route in routes}
    assert there_is == {(route.method, route.path, route.is_public) for route in openapi.ROUTES}
    assert document("t", "1", openapi.ROUTES)["paths"].keys() == {path for _, path, _ in there_is}


@requirement("blade:rest:described")
async def test_the_servers_document_has_them(tmp_path_factory: Any) -> None:
    house: AppServer
    async with running_server(tmp_path_factory.mktemp("described")) as house:
        answer = await house.connection.request("GET", "/openapi.json")
        assert answer.status == 200
        assert b'"/api/memories/{memory}"' in answer.body
