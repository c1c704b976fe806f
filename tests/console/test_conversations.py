"""Conversations at the console: what an agent does is seen, what it asks is answered, nothing is lost or doubled."""

import base64
import json

from tests.browser import Browser, Json
from tests.console.axe import faults
from tests.console.conftest import PICTURES
from tests.console.console_page import Desk, quoted
from tests.conversations import call, script
from tests.servers import SocketHouse

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SAID = "document.querySelector('.assistant .markdown')?.innerText.trim().split(' ')"
DONE = "document.querySelector('.answer-foot') && !document.querySelector('[aria-busy=true], .turn.pending')"


async def say(desk: Desk, text: str) -> None:
    """Write a message, as soon as the agent takes one, and send it."""
    await desk.until("document.querySelector('[aria-label=Send]')")
    await desk.write("Message", text)
    await desk.page.press("Enter")


async def begun(desk: Desk, text: str) -> str:
    """Begin a conversation; its id."""
    await desk.open()
    await say(desk, text)
    await desk.until("document.querySelector('.chat .turn')")
    return str(await desk.run("location.hash.split('/')[2]"))


async def test_an_answer_shows_thoughts_markdown_a_plan_calls_and_a_sub_agent(desk: Desk) -> None:
    words = "## Findings\n\nSome *calm* `text`.\n\n```python\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    await begun(
        desk,
        script(
            {"think": "I look around first."},
            {
                "plan": {
                    "status": "in_progress",
                    "steps": [{"title": "Look", "status": "done"}, {"title": "Tell", "status": "pending"}],
                }
            },
            {"say": words, "size": 3, "every_ms": 2},
            {"calls": [{"name": "add", "input": {"a": 1, "b": 2}}, {"name": "boom", "input": {}}]},
            {
                "fork": {
                    "description": "Count",
                    "script": [{"say": "I count."}, call("add", a=2, b=2), {"say": "It is {result}."}],
                }
            },
            {"say": "All done."},
        ),
    )
    await desk.sees("All done.")
    await desk.until(DONE)
    assert await desk.run("[...document.querySelectorAll('.markdown h4')].map((each) => each.textContent)") == [
        "Findings"
    ]
    assert await desk.run("document.querySelector('.markdown .code code').textContent") == "print(1)"
    assert await desk.run("document.querySelectorAll('.markdown td').length") == 2
    assert await desk.run("document.querySelector('.thinking').open") is False
    assert await desk.text(".plan") == "Plan\nunder way\nLook\n(done)\nTell\n(to do)"
    together = await desk.text(".calls.together")
    assert together.startswith("2 calls at once\nadd\na: 1, b: 2")
    assert "boom" in together
    assert "failed" in together
    await desk.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    await desk.sees("I look around first.", ".thinking")
    assert await desk.run("[...document.querySelectorAll('.fork .markdown')].map((each) => each.innerText)") == [
        "I count.",
        "It is 4.",
    ]
    assert await desk.run(
        "[...document.querySelectorAll('.calls.together .value pre')].map((each) => each.innerText)"
    ) == [
        '{\n  "a": 1,\n  "b": 2\n}',
        "3",
        "{}",
        "Tool execution failed: boom",
    ]
    assert "tokens" in await desk.text(".answer-foot")
    assert await faults(desk) == []
    await desk.picture("answer")
    drawn = "[...document.querySelectorAll('.assistant > .markdown')].map((each) => each.innerHTML)"
    grown = await desk.run(drawn)
    await desk.page.ask("Page.reload")
    await desk.until(DONE)
    assert await desk.run(drawn) == grown


async def test_permissions_are_granted_once_or_for_the_conversation_and_denied_with_a_reason(desk: Desk) -> None:
    await begun(desk, script(call("stamp", text="a"), {"say": "1: {result}"}))
    await desk.sees("May the agent use stamp?")
    assert await faults(desk) == []
    await desk.picture("permission")
    await desk.press("Allow once")
    await desk.sees("1: stamped a")
    await say(desk, script(call("stamp", text="b"), {"say": "2: {result}"}))
    await desk.press("Deny …")
    await desk.write("Reason, for the agent", "not today")
    await desk.press("Deny")
    await desk.sees("2: Tool call denied: not today")
    await desk.sees("denied", ".call-state")
    await say(desk, script(call("stamp", text="c"), {"say": "3: {result}"}))
    await desk.press("Allow in this conversation")
    await desk.sees("3: stamped c")
    await say(desk, script(call("stamp", text="d"), {"say": "4: {result}"}))
    await desk.sees("4: stamped d")


