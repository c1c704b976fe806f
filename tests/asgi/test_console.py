"""The console's files as the server hands them out: to whom, packed how, and with what a browser may do with them."""

import gzip
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from dragoman.asgi import console
from dragoman.asgi.console import IMMUTABLE_CACHE_CONTROL
from tests.asgi_client import Answer
from tests.servers import AppServer, running_server

PAGE = b"<!doctype html><title>The console</title>"
SCRIPT = b"export const answer = 42;\n" * 100


@pytest.fixture
def built_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build of the console."""
    folder = tmp_path / "console"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(PAGE)
    (folder / "card.html").write_bytes(b"<!doctype html><title>Card</title>")
    (folder / "icon.svg").write_bytes(b"<svg/>")
    (folder / "assets" / "index-Ab_3.js").write_bytes(SCRIPT)
    (folder / "assets" / "index-Ab_3.js.gz").write_bytes(gzip.compress(SCRIPT))
    defaults = dict(console.WebConsole.__init__.__kwdefaults__ or {})
    monkeypatch.setattr(console.WebConsole.__init__, "__kwdefaults__", {**defaults, "folder": folder})
    return folder


@pytest.fixture
async def app_server(tmp_path: Path, built_console: Path) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path / "data") as house:
        yield house


async def get(server: AppServer, path: str, *, method: str = "GET", **headers: str) -> Answer:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return await server.connection.request(method, path, headers=named)


def policy(headers: Mapping[str, str]) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


async def test_who_asks_for_a_page_gets_the_console_and_programs_get_the_agent_api(app_server: AppServer) -> None:
    page = await get(app_server, "/", accept="text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
    assert (page.status, page.body, page.headers["content-type"]) == (200, PAGE, "text/html; charset=utf-8")
    assert page.headers["vary"] == "accept, accept-encoding"
    for accept in ("*/*", "application/json"):
        assert b'"service":"Dragoman"' in (await get(app_server, "/", accept=accept)).body
    assert (await get(app_server, "/", accept="text/html", method="HEAD")).status == 200
    assert (await get(app_server, "/", accept="text/html", method="POST")).status == 405


async def test_the_page_is_asked_for_each_time_and_sent_only_when_it_changed(
    app_server: AppServer, built_console: Path
) -> None:
    first = await get(app_server, "/", accept="text/html")
    again = await get(app_server, "/", accept="text/html", if_none_match=first.headers["etag"])
    assert (first.headers["cache-control"], again.status, again.body) == ("no-cache", 304, b"")
    (built_console / "index.html").write_bytes(PAGE + b"!")
    anew = await get(app_server, "/", accept="text/html", if_none_match=first.headers["etag"])
    assert (anew.status, anew.body) == (200, PAGE + b"!")


async def test_files_whose_name_holds_their_hash_are_kept_for_ever_and_come_as_they_were_packed(
    app_server: AppServer,
) -> None:
    plain = await get(app_server, "/assets/index-Ab_3.js")
    assert (plain.status, plain.body, plain.headers["cache-control"]) == (200, SCRIPT, IMMUTABLE_CACHE_CONTROL)
    assert plain.headers["content-type"].startswith("text/javascript")
    packed = await get(app_server, "/assets/index-Ab_3.js", accept_encoding="br, gzip")
    assert (packed.headers["content-encoding"], gzip.decompress(packed.body)) == ("gzip", SCRIPT)
    assert packed.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize("name", ["nothing.js", "..%2Findex.html", "%2e%2e%2f%2e%2e%2fserver.py", "a/b.js", ".built"])
async def test_nothing_else_is_a_file_of_the_console(app_server: AppServer, name: str) -> None:
    assert (await get(app_server, f"/assets/{name}")).status == 404


async def test_the_page_may_fetch_from_its_server_alone_and_run_no_script_but_its_own(app_server: AppServer) -> None:
    page = policy((await get(app_server, "/", accept="text/html")).headers)
    assert (page["default-src"], page["script-src"], page["connect-src"]) == ("'none'", "'self'", "'self'")
    assert (page["style-src"], page["frame-src"], page["frame-ancestors"]) == ("'self'", "'self'", "'self'")
    assert page["img-src"] == "'self' data: blob:"


async def test_a_card_runs_its_scripts_without_an_origin_and_can_fetch_nothing(app_server: AppServer) -> None:
    card = policy((await get(app_server, "/card.html")).headers)
    assert (card["sandbox"], card["default-src"], card["img-src"]) == ("allow-scripts", "'none'", "data: blob:")
    assert "connect-src" not in card


async def test_only_pages_that_may_call_may_show_the_console_in_a_frame(tmp_path: Path, built_console: Path) -> None:
    async with running_server(tmp_path / "data", cors_origins=["https://app.example"]) as house:
        page = policy((await get(house, "/", accept="text/html")).headers)
        assert page["frame-ancestors"] == "'self' https://app.example"


async def test_a_server_without_the_built_console_serves_and_says_how_it_is_built(
    app_server: AppServer, built_console: Path
) -> None:
    (built_console / "index.html").unlink()
    page = await get(app_server, "/", accept="text/html")
    assert (page.status, page.headers["cache-control"]) == (503, "no-store")
    assert b"make console" in page.body
    assert b'"service":"Dragoman"' in (await get(app_server, "/")).body
    assert (await get(app_server, "/healthz")).status == 200


async def test_the_console_can_be_switched_off(tmp_path: Path, built_console: Path) -> None:
    async with running_server(tmp_path / "data", console=False) as house:
        assert b'"service":"Dragoman"' in (await get(house, "/", accept="text/html")).body
        assert (await get(house, "/card.html")).status == 404
