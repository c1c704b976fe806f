"""The protocol lens: one session, in up to four protocols at once. The run inspector: what one answer took."""

import asyncio
import json
import os
import shutil
import signal
from contextlib import suppress
from typing import Any

import pytest

from tests.console.axe import serious_violations
from tests.console.console_page import ConsolePage, js_string
from tests.console.sessions import answer, play_session
from tests.console.test_conversations import DONE, start_conversation
from tests.conversations import call, script
from tests.servers import SocketServer

Json = Any
PROTOCOLS = ("aap", "ag-ui", "agentscope", "blade")
ROWS = """[...document.querySelectorAll('.lens-row')].map((row) => [
  row.dataset.moment.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, 'ID'),
  ...['aap', 'ag-ui', 'agentscope', 'blade'].map((each) => row.querySelectorAll(`.${each} .chip`).length),
])"""
COMPLETE_COLUMNS = "document.querySelectorAll('.lens-column:is(.aap, .agentscope)[data-state=ended]').length === 2"
ALL_ENDED = """['aap', 'ag-ui', 'agentscope', 'blade'].every((each) =>
  document.querySelector(`.lens-row[data-moment=end] .${each} .chip`))"""
SAY = "Send a message over one protocol and watch the others"
COPIED = "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"


async def open_in_lens(console_page: ConsolePage, session: str) -> None:
    """Open a session in the lens, and wait until all four protocols are complete."""
    await console_page.open("lens", session)
    await console_page.until(f"{COMPLETE_COLUMNS} && {ALL_ENDED}")


