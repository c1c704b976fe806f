"""The protocol lens: one session, told by four protocols at once."""

import asyncio
import os
import shutil
import signal
from contextlib import suppress
from typing import Any

import pytest

from tests.console.axe import faults
from tests.console.console_page import Desk, quoted
from tests.console.sessions import played
from tests.servers import SocketHouse

Json = Any
PROTOCOLS = ("aap", "ag-ui", "agentscope", "blade")
ROWS = """[...document.querySelectorAll('.lens-row')].map((row) => [
  row.dataset.moment.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, 'ID'),
  ...['aap', 'ag-ui', 'agentscope', 'blade'].map((each) => row.querySelectorAll(`.${each} .chip`).length),
])"""
WHOLE = "document.querySelectorAll('.lens-column:is(.aap, .agentscope)[data-state=ended]').length === 2"
ALL_ENDED = """['aap', 'ag-ui', 'agentscope', 'blade'].every((each) =>
  document.querySelector(`.lens-row[data-moment=end] .${each} .chip`))"""
COPIED = "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"


async def looked_at(desk: Desk, session: str) -> None:
    """Open a session in the lens, and wait until all four have told it."""
    await desk.open("lens", session)
    await desk.until(f"{WHOLE} && {ALL_ENDED}")


async def test_each_fact_is_a_row_with_what_every_protocol_says_of_it(desk: Desk, console_house: SocketHouse) -> None:
    add = {"call": {"name": "add", "input": {"a": 2, "b": 3}}}
    session = await played(console_house, {"think": "Let me see."}, {"say": "I add."}, add, {"say": "It is {result}."})
    await looked_at(desk, session)
    assert await desk.run(ROWS) == [
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
    await desk.picture("lens-light")
    await desk.set(theme="dark", language="zh")
    await looked_at(desk, session)
    await desk.sees("协议透镜")
    await desk.picture("lens-dark-zh")
    await desk.set(theme="light", language="en")


async def test_an_event_is_shown_with_its_counterparts_and_as_it_came(desk: Desk, console_house: SocketHouse) -> None:
    session = await played(console_house, {"say": "Hello, lens."})
    await looked_at(desk, session)
    await desk.run("document.querySelector('.lens-scroll').focus()")
    for _ in range(3):
        await desk.page.press("ArrowDown")
    await desk.until("document.querySelector('[aria-selected=true]')?.dataset.moment === 'text:root:1'")
    told = await desk.run("[...document.querySelectorAll('.lens-told .lens-cell')].map((each) => each.innerText)")
    assert all("Hello, lens." in each for each in told)
    await desk.press("As it came")
    await desk.sees('event: text_delta\ndata: {"delta":"Hello, lens."}', ".lens-told .aap")
    await desk.sees('42["turn:patch",{', ".lens-told .blade")
    assert await faults(desk) == []
    await desk.picture("lens-detail")
    await desk.run("document.querySelector('.lens-scroll').focus()")
    await desk.page.press("Escape")
    await desk.until("!document.querySelector('.lens-detail')")


async def test_what_is_said_over_one_protocol_is_told_by_all_four(desk: Desk, console_house: SocketHouse) -> None:
    session = await played(console_house, {"say": "Before."})
    await looked_at(desk, session)
    for run, protocol in enumerate(PROTOCOLS, 2):
        await desk.choose("Say it over", protocol, ".lens-say")
        await desk.write("Say something through one protocol, and watch all four", f"over {protocol}", ".lens-say")
        await desk.press("Send", ".lens-say")
        await desk.sees(f"Run {run} of {run}", ".lens-runs")
        said = "[...document.querySelectorAll('.lens-row')].find((row) => row.innerText.startsWith('Says'))"
        await desk.until(f"{WHOLE} && {ALL_ENDED} && {said}?.innerText.includes('You said: over {protocol}')")
        cells = await desk.run(f"[...{said}.querySelectorAll('.lens-cell')].map((each) => each.innerText)")
        assert all("You said: " in each for each in cells), cells


async def test_a_run_is_watched_while_it_goes_on(desk: Desk, console_house: SocketHouse) -> None:
    session = await played(console_house, {"say": "Before."})
    await looked_at(desk, session)
    slow = '{"script": [{"emit": {"count": 400, "text": "word{i} ", "every_ms": 2}}]}'
    await desk.write("Say something through one protocol, and watch all four", slow, ".lens-say")
    await desk.press("Send", ".lens-say")
    await desk.until("document.querySelector('.lens-runs')?.innerText.includes('live')")
    await desk.until("[...document.querySelectorAll('.lens-row .chip em')].length === 4")
    await desk.picture("lens-live")
    await desk.until(f"{WHOLE} && {ALL_ENDED}")
    await desk.run("document.querySelector('.lens .check input').click()")
    await desk.until("document.querySelectorAll('.lens-row').length > 10")
    assert await desk.run("document.querySelectorAll('.lens-row').length") < 100, "only what is in sight is in the page"
    await desk.run("document.querySelector('.lens-scroll').scrollTop = 1e9")
    await desk.until("document.querySelector('.lens-row[data-moment=end]')")


async def test_an_earlier_run_can_be_looked_at(desk: Desk, console_house: SocketHouse) -> None:
    session = await played(console_house, {"say": "The first."})
    await played(console_house, {"say": "The second."}, session=session)
    await looked_at(desk, session)
    await desk.press("Earlier run")
    await desk.sees("The first.", ".lens-row")
    await desk.until(f"{WHOLE} && document.querySelectorAll('.lens-row .blade .chip').length === 2")
    await desk.sees("turn (history)", ".lens-row .blade")
    await desk.press("Follow the newest")
    await desk.sees("The second.", ".lens-row")


async def test_four_histories_of_one_log_are_read_side_by_side(desk: Desk, console_house: SocketHouse) -> None:
    add = {"call": {"name": "add", "input": {"a": 2, "b": 3}}}
    session = await played(console_house, {"think": "Hm."}, add, {"say": "It is {result}."})
    await looked_at(desk, session)
    await desk.press("History", ".lens-views")
    kinds = """['aap', 'ag-ui', 'agentscope', 'blade'].map((protocol) =>
      [...document.querySelectorAll(`.lens-history.${protocol} .lens-item b`)].map((each) => each.innerText))"""
    await desk.until(f"({kinds}).every((each) => each.length)")
    assert await desk.run(kinds) == [
        ["user", "assistant", "tool", "assistant"],
        ["user", "reasoning", "assistant", "tool", "assistant"],
        ["assistant · reasoning", "assistant · plugin_call", "tool · plugin_call_output", "assistant · message"],
        ["user · message", "assistant · message", "assistant · message"],
    ]
    await desk.run("document.querySelector('.lens-history.blade .lens-item:last-child').open = true")
    await desk.sees('"content": "It is 5."', ".lens-history.blade .raw")
    assert await faults(desk) == []
    await desk.picture("lens-history")
    await desk.run(COPIED)
    for protocol in PROTOCOLS:
        assert "It is 5." in await printed(desk, console_house, f".lens-history.{protocol} header button", "It is 5.")


async def test_copied_curl_lines_read_the_events_again(desk: Desk, console_house: SocketHouse) -> None:
    session = await played(console_house, {"say": "One."}, {"step": True}, {"say": "It's two."})
    await looked_at(desk, session)
    await desk.run(COPIED)
    await desk.run("document.querySelector('[data-moment=\"text:root:2\"]').click()")
    for protocol in PROTOCOLS:
        whole = await printed(desk, console_house, f".lens-column.{protocol} button")
        assert "One." in whole
        frame = f".lens-told .lens-cell.{protocol} .told:last-of-type"
        rest = await printed(desk, console_house, f"{frame} button:last-of-type")
        first = rest.removeprefix(PING)[:60]
        assert first in whole
        assert not whole.removeprefix(PING).startswith(first)


PING = ": ping\n\n"


async def printed(desk: Desk, house: SocketHouse, button: str, until: str = "It's two.") -> str:
    """What the command line prints that a button copies. No key stands in it."""
    await desk.until(f"document.querySelector({quoted(button)})")
    await desk.run(f"window.copied = ''; document.querySelector({quoted(button)}).click()")
    line = await desk.until("window.copied")
    assert house.key("alice") not in line
    return await output_of(line, house.key("alice"), until)


async def output_of(line: str, key: str, until: str) -> str:
    """What a command line prints, up to those words. A stream that stays open is left then."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    environment = {**os.environ, "DRAGOMAN_KEY": key}
    process = await asyncio.create_subprocess_shell(
        line, stdout=asyncio.subprocess.PIPE, env=environment, start_new_session=True
    )
    assert process.stdout is not None
    told = ""
    async with asyncio.timeout(10):
        while until not in told:
            piece = await process.stdout.read(65536)
            assert piece, (line, told)
            told += piece.decode()
    with suppress(ProcessLookupError):  # some have ended by themselves
        os.killpg(process.pid, signal.SIGTERM)
    await process.wait()
    return told


async def test_where_there_is_room_for_one_protocol_one_is_shown(desk: Desk, console_house: SocketHouse) -> None:
    session = await played(console_house, {"say": "Narrow."})
    await desk.resize(400, 800)
    await looked_at(desk, session)
    shown = "[...document.querySelectorAll('.lens-row')][0].querySelectorAll('.lens-cell')"
    visible = f"[...{shown}].filter((each) => each.getClientRects().length).map((each) => each.classList[1])"
    assert await desk.run(visible) == ["aap"]
    await desk.press("Blade", ".lens-tabs")
    assert await desk.run(visible) == ["blade"]
    assert await desk.run("document.documentElement.scrollWidth") <= 400
    await desk.picture("lens-narrow")
    await desk.run("document.querySelectorAll('.lens-row')[2].click()")
    await desk.until("document.querySelector('.lens-detail')")
    await desk.picture("lens-narrow-detail")
