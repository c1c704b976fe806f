"""Conversations: everything an agent does is shown, its questions can be answered, nothing is lost or doubled."""

import base64
import json

from tests.browser import Browser, Json
from tests.console.axe import serious_violations
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage, js_string
from tests.conversations import call, script
from tests.servers import SocketServer

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ANSWER_TEXT = "document.querySelector('.assistant .markdown')?.innerText.trim().split(' ')"
DONE = "document.querySelector('.answer-foot') && !document.querySelector('[aria-busy=true], .turn.pending')"

CHANGE_GREETING_AT_ONCE = """new MutationObserver((_, observer) => {
    const label = [...document.querySelectorAll("label")].find((each) => each.textContent.startsWith("Greeting"));
    if (!label) return;
    observer.disconnect();
    label.control.value = "Ahoy!";
    label.control.dispatchEvent(new Event("input", { bubbles: true }));
    window.isGreetingChanged = true;
}).observe(document.body, { childList: true, subtree: true })"""
"""Changes the option before anything else can happen that waits for the page to be drawn."""


async def say(console_page: ConsolePage, text: str) -> None:
    """Write a message, as soon as the agent takes one, and send it."""
    await console_page.until("document.querySelector('[aria-label=Send]')")
    await console_page.write("Message", text)
    await console_page.page.press("Enter")


async def start_conversation(console_page: ConsolePage, text: str) -> str:
    """Begin a conversation; its id."""
    await console_page.open()
    await say(console_page, text)
    await console_page.until("document.querySelector('.chat .turn')")
    return str(await console_page.run("location.hash.split('/')[2]"))


async def test_an_answer_shows_thoughts_markdown_a_plan_calls_and_a_sub_agent(console_page: ConsolePage) -> None:
    words = "## Findings\n\nSome *calm* `text`.\n\n```python\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    await start_conversation(
        console_page,
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
    await console_page.wait_for_text("All done.")
    await console_page.until(DONE)
    assert await console_page.run("[...document.querySelectorAll('.markdown h4')].map((each) => each.textContent)") == [
        "Findings"
    ]
    assert await console_page.run("document.querySelector('.markdown .code code').textContent") == "print(1)"
    assert await console_page.run("document.querySelectorAll('.markdown td').length") == 2
    assert await console_page.run("document.querySelector('.thinking').open") is False
    assert await console_page.text(".plan") == "Plan\nin progress\nLook\n(done)\nTell\n(to do)"
    together = await console_page.text(".calls.together")
    assert together.startswith("2 parallel calls\nadd\na: 1, b: 2")
    assert "boom" in together
    assert "failed" in together
    await console_page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    await console_page.wait_for_text("I look around first.", ".thinking")
    assert await console_page.run(
        "[...document.querySelectorAll('.fork .markdown')].map((each) => each.innerText)"
    ) == [
        "I count.",
        "It is 4.",
    ]
    assert await console_page.run(
        "[...document.querySelectorAll('.calls.together .value pre')].map((each) => each.innerText)"
    ) == [
        '{\n  "a": 1,\n  "b": 2\n}',
        "3",
        "{}",
        "Tool execution failed: boom",
    ]
    assert "tokens" in await console_page.text(".answer-foot")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("answer")
    drawn = "[...document.querySelectorAll('.assistant > .markdown')].map((each) => each.innerHTML)"
    colored = "document.querySelector('.code .hljs-number')"
    await console_page.until(colored)
    grown = await console_page.run(drawn)
    await console_page.reload()
    await console_page.until(f"{DONE} && {colored}")
    assert await console_page.run(drawn) == grown


async def test_permissions_are_granted_once_or_for_the_conversation_and_denied_with_a_reason(
    console_page: ConsolePage,
) -> None:
    await start_conversation(console_page, script(call("stamp", text="a"), {"say": "1: {result}"}))
    await console_page.wait_for_text("Allow the agent to use stamp?")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("permission")
    await console_page.press("Allow once")
    await console_page.wait_for_text("1: stamped a")
    await say(console_page, script(call("stamp", text="b"), {"say": "2: {result}"}))
    await console_page.press("Deny…")
    await console_page.write("Reason (sent to the agent)", "not today")
    await console_page.press("Deny")
    await console_page.wait_for_text("2: Tool call denied: not today")
    await console_page.wait_for_text("denied", ".call-state")
    await say(console_page, script(call("stamp", text="c"), {"say": "3: {result}"}))
    await console_page.press("Allow for this conversation")
    await console_page.wait_for_text("3: stamped c")
    await say(console_page, script(call("stamp", text="d"), {"say": "4: {result}"}))
    await console_page.wait_for_text("4: stamped d")