async def test_questions_are_forms_with_one_several_and_own_answers(desk: Desk) -> None:
    colours = [{"label": "red"}, {"label": "green"}, {"label": "blue", "description": "as the sky"}]
    asked = [
        {
            "question": "Which environment?",
            "header": "Deploy",
            "options": [{"label": "staging"}, {"label": "production"}],
        },
        {"question": "Which colours?", "options": colours, "multiSelect": True},
        {"question": "Which name?", "options": [{"label": "none"}]},
    ]
    await begun(desk, script({"ask": {"questions": asked}}, {"say": "You chose {answer}."}))
    await desk.sees("Which environment?")
    assert await desk.run("[...document.querySelectorAll('.asking button')].at(-1).disabled") is True
    await desk.press("production")
    await desk.press("staging")
    await desk.press("red")
    await desk.press("blue\nas the sky")
    await desk.run("document.querySelectorAll('.question')[2].querySelector('input.input').focus()")
    await desk.page.type("Ada")
    assert await faults(desk) == []
    await desk.picture("questions")
    await desk.press("Answer")
    await desk.sees("You chose staging, red, blue, Ada.")


async def test_a_reload_in_the_middle_goes_on_and_two_windows_stay_the_same(
    desk: Desk, chromium: Browser, console_house: SocketHouse
) -> None:
    words = [f"{number} " for number in range(4_000)]
    other = Desk(await chromium.page(), console_house.line.url, console_house.key("alice"), PICTURES)
    await other.open()
    session = await begun(desk, script({"say": words, "every_ms": 20}))
    await other.run(f"location.hash = '#/conversations/{session}'")
    await desk.sees("3 4 5")
    await desk.page.ask("Page.reload")
    heard = int(await desk.until(f"{SAID}?.at(-2)"))
    await desk.until(f"{SAID}.length > {heard + 20}")
    await other.press("Stop")
    told = []
    for window in (desk, other):
        await window.sees("Stopped here")
        told.append(await window.run(SAID))
    assert told[0] == told[1] == [str(number) for number in range(len(told[0]))]
    await say(other, "hello")
    await desk.sees("Hello! I am the rehearsal agent.")
    await desk.press("What can be done with this conversation")
    await desk.press("Rename")
    await desk.write("Title", "Seen twice")
    await desk.press("Save")
    await other.sees("Seen twice", ".chat-title, .session-title")
    assert other.console == []
    await other.close()


async def test_an_answer_can_be_stopped_and_asked_for_again(desk: Desk) -> None:
    await begun(desk, script({"say": "Slowly "}, call("slow", seconds=60)))
    await desk.until("document.querySelector('.call.pending')")
    await desk.press("Stop")
    await desk.sees("Stopped here")
    await desk.sees("cancelled", ".call-state")
    await say(desk, "add 20 and 22")
    await desk.sees("The sum is 42.")
    await desk.press("Answer again")
    await desk.until(
        "document.querySelectorAll('.turn.user').length === 2 && document.querySelectorAll('.call').length === 2"
    )
    await desk.until(DONE)
    assert (await desk.text(".feed")).count("The sum is 42.") == 1


async def test_questions_of_a_sub_agent_are_answered_where_they_are_asked(desk: Desk) -> None:
    asked = {"questions": [{"question": "Which one?", "options": [{"label": "left"}, {"label": "right"}]}]}
    steps: list[Json] = [{"say": "Below."}, {"ask": asked}, {"say": "Took {answer}."}]
    await begun(desk, script({"fork": {"description": "Choose", "script": steps}}, {"say": "Above: {result}"}))
    await desk.sees("Which one?", ".fork .asking")
    await desk.picture("question-below")
    await desk.press("right")
    await desk.press("Answer")
    await desk.sees("Above: Took right.")


