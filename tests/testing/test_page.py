"""docs/testing.md: its files are written as they are printed, and its tests pass."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
TESTS = [
    (file.removesuffix(".py"), test)
    for file, text in FILES.items()
    for test in re.findall(r"^def (test_\w+)", text, re.MULTILINE)
]


def test_the_page_has_tests() -> None:
    assert len(TESTS) >= 6


@pytest.mark.parametrize(("module", "test"), TESTS)
def test_a_test_of_the_page_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, module: str, test: str
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "app", raising=False)
    monkeypatch.delitem(sys.modules, module, raising=False)
    function = getattr(import_module(module), test)
    try:
        function(*map(request.getfixturevalue, inspect.signature(function).parameters))
    finally:
        sys.modules.pop("app", None)
        sys.modules.pop(module, None)
