"""Drives the console like a user: opens pages, reads text, fills in fields, presses buttons."""

import json
from pathlib import Path

from tests.browser import Json, Page


def js_string(text: str) -> str:
    """A JavaScript string literal."""
    return json.dumps(text)


class ConsolePage:
    """One window of the console."""

    def __init__(self, page: Page, url: str, key: str | None, screenshots: Path) -> None:
        self.page = page
        self.url = url
        self.key = key
        self._screenshots = screenshots

    @property
    def console(self) -> list[str]:
        """Messages that the browser logged."""
        return self.page.console

    async def open(self, place: str = "conversations", id: str = "") -> None:  # noqa: A002  # the router's word
        """Load the console with this window's key and go to a page."""
        await self._go_to_origin()
        script = f"localStorage.setItem('dragoman.key', {js_string(self.key)})" if self.key else "localStorage.clear()"
        await self.run(script)
        await self.page.go(f"{self.url}/#/{place}{'/' + id if id else ''}", "document.querySelector('#main > *')")
        await self.until("!document.querySelector('#main > .loading')")

    async def reload(self) -> None:
        """Load the page again."""
        await self.page.reload()

    async def set(self, **preferences: str) -> None:
        """Store a theme or a language; `open` applies it."""
        for name, value in preferences.items():
            await self.run(f"localStorage.setItem('dragoman.{name}', {js_string(value)})")

    async def forget(self, *preferences: str) -> None:
        """Remove stored preferences."""
        await self._go_to_origin()
        for name in preferences:
            await self.run(f"localStorage.removeItem('dragoman.{name}')")

    async def run(self, script: str) -> Json:
        """Evaluate an expression in the window."""
        return await self.page.run(script)

    async def until(self, condition: str) -> Json:
        """Wait until an expression is true, and return its value."""
        return await self.page.until(condition)

    async def text(self, selector: str = "main") -> str:
        """The visible text of the first element."""
        return str(await self.run(f"document.querySelector({js_string(selector)})?.innerText ?? ''"))

    async def wait_for_text(self, text: str, selector: str = "main") -> None:
        """Wait until one of the elements contains the text."""
        where = f"[...document.querySelectorAll({js_string(selector)})]"
        await self.until(f"{where}.some((each) => each.innerText.includes({js_string(text)}))")

    async def press(self, name: str, within: str = "body") -> None:
        """Press the button, link or checkbox with that name, as soon as it is enabled."""
        await self.until(
            f"(() => {{ {FIND} const it = find({js_string(within)}, {js_string(name)}); return it; }})() !== null"
        )
        await self.run(f"(() => {{ {FIND} find({js_string(within)}, {js_string(name)}).click(); }})()")

    async def write(self, label: str, text: str, within: str = "body") -> None:
        """Replace the text of the field with that label."""
        await self._wait_for_element(label, within)
        script = "it.focus(); it.select?.(); document.execCommand('delete');"
        await self.run(f"(() => {{ {FIELD} const it = field({js_string(within)}, {js_string(label)}); {script} }})()")
        if text:
            await self.page.type(text)

    async def choose(self, label: str, value: str, within: str = "body") -> None:
        """Select an option of the list with that label."""
        await self._wait_for_element(label, within)
        await self.run(
            f"(() => {{ {FIELD} const it = field({js_string(within)}, {js_string(label)});"
            f" it.value = {js_string(value)}; it.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"
        )

    async def _wait_for_element(self, label: str, within: str) -> None:
        await self.until(f"(() => {{ {FIELD} return field({js_string(within)}, {js_string(label)}); }})() !== null")

    async def resize(self, width: int, height: int) -> None:
        """Resize the window."""
        await self.page.resize(width, height)

    async def screenshot(self, name: str) -> None:
        """Save a screenshot as `build/console/NAME.png`."""
        await self.page.bring_to_front()
        await self.run("document.fonts.ready.then(() => new Promise(requestAnimationFrame)).then(() => 1)")
        await self.page.screenshot(self._screenshots / f"{name}.png")

    async def close(self) -> None:
        """Close the window."""
        await self.page.close()

    async def _go_to_origin(self) -> None:
        await self.page.go(f"{self.url}/healthz")  # so that the console's local storage can be written


FIND = """
const named = (each) => (each.getAttribute('aria-label') ?? each.innerText ?? '').trim();
const find = (within, name) => [...document.querySelectorAll(
  [...document.querySelectorAll(within)].length ? `${within} :is(button, a, summary, [role=button], label)` : 'none',
)].filter((each) => !each.disabled && each.getClientRects().length).find((each) => named(each) === name) ?? null;
"""
FIELD = """
const field = (within, label) => {
  const named = [...document.querySelectorAll(`${within} [aria-label]`)].find((each) =>
    each.getAttribute('aria-label') === label && 'value' in each);
  if (named) return named;
  const labels = [...document.querySelectorAll(`${within} label`)];
  const match = labels.find((each) => each.innerText.trim().startsWith(label));
  return match ? match.control : null;
};
"""
