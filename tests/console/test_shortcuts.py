"""The keyboard: the command palette, shortcuts, and a focus that is never lost."""

import pytest

from tests.console.axe import serious_violations
from tests.console.console_page import ConsolePage
from tests.console.test_conversations import DONE, say, start_conversation
from tests.console.test_versions import FOCUSED, until_messages

OPTIONS = "[...document.querySelectorAll('[role=option]')].map((each) => each.innerText.trim())"
SELECTED = "document.querySelector('[role=option][aria-selected=true]')?.innerText.trim()"


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
    await press_control(console_page, "k")
    await console_page.until("document.querySelectorAll('[role=option]').length > 10")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("palette")
    await console_page.page.type("pin")
    await console_page.until(f"{SELECTED} === 'Pin'")
    await console_page.page.press("Enter")
    await console_page.until("!document.querySelector('dialog') && document.querySelector('.session-pin')")
    await console_page.until(f"{FOCUSED} === 'Message'")
    await press_control(console_page, "k")
    await console_page.until("document.querySelector('dialog[open]')")
    await console_page.page.type("health")
    await console_page.until(f"{SELECTED} === 'Go to: Server health'")
    await console_page.page.press("Enter")
    await console_page.until("location.hash === '#/health'")
    await press_control(console_page, "k")
    await console_page.until("document.querySelector('dialog[open]')")
    await console_page.page.type("heron")
    await console_page.until(f"{SELECTED} === 'a heron on the river'")
    assert await console_page.run(OPTIONS) == ["a heron on the river"]
    await console_page.page.press("Enter")
    await console_page.until(f"location.hash === '#/conversations/{session}'")


async def test_the_arrow_edits_the_newest_message_and_the_focus_stays_with_the_versions(
    console_page: ConsolePage,
) -> None:
    await start_conversation(console_page, "first try")
    await console_page.until(DONE)
    await console_page.run("document.querySelector('[aria-label=Message]').focus()")
    await console_page.page.press("ArrowUp")
    await console_page.until(f"{FOCUSED} === 'Edit message'")
    await console_page.write("Edit message", "second try")
    await console_page.page.press("Enter")
    await until_messages(console_page, "second try", version="2/2")
    await console_page.run("document.querySelector('[aria-label=\"Previous version\"]').focus()")
    await console_page.page.press("Enter")
    await until_messages(console_page, "first try", version="1/2")
    await console_page.until(f"{FOCUSED} === 'Next version'")
    await console_page.page.press("Enter")
    await until_messages(console_page, "second try", version="2/2")
    await console_page.until(f"{FOCUSED} === 'Previous version'")
    await press_sign(console_page, "/")
    await console_page.until(f"{FOCUSED} === 'Message'")
    await say(console_page, "1/2?")
    await until_messages(console_page, "second try", "1/2?", version="2/2")


@pytest.mark.parametrize(("theme", "language", "width"), [("light", "en", 1280), ("dark", "zh", 400)])
async def test_a_question_mark_lists_the_shortcuts(
    console_page: ConsolePage, theme: str, language: str, width: int
) -> None:
    await console_page.open()
    await console_page.set(theme=theme, language=language)
    await console_page.resize(width, 800)
    await console_page.open("keys")
    await console_page.until("document.querySelector('main h1')")
    await press_sign(console_page, "?")
    await console_page.until("document.querySelectorAll('dialog kbd').length > 6")
    assert await serious_violations(console_page) == []
    await console_page.screenshot(f"shortcuts-{theme}-{language}")
    await console_page.page.press("Escape")
    await console_page.until("!document.querySelector('dialog')")
    await press_control(console_page, "k")
    await console_page.until("document.querySelector('[role=option]')")
    assert await console_page.run("document.documentElement.scrollWidth <= innerWidth")
    assert await serious_violations(console_page) == []
    await console_page.screenshot(f"palette-{theme}-{language}")
    await console_page.page.press("Escape")
    await console_page.set(theme="light", language="en")
