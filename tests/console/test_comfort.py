"""Small things that people expect: keys, dropped files, the dark theme, titles, numbers, a way out."""

import json

import pytest

from tests.console.axe import serious_violations
from tests.console.console_page import ConsolePage, js_string
from tests.console.sessions import answer, play_session
from tests.console.test_cards import open_in_lens
from tests.console.test_conversations import DONE, PIXEL, say, start_conversation
from tests.console.test_versions import until_messages
from tests.conversations import call, script
from tests.servers import SocketServer

FOCUSED = "document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.innerText"
LABEL = "document.activeElement?.getAttribute('aria-label')"
OPTIONS = "[...document.querySelectorAll('[role=option]')].map((each) => each.innerText.trim())"
SELECTED = "document.querySelector('[role=option][aria-selected=true]')?.innerText.trim()"
DARK_SUM, LIGHT_SUM = 300, 600
"""Red, green and blue together: less is a dark ground, more are light words."""


async def is_light_on_dark(console_page: ConsolePage, selector: str) -> bool | None:
    """Whether an element has light words on a dark ground, as it is painted; None if it has a dark ground only."""
    await console_page.page.bring_to_front()
    box = await console_page.run(f"document.querySelector('{selector}').getBoundingClientRect().toJSON()")
    clip = {**{name: box[name] for name in ("x", "y", "width", "height")}, "scale": 1}
    taken = await console_page.page.send_command("Page.captureScreenshot", clip=clip)
    drawn = f"""(async () => {{
        const image = new Image();
        image.src = 'data:image/png;base64,{taken["data"]}';
        await image.decode();
        const canvas = document.createElement('canvas').getContext('2d');
        canvas.canvas.width = image.width;
        canvas.canvas.height = image.height;
        canvas.drawImage(image, 0, 0);
        const inner = canvas.getImageData(8, 8, image.width - 16, image.height - 16).data;
        const sum = (at) => inner[at] + inner[at + 1] + inner[at + 2];
        let lightest = 0;
        for (let at = 0; at < inner.length; at += 4) lightest = Math.max(lightest, sum(at));
        return [sum(inner.length - 4), lightest];
    }})()"""
    ground, lightest = await console_page.run(drawn)
    if ground >= DARK_SUM:
        return False
    return True if lightest > LIGHT_SUM else None


async def test_escape_stops_an_answer_but_first_closes_what_is_open(console_page: ConsolePage) -> None:
    await start_conversation(console_page, script({"say": "Slowly "}, {"wait_ms": 60_000}))
    await console_page.wait_for_text("Slowly", ".assistant")
    await console_page.press("Conversation menu")
    await console_page.until("document.activeElement.role === 'menuitem'")
    await console_page.page.press("Escape")
    await console_page.until("!document.querySelector('[role=menu]')")
    assert await console_page.run("document.querySelector('[aria-label=Stop]') !== null")
    await console_page.run("document.querySelector('[aria-label=Message]').focus()")
    await console_page.page.press("Escape")
    await console_page.wait_for_text("Stopped", ".ending")


async def test_escape_closes_the_reason_for_a_denial_and_the_focus_is_never_lost(console_page: ConsolePage) -> None:
    await start_conversation(console_page, script(call("stamp", text="a"), {"say": "1: {result}"}))
    await console_page.press("Deny…")
    await console_page.write("Reason (sent to the agent)", "no")
    await console_page.page.press("Escape")
    await console_page.until(f"{FOCUSED} === 'Deny…'")
    await console_page.press("Deny…")
    await console_page.write("Reason (sent to the agent)", "not today")
    await console_page.page.press("Enter")
    await console_page.wait_for_text("1: Tool call denied: not today")
    assert await console_page.until(FOCUSED) == "Message"
    both = {"calls": [{"name": "stamp", "input": {"text": each}} for each in "bc"]}
    await say(console_page, script(both, {"say": "2: {results}"}))
    await console_page.until("document.querySelectorAll('form.asking').length === 2")
    await console_page.run("document.querySelector('form.asking button').focus()")
    await console_page.page.press("Enter")
    await console_page.until("document.querySelectorAll('form.asking').length === 1")
    await console_page.until(f"{FOCUSED} === 'Allow once'")
    await console_page.page.press("Enter")
    await console_page.wait_for_text("2: ", ".assistant")
    assert await console_page.until(FOCUSED) == "Message"