async def test_questions_are_forms_with_one_several_and_own_answers(console_page: ConsolePage) -> None:
    colours = [{"label": "red"}, {"label": "green"}, {"label": "blue", "description": "as the sky"}]
    questions = [
        {
            "question": "Which environment?",
            "header": "Deploy",
            "options": [{"label": "staging"}, {"label": "production"}],
        },
        {"question": "Which colours?", "options": colours, "multiSelect": True},
        {"question": "Which name?", "options": [{"label": "none"}]},
    ]
    await start_conversation(console_page, script({"ask": {"questions": questions}}, {"say": "You chose {answer}."}))
    await console_page.wait_for_text("Which environment?")
    assert await console_page.run("[...document.querySelectorAll('.asking button')].at(-1).disabled") is True
    await console_page.press("production")
    await console_page.press("staging")
    await console_page.press("red")
    await console_page.press("blue\nas the sky")
    await console_page.run("document.querySelectorAll('.question')[2].querySelector('input.input').focus()")
    await console_page.page.type("Ada")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("questions")
    await console_page.press("Submit")
    await console_page.wait_for_text("You chose staging, red, blue, Ada.")


async def test_a_reload_in_the_middle_continues_and_two_windows_stay_the_same(
    console_page: ConsolePage, chromium: Browser, console_server: SocketServer
) -> None:
    words = [f"{number} " for number in range(4_000)]
    other = ConsolePage(await chromium.page(), console_server.connection.url, console_server.key("alice"), SCREENSHOTS)
    await other.open()
    session = await start_conversation(console_page, script({"say": words, "every_ms": 20}))
    await other.run(f"location.hash = '#/conversations/{session}'")
    await console_page.wait_for_text("3 4 5")
    await console_page.reload()
    heard = int(await console_page.until(f"{ANSWER_TEXT}?.at(-2)"))
    await console_page.until(f"{ANSWER_TEXT}.length > {heard + 20}")
    await other.press("Stop")
    answers = []
    for window in (console_page, other):
        await window.wait_for_text("Stopped")
        answers.append(await window.run(ANSWER_TEXT))
    assert answers[0] == answers[1] == [str(number) for number in range(len(answers[0]))]
    await say(other, "hello")
    await console_page.wait_for_text("Hello! I am the rehearsal agent.")
    await console_page.press("Conversation menu")
    await console_page.press("Rename")
    await console_page.write("Title", "Seen twice")
    await console_page.press("Save")
    await other.wait_for_text("Seen twice", ".chat-title, .session-title")
    assert other.console == []
    await other.close()


async def test_an_answer_can_be_stopped_and_tried_again(console_page: ConsolePage) -> None:
    await start_conversation(console_page, script({"say": "Slowly "}, call("slow", seconds=60)))
    await console_page.until("document.querySelector('.call.pending')")
    await console_page.press("Stop")
    await console_page.wait_for_text("Stopped")
    await console_page.wait_for_text("cancelled", ".call-state")
    await say(console_page, "add 20 and 22")
    await console_page.wait_for_text("The sum is 42.")
    await console_page.press("Try again")
    await console_page.until(
        "document.querySelectorAll('.turn.user').length === 2 && document.querySelectorAll('.call').length === 2"
    )
    await console_page.until(DONE)
    assert (await console_page.text(".feed")).count("The sum is 42.") == 1


async def test_questions_of_a_sub_agent_are_answered_in_the_sub_agents_turns(console_page: ConsolePage) -> None:
    questions = {"questions": [{"question": "Which one?", "options": [{"label": "left"}, {"label": "right"}]}]}
    steps: list[Json] = [{"say": "Below."}, {"ask": questions}, {"say": "Took {answer}."}]
    await start_conversation(
        console_page, script({"fork": {"description": "Choose", "script": steps}}, {"say": "Above: {result}"})
    )
    await console_page.wait_for_text("Which one?", ".fork .asking")
    await console_page.screenshot("question-below")
    await console_page.press("right")
    await console_page.press("Submit")
    await console_page.wait_for_text("Above: Took right.")


