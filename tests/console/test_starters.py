"""What a new conversation suggests, and the tour of the rehearsal agent."""

from tests.console.axe import serious_violations
from tests.console.console_page import ConsolePage
from tests.console.test_conversations import say

STARTERS = "[...document.querySelectorAll('.starter')].map((each) => each.textContent)"
PASTE_PICTURE = """(() => {
    const files = new DataTransfer();
    files.items.add(new File(['GIF89a'], 'dot.gif', { type: 'image/gif' }));
    document.querySelector('.composer textarea').dispatchEvent(
        new ClipboardEvent('paste', { clipboardData: files, bubbles: true, cancelable: true }));
})()"""


async def test_an_empty_conversation_suggests_messages_and_the_tour_shows_everything(console_page: ConsolePage) -> None:
    await console_page.open()
    await console_page.until("document.querySelector('.starter')")
    assert await console_page.run(STARTERS) == ["Show me everything", "add 20 and 22", "ask me", "think"]
    assert await serious_violations(console_page) == []
    await console_page.screenshot("starters")
    await console_page.run("document.querySelectorAll('.agent input')[1].click()")
    await console_page.until("!document.querySelector('.starter')")
    await console_page.run("document.querySelectorAll('.agent input')[0].click()")
    await console_page.press("Show me everything")
    await console_page.wait_for_text("What do you want to stamp?")
    await console_page.screenshot("tour-question")
    await console_page.press("A letter")
    await console_page.press("Submit")
    await console_page.press("Allow once")
    await console_page.wait_for_text("That was everything.")
    await console_page.screenshot("tour")


async def test_suggestions_fit_a_phone_in_chinese_and_at_night(console_page: ConsolePage) -> None:
    await console_page.open()
    await console_page.set(theme="dark", language="zh")
    await console_page.resize(400, 800)
    await console_page.open()
    await console_page.until("document.querySelector('ul.starters[aria-label=建议]')")
    assert await console_page.run("document.documentElement.scrollWidth <= innerWidth")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("starters-narrow-dark-zh")
    await console_page.set(theme="light")
    await console_page.open()
    await console_page.screenshot("starters-narrow-zh")
    await console_page.set(language="en")


async def test_the_button_that_sends_stays_in_view_on_a_phone_when_a_picture_is_attached(
    console_page: ConsolePage,
) -> None:
    await console_page.resize(400, 700)
    await console_page.open()
    await console_page.until("document.querySelector('.starter')")
    await console_page.run(PASTE_PICTURE)
    await console_page.wait_for_text("dot.gif", ".attached")
    await console_page.until("document.querySelector('.composer [type=submit]').getBoundingClientRect().bottom < 700")


async def test_a_first_message_that_is_refused_can_be_sent_to_another_agent(console_page: ConsolePage) -> None:
    await console_page.open()
    await console_page.until("document.querySelector('.starter')")
    await console_page.run("document.querySelectorAll('.agent input')[1].click()")
    await console_page.run(PASTE_PICTURE)
    await console_page.wait_for_text("dot.gif", ".attached")
    await say(console_page, "what is this?")
    refusal = "[...document.querySelectorAll('.toast')].map((each) => each.innerText.trim())"
    await console_page.until(f"{refusal}.includes(\"Agent 'rehearsal-bare' takes no images\")")
    await console_page.until("document.querySelector('[aria-label=Message]').value === 'what is this?'")
    assert await console_page.text(".attached") != ""
    assert await console_page.run("location.hash") == "#/conversations"
    titles = "[...document.querySelectorAll('.session-title')].map((each) => each.innerText)"
    await console_page.until(f"!{titles}.includes('Untitled')")
    await console_page.run("document.querySelectorAll('.agent input')[0].click()")
    await console_page.press("Send")
    await console_page.wait_for_text("You said: what is this?", ".assistant")
