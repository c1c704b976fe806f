"""Handlers get what their parameters name, and nothing else."""

from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.ids import UserId
from dragoman.core.principal import Principal
from dragoman.engine.services.connection_memory import ConnectionMemory
from dragoman.protocols.kit.endpoints import Handlers, endpoint


class Notes(Handlers):
    @endpoint("GET", "/health", is_open=True)
    async def health(self) -> dict[str, str]:
        return {"status": "ok"}

    @endpoint("GET", "/notes/{note}/{version:path}")
    async def note(self, principal: Principal, query: Mapping[str, str], version: str, note: str) -> dict[str, str]:
        return {"user": principal.user, "as": query["as"], "note": note, "version": version}

    @endpoint("DELETE", "/notes/{note}")
    async def delete(self, request: Request, note: str) -> None:
        assert request.path_params == {"note": note}


async def respond(method: str, **scope: Any) -> Response:
    memory = ConnectionMemory()
    scope = {"type": "http", "method": method, "headers": [], "query_string": b"", "connection_memory": memory, **scope}
    handler = next(each.handler for each in Notes().routes() if (each.method, each.path) == (method, scope["route"]))
    return await handler(Request(scope))


async def test_a_handler_gets_what_its_parameters_name_in_any_order() -> None:
    path_params = {"note": "n1", "version": "2/draft"}
    principal = Principal(user=UserId("ann"), scopes=frozenset({"read"}))
    response = await respond(
        "GET",
        route="notes/{note}/{version:path}",
        path_params=path_params,
        principal=principal,
        query_string=b"as=text",
    )
    assert response.body == b'{"user":"ann","as":"text","note":"n1","version":"2/draft"}'


async def test_a_handler_without_parameters_needs_no_key() -> None:
    assert (await respond("GET", route="health")).body == b'{"status":"ok"}'


async def test_a_handler_may_read_the_request_beside_a_variable_of_the_path() -> None:
    assert (await respond("DELETE", route="notes/{note}", path_params={"note": "n1"})).status_code == 204


def test_a_parameter_that_nothing_gives_is_an_error_at_the_start() -> None:
    class Misspelt(Handlers):
        @endpoint("GET", "/notes/{note}")
        async def note(self, node: str) -> None: ...

    with pytest.raises(TypeError, match=r"Misspelt.note: /notes/\{note\} gives no node"):
        Misspelt().routes()
