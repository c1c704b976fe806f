"""Deferred imports: loaded on first use, and only deferred within the block."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from dragoman.server.lazy_import import lazy_imports


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("deferred_heavy", "deferred_user"):
        sys.modules.pop(name, None)


def test_a_deferred_module_is_loaded_on_first_use(folder: Path) -> None:
    (folder / "deferred_heavy.py").write_text("ANSWER = 42\n")
    (folder / "deferred_user.py").write_text(
        "import deferred_heavy\n\ndef answer():\n    return deferred_heavy.ANSWER\n"
    )
    with lazy_imports("deferred_heavy", "deferred_absent"):
        deferred_user = import_module("deferred_user")
    assert "deferred_heavy" not in sys.modules
    assert deferred_user.answer() == 42
    assert sys.modules["deferred_heavy"].ANSWER == 42
    assert deferred_user.answer() == 42


def test_outside_of_the_block_the_module_is_imported_as_usual(folder: Path) -> None:
    (folder / "deferred_heavy.py").write_text("ANSWER = 42\n")
    with lazy_imports("deferred_heavy"):
        pass
    assert import_module("deferred_heavy").ANSWER == 42


def test_a_loaded_module_is_not_deferred(folder: Path) -> None:
    with lazy_imports("sys"):
        import sys as same
    assert same.path is sys.path
