"""What the OpenAPI document tells of Blade's data is what there is."""

from typing import Any, cast

from dragoman.openapi import document
from dragoman.protocols.blade import (
    archives_http,
    data_described,
    keys_http,
    memories_http,
    schedules_http,
    sharing_http,
)
from tests.requirements import requirement
from tests.serving import House, opened


@requirement("blade:rest:described")
def test_every_route_is_described_and_every_description_has_its_route() -> None:
    nothing = cast("Any", None)
    routes = [
        *memories_http.routes(nothing),
        *keys_http.routes(nothing),
        *schedules_http.routes(nothing, nothing, nothing),
        *sharing_http.routes(nothing, nothing),
        *archives_http.routes(nothing),
    ]
    there_is = {(route.method, "/" + route.path, route.is_open) for route in routes}
    assert there_is == {(route.method, route.path, route.is_open) for route in data_described.ROUTES}
    assert document("t", "1", data_described.ROUTES)["paths"].keys() == {path for _, path, _ in there_is}


@requirement("blade:rest:described")
async def test_the_servers_document_has_them(tmp_path_factory: Any) -> None:
    house: House
    async with opened(tmp_path_factory.mktemp("described")) as house:
        answer = await house.line.request("GET", "/openapi.json")
        assert answer.status == 200
        assert b'"/api/memories/{memory}"' in answer.body