async def test_a_file_dropped_beside_the_composer_is_attached_and_elsewhere_the_page_stays(
    console_page: ConsolePage,
) -> None:
    drop = f"""((selector) => {{
        const bytes = Uint8Array.from(atob('{PIXEL}'), (sign) => sign.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], 'dot.png', {{type: 'image/png'}}));
        const named = (name) => new DragEvent(name, {{dataTransfer: files, bubbles: true, cancelable: true}});
        const target = document.querySelector(selector);
        return ['dragover', 'drop'].map((name) => target.dispatchEvent(named(name)));
    }})"""
    await start_conversation(console_page, "hello")
    await console_page.until(DONE)
    assert await console_page.run(f"{drop}('.feed')") == [False, False], "the browser does not open the file"
    await console_page.wait_for_text("dot.png", ".attached")
    await console_page.open("keys")
    assert await console_page.run(f"{drop}('main')") == [False, False]


@pytest.mark.parametrize(
    ("html", "dark"),
    [("<h1>Plain</h1>", True), ("<h1 style='color: #222'>Own</h1>", False), ("<div style='background: #eee'>", False)],
)
async def test_cards_without_colours_of_their_own_follow_the_dark_theme(
    console_page: ConsolePage, console_server: SocketServer, html: str, dark: bool
) -> None:
    ui = {"target": "inline", "resourceHTML": html, "height": 160}
    drawn = {"tool": {"name": "draw", "input": {}, "output": {"_meta": {"ui": ui}}}}
    session = await play_session(console_server, drawn, {"say": "x"})
    await console_page.open()
    await console_page.set(theme="dark")
    await console_page.open("conversations", session)
    await console_page.until("document.querySelector('.tool-card iframe')")
    is_as_expected = False
    for _ in range(100):  # the frame is painted some time after it is there
        is_as_expected = (await is_light_on_dark(console_page, ".tool-card iframe")) is dark
        if is_as_expected:
            break
    await console_page.screenshot(f"card-dark-{dark}")
    await console_page.set(theme="light")
    assert is_as_expected


async def test_data_of_an_answer_can_be_opened_live_and_after_a_reload(console_page: ConsolePage) -> None:
    await start_conversation(console_page, script({"data": {"city": "Prague", "at": [50, 14]}}, {"say": "There."}))
    await console_page.until(DONE)
    for is_reloaded in (False, True):
        if is_reloaded:
            await console_page.reload()
            await console_page.until(DONE)
        await console_page.run("document.querySelector('.call summary').click()")
        await console_page.wait_for_text('"city": "Prague"', ".call pre")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("data")


async def test_titles_are_plain_words_and_whole_ones(console_page: ConsolePage) -> None:
    for text, title in (
        ("# Please **summarize** the attached quarterly report", "Please summarize the attached quarterly…"),
        (script({"say": "A sentence of the script."}), "A sentence of the script."),
    ):
        await start_conversation(console_page, text)
        await console_page.until(DONE)
        await console_page.until(f"document.querySelector('.chat-title').innerText === {json.dumps(title)}")
        await console_page.wait_for_text(title, ".session-title")


async def test_one_message_is_counted_in_the_singular(console_page: ConsolePage, console_server: SocketServer) -> None:
    session = await play_session(console_server, {"say": "One."})
    await open_in_lens(console_page, session, "text")
    await console_page.press("History", ".lens-views")
    await console_page.wait_for_text("1 message in this run")
    assert "1 messages" not in await console_page.text()


async def test_a_missing_conversation_leads_back_to_the_others(console_page: ConsolePage) -> None:
    await console_page.resize(400, 800)
    await console_page.open("conversations", "0190a000-0000-7000-8000-000000000000")
    await console_page.wait_for_text("Conversation not found")
    await console_page.screenshot("not-found-narrow")
    assert await serious_violations(console_page) == []
    await console_page.press("All conversations", "main .empty")
    await console_page.until("location.hash === '#/conversations'")
    await console_page.until("document.querySelector('[aria-label=Message]')")
    console_page.console.clear()  # browsers note every 404


# --- the keyboard -----------------------------------------------------------------------------------------------------


async def press_control(console_page: ConsolePage, key: str) -> None:
    """Press a key together with Control."""
    await console_page.page.bring_to_front()
    pressed = {"key": key, "code": f"Key{key.upper()}", "windowsVirtualKeyCode": ord(key.upper()), "modifiers": 2}
    for kind in ("keyDown", "keyUp"):
        await console_page.page.send_command("Input.dispatchKeyEvent", type=kind, **pressed)


