"""Names and values that users, models, tools and clients choose are text on every page that shows them."""

import re

import pytest

from tests.console.conftest import ForeignOrigin
from tests.console.console_page import ConsolePage, js_string
from tests.console.test_lens import COMPLETE_COLUMNS
from tests.conversations import script
from tests.protocols.blade.client import RestClient, socket_client
from tests.servers import SocketServer

MARK = "<img src="
IN_SIGHT = f"document.body.innerText.includes({js_string(MARK)})"
FROM_OUTSIDE = (
    "[...document.querySelectorAll('script, img, iframe, link, style, object, embed, svg, form, base, meta')]"
    ".filter((each) => URL_IN(each.outerHTML.split('>')[0])).map((each) => each.outerHTML)"
)
MARKUP = (
    "[...document.querySelectorAll('b, a')]"
    ".filter((each) => each.innerText === 'x' || each.protocol === 'javascript:').map((each) => each.outerHTML)"
)
HANDLERS = (
    "[...document.querySelectorAll('*')].flatMap((each) => [...each.attributes])"
    ".filter(({name}) => /^on|^srcdoc$|^style$/.test(name)).map(({name, value}) => name + value).filter(URL_IN)"
)


def hostile(url: str) -> str:
    """Text that ends attributes and elements, and loads something from another origin if it is taken for markup."""
    return (
        f"<img src={url}/img onerror=fetch('{url}/error')>\"'><script src={url}/script></script>"
        f"</title></textarea><b onmouseover=fetch('{url}/over')>x</b>javascript:fetch('{url}')"
    )


async def assert_all_is_text(page: ConsolePage, url: str) -> None:
    port = js_string(re.sub(r".*:", ":", url) + "/")
    for found in (FROM_OUTSIDE, MARKUP, HANDLERS):
        expression = found.replace("URL_IN", f"((text) => text.includes({port}))")
        assert await page.run(expression) == []


@pytest.fixture
async def hostile_session(console_server: SocketServer, foreign_origin: ForeignOrigin) -> str:
    """A session of a user for whom everything that has a name has a hostile one."""
    word = hostile(foreign_origin.url)
    client = RestClient(console_server.connection.url, console_server.key("alice"))
    for path, body in (
        ("memories", {"content": word}),
        ("user/api-keys", {"name": word[:50]}),
        ("scheduled-tasks", {"title": word[:100], "prompt": word, "cron": "0 9 * * 1", "timezone": "Europe/Berlin"}),
    ):
        assert (await client.request("POST", path, body)).status in (200, 201), path
    session = await client.session(intent=word)
    steps = (
        {"think": word},
        {"mcp": {"server": word, "name": word, "input": {word: word}, "output": {word: [word]}}},
        {"plan": {"status": "draft", "steps": [{"title": word, "status": "pending"}]}},
        {"data": {word: word}},
        {"say": word},
        {"ask": {"questions": [{"question": word, "options": [{"label": word}, {"label": "no"}]}]}},
    )
    message = [
        {"type": "text", "text": script(*steps)},
        {"type": "file", "name": word[:100], "data": "aGVsbG8="},
    ]
    async with socket_client(client.url, client.key) as socket:
        await socket.send(session, message)
    return session.removeprefix("sess_")


async def test_names_from_anywhere_are_text(
    console_page: ConsolePage, foreign_origin: ForeignOrigin, hostile_session: str
) -> None:
    places = [(each, "", IN_SIGHT) for each in ("memories", "keys", "schedules", "conversations")]
    places += [
        ("conversations", hostile_session, "document.querySelector('fieldset.question')"),
        ("lens", hostile_session, COMPLETE_COLUMNS),
    ]
    for place, id_, is_complete in places:
        await console_page.open(place, id_)
        await console_page.until(f"{IN_SIGHT} && {is_complete}")
        await console_page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        await assert_all_is_text(console_page, foreign_origin.url)
    assert foreign_origin.requests == []