async def test_each_moment_is_a_row_with_the_events_of_every_protocol(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    add = {"call": {"name": "add", "input": {"a": 2, "b": 3}}}
    session = await play_session(
        console_server, {"think": "Let me see."}, {"say": "I add."}, add, {"say": "It is {result}."}
    )
    await open_in_lens(console_page, session)
    assert await console_page.run(ROWS) == [
        ["start", 1, 1, 2, 1],
        ["user:1", 0, 3, 0, 2],
        ["thinking:root:1", 1, 3, 3, 2],
        ["close:thinking:root:1", 0, 2, 2, 0],
        ["text:root:1", 1, 2, 3, 1],
        ["close:text:root:1", 0, 1, 2, 0],
        ["call:ID", 1, 3, 6, 1],
        ["result:ID", 1, 1, 4, 1],
        ["step:ID", 0, 0, 0, 1],
        ["text:root:2", 1, 2, 3, 2],
        ["close:text:root:2", 0, 1, 2, 0],
        ["step:ID", 0, 0, 0, 1],
        ["end", 1, 1, 1, 1],
    ]
    await console_page.screenshot("lens-light")
    await console_page.set(theme="dark", language="zh")
    await open_in_lens(console_page, session)
    await console_page.wait_for_text("协议透镜")
    await console_page.screenshot("lens-dark-zh")
    await console_page.set(theme="light", language="en")


async def test_a_session_gets_its_title_while_the_lens_shows_it(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    made = await answer(console_server, "POST", "/aap/v3/sessions", {"agent": {"name": "rehearsal"}})
    session = json.loads(made)["sessionId"]
    await console_page.open("lens", session)
    title = "document.querySelector('.lens-session').selectedOptions[0].innerText"
    await console_page.until(f"{title}.startsWith('Untitled')")
    await answer(
        console_server,
        "POST",
        f"/aap/v3/sessions/{session}/turns",
        {"messages": [{"role": "user", "content": "say Trains to Vienna"}]},
    )
    await console_page.until(f"{title} === 'say Trains to Vienna'")


async def test_an_event_is_shown_with_its_counterparts_and_in_raw_form(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    session = await play_session(console_server, {"say": "Hello, lens."})
    await open_in_lens(console_page, session)
    await console_page.run("document.querySelector('.lens-scroll').focus()")
    for _ in range(3):
        await console_page.page.press("ArrowDown")
    await console_page.until("document.querySelector('[aria-selected=true]')?.dataset.moment === 'text:root:1'")
    cells = await console_page.run(
        "[...document.querySelectorAll('.lens-raw-frames .lens-cell')].map((each) => each.innerText)"
    )
    assert all("Hello, lens." in each for each in cells)
    await console_page.press("Raw")
    await console_page.wait_for_text('event: text_delta\ndata: {"delta":"Hello, lens."}', ".lens-raw-frames .aap")
    await console_page.wait_for_text('42["turn:patch",{', ".lens-raw-frames .blade")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("lens-detail")
    await console_page.run("document.querySelector('.lens-scroll').focus()")
    await console_page.page.press("Escape")
    await console_page.until("!document.querySelector('.lens-detail')")


async def test_a_message_sent_over_one_protocol_is_reported_by_all_four(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    session = await play_session(console_server, {"say": "Before."})
    await open_in_lens(console_page, session)
    for run, protocol in enumerate(PROTOCOLS, 2):
        await console_page.choose("Send over", protocol, ".lens-say")
        await console_page.write(SAY, f"over {protocol}", ".lens-say")
        await console_page.press("Send", ".lens-say")
        await console_page.wait_for_text(f"Run {run} of {run}", ".lens-runs")
        said = (
            "[...document.querySelectorAll('.lens-row')]"
            ".find((row) => row.querySelector('.lens-kind')?.innerText === 'Text')"
        )
        await console_page.until(
            f"{COMPLETE_COLUMNS} && {ALL_ENDED} && {said}?.innerText.includes('You said: over {protocol}')"
        )
        cells = await console_page.run(f"[...{said}.querySelectorAll('.lens-cell')].map((each) => each.innerText)")
        assert all("You said: " in each for each in cells), cells


async def test_a_run_is_shown_live(console_page: ConsolePage, console_server: SocketServer) -> None:
    session = await play_session(console_server, {"say": "Before."})
    await open_in_lens(console_page, session)
    slow = '{"script": [{"emit": {"count": 4000, "text": "word{i} ", "every_ms": 15}}]}'  # it is stopped below
    await console_page.write(SAY, slow, ".lens-say")
    await console_page.press("Send", ".lens-say")
    await console_page.until("document.querySelector('.lens-runs')?.innerText.includes('live')")
    # In any row: what Blade's list shows may change between two deltas, which splits the text into two rows.
    collapsed = "(row) => row.querySelectorAll('.chip em').length === 4"
    await console_page.until(f"[...document.querySelectorAll('.lens-row')].some({collapsed})")
    await console_page.screenshot("lens-live")
    await answer(console_server, "POST", f"/aap/v3/sessions/{session}/stop")
    await console_page.until(f"{COMPLETE_COLUMNS} && {ALL_ENDED}")
    await console_page.run("document.querySelector('.lens .check input').click()")
    await console_page.until("document.querySelectorAll('.lens-row').length > 10")
    assert await console_page.run("document.querySelectorAll('.lens-row').length") < 100, (
        "only what is in sight is in the page"
    )
    await console_page.run("document.querySelector('.lens-scroll').scrollTop = 1e9")
    await console_page.until("document.querySelector('.lens-row[data-moment=end]')")


async def test_an_earlier_run_can_be_selected(console_page: ConsolePage, console_server: SocketServer) -> None:
    session = await play_session(console_server, {"say": "The first."})
    await play_session(console_server, {"say": "The second."}, session=session)
    await open_in_lens(console_page, session)
    await console_page.press("Previous run")
    await console_page.wait_for_text("The first.", ".lens-row")
    await console_page.until(f"{COMPLETE_COLUMNS} && document.querySelectorAll('.lens-row .blade .chip').length === 2")
    await console_page.wait_for_text("turn (history)", ".lens-row .blade")
    await console_page.press("Follow the latest run")
    await console_page.wait_for_text("The second.", ".lens-row")


async def test_four_histories_of_one_log_are_read_side_by_side(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    add = {"call": {"name": "add", "input": {"a": 2, "b": 3}}}
    session = await play_session(console_server, {"think": "Hm."}, add, {"say": "It is {result}."})
    await open_in_lens(console_page, session)
    await console_page.press("History", ".lens-views")
    kinds = """['aap', 'ag-ui', 'agentscope', 'blade'].map((protocol) =>
      [...document.querySelectorAll(`.lens-history.${protocol} .lens-item b`)].map((each) => each.innerText))"""
    await console_page.until(f"({kinds}).every((each) => each.length)")
    assert await console_page.run(kinds) == [
        ["user", "assistant", "tool", "assistant"],
        ["user", "reasoning", "assistant", "tool", "assistant"],
        ["assistant · reasoning", "assistant · plugin_call", "tool · plugin_call_output", "assistant · message"],
        ["user · message", "assistant · message", "assistant · message"],
    ]
    await console_page.run("document.querySelector('.lens-history.blade .lens-item:last-child').open = true")
    await console_page.wait_for_text('"content": "It is 5."', ".lens-history.blade .raw")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("lens-history")
    await console_page.run(COPIED)
    for protocol in PROTOCOLS:
        assert "It is 5." in await output_of_copied_command(
            console_page, console_server, f".lens-history.{protocol} header button", "It is 5."
        )


async def test_copied_curl_commands_read_the_events_again(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    session = await play_session(console_server, {"say": "One."}, {"step": True}, {"say": "It's two."})
    await open_in_lens(console_page, session)
    await console_page.run(COPIED)
    await console_page.run("document.querySelector('[data-moment=\"text:root:2\"]').click()")
    for protocol in PROTOCOLS:
        whole = await output_of_copied_command(console_page, console_server, f".lens-column.{protocol} button")
        assert "One." in whole
        frame = f".lens-raw-frames .lens-cell.{protocol} .raw-frame:last-of-type"
        rest = await output_of_copied_command(console_page, console_server, f"{frame} button:last-of-type")
        first = rest.removeprefix(PING)[:60]
        assert first in whole
        assert not whole.removeprefix(PING).startswith(first)


PING = ": ping\n\n"


async def output_of_copied_command(
    console_page: ConsolePage, server: SocketServer, button: str, until: str = "It's two."
) -> str:
    """The output of the command that a button copies, which does not contain the key."""
    await console_page.until(f"document.querySelector({js_string(button)})")
    await console_page.run(f"window.copied = ''; document.querySelector({js_string(button)}).click()")
    line = await console_page.until("window.copied")
    assert server.key("alice") not in line
    return await output_of(line, server.key("alice"), until)


async def output_of(line: str, key: str, until: str) -> str:
    """The output of a command up to a text. A stream that stays open is then closed."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    environment = {**os.environ, "DRAGOMAN_KEY": key}
    process = await asyncio.create_subprocess_shell(
        line, stdout=asyncio.subprocess.PIPE, env=environment, start_new_session=True
    )
    assert process.stdout is not None
    output = ""
    async with asyncio.timeout(60):
        while until not in output:
            piece = await process.stdout.read(65536)
            assert piece, (line, output)
            output += piece.decode()
    with suppress(ProcessLookupError):  # it may have ended
        os.killpg(process.pid, signal.SIGTERM)
    await process.wait()
    return output


# --- the choice of protocols ------------------------------------------------------------------------------------------

OTHERS = ("openai", "ai-sdk", "a2a")
SHOWN = "[...document.querySelectorAll('.lens-columns [data-protocol]')].map((each) => each.dataset.protocol)"
OTHERS_ENDED = "document.querySelectorAll('.lens-column:is(.openai, .ai-sdk, .a2a)[data-state=ended]').length === 3"
NAMED_ROWS = """[...document.querySelectorAll('.lens-row')].map((row) => [
  row.dataset.moment.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, 'ID'),
  ...['ag-ui', 'openai', 'ai-sdk', 'a2a'].map((each) => row.querySelectorAll(`.${each} .chip`).length),
])"""


async def test_a_link_shows_the_protocols_that_it_names(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    add = {"call": {"name": "add", "input": {"a": 2, "b": 3}}}
    two = {"calls": [{"name": "add", "input": {"a": n, "b": 1}} for n in (1, 2)]}
    session = await play_session(console_server, {"think": "Hm."}, {"say": "I add."}, add, two, {"say": "{result}"})
    await console_page.resize(1280, 1600)
    await console_page.open("lens", f"{session}/openai.ag-ui.a2a.ai-sdk")
    await console_page.until(OTHERS_ENDED)
    assert await console_page.run(SHOWN) == ["ag-ui", *OTHERS]
    await console_page.until("document.querySelectorAll('.lens-row[data-moment=end] .chip').length === 4")
    rows = await console_page.run(NAMED_ROWS)
    assert rows == [
        ["start", 1, 2, 1, 1],
        ["user:1", 3, 0, 0, 0],
        ["thinking:root:1", 3, 3, 3, 0],
        ["close:thinking:root:1", 2, 3, 1, 0],
        ["text:root:1", 2, 3, 2, 1],
        ["close:text:root:1", 1, 3, 1, 1],
        ["call:ID", 3, 4, 3, 0],
        ["result:ID", 1, 2, 1, 0],
        ["step:1", 0, 0, 1, 0],
        ["call:ID", 3, 4, 4, 0],
        ["call:ID", 3, 4, 3, 0],
        ["result:ID", 1, 2, 1, 0],
        ["result:ID", 1, 2, 1, 0],
        ["step:2", 0, 0, 1, 0],
        ["text:root:2", 2, 3, 3, 1],
        ["close:text:root:2", 1, 3, 1, 1],
        ["step:3", 0, 0, 1, 0],
        ["end", 1, 1, 1, 1],
    ]
    await console_page.wait_for_text("for pages with useChat", ".lens-column")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("lens-choice")
    await console_page.run(COPIED)
    await console_page.run("document.querySelector('[data-moment=\"text:root:2\"]').click()")
    for protocol, piece, last in (
        ("openai", '"delta":"I add."', "[DONE]"),
        ("ai-sdk", '"delta":"I add."', "[DONE]"),
        ("a2a", '"text":"I add."', "TASK_STATE_COMPLETED"),
    ):
        whole = await output_of_copied_command(console_page, console_server, f".lens-column.{protocol} button", last)
        frame = f".lens-raw-frames .lens-cell.{protocol} .raw-frame:last-of-type"
        rest = await output_of_copied_command(console_page, console_server, f"{frame} button:last-of-type", last)
        assert piece in whole
        assert piece not in rest
        assert rest in whole


async def test_a_fifth_protocol_takes_the_place_of_the_first_and_the_choice_is_remembered(
    console_page: ConsolePage, console_server: SocketServer
) -> None:
    session = await play_session(console_server, {"say": "Before."})
    await open_in_lens(console_page, session)
    for name in ("OpenAI", "AI SDK", "A2A"):
        await console_page.press(name, ".lens-protocols")
    await console_page.until(OTHERS_ENDED)
    assert await console_page.run(SHOWN) == ["blade", *OTHERS]
    await console_page.press("Blade", ".lens-protocols")
    assert await console_page.run("location.hash") == f"#/lens/{session}/openai.ai-sdk.a2a"
    await console_page.open("lens", session)
    await console_page.until(OTHERS_ENDED)
    assert await console_page.run(SHOWN) == [*OTHERS]
    said = "document.querySelector('.lens-row[data-moment=\"text:root:1\"]')"
    for run, protocol in enumerate(OTHERS, 2):
        await console_page.choose("Send over", protocol, ".lens-say")
        await console_page.write(SAY, f"over {protocol}", ".lens-say")
        await console_page.press("Send", ".lens-say")
        await console_page.wait_for_text(f"Run {run} of {run}", ".lens-runs")
        await console_page.until(f"{OTHERS_ENDED} && {said}?.innerText.includes('You said: over {protocol}')")
    await console_page.press("Previous run")
    await console_page.until(f"{OTHERS_ENDED} && {said}?.querySelector('.openai')?.innerText.includes('over ai-sdk')")
    await console_page.press("History", ".lens-views")
    for protocol in ("openai", "ai-sdk"):
        await console_page.wait_for_text("You said: over a2a", f".lens-history.{protocol}")
    await console_page.wait_for_text("over a2a", ".lens-history.a2a")
    await console_page.set(theme="dark", language="zh")
    await console_page.resize(400, 800)
    await console_page.open("lens", f"{session}/openai.ai-sdk")
    await console_page.until("document.querySelector('.lens-row[data-moment=end] .openai .chip')")
    assert await console_page.run("document.documentElement.scrollWidth") <= 400
    await console_page.screenshot("lens-choice-narrow-dark-zh")
    await console_page.run("localStorage.clear()")


async def test_a_narrow_window_shows_one_protocol(console_page: ConsolePage, console_server: SocketServer) -> None:
    session = await play_session(console_server, {"say": "Narrow."})
    await console_page.resize(400, 800)
    await open_in_lens(console_page, session)
    shown = "[...document.querySelectorAll('.lens-row')][0].querySelectorAll('.lens-cell')"
    visible = f"[...{shown}].filter((each) => each.getClientRects().length).map((each) => each.classList[1])"
    assert await console_page.run(visible) == ["aap"]
    await console_page.press("Blade", ".lens-tabs")
    assert await console_page.run(visible) == ["blade"]
    assert await console_page.run("document.documentElement.scrollWidth") <= 400
    await console_page.screenshot("lens-narrow")
    await console_page.run("document.querySelectorAll('.lens-row')[2].click()")
    await console_page.until("document.querySelector('.lens-detail')")
    await console_page.screenshot("lens-narrow-detail")


# --- the run inspector ------------------------------------------------------------------------------------------------

RUN_ROWS = "[...document.querySelectorAll('.run-name')].map((each) => each.innerText)"
BARS = """[...document.querySelectorAll('.run-track')].map((track) => {
    const whole = track.getBoundingClientRect(), bar = track.firstChild.getBoundingClientRect();
    return bar.width > 0 && bar.left >= whole.left - 1 && bar.right <= whole.right + 4;
})"""


async def test_the_run_inspector_shows_the_model_calls_tools_waits_and_sub_agents(console_page: ConsolePage) -> None:
    below = {"fork": {"description": "Count", "script": [call("add", a=2, b=2), {"say": "It is {result}."}]}}
    session = await start_conversation(
        console_page,
        script({"think": "Hm."}, call("stamp", text="a"), below, call("boom"), {"say": "Some **text**."}),
    )
    await console_page.press("Allow once")
    await console_page.wait_for_text("Some text.", ".assistant")
    await console_page.until(DONE)
    tokens = await console_page.text(".answer-facts [title*='sub-agents']")
    await console_page.press("Inspect the run")
    await console_page.until("document.querySelectorAll('.run-rows').length === 2")
    facts = await console_page.text(".run-facts")
    assert tokens.removesuffix(" tokens") in facts.splitlines(), (tokens, facts)
    rows = await console_page.run(RUN_ROWS)
    assert rows == [
        *("Model call 1", "stamp"),
        *("Model call 2", "Agent", "Model call 1", "add", "Model call 2", "Model call 3", "boom", "Model call 4"),
    ]
    assert await console_page.run(f"{BARS}.every(Boolean)")
    heads = await console_page.run("[...document.querySelectorAll('.run-head')].map((each) => each.innerText)")
    assert "waited for you or the application" in heads[0]
    assert "over Blade" in heads[1]
    await console_page.run("document.querySelectorAll('.run-row > details').forEach((each) => { each.open = true; })")
    await console_page.wait_for_text("for permission. Allowed.", ".run-waits")
    await console_page.wait_for_text('"text": "a"', ".run-detail")
    await console_page.wait_for_text("Tool execution failed: boom", ".run-detail")
    await console_page.run("[...document.querySelectorAll('.run-input')].at(-1).open = true")
    await console_page.wait_for_text("Result of stamp", ".run-messages")
    assert await serious_violations(console_page) == []
    await console_page.screenshot("run-open")
    run = await console_page.run("location.hash.split('/')[3]")
    await console_page.press("Back to the conversation")
    await console_page.wait_for_text("Some text.", ".assistant")
    await console_page.set(theme="dark", language="zh")
    await console_page.resize(400, 800)
    await console_page.open("run", f"{session}/{run}")
    await console_page.until("document.querySelectorAll('.run-rows').length === 2")
    assert await console_page.run("document.documentElement.scrollWidth") == 400
    assert await serious_violations(console_page) == []
    await console_page.screenshot("run-narrow-dark-zh")
    await console_page.set(theme="light", language="en")
    unknown = {"usage": {"input_tokens": 0, "output_tokens": 0}}
    await start_conversation(console_page, script(unknown, {"say": "No tokens were reported."}))
    await console_page.until(DONE)
    await console_page.press("Inspect the run")
    await console_page.wait_for_text("Active time", ".run-facts")
    assert "→" not in await console_page.text(".run-page")
    await console_page.open("run", f"{session}/chat_none")
    await console_page.wait_for_text("Run not found")
    await console_page.press("Back to the conversation")
    await console_page.wait_for_text("Some text.", ".assistant")
    console_page.console.clear()  # browsers note every 404
