"""The web console's files: who gets them, in which encoding, and with which Content-Security-Policy."""

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
    async with running_server(tmp_path / "data") as server:
        yield server


async def get(server: AppServer, path: str, *, method: str = "GET", **headers: str) -> Answer:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return await server.connection.request(method, path, headers=named)


def policy(headers: Mapping[str, str]) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


async def test_browsers_get_the_console_at_the_root_and_programs_get_the_agent_api(app_server: AppServer) -> None:
    page = await get(app_server, "/", accept="text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
    assert (page.status, page.body, page.headers["content-type"]) == (200, PAGE, "text/html; charset=utf-8")
    assert page.headers["vary"] == "accept, accept-encoding"
    for accept in ("*/*", "application/json"):
        assert b'"service":"Dragoman"' in (await get(app_server, "/", accept=accept)).body
    assert (await get(app_server, "/", accept="text/html", method="HEAD")).status == 200
    assert (await get(app_server, "/", accept="text/html", method="POST")).status == 405


async def test_the_page_is_revalidated_each_time_and_sent_only_when_it_changed(
    app_server: AppServer, built_console: Path
) -> None:
    first = await get(app_server, "/", accept="text/html")
    again = await get(app_server, "/", accept="text/html", if_none_match=first.headers["etag"])
    assert (first.headers["cache-control"], again.status, again.body) == ("no-cache", 304, b"")
    (built_console / "index.html").write_bytes(PAGE + b"!")
    changed = await get(app_server, "/", accept="text/html", if_none_match=first.headers["etag"])
    assert (changed.status, changed.body) == (200, PAGE + b"!")


async def test_files_with_a_hash_in_their_name_are_immutable_and_sent_compressed(
    app_server: AppServer,
) -> None:
    plain = await get(app_server, "/assets/index-Ab_3.js")
    assert (plain.status, plain.body, plain.headers["cache-control"]) == (200, SCRIPT, IMMUTABLE_CACHE_CONTROL)
    assert plain.headers["content-type"].startswith("text/javascript")
    packed = await get(app_server, "/assets/index-Ab_3.js", accept_encoding="br, gzip")
    assert (packed.headers["content-encoding"], gzip.decompress(packed.body)) == ("gzip", SCRIPT)
    assert packed.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize("name", ["nothing.js", "..%2Findex.html", "%2e%2e%2f%2e%2e%2fserver.py", "a/b.js", ".built"])
async def test_no_other_file_is_served(app_server: AppServer, name: str) -> None:
    assert (await get(app_server, f"/assets/{name}")).status == 404


async def test_the_page_may_connect_only_to_its_server_and_run_only_its_own_scripts(app_server: AppServer) -> None:
    page = policy((await get(app_server, "/", accept="text/html")).headers)
    assert (page["default-src"], page["script-src"], page["connect-src"]) == ("'none'", "'self'", "'self'")
    assert (page["style-src"], page["frame-src"], page["frame-ancestors"]) == ("'self'", "'self'", "'self'")
    assert page["img-src"] == "'self' data: blob:"


async def test_a_card_runs_its_scripts_without_an_origin_and_without_network(app_server: AppServer) -> None:
    card = policy((await get(app_server, "/card.html")).headers)
    assert (card["sandbox"], card["default-src"], card["img-src"]) == ("allow-scripts", "'none'", "data: blob:")
    assert "connect-src" not in card


async def test_only_configured_origins_may_show_the_console_in_a_frame(tmp_path: Path, built_console: Path) -> None:
    async with running_server(tmp_path / "data", cors_origins=["https://app.example"]) as server:
        page = policy((await get(server, "/", accept="text/html")).headers)
        assert page["frame-ancestors"] == "'self' https://app.example"


async def test_a_server_without_the_built_console_runs_and_says_how_to_build_it(
    app_server: AppServer, built_console: Path
) -> None:
    (built_console / "index.html").unlink()
    page = await get(app_server, "/", accept="text/html")
    assert (page.status, page.headers["cache-control"]) == (503, "no-store")
    assert b"make console" in page.body
    assert b'"service":"Dragoman"' in (await get(app_server, "/")).body
    assert (await get(app_server, "/healthz")).status == 200


async def test_the_console_can_be_switched_off(tmp_path: Path, built_console: Path) -> None:
    async with running_server(tmp_path / "data", console=False) as server:
        assert b'"service":"Dragoman"' in (await get(server, "/", accept="text/html")).body
        assert (await get(server, "/card.html")).status == 404
