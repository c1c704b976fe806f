"""JSON of millions of tiny values: refused before it is decoded, which takes a second and 340 MB."""

import pytest

from dragoman.core.refusals import LimitExceeded
from dragoman.protocols.kit.decoding import MAX_VALUES, check_number_of_values, decode_json
from tests.abuse.conftest import ServerMaker
from tests.abuse.raw_client import ListeningServer

BODIES = (
    "/aap/v3/sessions",
    "/ag-ui/rehearsal",
    "/process",
    "/v1/responses",
    "/v1/chat/completions",
    "/v1/conversations",
    "/a2a/rehearsal",
    "/mcp/",
    "/ai-sdk/rehearsal",
)

JSON_RPC = ("/a2a/rehearsal", "/mcp/")


def with_values(count: int) -> bytes:
    return b'{"x":[' + b"[]," * (count - 1) + b"[]]}"


@pytest.mark.parametrize(
    "body",
    [
        with_values(4 * MAX_VALUES),
        b"[" + b"1," * MAX_VALUES + b"1]" + b" " * MAX_VALUES,
        b"[" + b'"a",' * (3 * MAX_VALUES) + b'"a"]',
        b'["\\\\",' + b'"\\"",' * (2 * MAX_VALUES) + b'"a"]',
        b"[" + b'{"a":1},' * MAX_VALUES + b"1]",
    ],
    ids=["lists", "numbers", "texts", "escapes", "objects"],
)
def test_a_body_with_too_many_values_is_not_decoded(body: bytes) -> None:
    with pytest.raises(LimitExceeded, match="the number of values in the body exceeds the limit of 250000"):
        decode_json(body)


@pytest.mark.parametrize(
    "text",
    ["1,2,3,4\\n", "[[{{,,", '{\\"a\\": [1, 2]}\\\\', "\\\\\\\\", "é,"],
    ids=["csv", "brackets", "json", "backslashes", "letters"],
)
def test_what_is_inside_a_text_is_no_value(text: str) -> None:
    body = b'{"a":[1,{"b":"' + text.encode() * MAX_VALUES + b'"},2]}'
    check_number_of_values(body)
    assert set(decode_json(body)) == {"a"}


def test_a_body_is_repaired_only_if_that_is_soon_done() -> None:
    with pytest.raises(LimitExceeded, match="the number of escapes in a body that is not JSON"):
        decode_json(b'["' + b"\\ud83d" * (MAX_VALUES + 1) + b'"]')


async def test_every_protocol_refuses_it(open_socket_server: ServerMaker) -> None:
    async with open_socket_server(rehearsal=True) as server:
        for path in BODIES:
            answer = await post(server, path)
            assert answer[0] == (200 if path in JSON_RPC else 422 if path == "/process" else 400), (path, answer)
            assert b"the number of values in the body exceeds the limit of 250000" in answer[1], (path, answer)
        assert await server.assert_responsive()


async def post(server: ListeningServer, path: str) -> tuple[int, bytes]:
    accept = "Accept: application/json, text/event-stream"
    answer = await server.send(server.post(path, with_values(300_000), "alice", accept))
    return answer.status, answer.body[:300]