async def press_sign(console_page: ConsolePage, sign: str) -> None:
    """Press the key of a sign."""
    await console_page.page.bring_to_front()
    await console_page.page.send_command("Input.dispatchKeyEvent", type="keyDown", key=sign, text=sign)
    await console_page.page.send_command("Input.dispatchKeyEvent", type="keyUp", key=sign)


async def test_the_palette_finds_commands_pages_and_conversations_by_their_words(console_page: ConsolePage) -> None:
    session = await start_conversation(console_page, "a heron on the river")
    await console_page.until(DONE)
    assert await console_page.run(LABEL) == "Message"
    await press_control(console_page, "k")
    await console_page.until("document.querySelectorAll('[role=option]').length > 10")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("palette")
    await console_page.page.type("pin")
    await console_page.until(f"{SELECTED} === 'Pin'")
    await console_page.page.press("Enter")
    await console_page.until("!document.querySelector('dialog') && document.querySelector('.session-pin')")
    await console_page.until(f"{LABEL} === 'Message'")
    await press_control(console_page, "k")
    await console_page.until("document.querySelector('dialog[open]')")
    await console_page.page.type("health")
    await console_page.until(f"{SELECTED} === 'Go to: Server health'")
    await console_page.page.press("Enter")
    await console_page.until("location.hash === '#/health'")
    await console_page.until("document.activeElement.id === 'main'")  # the next Tab is on the page
    await press_control(console_page, "k")
    await console_page.until("document.querySelector('dialog[open]')")
    await console_page.page.type("heron")
    await console_page.until(f"""JSON.stringify({OPTIONS}) === '["a heron on the river"]'""")
    assert await console_page.run(SELECTED) == "a heron on the river"
    await console_page.page.press("Enter")
    await console_page.until(f"location.hash === '#/conversations/{session}'")


async def test_the_arrow_edits_the_newest_message_and_the_focus_stays_with_the_versions(
    console_page: ConsolePage,
) -> None:
    await start_conversation(console_page, "first try")
    await console_page.until(DONE)
    await console_page.run("document.querySelector('[aria-label=Message]').focus()")
    await console_page.page.press("ArrowUp")
    await console_page.until(f"{LABEL} === 'Edit message'")
    await console_page.write("Edit message", "second try")
    await console_page.page.press("Enter")
    await until_messages(console_page, "second try", version="2/2")
    await console_page.run("document.querySelector('[aria-label=\"Previous version\"]').focus()")
    await console_page.page.press("Enter")
    await until_messages(console_page, "first try", version="1/2")
    await console_page.until(f"{LABEL} === 'Next version'")
    await console_page.page.press("Enter")
    await until_messages(console_page, "second try", version="2/2")
    await console_page.until(f"{LABEL} === 'Previous version'")
    await press_sign(console_page, "/")
    await console_page.until(f"{LABEL} === 'Message'")
    await say(console_page, "1/2?")
    await until_messages(console_page, "second try", "1/2?", version="2/2")


async def test_a_question_mark_lists_the_shortcuts_also_on_a_phone_at_night(console_page: ConsolePage) -> None:
    await console_page.open()
    await console_page.set(theme="dark", language="zh")
    await console_page.resize(400, 800)
    await console_page.open("keys")
    await console_page.until("document.querySelector('main h1')")
    await press_sign(console_page, "?")
    await console_page.until("document.querySelectorAll('dialog kbd').length > 6")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("shortcuts-narrow-dark-zh")
    await console_page.page.press("Escape")
    await console_page.until("!document.querySelector('dialog')")
    await press_control(console_page, "k")
    await console_page.until("document.querySelector('[role=option]')")
    assert await console_page.run("document.documentElement.scrollWidth <= innerWidth")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("palette-narrow-dark-zh")
    await console_page.page.press("Escape")
    await console_page.set(theme="light", language="en")


