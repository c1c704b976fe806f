"""Accessibility checks with axe."""

import asyncio
from functools import cache
from pathlib import Path

import pytest

from tests.console.console_page import ConsolePage

SCRIPT = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS_IMPACTS = "['serious', 'critical']"


@cache
def script() -> str:
    if not SCRIPT.is_file():
        pytest.skip("axe is not installed: run `make console`")
    return SCRIPT.read_text(encoding="utf-8")


async def serious_violations(console_page: ConsolePage) -> list[str]:
    """The serious violations on the page: each rule with the elements that break it."""
    await console_page.run(f"{await asyncio.to_thread(script)}; 1")
    violations = await console_page.run(
        "axe.run(document, {resultTypes: ['violations'], iframes: false}).then(({violations}) => violations"
        f".filter((each) => {SERIOUS_IMPACTS}.includes(each.impact))"
        ".flatMap((each) => each.nodes.map((node) => `${each.id} at ${node.target}: ${node.failureSummary}`)))"
    )
    return [str(each) for each in violations]
