"""What a release is made of: its version, and its section of the changelog."""

import re
from pathlib import Path

import pytest

from tools.release import notes_of, version

CHANGELOG = (Path(__file__).parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
SECTIONS = """# Changelog

## [Unreleased]

- soon

## [0.2.0] - 2027-01-31

- two

## [0.1.0] - 2026-11-23

- one
"""


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    assert (notes_of(SECTIONS, "0.2.0"), notes_of(SECTIONS, "0.1.0")) == ("- two\n", "- one\n")


@pytest.mark.parametrize(
    ("changelog", "message"),
    [
        ("# Changelog\n\n## [Unreleased]\n\n- soon\n", "CHANGELOG.md has no section"),
        ("# Changelog\n\n## [0.3.0]\n\n- three\n", "expected `## [0.3.0] - YYYY-MM-DD`, got `## [0.3.0]`"),
        ("# Changelog\n\n## [0.3.0] - 2027-02-01\n\n## [0.2.0] - 2027-01-31\n\n- two\n", "is empty"),
    ],
)
def test_a_version_without_dated_notes_is_not_released(changelog: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        notes_of(changelog, "0.3.0")


def test_the_changelog_begins_with_what_is_not_released_yet_and_has_notes_of_the_current_version() -> None:
    assert CHANGELOG.index("\n## [Unreleased]\n") < CHANGELOG.index(f"\n## [{version()}]")
    assert notes_of(CHANGELOG, version())
