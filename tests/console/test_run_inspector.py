"""The run inspector: what an answer took, step by step, from its link to the messages that a model got."""

from tests.console.axe import serious_violations
from tests.console.console_page import ConsolePage
from tests.console.test_conversations import DONE, start_conversation
from tests.conversations import call, script

ROWS = "[...document.querySelectorAll('.run-name')].map((each) => each.innerText)"
BARS = """[...document.querySelectorAll('.run-track')].map((track) => {
    const whole = track.getBoundingClientRect(), bar = track.firstChild.getBoundingClientRect();
    return bar.width > 0 && bar.left >= whole.left - 1 && bar.right <= whole.right + 4;
})"""


async def test_an_answer_leads_to_its_model_calls_tools_waits_and_sub_agents(console_page: ConsolePage) -> None:
    below = {"fork": {"description": "Count", "script": [call("add", a=2, b=2), {"say": "It is {result}."}]}}
    session = await start_conversation(
        console_page,
        script({"think": "Hm."}, call("stamp", text="a"), below, call("boom"), {"say": "Some **text**."}),
    )
    await console_page.press("Allow once")
    await console_page.wait_for_text("Some text.", ".assistant")
    await console_page.until(DONE)
    await console_page.press("Inspect the run")
    await console_page.until("document.querySelectorAll('.run-rows').length === 2")
    rows = await console_page.run(ROWS)
    assert rows == [
        *("Model call 1", "stamp"),
        *("Model call 2", "Agent", "Model call 1", "add", "Model call 2", "Model call 3", "boom", "Model call 4"),
    ]
    assert await console_page.run(f"{BARS}.every(Boolean)")
    heads = await console_page.run("[...document.querySelectorAll('.run-head')].map((each) => each.innerText)")
    assert "waited for you or the application" in heads[0]
    assert "over blade" in heads[1]
    await console_page.run("document.querySelectorAll('.run-row > details').forEach((each) => { each.open = true; })")
    await console_page.wait_for_text("for permission. Allowed.", ".run-waits")
    await console_page.wait_for_text('"text": "a"', ".run-detail")
    await console_page.wait_for_text("Tool execution failed: boom", ".run-detail")
    await console_page.run("[...document.querySelectorAll('.run-input')].at(-1).open = true")
    await console_page.wait_for_text("Result of stamp", ".run-messages")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("run-open")
    await console_page.page.send_command("Page.reload")
    await console_page.until("document.querySelectorAll('.run-rows').length === 2")
    await console_page.screenshot("run")
    run = await console_page.run("location.hash.split('/')[3]")
    await console_page.set(theme="dark", language="zh")
    await console_page.resize(400, 800)
    await console_page.open("run", f"{session}/{run}")
    await console_page.until("document.querySelectorAll('.run-rows').length === 2")
    assert await console_page.run("document.documentElement.scrollWidth") == 400
    assert await serious_violations(console_page) == []
    await console_page.screenshot("run-narrow-dark-zh")
    await console_page.set(theme="light", language="en")
    await console_page.open("run", f"{session}/{run}")
    await console_page.press("Back to the conversation")
    await console_page.wait_for_text("Some text.", ".assistant")


async def test_a_run_that_does_not_exist_leads_back(console_page: ConsolePage) -> None:
    session = await start_conversation(console_page, "hello")
    await console_page.until(DONE)
    await console_page.open("run", f"{session}/chat_none")
    await console_page.wait_for_text("Run not found")
    await console_page.press("Back to the conversation")
    await console_page.wait_for_text("Hello! I am the rehearsal agent.")
    console_page.console.clear()  # browsers note every 404
