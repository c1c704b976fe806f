"""What keeps the house in order: the architecture's contracts, and the rules that no other tool checks."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT_ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LONGEST_FILE = 700

FORBIDDEN_MODULE_NAMES = {"common", "helper", "helpers", "misc", "shared", "util", "utils"}
"""Modules of these names hold whatever nobody placed, and every layer imports them."""

INITS_WITH_CODE = {"src/dragoman/__init__.py", "src/dragoman/client/__init__.py", "tests/requirements/__init__.py"}
"""The first two are the public faces, the third is a mechanism of the tests. All others hold no code."""

# Written so that no pattern matches its own line.
FORBIDDEN_PATTERNS = {
    "a path of somebody's machine": r"(?<![\w.:])/(work|root|tmp|home/\w+|Users/\w+)/",
    "a package registry's host": r"\b(pypi\.org|pythonhosted\.org|npmjs\.org|npmjs\.com|debian\.org)\b",
    "a key": r"\b(sk-[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|ghp_[A-Za-z0-9]{30,})\b|-----BEGIN [A-Z ]*PRIVATE KEY",
    "something put off": r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b",
    "how the project is worked on": r"\b(issue \d|iss[u]es show|C[E]O|the br[i]ef|sh[a]red/\w+\.md)\b",
}


@cache
def files() -> tuple[Path, ...]:
    """Everything that is or would be committed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return tuple(path for name in sorted(listed.split("\0")) if name and (path := PROJECT_ROOT / name).is_file())


def python_files() -> tuple[Path, ...]:
    return tuple(path for path in files() if path.suffix == ".py")


def relative_path(path: Path) -> str:
    return path.relative_to(PROJECT_ROOT).as_posix()


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def lines_with(pattern: str) -> Iterator[str]:
    for path in files():
        text = path.read_text(encoding="utf-8", errors="replace")  # pictures too
        for number, line in enumerate(text.splitlines(), start=1):
            if re.search(pattern, line):
                yield f"{relative_path(path)}:{number} {line.strip()}"


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_hides_two_ideas() -> None:
    lengths = {relative_path(path): len(text_of(path).splitlines()) for path in python_files()}
    assert {where: lines for where, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_every_module_is_named_after_what_it_holds() -> None:
    assert [
        relative_path(path)
        for path in python_files()
        if FORBIDDEN_MODULE_NAMES & set(path.relative_to(PROJECT_ROOT).with_suffix("").parts)
    ] == []


def has_code(module: ast.Module) -> bool:
    return len(module.body) > (ast.get_docstring(module) is not None)


def test_packages_reexport_nothing() -> None:
    inits = [
        path for path in python_files() if path.name == "__init__.py" and relative_path(path) not in INITS_WITH_CODE
    ]
    assert [relative_path(path) for path in inits if has_code(ast.parse(text_of(path)))] == []


@pytest.mark.parametrize("what", FORBIDDEN_PATTERNS)
def test_no_file_holds(what: str) -> None:
    assert list(lines_with(FORBIDDEN_PATTERNS[what])) == []


def nodes_of_tests(*words: str) -> Iterator[tuple[str, ast.AST]]:
    """The nodes of the tests in which one of these words stands: reading all takes seconds."""
    for path in python_files():
        if relative_path(path).startswith("tests/") and any(word in text_of(path) for word in words):
            for node in ast.walk(ast.parse(text_of(path))):
                yield f"{relative_path(path)}:{getattr(node, 'lineno', 0)}", node


def is_sleep(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "time" and any(name.name == "sleep" for name in node.names)
    return isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node) == "time.sleep"


def test_no_test_sleeps() -> None:
    """Tests wait for what they wait for, under a deadline."""
    assert [where for where, node in nodes_of_tests("time.sleep", "from time import") if is_sleep(node)] == []


def test_a_test_that_is_left_out_says_why() -> None:
    marks = {"skip", "skipif", "xfail"}
    used, explained = [], set()
    for where, node in nodes_of_tests(*marks):
        if isinstance(node, ast.Call) and any(keyword.arg == "reason" for keyword in node.keywords):
            explained.add((where, ast.unparse(node.func)))
        if isinstance(node, ast.Attribute) and node.attr in marks and ast.unparse(node.value) == "pytest.mark":
            used.append((where, ast.unparse(node)))
    assert [mark for mark in used if mark not in explained] == []


# --- commands and lists -----------------------------------------------------------------------------------------------


def make_targets() -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", text_of(PROJECT_ROOT / "Makefile"), re.MULTILINE)
    assert phony is not None
    return set(phony[1].split())


def commands_in_prose() -> set[tuple[str, str]]:
    """Every `make TARGET` that a page shows as code, with the page."""
    code = r"(?:^|`|\$ )make ([a-z][a-z-]*)"
    pages = [path for path in files() if path.suffix == ".md"]
    return {(relative_path(page), each) for page in pages for each in re.findall(code, text_of(page), re.MULTILINE)}


def test_every_make_command_that_a_page_shows_exists() -> None:
    shown = commands_in_prose()
    assert {command for _, command in shown} >= {"run", "test", "check"}
    assert [(page, command) for page, command in sorted(shown) if command not in make_targets()] == []


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    assert ("README.md", "test") in commands_in_prose()
    assert re.search(r"^make test\b", text_of(PROJECT_ROOT / ".ci" / "run"), re.MULTILINE)


def test_every_example_is_run_by_a_test() -> None:
    tests = "".join(text_of(path) for path in python_files() if relative_path(path).startswith("tests/"))
    examples = [path for path in python_files() if relative_path(path).startswith("examples/")]
    assert [relative_path(path) for path in examples if path.name not in tests] == []


def locked(name: str) -> dict[str, str]:
    """The versions in one of the lists."""
    text = text_of(PROJECT_ROOT / "requirements" / f"{name}.txt")
    return dict(re.findall(r"^([a-z0-9.-]+)==([^ ]+)", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("run", ["embedded"]),
        ("test", list(PROJECT["optional-dependencies"])),
        *((extra, [extra]) for extra in PROJECT["optional-dependencies"] if extra not in {"embedded", "dev"}),
    ],
)
def test_a_list_holds_what_the_project_asks_for(name: str, extras: list[str]) -> None:
    wanted = [*PROJECT["dependencies"], *(each for extra in extras for each in PROJECT["optional-dependencies"][extra])]
    pins = locked(name)
    missing = [
        each
        for each in map(Requirement, wanted)
        if not each.specifier.contains(pins.get(each.name, "0"), prereleases=True)
    ]
    assert missing == [], "run `make lock`"


def test_lists_hold_hashes_and_agree_and_name_no_place() -> None:
    everything = locked("test")
    for path in sorted((PROJECT_ROOT / "requirements").glob("*.txt")):
        entries = re.split(r"\n(?=[a-z0-9])", text_of(path).split("\n", 1)[1])
        assert [entry for entry in entries if " --hash=sha256:" not in entry] == []
        assert locked(path.stem).items() <= everything.items()
        assert re.findall(r"://|--(?:extra-)?index|--find-links|--trusted", text_of(path)) == []
