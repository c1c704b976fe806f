"""User interfaces of tools and agents: they cannot access the console or reach other servers."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.browser import TIMEOUT_S, Browser, http_server
from tests.console.conftest import ForeignOrigin
from tests.console.console_page import ConsolePage
from tests.console.sessions import PICTURE, play_session
from tests.servers import SocketServer, running_socket_server

Json = Any
PIXEL = f"data:image/png;base64,{b64encode(PICTURE).decode()}"
HOSTILE = Path(__file__).with_name("hostile.html").read_text()


def tool(name: str, output: Json) -> Json:
    return {"tool": {"name": name, "input": {}, "output": output}}


async def open_in_lens(console_page: ConsolePage, session: str, kind: str) -> None:
    """Open a session in the lens at the first row of that kind."""
    await console_page.open("lens", session)
    row = f"[...document.querySelectorAll('.lens-row')].find((row) => row.dataset.moment.startsWith('{kind}'))"
    await console_page.until(f"document.querySelector('.lens-row[data-moment=end] .blade .chip') && {row}")
    await console_page.run(f"{row}.click()")
    await console_page.until("document.querySelector('.lens-detail')")


async def test_a_hostile_card_runs_in_its_frame_and_reaches_nobody(
    console_page: ConsolePage, console_server: SocketServer, foreign_origin: ForeignOrigin
) -> None:
    html = HOSTILE.replace("URL", foreign_origin.url).replace("PAGE", console_server.connection.url)
    ui = {"target": "inline", "resourceHTML": html, "height": 300}
    session = await play_session(console_server, tool("draw", {"_meta": {"ui": ui}}))
    await console_page.open("keys")
    await console_page.run(
        "addEventListener('message', (event) => { if (event.data.got) window.heard = event.data.got; })"
    )
    await console_page.run(f"location.hash = '#/lens/{session}'")
    row = "[...document.querySelectorAll('.lens-row')].find((row) => row.dataset.moment.startsWith('result'))"
    await console_page.until(f"document.querySelector('.lens-row[data-moment=end] .blade .chip') && {row}")
    await console_page.run(f"{row}.click()")
    await console_page.until("document.querySelector('.tool-card iframe')")
    await console_page.run("document.querySelector('.tool-card').scrollIntoView()")
    got = await console_page.until("window.heard")
    assert got == {
        "ran": True,
        "origin": "null",
        "page": "refused",
        "storage": "refused",
        "cookie": "refused",
        "above": "refused",
        "window": "nothing",
        "beacon": got["beacon"],
        "socket": got["socket"],
        "events": got["events"],
        "worker": got["worker"],
        "submit": "nothing",
        "click": "nothing",
        "fetch": "rejected rejected rejected",
    }
    frame = "document.querySelector('.tool-card iframe')"
    assert await console_page.run(f"{frame}.sandbox.value") == "allow-scripts"
    assert await console_page.run(f"{frame}.contentDocument") is None
    async with asyncio.timeout(TIMEOUT_S):  # the last thing that it tries: to go there itself
        while not any(f"Framing '{foreign_origin.url}" in each.replace("\\'", "'") for each in console_page.console):
            await console_page.run("1")
    assert foreign_origin.requests == []
    assert await console_page.run("location.hash") == f"#/lens/{session}"
    assert await console_page.run("document.querySelectorAll('.lens-row').length") > 0
    assert all("Content Security Policy" in each for each in console_page.console), "nothing else was complained about"
    console_page.console.clear()


async def test_a_card_is_drawn_with_its_own_scripts_and_styles(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    html = (
        "<style>body { background: rgb(1, 2, 3) }</style><h1>Parcel</h1>"
        "<script>parent.postMessage({drawn: document.querySelector('h1').innerText +"
        " getComputedStyle(document.body).backgroundColor + innerHeight}, '*')</script>"
    )
    ui = {"target": "inline", "resourceHTML": html, "height": 120}
    session = await play_session(console_server, tool("draw", {"_meta": {"ui": ui}}))
    await console_page.open("keys")
    await console_page.run("addEventListener('message', (event) => { window.drawn ??= event.data.drawn; })")
    await console_page.run(f"location.hash = '#/lens/{session}'")
    row = "[...document.querySelectorAll('.lens-row')].find((row) => row.dataset.moment.startsWith('result'))"
    await console_page.until(f"document.querySelector('.lens-row[data-moment=end] .blade .chip') && {row}")
    await console_page.run(f"{row}.click()")
    assert await console_page.until("window.drawn") == "Parcelrgb(1, 2, 3)120"


async def test_a_page_of_another_server_is_only_a_link(
    console_page: ConsolePage, console_server: SocketServer, foreign_origin: ForeignOrigin
) -> None:
    ui = {"resourceUri": f"{foreign_origin.url}/page"}
    session = await play_session(console_server, tool("map", {"_meta": {"ui": ui}}))
    await open_in_lens(console_page, session, "result")
    await console_page.wait_for_text("Open the page of map in a new tab", ".tool-card")
    link = "document.querySelector('.tool-card a')"
    assert await console_page.run(f"[{link}.href, {link}.rel, {link}.target]") == [
        f"{foreign_origin.url}/page", "noopener noreferrer", "_blank",
    ]  # fmt: skip
    assert await console_page.run("document.querySelector('.tool-card iframe')") is None
    assert foreign_origin.requests == []


async def test_an_action_for_the_application_is_shown_and_not_performed(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    bridge = {"action": "map.highlight", "payload": {"cityIds": ["rome"]}}
    session = await play_session(console_server, tool("highlight", {"_meta": {"bridge": bridge}}))
    await open_in_lens(console_page, session, "result")
    await console_page.wait_for_text("map.highlight", ".bridge")
    await console_page.wait_for_text("no host application", ".bridge")
    await console_page.run("document.querySelector('.bridge').open = true")
    await console_page.wait_for_text('"rome"', ".bridge")
    assert await console_page.run("[...document.querySelectorAll('.bridge button')].length") == 1, (
        "nobody to send it to"
    )


UI = {
    "type": "stack",
    "appearance": "card",
    "children": [
        {"type": "text", "role": "title", "content": "Order <b>17</b>"},
        {"type": "badge", "label": "shipped", "status": "success"},
        {"type": "kv", "items": [{"label": "Weight", "value": "2 kg", "copyable": True}]},
        {"type": "divider"},
        {
            "type": "grid",
            "columns": 3,
            "children": [
                {"type": "button", "label": "Track", "style": "primary",
                 "action": {"type": "url", "url": "https://example.org/17"}},
                {"type": "button", "label": "Cancel", "style": "danger",
                 "action": {"type": "tool", "tool": "cancel", "args": {"order": 17}}},
                {"type": "icon", "source": "emoji", "value": "*", "label": "parcel"},
            ],
        },
        {"type": "text", "role": "code", "content": "<script>alert(1)</script>"},
        {"type": "image", "url": PIXEL, "alt": "A pixel", "width": 40, "height": 40},
        {"type": "hologram", "content": "What nobody knows yet"},
    ],
}  # fmt: skip


async def test_a_ui_schema_is_drawn_as_components(
    console_page: ConsolePage, console_server: SocketServer, foreign_origin: ForeignOrigin
) -> None:
    far = {"type": "image", "url": f"{foreign_origin.url}/a.png", "alt": "Far"}
    card = {**UI, "children": [*UI["children"], far]}
    session = await play_session(console_server, {"card": card}, {"say": "Here."})
    await open_in_lens(console_page, session, "card")
    await console_page.wait_for_text("Order <b>17</b>", ".ui-schema .ui-title")
    drawn = ".ui-schema"
    assert await console_page.run(f"document.querySelector('{drawn} .badge').className") == "badge good"
    assert (
        await console_page.run(f"document.querySelector('{drawn} dl').innerText.replace(/\\s+/g, ' ').trim()")
        == "Weight 2 kg"
    )
    link = f"document.querySelector('{drawn} a.button')"
    assert await console_page.run(f"[{link}.innerText, {link}.href, {link}.rel]") == [
        "Track", "https://example.org/17", "noopener noreferrer",
    ]  # fmt: skip
    cancel = f"document.querySelector('{drawn} button.danger')"
    assert await console_page.run(f"[{cancel}.innerText, {cancel}.disabled]") == ["Cancel", True], "nobody does it here"
    assert await console_page.run(f"document.querySelector('{drawn} .ui-emoji').getAttribute('aria-label')") == "parcel"
    assert await console_page.run(f"document.querySelector('{drawn} pre').innerText") == "<script>alert(1)</script>"
    picture = f"document.querySelector('{drawn} img')"
    assert await console_page.until(f"{picture}.complete && {picture}.naturalWidth") == 1
    await console_page.wait_for_text("What nobody knows yet", drawn)
    await console_page.wait_for_text("Far", f"{drawn} a.ui-elsewhere, {drawn} .soft")
    assert foreign_origin.requests == []
    await console_page.run(f"document.querySelector('{drawn}').scrollIntoView()")
    await console_page.screenshot("ui-schema")


async def test_a_button_of_an_answer_asks_for_confirmation_before_the_agent_gets_a_message(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    buttons = [
        {"type": "button", "label": "Cancel it", "action": {"type": "tool", "tool": "cancel", "args": {"order": 17}}},
        {"type": "button", "label": "Elsewhere", "action": {"type": "event", "name": "moved"}},
        {"type": "text", "format": "markdown", "content": "Some **strong** words"},
    ]
    session = await play_session(console_server, {"card": {"type": "stack", "children": buttons}}, {"say": "Here."})
    await console_page.open("conversations", session)
    await console_page.wait_for_text("strong", ".ui-schema strong")
    await console_page.press("Elsewhere", ".ui-schema")
    await console_page.wait_for_text("This action needs a host application", ".toast")
    await console_page.press("Cancel it", ".ui-schema")
    await console_page.wait_for_text('cancel {"order":17}', "dialog")
    await console_page.press("Cancel", "dialog")
    await console_page.until("!document.querySelector('dialog')")
    assert await console_page.run("document.querySelectorAll('.turn.assistant').length") == 1
    await console_page.press("Cancel it", ".ui-schema")
    await console_page.press("Ask", "dialog")
    await console_page.wait_for_text('You said: Please use the tool: cancel {"order":17}', ".turn.assistant")


async def test_the_frame_of_cards_has_no_rights(console_server: SocketServer) -> None:
    stream = await console_server.connection.open("GET", "/card.html")
    await stream.read()
    policy = dict(each.strip().partition(" ")[::2] for each in stream.headers["content-security-policy"].split(";"))
    assert (policy["sandbox"], policy["default-src"]) == ("allow-scripts", "'none'")
    assert policy["frame-ancestors"] == "'self'"
    assert "connect-src" not in policy


# --- a page that holds the console ------------------------------------------------------------------------------------


@pytest.fixture
def embedding_origin() -> Iterator[str]:
    """The origin of an application that shows the console in a frame."""

    class Application(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # its name there
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>An application</title>")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
            pass

    with http_server(Application) as url:
        yield url


async def test_an_action_goes_to_the_embedding_page_once_the_user_allows_it(
    chromium: Browser, tmp_path: Path, embedding_origin: str
) -> None:
    bridge = {"action": "map.highlight", "payload": {"cityIds": ["rome"]}}
    async with running_socket_server(tmp_path, agents=(), cors_origins=(embedding_origin,)) as server:
        session = await play_session(server, tool("highlight", {"_meta": {"bridge": bridge}}))
        console_page = ConsolePage(await chromium.page(), server.connection.url, server.key("alice"), tmp_path)
        await console_page.open("keys")
        await console_page.page.go(embedding_origin)
        await console_page.run(
            "addEventListener('message', (event) => (window.heard ??= []).push([event.origin, event.data]))"
        )
        await console_page.run("document.body.append(document.createElement('iframe'))")
        await console_page.run(f"document.querySelector('iframe').src = '{server.connection.url}/#/lens/{session}'")
        inside = await frame_of(console_page)
        row = "[...document.querySelectorAll('.lens-row')].find((row) => row.dataset.moment.startsWith('result'))"
        await inside(f"document.querySelector('.lens-row[data-moment=end] .blade .chip') && ({row}?.click(), {row})")
        send = "[...document.querySelectorAll('.bridge button')].find((each) => each.innerText.includes('{}'))"
        await inside(f"{send.format(f'Allow {embedding_origin} and send')}")
        assert await console_page.run("window.heard ?? null") is None, "nothing goes before somebody has allowed it"
        await inside(f"({send.format('Allow')}?.click(), true)")
        messages = await console_page.until("window.heard")
        call = messages[0][1].pop("toolCallId")
        assert messages == [[server.connection.url, {"type": "dragoman:action", **bridge}]]
        assert call.startswith("tc_")
        await console_page.run("document.querySelector('iframe').src = 'about:blank'")
        await console_page.run(f"document.querySelector('iframe').src = '{server.connection.url}/#/lens/{session}'")
        await inside(f"document.querySelector('.lens-row[data-moment=end] .blade .chip') && ({row}?.click(), {row})")
        await inside("document.querySelector('.bridge')")
        assert await console_page.run("window.heard.length") == 1, "what is loaded again does nothing by itself"
        assert console_page.console == []
        await console_page.close()


async def frame_of(console_page: ConsolePage) -> Callable[[str], Awaitable[None]]:
    """Waits inside the page's frame until an expression holds; the frame may change to another page meanwhile."""
    await console_page.until("document.querySelector('iframe')")

    async def holds(condition: str) -> bool:
        tree = await console_page.page.send_command("Page.getFrameTree")
        [child] = tree["frameTree"]["childFrames"]
        world = await console_page.page.send_command("Page.createIsolatedWorld", frameId=child["frame"]["id"])
        response = await console_page.page.send_command(
            "Runtime.evaluate",
            expression=f"!!({condition})",
            contextId=world["executionContextId"],
            returnByValue=True,
        )
        return response["result"].get("value") is True

    async def until(condition: str) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not await retry_during_navigation(holds(condition)):
                await console_page.run("new Promise((resolve) => setTimeout(resolve, 20))")

    return until


async def retry_during_navigation(call: Awaitable[bool]) -> bool:
    """Evaluates again if the page was replaced meanwhile."""
    try:
        return await call
    except AssertionError:
        return False
