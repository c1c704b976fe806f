"""Every page with the Tab key alone: each control is reached once, is in view, and shows that it has the focus."""

import pytest

from tests.console.console_page import ConsolePage
from tests.console.sessions import answer, play_session
from tests.servers import SocketServer

BEGIN = """(() => {
  // How an element looks, with what surrounds it if that shows the focus in its place.
  window.look = (element) => [element, element.closest('label'), element.closest('.composer')].filter(Boolean).map(
    (each) => { const style = getComputedStyle(each); return [style.outline, style.borderColor, style.boxShadow]; },
  ).join();
  window.labelOf = (element) => `${element.tagName} ${element.ariaLabel ?? element.innerText ?? ''}`.slice(0, 60);
  const skip = document.querySelector('a.skip');
  skip.focus();
  window.walked = new Map([[skip, null]]);
  window.outOfView = [];
})()"""
SETTLE = """new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))).then(() => {
  const element = document.activeElement; // a control that went away has passed the focus on
  if (element !== document.body && !walked.has(element)) walked.set(element, look(element));
})"""
STEP = """(() => {
  const element = document.activeElement;
  if (element === null || element === document.body || walked.has(element)) return 'over';
  walked.set(element, look(element));
  const { top, bottom, left, right } = element.getBoundingClientRect();
  if (bottom <= 0 || top >= innerHeight || right <= 0 || left >= innerWidth) outOfView.push(labelOf(element));
  return 'on';
})()"""
END = """(() => {
  document.activeElement?.blur();
  const groups = new Set([...walked.keys()].filter((each) => each.type === 'radio').map((each) => each.name));
  const controls = document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]');
  const missed = [...controls].filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.disabled
    && each.tabIndex === 0 && !walked.has(each) && !(each.type === 'radio' && groups.has(each.name)));
  const unmarked = [...walked].filter(([each, looked]) => each.isConnected && look(each) === looked);
  const names = unmarked.map(([each]) => labelOf(each));
  return { missed: missed.map(labelOf), unmarked: names, hidden: outOfView, count: walked.size };
})()"""
PLACES = {
    "conversations": "document.activeElement.matches('textarea') && document.querySelector('.session')",
    "lens": "document.querySelector('.lens-row')",
    "memories": "document.querySelector('.item')",
    "schedules": "document.querySelector('[role=tab]')",
    "attachments": "document.querySelector('.empty')",
    "health": "document.querySelector('main h1')",
}
"""The pages of a user, and when they are complete."""
PLACES_OF_ADMINS = {
    "keys": "document.querySelectorAll('.of-all .item').length > 5",
    "audit": "document.querySelector('.item, .empty')",
}
NAVIGATION = 13
"""At least as many controls as the navigation has are walked through on every page."""


async def walk(console_page: ConsolePage) -> dict[str, object]:
    """Press Tab until every control had the focus. Returns what was wrong."""
    await console_page.page.bring_to_front()
    await console_page.run(BEGIN)
    step = "on"
    while step == "on":
        await console_page.run(SETTLE)
        await console_page.page.press("Tab")
        step = await console_page.run(STEP)
    found = await console_page.run(END)
    assert found.pop("count") > NAVIGATION
    return dict(found)


NOTHING_WRONG: dict[str, object] = {"missed": [], "unmarked": [], "hidden": []}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_tab_reaches_every_control_of_every_page(
    console_page: ConsolePage, console_server: SocketServer, theme: str
) -> None:
    question = {"question": "Which one?", "header": "Choice", "options": [{"label": "this"}, {"label": "that"}]}
    session = await play_session(
        console_server, {"think": "Well."}, {"say": "| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n"}
    )
    await play_session(console_server, {"ask": {"questions": [question]}}, session=session)
    memory = {"content": "Likes short answers.", "type": "feedback"}
    await answer(console_server, "POST", "/api/memories", memory)
    await console_page.open()
    await console_page.set(theme=theme)
    for place, is_complete in PLACES.items():
        await console_page.open(place)
        await console_page.until(is_complete)
        assert (place, await walk(console_page)) == (place, NOTHING_WRONG)
    await console_page.open("conversations", session)
    await console_page.wait_for_text("Which one?")
    await console_page.until("document.activeElement.matches('textarea')")
    assert await walk(console_page) == NOTHING_WRONG
    await console_page.run("location.hash = document.querySelector('a[href^=\"#/run\"]').getAttribute('href')")
    await console_page.wait_for_text("Model call 1")
    assert await walk(console_page) == NOTHING_WRONG
    console_page.key = console_server.key("admin")
    for place, is_complete in PLACES_OF_ADMINS.items():
        await console_page.open(place)
        await console_page.until(is_complete)
        assert (place, await walk(console_page)) == (place, NOTHING_WRONG)


async def test_the_focus_stays_in_the_conversation_when_the_button_to_its_end_goes_away(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    session = await play_session(console_server, {"say": "word\n\n" * 100})
    await console_page.open("conversations", session)
    await console_page.wait_for_text("word", ".feed")
    await console_page.until("document.activeElement.matches('textarea')")
    await console_page.run("document.querySelector('.feed').scrollTop = 0")
    await console_page.until("document.querySelector('.feed-end button')")
    await console_page.page.press("Tab", shift=True)
    assert await console_page.run("document.activeElement.innerText") == "Jump to the end"
    await console_page.page.press("Enter")
    await console_page.until("!document.querySelector('.feed-end button')")
    assert await console_page.run("document.activeElement.ariaLabel") == "Message"
