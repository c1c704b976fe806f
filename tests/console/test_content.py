"""Content of agents is not trusted and long content is fast; the sources are typed, formatted and small."""

import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.asgi.console import FOLDER
from tests.browser import Browser, Json
from tests.console.axe import serious_violations
from tests.console.conftest import SCREENSHOTS, ForeignOrigin
from tests.console.console_page import ConsolePage
from tests.console.test_conversations import DONE, say, start_conversation
from tests.conversations import script
from tests.extent import IS_FULL
from tests.nodejs import node
from tests.servers import SocketServer, running_socket_server

WEB = Path(__file__).parents[2] / "web"
FIRST_PAINT_BYTES = 200 * 1024
MESSAGES = 5_000
MANY = 1_000
MAX_RENDERED_MESSAGES = 60
STATIC_IMPORT = re.compile(r"(?:from|import)[\"'`]\./([\w-]+\.js)[\"'`]")
"""A chunk that is loaded together with the one that names it; `import(…)` is not one."""

RICH_ANSWER = r"""
The roots are $x_{1,2} = \frac{-b \pm \sqrt{b^2-4ac}}{2a}$ or \(x^2\). It costs $5, and $6 with tax; `$a$` is code.

$$
\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}, \qquad A = \begin{pmatrix} a & b \\ c & d \end{pmatrix}
$$

\[ \sum_{n=1}^{\infty} \frac{1}{n^2} \]

A mistake: $\frac{1}{$ and \(\unknowncommand\).

```python
def area(r: float) -> float:
    "The area of a circle."
    return 3.14 * r ** 2  # rounded
```

```js
const half = (x) => `${x / 2}`;
```

```nonsense
def plain
```

| left | right |
|:--|--:|
| $a^2$ | 1 |
"""
OTHER_DIRECTIONS = f"""
هذا نص عربي. 123 (test)

- عنصر

  والثاني

> اقتباس

An English paragraph.

{"| heading " * 12}|
{"|---" * 12}|
{"| value " * 12}|
"""
FORMULAS = "[...document.querySelectorAll('.assistant math')].map((each) => each.namespaceURI.split('/').at(-1))"
KEYWORDS = "[...document.querySelectorAll('.code .hljs-keyword')].map((each) => each.innerText)"
SOURCES = "[...document.querySelectorAll('.assistant .formula-source')].map((each) => each.innerText)"
IS_RICH = f"{DONE} && {FORMULAS}.length === 5 && {KEYWORDS}.length >= 3"


def hostile(url: str) -> str:
    """Markdown that tries everything."""
    return "\n\n".join(
        (
            f"<script>fetch('{url}/script')</script>",
            f"<img src='{url}/img' onerror=\"fetch('{url}/error')\">",
            f"<iframe src='{url}/frame'></iframe><link rel=stylesheet href='{url}/css'>",
            f"<style>@import '{url}/import'</style>",
            f"![picture]({url}/picture.png)",
            "![data](data:image/svg+xml;base64,PHN2Zy8+) ![x](javascript:alert(1))",
            f"[click](javascript:fetch('{url}/click')) [data](data:text/html,<script>1</script>) [file](file:///etc/passwd)",
            f"[ref]: javascript:fetch('{url}/ref')\n[ref] <javascript:alert(1)>",
            '[title](https://example.com "a\\" onmouseover=\\"fetch(1)")',
            f"`<img src={url}/code>` &lt;img src={url}/entity&gt; <b onclick=alert(1)>bold</b>",
            f"```html\n<script src={url}/fence></script>\n```",
            f"$\\href{{javascript:fetch('{url}/formula')}}{{x}}$ $\\htmlStyle{{background:url({url}/style)}}{{x}}$",
            f"$$\\includegraphics{{{url}/graphics.png}} \\text{{<img src={url}/text>}}$$",
            f"| <img src={url}/cell> |\n|---|\n| ![x]({url}/table) |",
        )
    )


