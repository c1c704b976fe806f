"""Messages are edited, repeated, copied and saved, and no version of them is lost."""

import json

from tests.browser import Browser
from tests.console.axe import serious_violations
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage
from tests.console.test_conversations import DONE, PIXEL, say, start_conversation
from tests.conversations import call, script
from tests.extent import IS_FULL
from tests.servers import SocketServer

MESSAGES = "[...document.querySelectorAll('.turn.user .message-text')].map((each) => each.innerText)"
VERSION = "document.querySelector('.alternatives')?.innerText.trim()"
LAST_VERSION = "[...document.querySelectorAll('.alternatives')].at(-1)?.innerText.trim()"
EDIT_LAST_OVER_AG_UI = """
(async () => {
    const headers = { authorization: `Bearer ${localStorage['dragoman.key']}`, "content-type": "application/json" };
    const turns = await (await fetch("api/sessions/SESSION/messages", { headers })).json();
    const at = turns.findLastIndex((each) => each.role === "user");
    const known = turns.slice(0, at).map((each) => ({
        id: each.turn_id.replace("turn_", ""), role: each.role, content: each.blocks[0].content,
    }));
    const messages = [...known, { id: "edited", role: "user", content: "over AG-UI" }];
    const body = { threadId: "SESSION", runId: crypto.randomUUID(), messages, tools: [], context: [], state: {} };
    await fetch("ag-ui/rehearsal", { method: "POST", headers, body: JSON.stringify({ ...body, forwardedProps: {} }) });
})()
"""
"""What an application does whose user edits a message: it sends the history up to it, and the new one."""
HOLD_FRAMES = """(() => {
    const held = [];
    const draw = window.requestAnimationFrame;
    window.requestAnimationFrame = (callback) => held.push(callback);
    window.releaseFrames = () => {
        window.requestAnimationFrame = draw;
        for (const callback of held) callback(performance.now());
    };
})()"""
"""What waits for the next frame waits until the test releases it, as in a page that is behind others."""
HOLD_FIRST_LIST_OF_LINKS = """(() => {
    const ask = window.fetch;
    window.fetch = async (...request) => {
        const answer = await ask(...request);
        if (window.first || !answer.url.endsWith("/share") || request[1]?.method === "POST") return answer;
        window.first = answer;
        await new Promise((release) => (window.releaseFirst = release));
        return answer;
    };
})()"""
NOTE_EMPTY_LIST = """new MutationObserver(() => {
    if (document.querySelector("dialog") && !document.querySelector(".public-links")) window.wasEmpty = true;
}).observe(document.body, { childList: true, subtree: true })"""
FOCUSED = "document.activeElement?.getAttribute('aria-label')"


async def until_messages(console_page: ConsolePage, *texts: str, version: str | None = None) -> None:
    shown = f"JSON.stringify({MESSAGES}) === {json.dumps(json.dumps(texts, separators=(',', ':')))}"
    await console_page.until(f"{shown} && {DONE} && ({VERSION} ?? null) === {json.dumps(version)}")


async def test_messages_are_edited_and_answers_regenerated_and_every_version_stays(
    console_page: ConsolePage, chromium: Browser, console_server: SocketServer
) -> None:
    session = await start_conversation(console_page, "one")
    await console_page.until(DONE)
    await say(console_page, "two")
    await until_messages(console_page, "one", "two")
    other = ConsolePage(await chromium.page(), console_server.connection.url, console_server.key("alice"), SCREENSHOTS)
    await other.open("conversations", session)
    await until_messages(other, "one", "two")

    await console_page.press("Edit message")
    await console_page.until(f"{FOCUSED} === 'Edit message'")
    await console_page.page.press("Escape")
    await console_page.until(f"{FOCUSED} === 'Message'")
    await console_page.press("Edit message")
    await console_page.write("Edit message", "one, better")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("editing")
    await console_page.page.press("Enter")
    await until_messages(console_page, "one, better", version="2/2")
    await console_page.until(f"{FOCUSED} === 'Message'")
    await console_page.press("Previous version")
    await until_messages(console_page, "one", "two", version="1/2")
    await other.page.bring_to_front()
    await until_messages(other, "one", "two", version="1/2")
    await other.close()

    await console_page.press("Regenerate this answer")
    await until_messages(console_page, "one", version="3/3")
    await console_page.reload()
    await until_messages(console_page, "one", version="3/3")
    await console_page.press("Previous version")
    await until_messages(console_page, "one, better", version="2/3")
    await say(console_page, "and then")
    await until_messages(console_page, "one, better", "and then", version="2/3")
    await console_page.run(EDIT_LAST_OVER_AG_UI.replace("SESSION", session))
    await console_page.until(f"{MESSAGES}.at(-1) === 'over AG-UI' && {DONE} && {LAST_VERSION} === '2/2'")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("versions")
    if not IS_FULL:
        return
    await console_page.set(theme="dark", language="zh")
    await console_page.resize(400, 800)
    await console_page.open("conversations", session)
    await console_page.until(f"{VERSION} === '2/3'")
    assert await console_page.run("document.documentElement.scrollWidth") == 400
    assert await serious_violations(console_page) == []
    await console_page.screenshot("versions-narrow-dark-zh")
    await console_page.set(theme="light", language="en")


async def test_who_writes_while_another_version_is_loaded_keeps_the_focus(console_page: ConsolePage) -> None:
    await start_conversation(console_page, "one")
    await console_page.until(DONE)
    await console_page.press("Try again")
    await until_messages(console_page, "one", version="2/2")
    await console_page.run(HOLD_FRAMES)
    await console_page.run("document.querySelector('.alternatives button:enabled').focus()")
    await console_page.press("Previous version")
    await until_messages(console_page, "one", version="1/2")
    await console_page.write("Message", "and then")
    await console_page.run("window.releaseFrames()")
    await console_page.page.press("Enter")
    await until_messages(console_page, "one", "and then", version="1/2")