async def test_cards_actions_schemas_and_pictures_of_answers_are_shown(console_page: ConsolePage) -> None:
    action = {"type": "tool", "tool": "add", "args": {"a": 1}}
    button = {"type": "button", "label": "Add", "action": action}
    schema = {"type": "stack", "children": [{"type": "badge", "label": "All is well"}, button]}
    picture = {"image": f"data:image/png;base64,{PIXEL}"}
    await start_conversation(
        console_page,
        script(call("card", title="Hi"), call("highlight", city="Prague"), {"card": schema}, picture, {"say": "x"}),
    )
    await console_page.until(DONE)
    await console_page.until("document.querySelector('.tool-card iframe')")
    await console_page.wait_for_text("map.highlight", ".bridge")
    await console_page.wait_for_text("All is well", ".ui-schema")
    await console_page.until("document.querySelector('.assistant .message-image')")
    await console_page.screenshot("cards")
    await console_page.press("Add", ".ui-schema")
    await console_page.wait_for_text('add {"a":1}', "dialog")
    await console_page.run("document.querySelector('dialog .danger, dialog .primary').click()")
    await console_page.until("document.querySelectorAll('.turn.user').length === 2")
    await console_page.wait_for_text("You said:")


async def test_a_failure_says_what_failed_and_leaves_the_conversation_usable(console_page: ConsolePage) -> None:
    await start_conversation(
        console_page, script({"say": "Half of"}, {"fail": {"code": "quota", "message": "The quota is used up."}})
    )
    await console_page.wait_for_text("The quota is used up.", "[role=alert]")
    await console_page.screenshot("failed")
    await say(console_page, "hello")
    await console_page.wait_for_text("Hello! I am the rehearsal agent.")


async def test_a_run_that_failed_without_output_says_why_and_can_be_tried_again(
    console_page: ConsolePage,
) -> None:
    await start_conversation(console_page, script({"fail": {"code": "quota", "message": "The quota is used up."}}))
    failed = "document.querySelector('[role=alert]')?.innerText === 'The quota is used up.\\nquota'"
    await console_page.until(failed)
    await console_page.screenshot("failed-at-once")
    await console_page.reload()
    await console_page.until(failed)
    assert await serious_violations(console_page) == []
    row = await console_page.run("document.querySelector('[data-row]').dataset.row")
    await console_page.press("Try again")
    again = f"[...document.querySelectorAll('[data-row]')].every((each) => each.dataset.row !== {js_string(row)})"
    await console_page.until(f"{again} && {failed}")
    await say(console_page, "hello")
    await console_page.wait_for_text("Hello! I am the rehearsal agent.")
    assert await console_page.run("document.querySelector('[role=alert]')") is None


async def test_pictures_are_pasted_seen_and_still_there_after_a_reload(console_page: ConsolePage) -> None:
    await console_page.open()
    await console_page.until("document.querySelector('[aria-label=Message]')")
    await console_page.run(
        f"""(async () => {{
        const bytes = Uint8Array.from(atob({js_string(PIXEL)}), (sign) => sign.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], 'dot.png', {{type: 'image/png'}}));
        document.querySelector('[aria-label=Message]').dispatchEvent(
            new ClipboardEvent('paste', {{clipboardData: files, bubbles: true, cancelable: true}}));
        }})()"""
    )
    await console_page.wait_for_text("dot.png", ".attached")
    await say(console_page, "what is this?")
    await console_page.wait_for_text("You said: what is this?")
    shown = "document.querySelector('.message-image')?.src"
    assert await console_page.until(shown) == f"data:image/png;base64,{PIXEL}"
    session = str(await console_page.run("location.hash.split('/')[2]"))
    await console_page.open("conversations", session)
    assert base64.b64decode((await console_page.until(shown)).partition(",")[2]) == base64.b64decode(PIXEL)


async def test_a_new_conversation_takes_an_agent_and_its_options_and_hides_secrets(console_page: ConsolePage) -> None:
    await console_page.open()
    await console_page.press("Options")
    await console_page.write("Greeting", "Ahoy!")
    await console_page.choose("Style", "loud")
    await console_page.write("Token", "12345")
    assert await console_page.run("document.querySelectorAll('.start input[type=password]').length") == 1
    await console_page.screenshot("options")
    assert await serious_violations(console_page) == []
    steps: list[Json] = [{"option": name} for name in ("greeting", "style", "token")]
    await say(console_page, script(*steps))
    await console_page.wait_for_text("Ahoy!")
    answer = await console_page.text(".assistant")
    assert ("loud" in answer, "set(5)" in answer, "12345" in answer) == (True, True, False)


async def test_an_option_that_is_changed_as_soon_as_it_is_shown_is_kept(console_page: ConsolePage) -> None:
    await console_page.open("memories")
    await console_page.run(CHANGE_GREETING_AT_ONCE)
    await console_page.run("location.hash = '#/conversations'")
    await console_page.until("window.isGreetingChanged")
    await say(console_page, script({"option": "greeting"}))
    await console_page.wait_for_text("Ahoy!", ".assistant")