async def test_hostile_markdown_gets_nothing(console_page: ConsolePage, foreign_origin: ForeignOrigin) -> None:
    await console_page.open()
    await console_page.until("document.querySelector('[aria-label=Message]')")
    words = hostile(foreign_origin.url)
    await console_page.write("Message", script({"think": words}, {"say": words}))
    await console_page.page.press("Enter")
    await console_page.until("document.querySelector('.answer-foot')")
    await console_page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    answer = "document.querySelector('.assistant')"
    kinds = "script, iframe, img, link, style, object, embed, form, svg:not(.icon), b, input, base, meta"
    assert await console_page.run(f"[...{answer}.querySelectorAll('{kinds}')].map((each) => each.outerHTML)") == []
    loose = "[...each.attributes].filter(({name}) => name.startsWith('on'))"
    assert await console_page.run(f"[...{answer}.querySelectorAll('*')].flatMap((each) => {loose}).map(String)") == []
    links = await console_page.run(f"[...{answer}.querySelectorAll('a')].map((each) => each.protocol)")
    assert set(links) <= {"http:", "https:"}
    assert await console_page.run(
        f"[...{answer}.querySelectorAll('.markdown a')].every((each) => each.rel.includes('noopener'))"
    )
    assert "<script>fetch(" in await console_page.text(".assistant")
    await console_page.screenshot("hostile")
    assert foreign_origin.requests == []


async def test_code_has_colors_and_formulas_are_set_live_and_after_a_reload(console_page: ConsolePage) -> None:
    session = await start_conversation(console_page, script({"say": RICH_ANSWER, "size": 40, "every_ms": 1}))
    drawn = []
    for is_reloaded in (False, True):
        if is_reloaded:
            await console_page.reload()
        await console_page.until(IS_RICH)
        assert await console_page.run(FORMULAS) == ["MathML"] * 5
        assert await console_page.run(KEYWORDS) == ["def", "return", "const"]
        assert await console_page.run(SOURCES) == ["$\\frac{1}{$", "\\(\\unknowncommand\\)"]
        drawn.append(await console_page.run("document.querySelector('.assistant .markdown').innerHTML"))
    assert drawn[0] == drawn[1]
    text = await console_page.text(".assistant .markdown")
    assert "It costs $5, and $6 with tax; $a$ is code." in text
    assert "A mistake: $\\frac{1}{$ and" in text
    assert await console_page.run("document.querySelector('.assistant td:last-child').style.textAlign") == "right"
    assert await serious_violations(console_page) == []
    await console_page.run("document.querySelector('.feed').scrollTop = 0")
    await console_page.screenshot("markdown")
    if not IS_FULL:
        return
    await console_page.set(theme="dark", language="zh")
    await console_page.resize(400, 900)
    await console_page.open("conversations", session)
    await console_page.until(IS_RICH)
    assert await console_page.run("document.documentElement.scrollWidth") == 400
    assert await serious_violations(console_page) == []
    await console_page.run("document.querySelector('.feed').scrollTop = 200")
    await console_page.screenshot("markdown-narrow-dark-zh")
    await console_page.set(theme="light", language="en")


async def test_text_runs_in_the_direction_of_its_language_and_words_in_tables_stay_whole(
    console_page: ConsolePage,
) -> None:
    await start_conversation(console_page, "مرحبا بكم. (one)")
    await console_page.until(DONE)
    await say(console_page, script({"say": OTHER_DIRECTIONS}))
    await console_page.until(f"document.querySelector('.assistant table') && {DONE}")
    directions = """[...document.querySelectorAll(
        '.assistant:has(table) .markdown > :not(.table), .message-text, .chat-title'
    )].map((each) => [each.tagName.toLowerCase(), getComputedStyle(each).direction])"""
    assert await console_page.run(directions) == [
        ["h1", "rtl"],
        ["div", "rtl"],
        ["div", "ltr"],
        ["p", "rtl"],
        ["ul", "rtl"],
        ["blockquote", "rtl"],
        ["p", "ltr"],
    ]
    lines = """[...document.querySelectorAll('.assistant th')].map((each) => {
        const range = document.createRange();
        range.selectNodeContents(each);
        return new Set([...range.getClientRects()].map((line) => line.top)).size;
    })"""
    assert await console_page.run(lines) == [1] * 12
    assert await console_page.run("document.documentElement.scrollWidth <= innerWidth")
    await console_page.screenshot("directions")
    await say(console_page, script({"ask": {"questions": [{"question": "أين؟", "options": [{"label": "هنا"}]}]}}))
    await console_page.write("Other", "هناك")
    asked = "[...document.querySelectorAll('.question, .question .input')]"
    assert await console_page.run(f"{asked}.map((each) => getComputedStyle(each).direction)") == ["rtl", "rtl"]