async def test_cards_actions_schemas_and_pictures_of_answers_are_shown(desk: Desk) -> None:
    action = {"type": "tool", "tool": "add", "args": {"a": 1}}
    button = {"type": "button", "label": "Add", "action": action}
    schema = {"type": "stack", "children": [{"type": "badge", "label": "All is well"}, button]}
    picture = {"image": f"data:image/png;base64,{PIXEL}"}
    await begun(
        desk,
        script(call("card", title="Hi"), call("highlight", city="Prague"), {"card": schema}, picture, {"say": "x"}),
    )
    await desk.until(DONE)
    await desk.until("document.querySelector('.tool-card iframe')")
    await desk.sees("map.highlight", ".bridge")
    await desk.sees("All is well", ".ui-schema")
    await desk.until("document.querySelector('.assistant .said-picture')")
    await desk.picture("cards")
    await desk.press("Add", ".ui-schema")
    await desk.sees('add {"a":1}', "dialog")
    await desk.run("document.querySelector('dialog .danger, dialog .primary').click()")
    await desk.until("document.querySelectorAll('.turn.user').length === 2")
    await desk.sees("You said:")


async def test_a_failure_says_what_failed_and_leaves_the_conversation_usable(desk: Desk) -> None:
    await begun(desk, script({"say": "Half of"}, {"fail": {"code": "quota", "message": "The quota is used up."}}))
    await desk.sees("The quota is used up.", "[role=alert]")
    await desk.picture("failed")
    await say(desk, "hello")
    await desk.sees("Hello! I am the rehearsal agent.")


async def test_a_run_that_failed_before_it_said_a_word_says_why_and_can_be_asked_again(desk: Desk) -> None:
    await begun(desk, script({"fail": {"code": "quota", "message": "The quota is used up."}}))
    await desk.until("document.querySelector('[role=alert]')?.innerText === 'The quota is used up.'")
    await desk.picture("failed-at-once")
    await desk.page.ask("Page.reload")
    await desk.until("document.querySelector('[role=alert]')?.innerText === 'The quota is used up.'")
    assert await faults(desk) == []
    asked = await desk.run("document.querySelector('[data-row]').dataset.row")
    await desk.press("Answer again")
    again = f"[...document.querySelectorAll('[data-row]')].every((each) => each.dataset.row !== {quoted(asked)})"
    await desk.until(f"{again} && document.querySelector('[role=alert]')?.innerText === 'The quota is used up.'")
    await say(desk, "hello")
    await desk.sees("Hello! I am the rehearsal agent.")
    assert await desk.run("document.querySelector('[role=alert]')") is None


async def test_pictures_are_pasted_seen_and_still_there_after_a_reload(desk: Desk) -> None:
    await desk.open()
    await desk.until("document.querySelector('[aria-label=Message]')")
    await desk.run(
        f"""(async () => {{
        const bytes = Uint8Array.from(atob({quoted(PIXEL)}), (sign) => sign.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], 'dot.png', {{type: 'image/png'}}));
        document.querySelector('[aria-label=Message]').dispatchEvent(
            new ClipboardEvent('paste', {{clipboardData: files, bubbles: true, cancelable: true}}));
        }})()"""
    )
    await desk.sees("dot.png", ".attached")
    await say(desk, "what is this?")
    await desk.sees("You said: what is this?")
    shown = "document.querySelector('.said-picture')?.src"
    assert await desk.until(shown) == f"data:image/png;base64,{PIXEL}"
    session = str(await desk.run("location.hash.split('/')[2]"))
    await desk.open("conversations", session)
    assert base64.b64decode((await desk.until(shown)).partition(",")[2]) == base64.b64decode(PIXEL)


async def test_a_new_conversation_takes_an_agent_and_its_options_and_hides_secrets(desk: Desk) -> None:
    await desk.open()
    await desk.press("Options")
    await desk.write("Greeting", "Ahoy!")
    await desk.choose("Style", "loud")
    await desk.write("Token", "12345")
    assert await desk.run("document.querySelectorAll('.start input[type=password]').length") == 1
    await desk.picture("options")
    assert await faults(desk) == []
    steps: list[Json] = [{"option": name} for name in ("greeting", "style", "token")]
    await say(desk, script(*steps))
    await desk.sees("Ahoy!")
    told = await desk.text(".assistant")
    assert ("loud" in told, "set(5)" in told, "12345" in told) == (True, True, False)


