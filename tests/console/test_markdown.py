"""Markdown of answers: code has colors, formulas are set, prices stay prices."""

from tests.console.axe import serious_violations
from tests.console.console_page import ConsolePage
from tests.console.test_conversations import DONE, start_conversation
from tests.conversations import script

ANSWER = r"""
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
FORMULAS = "[...document.querySelectorAll('.assistant math')].map((each) => each.namespaceURI.split('/').at(-1))"
KEYWORDS = "[...document.querySelectorAll('.code .hljs-keyword')].map((each) => each.innerText)"
SOURCES = "[...document.querySelectorAll('.assistant .formula-source')].map((each) => each.innerText)"
READY = f"{DONE} && {FORMULAS}.length === 5 && {KEYWORDS}.length >= 3"


async def test_code_has_colors_and_formulas_are_set_live_and_after_a_reload(console_page: ConsolePage) -> None:
    session = await start_conversation(console_page, script({"say": ANSWER, "size": 40, "every_ms": 1}))
    drawn = []
    for is_reloaded in (False, True):
        if is_reloaded:
            await console_page.page.send_command("Page.reload")
        await console_page.until(READY)
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
    await console_page.set(theme="dark", language="zh")
    await console_page.resize(400, 900)
    await console_page.open("conversations", session)
    await console_page.until(READY)
    assert await console_page.run("document.documentElement.scrollWidth") == 400
    assert await serious_violations(console_page) == []
    await console_page.run("document.querySelector('.feed').scrollTop = 200")
    await console_page.screenshot("markdown-narrow-dark-zh")
    await console_page.set(theme="light", language="en")