async def test_five_thousand_messages_scroll_and_stream_without_jank(
    chromium: Browser, console_server: SocketServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Only what is in sight is drawn. The report has the frames' times, which a busy machine may not fail by."""
    async with running_socket_server(tmp_path, seeds=MESSAGES) as server:
        console_page = ConsolePage(await chromium.page(), server.connection.url, server.key("alice"), SCREENSHOTS)
        await console_page.resize(1280, 860)
        texts = [f"Message {number} says *something* {'again ' * (number % 40)}" for number in range(MESSAGES)]
        figures = await measure_scrolling(console_page, await imported_session(server, texts))
        await console_page.close()
    for name, figure in figures.items():
        record_property(name, json.dumps(figure))
    print(figures)  # noqa: T201  # the test's report
    assert console_page.console == []
    assert figures["most_rows"] < MAX_RENDERED_MESSAGES


async def measure_scrolling(console_page: ConsolePage, session: str) -> dict[str, Json]:
    """Measure the time to open a conversation, and the frame times while it scrolls and streams."""
    await console_page.open()
    await console_page.run("performance.mark('begin')")
    await console_page.run(f"location.hash = '#/conversations/{session}'")
    await console_page.until("document.querySelector('.feed article')")
    opened_ms = await console_page.run("performance.measure('open', 'begin').duration")
    await console_page.until("document.querySelector('.feed').innerText.includes('Message 4999')")
    await console_page.page.bring_to_front()
    scrolled = await console_page.run(FRAMES.replace("ACT", "feed.scrollTop -= 400"))
    await console_page.run("document.querySelector('.feed').scrollTop = 0")
    await console_page.wait_for_text("Message 1 ", ".feed")
    await console_page.run("document.querySelector('.feed').scrollTop = 1e9")
    await console_page.write(
        "Message", script({"emit": {"count": 600, "text": "word {i} of **many** ", "every_ms": 2}})
    )
    await console_page.page.press("Enter")
    await console_page.wait_for_text("word 20 ", ".feed")
    streamed = await console_page.run(FRAMES.replace("ACT", ""))
    most = max(phase.pop("rows") for phase in (scrolled, streamed))
    return {"open_ms": round(opened_ms), "scroll": scrolled, "stream": streamed, "most_rows": most}


FEED = "document.querySelector('.feed')"
SETTLED = """
(async () => {
  const shown = () => [...document.querySelectorAll('.feed article')].map((row) => row.getBoundingClientRect().top);
  const frame = () => new Promise(requestAnimationFrame);
  for (let before = [], same = 0; same < 5; before = shown()) {
    await frame();
    same = JSON.stringify(before) === JSON.stringify(shown()) ? same + 1 : 0;
  }
  return true;
})()
"""
JUMPS = """
(async () => {
  const feed = document.querySelector('.feed');
  const frame = () => new Promise(requestAnimationFrame);
  const rows = () => [...feed.querySelectorAll('article')];
  const tops = () => new Map(rows().map((row) => [row.dataset.row, row.getBoundingClientRect().top]));
  const jumps = [];
  for (let step = 0; step < 100; step++) {
    const before = tops();
    feed.scrollTop -= 150;
    for (let each = 0; each < 3; each++) await frame();
    for (const [row, top] of tops()) {
      if (!before.has(row)) continue;
      const moved = Math.round(top - before.get(row));
      if (Math.abs(moved - 150) > 2) { jumps.push([step, moved]); break; }
    }
  }
  return jumps;
})()
"""

FRAMES = """
new Promise((resolve) => {
  const feed = document.querySelector('.feed');
  const gaps = [];
  let most = 0;
  let last = performance.now();
  const step = (now) => {
    gaps.push(now - last);
    last = now;
    most = Math.max(most, feed.querySelectorAll('article').length);
    if (gaps.length < 60) { ACT; requestAnimationFrame(step); return; }
    gaps.shift();
    gaps.sort((a, b) => a - b);
    resolve({
      rows: most,
      frames: gaps.length,
      median_ms: Math.round(gaps[gaps.length >> 1]),
      worst_ms: Math.round(gaps.at(-1)),
      late: gaps.filter((gap) => gap > 50).length,
    });
  };
  requestAnimationFrame(step);
})
"""


async def test_the_end_is_shown_and_the_view_does_not_jump_when_messages_differ_in_height(
    chromium: Browser, console_server: SocketServer, tmp_path: Path
) -> None:
    """The last messages are short, so the heights of the others are far from those that were seen first."""
    heights = [120 if number < MANY - 200 else 1 for number in range(MANY)]
    async with running_socket_server(tmp_path, seeds=MANY) as server:
        console_page = ConsolePage(await chromium.page(), server.connection.url, server.key("alice"), SCREENSHOTS)
        session = await imported_session(
            server, [f"Message {n} {'again ' * height}" for n, height in enumerate(heights)]
        )
        await console_page.open("conversations", session)
        await console_page.wait_for_text(f"Message {MANY - 1} ", ".feed")
        for place in (0, 0.5, 0.25, 1e9):
            await console_page.run(f"(feed => {{ feed.scrollTop = feed.scrollHeight * {place}; }})({FEED})")
            await console_page.until(SETTLED)
        assert await console_page.run(f"{FEED}.innerText.includes('Message {MANY - 1} ')")
        await console_page.run(f"{FEED}.scrollTop = {FEED}.scrollHeight * 0.3")
        await console_page.until(SETTLED)
        jumps = await console_page.run(JUMPS)
        await console_page.close()
    assert jumps == [], "rows that moved otherwise than the user scrolled"


async def imported_session(server: SocketServer, texts: list[str]) -> str:
    """A session with such messages in turn of the user and the agent, as an application brings them along."""
    messages = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]
    body = {"agent": {"name": "rehearsal"}, "messages": messages}
    headers = [("authorization", f"Bearer {server.key('alice')}"), ("content-type", "application/json")]
    made = await server.connection.open("POST", "/aap/v3/sessions", headers=headers, body=json.dumps(body).encode())
    answer = json.loads(await made.read())
    assert made.status == 201, answer
    return str(answer["sessionId"])