async def test_conversations_are_found_pinned_and_deleted(desk: Desk) -> None:
    await begun(desk, "a walrus by the sea")
    await desk.until(DONE)
    session = await begun(desk, "a gazelle in the grass")
    await desk.until(DONE)
    await desk.press("What can be done with this conversation")
    await desk.press("Pin")
    await desk.until("document.querySelector('.session-pin')")
    await desk.write("Search conversations", "gazelle")
    await desk.until("document.querySelectorAll('.session').length === 1")
    assert "a gazelle in the grass" in await desk.text(".session")
    await desk.press("What can be done with this conversation")
    await desk.picture("menu")
    await desk.press("Delete")
    await desk.sees("will be gone for good", "dialog")
    await desk.press("Delete", "dialog")
    await desk.sees("Nothing was found.", ".sessions")
    await desk.sees("What shall we talk about?")
    await desk.open("conversations", session)
    await desk.sees("There is no such conversation.")
    desk.console.clear()  # browsers note every 404


async def test_what_was_summed_up_can_be_read_and_memories_are_shown(desk: Desk, console_house: SocketHouse) -> None:
    key = console_house.key("alice")
    headers = [("authorization", f"Bearer {key}"), ("content-type", "application/json")]
    body = json.dumps({"content": "Likes short answers.", "type": "feedback"}).encode()
    made = await console_house.line.open("POST", "/api/memories", headers=headers, body=body)
    assert made.status == 201
    await begun(desk, "hello")
    await desk.sees("Remembered 1 thing")
    await desk.run("document.querySelector('.memories').open = true")
    await desk.sees("Likes short answers.")
    await say(desk, "hello again")
    await desk.sees("You said: hello again")
    await desk.until(DONE)
    await desk.press("What can be done with this conversation")
    await desk.press("Sum up what was said")
    await desk.until("document.querySelector('.compaction')")
    await desk.picture("compaction")


async def test_short_messages_below_a_long_answer_leave_the_page_alive_and_at_its_end(desk: Desk) -> None:
    gap = "(({scrollHeight, scrollTop, clientHeight}) => scrollHeight - scrollTop - clientHeight)"
    at_end = f"{gap}(document.querySelector('.feed')) < 2"
    await begun(desk, script({"say": "a line\n\n" * 100}))
    for count in (2, 3, 4):
        await desk.until(DONE)
        await say(desk, "hello")
        await desk.until(f"document.querySelector('.feed [aria-setsize=\"{2 * count}\"]') && {DONE} && {at_end}")
    await desk.page.ask("Page.reload")
    await desk.until(f"{DONE} && {at_end}")


async def test_a_wide_answer_fits_in_400_pixels_and_in_chinese(desk: Desk) -> None:
    words = "A line.\n\n```\n" + "x" * 200 + "\n```\n\n| a | b | c | d |\n|-|-|-|-|\n" + "| wide cell " * 4 + "|"
    session = await begun(desk, script({"say": words}, call("lookup", q="a long question " * 10), {"say": "w" * 90}))
    await desk.until(DONE)
    await desk.set(theme="dark", language="zh")
    await desk.resize(400, 800)
    await desk.open("conversations", session)
    await desk.until("document.querySelector('.answer-foot')")
    assert await desk.run("document.documentElement.scrollWidth") == 400
    assert await desk.run("document.querySelector('.feed').scrollWidth <= document.querySelector('.feed').clientWidth")
    assert await faults(desk) == []
    await desk.picture("narrow-dark-chinese")
    await desk.set(theme="light", language="en")


async def test_what_the_empty_field_says_does_not_make_it_scroll_on_a_telephone(desk: Desk) -> None:
    session = await begun(desk, "ask me")
    await desk.resize(390, 800)
    await desk.open("conversations", session)
    await desk.until("document.querySelector('.composer textarea')?.placeholder.startsWith('Answer above')")
    assert await desk.run(
        "(() => { const it = document.querySelector('.composer textarea');"
        " return it.scrollHeight <= it.clientHeight; })()"
    )
