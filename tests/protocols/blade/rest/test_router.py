"""What every request of Blade's REST passes: keys, errors."""

from typing import Any

import httpx2
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.ids import UserId
from dragoman.core.principal import Principal
from dragoman.core.refusals import Unauthenticated, all_refusals
from dragoman.engine.services.authentication import NoKeys
from dragoman.engine.services.connection_memory import ConnectionMemory
from dragoman.protocols.blade.errors import ERROR_TABLE, detail_of
from dragoman.protocols.blade.rest.endpoints import write_error
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import ProtocolApp, principal_of
from dragoman.protocols.kit.body import json_response
from dragoman.protocols.kit.decoding import decode_body
from dragoman.protocols.kit.errors import REQUEST_ERRORS, RequestError
from dragoman.protocols.kit.router import Route
from tests.requirements import requirement


async def route_handler(request: Request) -> Response:
    """Return the variables of the path."""
    return json_response({**request.path_params, "user": principal_of(request).user})


async def open_to_all(_: Request) -> Response:
    return json_response({"status": "ok"})


async def broken(_: Request) -> Response:
    raise RuntimeError("a secret")


async def authenticate(header: str | None, _: str) -> Principal:
    if header != "Bearer right":
        raise Unauthenticated("this key is not known here")
    return Principal(user=UserId("alice"), scopes=frozenset({"use"}))


APP = ProtocolApp(
    "blade",
    [
        Route("GET", "things/{id}", route_handler),
        Route("GET", "things/{id}/parts/{part}", route_handler),
        Route("GET", "things/calendar", open_to_all),
        Route("GET", "health", open_to_all, is_open=True),
        Route("POST", "broken", broken),
    ],
    ERROR_TABLE,
    AccessControl(NoKeys(), authenticate, lambda _: lambda: None, ConnectionMemory()),
    write_error=write_error,
)


async def send_request(method: str, path: str, key: str = "right") -> tuple[int, Any]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=APP), base_url="http://here") as client:
        answer = await client.request(method, path, headers={"authorization": f"Bearer {key}"})
        return answer.status_code, answer.json()


@requirement("blade:rest:paths", "blade:rest:trailing-slash", "blade:rest:not-found")
@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/things/1", (200, {"id": "1", "user": "alice"})),
        ("GET", "/things/1/", (200, {"id": "1", "user": "alice"})),
        ("GET", "/things/1/parts/2", (200, {"id": "1", "part": "2", "user": "alice"})),
        ("GET", "/things/calendar", (200, {"status": "ok"})),
        ("GET", "/things/calendar/parts/2", (200, {"id": "calendar", "part": "2", "user": "alice"})),
        ("GET", "/things//parts/2", (404, {"detail": "Not Found"})),
        ("GET", "/things", (404, {"detail": "Not Found"})),
        ("GET", "/", (404, {"detail": "Not Found"})),
        ("DELETE", "/things/1", (405, {"detail": "Method Not Allowed"})),
    ],
)
async def test_a_path_finds_what_answers_it(method: str, path: str, expected: tuple[int, Any]) -> None:
    assert await send_request(method, path) == expected


@requirement("blade:rest:keys")
async def test_only_open_paths_answer_without_a_key() -> None:
    assert await send_request("GET", "/health", "wrong") == (200, {"status": "ok"})
    assert await send_request("GET", "/things/1", "wrong") == (401, {"detail": "this key is not known here"})
    assert await send_request("GET", "/nowhere", "wrong") == (401, {"detail": "this key is not known here"})


@requirement("blade:rest:failures-without-details")
async def test_a_failure_of_the_server_shows_only_the_reference_under_which_it_is_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, body = await send_request("POST", "/broken")
    message, _, reference = body["detail"].rpartition(" ")
    assert (status, message) == (500, "the server failed; reference")
    assert reference in capsys.readouterr().out


@requirement("blade:rest:every-refusal")
def test_every_refusal_has_its_answer() -> None:
    assert set(ERROR_TABLE.rows) >= {*all_refusals(), *REQUEST_ERRORS}


class Body(msgspec.Struct, frozen=True):
    """A body for the tests."""

    name: str
    ids: tuple[int, ...] = ()


@requirement("blade:rest:invalid-is-one-sentence")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"name": 1}', "name: Expected `str`, got `int`"),
        (b'{"ids": [1]}', "name: this field is required"),
        (b'{"name": "n", "ids": [1, "2"]}', "ids[1]: Expected `int`, got `str`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{", "the body is not JSON: it ends within a value"),
        (b'{"name": "\xff"}', "the body is not UTF-8 at byte 10"),
    ],
)
def test_what_is_invalid_is_reported_in_one_sentence_that_names_the_field(body: bytes, expected: str) -> None:
    with pytest.raises(RequestError) as refused:
        decode_body(msgspec.json.Decoder(Body), body)
    response = ERROR_TABLE.to_response(refused.value)
    assert (response.status, detail_of(response)) == (422, expected)