async def test_an_edited_message_keeps_its_attachments_after_a_reload_and_pictures_open(
    console_page: ConsolePage,
) -> None:
    await console_page.open()
    await console_page.until("document.querySelector('[aria-label=Message]')")
    await console_page.run(
        f"""(async () => {{
        const bytes = Uint8Array.from(atob('{PIXEL}'), (sign) => sign.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], 'dot.png', {{type: 'image/png'}}));
        files.items.add(new File(['some notes'], 'notes.txt', {{type: 'text/plain'}}));
        document.querySelector('[aria-label=Message]').dispatchEvent(
            new ClipboardEvent('paste', {{clipboardData: files, bubbles: true, cancelable: true}}));
        }})()"""
    )
    await console_page.wait_for_text("notes.txt", ".attached")
    await say(console_page, "look")
    await console_page.until(DONE)
    await console_page.reload()
    await console_page.until(DONE)
    await console_page.press("Edit message")
    await console_page.write("Edit message", "look again")
    await console_page.page.press("Enter")
    await until_messages(console_page, "look again", version="2/2")
    await console_page.reload()
    await console_page.until(f"{VERSION} === '2/2' && document.querySelector('.turn.user .message-image')")
    assert "notes.txt" in await console_page.text(".turn.user")
    await console_page.run("document.querySelector('.picture').focus()")
    await console_page.page.press("Enter")
    await console_page.until("document.querySelector('dialog[open] .lightbox')")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("lightbox")
    await console_page.page.press("Escape")
    await console_page.until(f"!document.querySelector('dialog') && {FOCUSED} === 'Enlarge the image'")


async def test_a_conversation_is_copied_shared_and_saved_as_markdown_and_json(console_page: ConsolePage) -> None:
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    await console_page.page.send_command("Browser.grantPermissions", permissions=permissions)
    text = script(call("add", a=1, b=2), {"say": "It is **{result}**."})
    await start_conversation(console_page, text)
    await console_page.until(DONE)
    await console_page.press("Copy message")
    await console_page.until("document.querySelector('.turn.user [aria-label=Copied]')")
    assert await console_page.run("navigator.clipboard.readText()") == text
    assert await console_page.run("document.querySelectorAll('.turn.user time, .answer-foot time').length") == 2
    await console_page.run(
        """(() => {
        window.saved = [];
        const create = URL.createObjectURL;
        URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return create(blob); };
        HTMLAnchorElement.prototype.click = function () {};
        })()"""
    )
    await console_page.press("Conversation menu")
    await console_page.press("Share and export")
    await console_page.press("Markdown", "dialog")
    markdown = str(await console_page.until("window.saved[0]"))
    assert markdown.startswith("# It is {result}.\n\n## You · ")
    assert '**add**\n\n```json\n{\n  "a": 1,\n  "b": 2\n}\n```\n\n```\n3\n```\n\n' in markdown
    assert markdown.endswith("\n\nIt is **3**.\n")
    await console_page.press("JSON", "dialog")
    turns = json.loads(await console_page.until("window.saved[1]"))
    assert [turn["role"] for turn in turns] == ["user", "assistant", "assistant"]
    await console_page.press("All users of this server can read this conversation", "dialog")
    await console_page.until("document.querySelector('dialog input').checked")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("share")

    await console_page.press("Create public link", "dialog")
    link = await console_page.until("document.querySelector('.public-link')?.href")
    await console_page.press("Close", "dialog")
    await console_page.until("!document.querySelector('dialog')")
    await console_page.press("Conversation menu")
    await console_page.press("Share and export")
    await console_page.press("Create public link", "dialog")
    await console_page.until("document.querySelectorAll('.public-links li').length === 2")
    other = await console_page.run("document.querySelector('.public-link').href")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("share-links")
    await console_page.run("document.querySelector('.public-links li:last-child button').click()")  # the older one
    await console_page.until("document.querySelectorAll('.public-links li').length === 1")
    assert await console_page.run("document.querySelector('.public-link').href") == other
    assert await console_page.run(f"fetch('api/share/{link.rpartition('/')[2]}').then(({{status}}) => status)") == 404
    console_page.console.clear()  # browsers note every 404
    link = other
    await console_page.run("localStorage.removeItem('dragoman.key')")
    await console_page.page.go(link, "document.querySelector('article')")
    await console_page.wait_for_text("It is 3.", "article")
    assert await console_page.run("document.querySelector('nav')") is None
    assert await serious_violations(console_page) == []
    await console_page.screenshot("share-public")


async def test_an_older_list_of_links_that_comes_late_does_not_replace_the_newer_one(console_page: ConsolePage) -> None:
    await start_conversation(console_page, "one")
    await console_page.until(DONE)
    await console_page.run(HOLD_FIRST_LIST_OF_LINKS)
    await console_page.press("Conversation menu")
    await console_page.press("Share and export")
    await console_page.until("window.releaseFirst")
    await console_page.press("Create public link", "dialog")
    await console_page.until("document.querySelectorAll('.public-links li').length === 1")
    await console_page.run(f"({NOTE_EMPTY_LIST}, window.releaseFirst())")
    await console_page.until("window.first.bodyUsed")
    await console_page.press("Create public link", "dialog")
    await console_page.until("document.querySelectorAll('.public-links li').length === 2")
    assert not await console_page.run("window.wasEmpty")