async def test_conversations_are_found_pinned_and_deleted(console_page: ConsolePage) -> None:
    await start_conversation(console_page, "a walrus by the sea")
    await console_page.until(DONE)
    session = await start_conversation(console_page, "a gazelle in the grass")
    await console_page.until(DONE)
    await console_page.press("Conversation menu")
    await console_page.press("Pin")
    await console_page.until("document.querySelector('.session-pin')")
    await console_page.write("Search conversations", "gazelle")
    await console_page.until("document.querySelectorAll('.session').length === 1")
    assert "a gazelle in the grass" in await console_page.text(".session")
    await console_page.press("Conversation menu")
    await console_page.screenshot("menu")
    await console_page.press("Delete")
    await console_page.wait_for_text("This permanently deletes", "dialog")
    await console_page.press("Delete", "dialog")
    await console_page.wait_for_text("No matching conversations.", ".sessions")
    await console_page.wait_for_text("How can I help?")
    await console_page.open("conversations", session)
    await console_page.wait_for_text("Conversation not found")
    console_page.console.clear()  # browsers note every 404


async def test_a_conversation_that_is_deleted_elsewhere_is_gone_here(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    session = await start_conversation(console_page, "hello")
    await console_page.until(DONE)
    headers = [("authorization", f"Bearer {console_server.key('alice')}")]
    deleted = await console_server.connection.open("DELETE", f"/api/sessions/{session}", headers=headers)
    assert deleted.status < 300
    await console_page.wait_for_text("Conversation not found")
    assert await console_page.text(".composer-frame") == "", "there is nothing to write to"


async def test_summaries_can_be_read_and_memories_are_shown(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    key = console_server.key("alice")
    headers = [("authorization", f"Bearer {key}"), ("content-type", "application/json")]
    body = json.dumps({"content": "Likes short answers.", "type": "feedback"}).encode()
    made = await console_server.connection.open("POST", "/api/memories", headers=headers, body=body)
    assert made.status == 201
    await start_conversation(console_page, "hello")
    await console_page.wait_for_text("1 memory used")
    await console_page.run("document.querySelector('.memories').open = true")
    await console_page.wait_for_text("Likes short answers.")
    await say(console_page, "hello again")
    await console_page.wait_for_text("You said: hello again")
    await console_page.until(DONE)
    for text in ("a long story " * 200, "and another one " * 200, "goodbye"):
        await say(console_page, text)
        await console_page.until(DONE)
    await console_page.press("Conversation menu")
    await console_page.press("Summarize earlier messages")
    await console_page.until("document.querySelector('.compaction')")
    await console_page.screenshot("compaction")


async def test_short_messages_below_a_long_answer_leave_the_page_alive_and_at_its_end(
    console_page: ConsolePage,
) -> None:
    gap = "(({scrollHeight, scrollTop, clientHeight}) => scrollHeight - scrollTop - clientHeight)"
    at_end = f"{gap}(document.querySelector('.feed')) < 2"
    await start_conversation(console_page, script({"say": "a line\n\n" * 100}))
    for count in (2, 3, 4):
        await console_page.until(DONE)
        await say(console_page, "hello")
        await console_page.until(
            f"document.querySelector('.feed [aria-setsize=\"{2 * count}\"]') && {DONE} && {at_end}"
        )
    await console_page.reload()
    await console_page.until(f"{DONE} && {at_end}")


async def test_a_wide_answer_fits_in_400_pixels_and_in_chinese(console_page: ConsolePage) -> None:
    words = "A line.\n\n```\n" + "x" * 200 + "\n```\n\n| a | b | c | d |\n|-|-|-|-|\n" + "| wide cell " * 4 + "|"
    session = await start_conversation(
        console_page, script({"say": words}, call("lookup", q="a long question " * 10), {"say": "w" * 90})
    )
    await console_page.until(DONE)
    await console_page.set(theme="dark", language="zh")
    await console_page.resize(400, 800)
    await console_page.open("conversations", session)
    await console_page.until("document.querySelector('.answer-foot')")
    assert await console_page.run("document.documentElement.scrollWidth") == 400
    assert await console_page.run(
        "document.querySelector('.feed').scrollWidth <= document.querySelector('.feed').clientWidth"
    )
    assert await serious_violations(console_page) == []
    await console_page.screenshot("narrow-dark-chinese")
    await console_page.set(theme="light", language="en")


async def test_the_placeholder_does_not_scroll_on_a_phone(console_page: ConsolePage) -> None:
    session = await start_conversation(console_page, "ask me")
    await console_page.resize(390, 800)
    await console_page.open("conversations", session)
    await console_page.until("document.querySelector('.composer textarea')?.placeholder.startsWith('Respond above')")
    assert await console_page.run(
        "(() => { const it = document.querySelector('.composer textarea');"
        " return it.scrollHeight <= it.clientHeight; })()"
    )
