"""What is imported late is imported in the end, and only by those who were asked to wait."""

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
    for name in ("late_heavy", "late_user"):
        sys.modules.pop(name, None)


def test_a_postponed_module_is_loaded_when_it_is_looked_into(folder: Path) -> None:
    (folder / "late_heavy.py").write_text("ANSWER = 42\n")
    (folder / "late_user.py").write_text("import late_heavy\n\ndef answer():\n    return late_heavy.ANSWER\n")
    with lazy_imports("late_heavy", "late_absent"):
        late_user = import_module("late_user")
    assert "late_heavy" not in sys.modules
    assert late_user.answer() == 42
    assert sys.modules["late_heavy"].ANSWER == 42
    assert late_user.answer() == 42


def test_others_import_a_postponed_module_as_ever(folder: Path) -> None:
    (folder / "late_heavy.py").write_text("ANSWER = 42\n")
    with lazy_imports("late_heavy"):
        pass
    assert import_module("late_heavy").ANSWER == 42


def test_what_is_loaded_already_is_not_postponed(folder: Path) -> None:
    with lazy_imports("sys"):
        import sys as same
    assert same.path is sys.path
