"""The page of the rehearsal agent: its scripts and steps are valid."""

import re
from pathlib import Path

import pytest

from dragoman.agents.rehearsal.script import parse_script

PAGE = (Path(__file__).parents[2] / "docs" / "rehearsal.md").read_text(encoding="utf-8")
STEPS = [
    step.replace("{…}", "{}")
    for row in re.findall(r"^\| (`\{.+?\}`) \|", PAGE, re.MULTILINE)
    for step in row[1:-1].split("`, `")
]


@pytest.mark.parametrize("script", re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
def test_scripts_on_the_page_can_be_parsed(script: str) -> None:
    assert parse_script(script)


@pytest.mark.parametrize("step", [step for step in STEPS if "[…]" not in step and "[{}, {}]" not in step])
def test_steps_on_the_page_can_be_parsed(step: str) -> None:
    assert parse_script(f'{{"script": [{step}]}}')
