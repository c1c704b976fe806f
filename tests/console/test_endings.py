"""How runs ended is part of the conversation: seen live, in other windows, after a reload, behind later messages."""

from tests.browser import Browser
from tests.console.axe import serious_violations
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage
from tests.console.test_conversations import DONE, PIXEL, say, start_conversation
from tests.conversations import call, script
from tests.servers import SocketServer

ENDINGS = "[...document.querySelectorAll('.ending')].map((each) => each.innerText)"
FAILURE = {"fail": {"code": "quota", "message": "The quota is used up."}}
LIMIT = "The answer reached the maximum length.\nmax_tokens"
REFUSAL = "The model declined to answer.\nrefusal"
STEPS = "The agent reached its maximum number of steps.\nmax_steps"
FAILED = "The quota is used up.\nquota"


async def test_every_end_without_a_complete_answer_is_shown_with_its_code_live_and_after_a_reload(
    console_page: ConsolePage, chromium: Browser, console_server: SocketServer
) -> None:
    other = ConsolePage(await chromium.page(), console_server.connection.url, console_server.key("alice"), SCREENSHOTS)
    await other.open()
    await console_page.resize(1280, 4800)  # only rows near the visible ones are drawn
    session = await start_conversation(console_page, script({"say": "As long as"}, {"stop": "max_tokens"}))
    await other.run(f"location.hash = '#/conversations/{session}'")
    seen = [LIMIT]
    await console_page.until(f"{ENDINGS}.length === {len(seen)} && {DONE}")
    for text, end in (
        (script({"stop": "refusal"}), REFUSAL),
        (script(call("add", a=1, b=2), FAILURE), FAILED),
        (script(FAILURE), FAILED),
        (script(*[call("add", a=1, b=1)] * 26), STEPS),
    ):
        await say(console_page, text)
        seen.append(end)
        await console_page.until(f"{ENDINGS}.length === {len(seen)} && {DONE}")
    await say(console_page, script({"wait_ms": 60_000}))
    await console_page.press("Stop")
    seen.append("Stopped")
    await console_page.until(f"{ENDINGS}.length === {len(seen)} && {DONE}")
    await say(console_page, "hello")
    await console_page.wait_for_text("Hello! I am the rehearsal agent.")
    await other.resize(1280, 4800)
    for window in (console_page, other):
        await window.page.bring_to_front()  # covered pages are not drawn
        await window.until(f"{ENDINGS}.length === {len(seen)}")
        assert await window.run(ENDINGS) == seen
    await console_page.page.bring_to_front()
    await console_page.reload()
    await console_page.until(f"{ENDINGS}.length === {len(seen)} && {DONE}")
    assert await console_page.run(ENDINGS) == seen
    assert await serious_violations(console_page) == []
    await console_page.screenshot("endings")
    await console_page.set(theme="dark")
    await console_page.resize(400, 4800)
    await console_page.open("conversations", session)
    await console_page.until(DONE)
    assert await console_page.run("document.documentElement.scrollWidth") == 400
    assert await serious_violations(console_page) == []
    await console_page.screenshot("endings-narrow-dark")
    await console_page.set(theme="light")
    await other.close()


async def test_a_failed_message_with_an_image_can_be_tried_again_after_a_reload(console_page: ConsolePage) -> None:
    await console_page.open()
    await console_page.until("document.querySelector('[aria-label=Message]')")
    await console_page.run(
        f"""(async () => {{
        const bytes = Uint8Array.from(atob('{PIXEL}'), (sign) => sign.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], 'dot.png', {{type: 'image/png'}}));
        document.querySelector('[aria-label=Message]').dispatchEvent(
            new ClipboardEvent('paste', {{clipboardData: files, bubbles: true, cancelable: true}}));
        }})()"""
    )
    await console_page.wait_for_text("dot.png", ".attached")
    await say(console_page, script(FAILURE))
    await console_page.until(f"{ENDINGS}.length === 1")
    await console_page.reload()
    await console_page.until(f"{ENDINGS}.length === 1")
    row = await console_page.run("document.querySelector('[data-row]').dataset.row")
    await console_page.press("Try again")
    await console_page.until(
        f"document.querySelector('[data-row]')?.dataset.row !== '{row}' && {ENDINGS}.length === 1"
        " && document.querySelector('.turn.user .message-image')"
    )
    assert await console_page.run("document.querySelectorAll('.turn.user').length") == 1


async def test_a_refused_message_is_tried_again_after_a_reload_in_its_own_place(console_page: ConsolePage) -> None:
    await start_conversation(console_page, script({"stop": "refusal"}))
    await console_page.until(f"{ENDINGS}.length === 1 && {DONE}")
    await console_page.reload()
    await console_page.until(f"{ENDINGS}.length === 1 && {DONE}")
    row = await console_page.run("document.querySelector('[data-row]').dataset.row")
    await console_page.press("Try again")
    await console_page.until(
        f"document.querySelector('[data-row]')?.dataset.row !== '{row}' && {ENDINGS}.length === 1 && {DONE}"
    )
    await say(console_page, "hello")
    await console_page.wait_for_text("Hello! I am the rehearsal agent.")
    assert await console_page.run(ENDINGS) == [REFUSAL]