HOLD_ANSWER = """(() => {
    const ask = window.fetch;
    window.fetch = async (...request) => {
        const answer = await ask(...request);
        const method = request[1]?.method ?? "GET";
        if (window.release || method !== METHOD || !PATH.test(answer.url)) return answer;
        const text = await answer.text();
        answer.text = () => Promise.resolve(text);
        await new Promise((release) => (window.release = release));
        return answer;
    };
})()"""
"""The server's next answer to such a request arrives when the test releases it, as over a slow network."""
HOLD_ACKNOWLEDGEMENT = """(() => {
    const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (data) {
        if (!window.isHolding && /^42\\d+\\["chat:send"/.test(data)) {
            window.isHolding = true;
            const number = data.match(/^42(\\d+)/)[1];
            const take = this.onmessage;
            this.onmessage = (event) => {
                if (!String(event.data).startsWith(`43${number}[`)) take(event);
                else window.release = () => take(event);
            };
        }
        send.call(this, data);
    };
})()"""
"""The acknowledgement of the next message arrives when the test releases it."""
DROP_DELETION = """(() => {
    const { get } = Object.getOwnPropertyDescriptor(MessageEvent.prototype, "data");
    const isDeletion = (data) => typeof data === "string" && data.includes('"deleted":true');
    Object.defineProperty(MessageEvent.prototype, "data", {
        get() {
            const data = get.call(this);
            return isDeletion(data) ? "6" : data;
        },
    });
})()"""
"""News of a deletion does not reach the page: a packet without content arrives in its place."""
HOLD_CLOSE_EVENTS = """(() => {
    const closed = [];
    const hold = (event) => {
        event.stopImmediatePropagation();
        closed.push(event.target);
    };
    addEventListener("close", hold, true);
    window.release = () => {
        removeEventListener("close", hold, true);
        for (const each of closed) each.dispatchEvent(new Event("close"));
    };
})()"""
"""A busy browser says late that a dialog was closed."""


async def hold_answer(console_page: ConsolePage, method: str, path: str) -> None:
    await console_page.run(HOLD_ANSWER.replace("METHOD", js_string(method)).replace("PATH", f"/{path}/"))


async def release(console_page: ConsolePage) -> None:
    """Let what is held arrive. The page has taken it when this returns."""
    await console_page.until("window.release")
    await console_page.run("void window.release()")


async def test_who_writes_while_an_approval_is_on_its_way_does_not_approve_the_next_call(
    console_page: ConsolePage,
) -> None:
    both = {"calls": [{"name": "stamp", "input": {"text": each}} for each in "bc"]}
    await start_conversation(console_page, script(both, {"say": "Done."}))
    await console_page.until("document.querySelectorAll('form.asking').length === 2")
    await console_page.run(HOLD_ACKNOWLEDGEMENT)
    await console_page.press("Allow once")
    await console_page.until("document.querySelectorAll('form.asking').length === 1")
    await console_page.write("Message", "and then")
    await release(console_page)
    assert await console_page.run(LABEL) == "Message"


