"""Checks the table of cases: every case has tests, and every test in the table exists."""

import ast
from functools import cache
from pathlib import Path

from tests.abuse.cases import CASES

HERE = Path(__file__).parent


@cache
def written_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in nodes if isinstance(node, kinds) and node.name.startswith("test_")}


def test_every_case_has_tests_or_says_why_not() -> None:
    assert list(CASES) == list(range(1, 41))
    assert [number for number, case in CASES.items() if bool(case.tests) == bool(case.why)] == []


def test_every_test_that_the_table_names_exists() -> None:
    ours = set().union(*(written_in(path) for path in HERE.glob("test_*.py")))
    missing = []
    for case in CASES.values():
        for name in case.tests:
            place, _, test = name.rpartition("::")
            if test not in (written_in(HERE.parent / place) if place else ours):
                missing.append(name)
    assert missing == []
