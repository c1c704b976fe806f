"""Every requirement has a test, and every test of a protocol has a requirement."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.requirements import KNOWN, Requirement, requirement, requirements_of, table

TESTS = Path(__file__).parent
PROTOCOLS = TESTS.parent / "src" / "dragoman" / "protocols"


class WrittenTest(NamedTuple):
    """A test function, as written in its file."""

    place: str
    requirements: tuple[str, ...]
    is_protocol: bool


@cache
def written_tests() -> tuple[WrittenTest, ...]:
    """Read every test file, independently of which tests this run selects."""
    return tuple(test for path in sorted(TESTS.rglob("test_*.py")) for test in read_tests(path))


def read_tests(path: Path) -> Iterator[WrittenTest]:
    """The tests of a file."""
    where = path.relative_to(TESTS)
    is_protocol = where.parts[0] == "protocols" and where.parts[1] != "kit"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield WrittenTest(f"{where}:{node.lineno} {node.name}", marked(node), is_protocol)


def marked(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    """The IDs in the `@requirement(…)` decorators of a function, which must be literals."""
    return tuple(
        ast.literal_eval(argument)
        for mark in function.decorator_list
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == requirement.__name__
        for argument in mark.args
    )


def test_every_requirement_without_a_gap_has_a_test() -> None:
    tested = {each for test in written_tests() for each in test.requirements}
    assert [each.id for each in KNOWN.values() if each.gap is None and each.id not in tested] == []


def test_every_test_of_a_protocol_has_a_requirement() -> None:
    assert [test.place for test in written_tests() if test.is_protocol and not test.requirements] == []


def test_every_protocol_has_requirements() -> None:
    folders = {path.name for path in PROTOCOLS.iterdir() if path.is_dir() and not path.name.startswith("_")} - {"kit"}
    tables = {path.stem.partition("_")[0] for path in (TESTS / "requirements").glob("[!_]*.py")}
    assert folders == tables - {"faults"}, "faults are not a protocol"


def test_no_requirement_has_an_empty_text_source_or_gap() -> None:
    assert [each.id for each in KNOWN.values() if each.gap == "" or not each.source or not each.text] == []


def test_naming_an_unknown_requirement_fails() -> None:
    with pytest.raises(LookupError, match="there is no requirement 'nowhere:at:all'"):
        requirement("nowhere:at:all")


def test_several_decorators_add_up() -> None:
    first, second = list(KNOWN)[:2]

    @requirement(first)
    @requirement(second)
    def function() -> None: ...

    assert requirements_of(function) == (second, first)


def test_a_duplicate_id_is_rejected() -> None:
    twice = Requirement("a:b:c", "something", "somewhere")
    with pytest.raises(ValueError, match="'a:b:c' is defined twice"):
        table(twice, twice)