async def test_a_refused_message_is_put_before_what_was_written_meanwhile(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    session = await start_conversation(console_page, "one")
    await console_page.until(DONE)
    await console_page.run(DROP_DELETION)
    await answer(console_server, "DELETE", f"/api/sessions/{session}")
    await console_page.run(HOLD_ACKNOWLEDGEMENT)
    await say(console_page, "two")
    await console_page.write("Message", "and three")
    await release(console_page)
    assert await console_page.run("document.querySelector('[aria-label=Message]').value") == "two\nand three"


async def test_who_searches_while_an_edited_message_is_sent_keeps_the_focus(console_page: ConsolePage) -> None:
    await start_conversation(console_page, "one")
    await console_page.until(DONE)
    await console_page.press("Edit message")
    await console_page.write("Edit message", "one, better")
    await console_page.run(HOLD_ACKNOWLEDGEMENT)
    await console_page.page.press("Enter")
    await console_page.until("window.release")
    await console_page.write("Search conversations", "better")
    await release(console_page)
    await until_messages(console_page, "one, better", version="2/2")
    assert await console_page.run(LABEL) == "Search conversations"


async def test_a_short_answer_that_is_there_before_its_message_is_acknowledged_is_over(
    console_page: ConsolePage,
) -> None:
    await start_conversation(console_page, "one")
    await console_page.until(DONE)
    await console_page.run(HOLD_ACKNOWLEDGEMENT)
    await say(console_page, "two")
    await until_messages(console_page, "one", "two")
    await release(console_page)
    assert await console_page.run("document.querySelector('[aria-label=Send]') !== null")


async def test_who_leaves_while_a_conversation_begins_or_is_deleted_is_not_taken_back(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    await console_page.open()
    await console_page.run(HOLD_ACKNOWLEDGEMENT)
    await say(console_page, "one")
    await console_page.until("window.release")
    await console_page.run("location.hash = '#/memories'")
    await console_page.wait_for_text("Memories", "h1")
    await release(console_page)
    assert await console_page.run("location.hash") == "#/memories"
    kept = await play_session(console_server, {"say": "Hello."})
    await start_conversation(console_page, "two")
    await hold_answer(console_page, "DELETE", "sessions")
    await console_page.press("Conversation menu")
    await console_page.press("Delete")
    await console_page.press("Delete", "dialog")
    await console_page.until("window.release")
    await console_page.run(f"location.hash = '#/conversations/{kept}'")
    await console_page.wait_for_text("Hello.", ".assistant")
    await release(console_page)
    await console_page.until("[...document.querySelectorAll('.session-title')].every((it) => it.innerText !== 'two')")
    assert await console_page.run("location.hash") == f"#/conversations/{kept}"


async def test_an_older_title_that_comes_late_does_not_replace_a_newer_one(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    session = await start_conversation(console_page, "one")
    await console_page.until(DONE)
    title = "document.querySelector('.chat-title').innerText"
    await hold_answer(console_page, "GET", f"sessions\\/{session}$")
    await console_page.press("Conversation menu")
    await console_page.press("Pin")
    await console_page.until("window.release")
    await answer(console_server, "PATCH", f"/api/sessions/{session}", {"intent": "newer"})
    await console_page.until(f"{title} === 'newer'")
    await release(console_page)
    assert await console_page.run(title) == "newer"


async def test_a_form_that_is_saved_late_is_saved_once_and_closes_no_other_one(console_page: ConsolePage) -> None:
    await console_page.open("memories")
    await console_page.press("New memory")
    await console_page.write("Content", "first", "dialog")
    await hold_answer(console_page, "POST", "memories$")
    await console_page.press("Create", "dialog")
    await console_page.press("Create", "dialog")
    await console_page.until("window.release")
    await console_page.press("Close", "dialog")
    await console_page.press("New memory")
    await console_page.write("Content", "second", "dialog")
    await release(console_page)
    await console_page.wait_for_text("first", ".item")
    await console_page.press("Create", "dialog")
    await console_page.wait_for_text("second", ".item")
    contents = "[...document.querySelectorAll('.item .item-text')].map((each) => each.innerText).sort().join()"
    assert await console_page.run(contents) == "first,second"


async def test_more_conversations_come_also_if_one_changes_meanwhile(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    sessions = [await answer(console_server, "POST", "/api/sessions", {}, key="bob") for _ in range(52)]
    console_page.key = console_server.key("bob")
    await console_page.open()
    await console_page.until("document.querySelectorAll('.session').length === 50")
    await hold_answer(console_page, "GET", "offset=50")
    await console_page.press("Load more", ".sessions")
    await console_page.until("window.release")
    oldest = json.loads(sessions[-1])["session_id"]
    await answer(console_server, "PATCH", f"/api/sessions/{oldest}", {"intent": "changed"}, key="bob")
    await console_page.wait_for_text("changed", ".session")
    await release(console_page)
    await console_page.until("document.querySelectorAll('.session').length === 52")


async def test_a_wrong_key_that_is_refused_late_does_not_lock_out_the_right_one(console_page: ConsolePage) -> None:
    right, console_page.key = console_page.key, None
    await console_page.open()
    await console_page.wait_for_text("Enter your API key")
    await hold_answer(console_page, "GET", "auth\\/me$")
    for key in ("sk-dragoman-wrong", str(right)):
        await console_page.write("API key", key)
        await console_page.press("Continue")
        await console_page.until("window.release")
    await console_page.until("document.querySelector('.conversations')")
    await release(console_page)
    assert await console_page.run("document.querySelector('.conversations') !== null")
    console_page.console.clear()  # browsers note every 401


async def test_a_dialog_or_the_palette_can_be_opened_again_as_soon_as_it_is_closed(console_page: ConsolePage) -> None:
    await start_conversation(console_page, "one")
    await console_page.until(DONE)
    await console_page.run(HOLD_CLOSE_EVENTS)
    for _ in range(2):
        await console_page.press("Conversation menu")
        await console_page.press("Share and export")
        await console_page.until("document.querySelector('dialog[open]')")
        await console_page.page.press("Escape")
        await console_page.until("!document.querySelector('dialog')")
    for _ in range(2):
        await press_control(console_page, "k")
        await console_page.until("document.querySelector('dialog[open]')")
        await console_page.page.type("new conv")
        await console_page.page.press("Enter")
    await press_control(console_page, "k")
    await console_page.run("window.release()")
    assert await console_page.run("document.querySelector('dialog[open]') !== null")