def test_the_first_paint_needs_less_than_200_kb_of_compressed_script() -> None:
    if not FOLDER.is_dir():
        pytest.skip("the console is not built: run `make console`")
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    scripts = {path.name: path for path in (FOLDER / "assets").glob("*.js")}
    needed = {name for name in scripts if name in page or name.startswith("conversations-")}
    while (
        more := {
            name for holder in needed for name in STATIC_IMPORT.findall(scripts[holder].read_text(encoding="utf-8"))
        }
        - needed
    ):
        needed |= more
    assert len(needed) >= 4
    assert not any(name.startswith(("formula-", "highlight-", "run-", "lens-")) for name in needed), "loaded lazily"
    compressed = {name: scripts[name].with_suffix(".js.br") for name in needed}
    sizes = {name: (path if path.exists() else scripts[name]).stat().st_size for name, path in compressed.items()}
    assert sum(sizes.values()) < FIRST_PAINT_BYTES, sizes


@pytest.mark.parametrize("command", [("tsc", "--noEmit"), ("prettier", "--check", "--log-level", "warn", ".")])
async def test_the_sources_are_typed_strictly_and_formatted(command: tuple[str, ...]) -> None:
    program = WEB / "node_modules" / ".bin" / command[0]
    if not program.exists():
        pytest.skip("the console's tools are not installed: run `make console`")
    path = os.pathsep.join((str(Path(node()).parent), os.environ["PATH"]))
    process = await asyncio.create_subprocess_exec(
        program, *command[1:], cwd=WEB, env={**os.environ, "PATH": path}, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert (process.returncode, output.decode()) == (0, "")
