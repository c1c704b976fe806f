"""The architecture's contracts, and the project's rules that no other tool checks."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement

PROJECT_ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAX_FILE_LINES = 600
MAX_CLASS_LINES = 300
MAX_ATTRIBUTES = 20
REASON = re.compile(r"^\s*(?:#|//) Large: \w+", re.MULTILINE)
"""A comment that allows a file or a class to exceed the limits, such as `# Large: one method per SQL statement.`"""

FORBIDDEN_MODULE_NAMES = {"common", "helper", "helpers", "misc", "shared", "util", "utils"}
"""Modules with these names collect unrelated code, and every layer ends up importing them."""

INITS_WITH_CODE = {
    "src/dragoman/__init__.py",
    "src/dragoman/adapters/__init__.py",
    "src/dragoman/client/__init__.py",
    "src/dragoman/testing/__init__.py",
    "tests/requirements/__init__.py",
}
"""Those of the program are the public API, the last is part of the test framework. All others contain no code."""

PURE = re.compile(r"(?:^|(?<=[.;)] )|(?<=\n))Pure\b(?= values|:|;|,|\.)")
"""How a module declares in its docstring that it does no IO: a sentence that begins with `Pure`."""

PURE_BY_NAME = {"errors", "translate", "wire"}
"""Modules of a protocol with these names must be pure."""

IO_PACKAGES = {
    "aiohttp",
    "anyio",
    "asyncio",
    "click",
    "concurrent",
    "httpx2",
    "multiprocessing",
    "nats",
    "obstore",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "pydantic_ai",
    "queue",
    "random",
    "secrets",
    "socket",
    "socketio",
    "sqlite3",
    "starlette",
    "structlog",
    "subprocess",
    "threading",
    "time",
    "uvicorn",
    "uvloop",
    "xllamacpp",
}
"""What a pure module may not import, directly or through other modules: IO, clocks, randomness and concurrency."""

# Written so that no pattern matches its own line.
FORBIDDEN_PATTERNS = {
    "an absolute path of a machine": r"(?<![\w.:])/(work|root|tmp|home/\w+|Users/\w+)/",
    "a package registry's host": r"\b(pypi\.org|pythonhosted\.org|npmjs\.org|npmjs\.com|debian\.org)\b",
    "a key": r"\b(sk-[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|ghp_[A-Za-z0-9]{30,})\b|-----BEGIN [A-Z ]*PRIVATE KEY",
    "an import that the contracts do not see": r"import_modul[e]\(['\"]dragoman",
    "a deferred task": r"\b(T[O]DO|F[I]XME|X[X]X|H[A]CK)\b",
    "a reference to the working process": r"\b(issue \d|iss[u]es show|C[E]O|the br[i]ef|sh[a]red/\w+\.md)\b",
}


@cache
def files() -> tuple[Path, ...]:
    """All files that are or would be committed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return tuple(path for name in sorted(listed.split("\0")) if name and (path := PROJECT_ROOT / name).is_file())


def python_files() -> tuple[Path, ...]:
    return tuple(path for path in files() if path.suffix == ".py")


def relative_path(path: Path) -> str:
    return path.relative_to(PROJECT_ROOT).as_posix()


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def lines_with(pattern: str) -> Iterator[str]:
    for path in files():
        if path.suffix == ".webp":  # compressed: any letters may occur
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if not re.search(pattern, text):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if re.search(pattern, line):
                yield f"{relative_path(path)}:{number} {line.strip()}"


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- sizes ------------------------------------------------------------------------------------------------------------


def source_files() -> tuple[Path, ...]:
    """Python, TypeScript and styles. The tables of `tests/requirements` and of the console's texts are data."""
    data = ("tests/requirements/", "web/src/i18n/")
    return tuple(
        path
        for path in files()
        if path.suffix in {".py", ".ts", ".tsx", ".css"} and not relative_path(path).startswith(data)
    )


def test_a_file_has_at_most_600_lines_unless_it_gives_a_reason() -> None:
    lengths = {relative_path(path): len(text_of(path).splitlines()) for path in source_files()}
    too_long = [where for where, lines in lengths.items() if lines > MAX_FILE_LINES]
    assert [where for where in too_long if not REASON.search(text_of(PROJECT_ROOT / where))] == []


def attributes_of(node: ast.ClassDef) -> set[str]:
    """The attributes that a class declares, or that its methods assign to `self`."""
    declared = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    assigned = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    return declared | assigned


def is_struct(node: ast.ClassDef) -> bool:
    """Whether a class only holds data; how many members it has is for a protocol or a document to decide."""
    return any(ast.unparse(base) in {"msgspec.Struct", "NamedTuple", "TypedDict"} for base in node.bases)


def may_have_large_classes(path: Path) -> bool:
    """Whether a file has a class, and enough lines or names for a large one: parsing all files takes seconds."""
    text = text_of(path)
    if path.suffix != ".py" or not re.search(r"^\s*class ", text, re.MULTILINE):
        return False
    declared = re.findall(r"^[ \t]+(\w+): ", text, re.MULTILINE)
    assigned = re.findall(r"\bself\.(\w+)(?=[^\n(]*=)", text)
    return len(text.splitlines()) > MAX_CLASS_LINES or len({*declared, *assigned}) > MAX_ATTRIBUTES


def large_classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path in filter(may_have_large_classes, source_files()):
        for node in ast.walk(syntax_tree(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_CLASS_LINES or (len(attributes_of(node)) > MAX_ATTRIBUTES and not is_struct(node)):
                yield relative_path(path), node


def test_a_class_has_at_most_300_lines_and_20_attributes_unless_it_gives_a_reason() -> None:
    unexplained = []
    for where, node in large_classes():
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        above = text_of(PROJECT_ROOT / where).splitlines()[max(0, first - 4) : first - 1]
        if not REASON.search("\n".join(above)):
            unexplained.append(f"{where}:{node.lineno} {node.name}")
    assert unexplained == []


# --- layout -----------------------------------------------------------------------------------------------------------


def test_every_module_is_named_after_what_it_holds() -> None:
    assert [
        relative_path(path)
        for path in python_files()
        if FORBIDDEN_MODULE_NAMES & set(path.relative_to(PROJECT_ROOT).with_suffix("").parts)
    ] == []


def has_code(module: ast.Module) -> bool:
    return len(module.body) > (ast.get_docstring(module) is not None)


def package_inits() -> Iterator[tuple[str, ast.Module]]:
    for path in python_files():
        if path.name == "__init__.py":
            yield relative_path(path), syntax_tree(path)


def test_packages_reexport_nothing() -> None:
    assert [where for where, init in package_inits() if has_code(init) and where not in INITS_WITH_CODE] == []


def test_every_package_says_what_it_contains() -> None:
    assert [at for at, init in package_inits() if at.startswith("src/") and not ast.get_docstring(init)] == []


# --- purity -----------------------------------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    parts = path.relative_to(PROJECT_ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def pure_modules() -> frozenset[str]:
    """The modules that declare themselves pure, and those of packages that do."""
    docstrings = {
        module_name(path): ast.get_docstring(syntax_tree(path)) or ""
        for path in python_files()
        if relative_path(path).startswith("src/")
    }
    declared = {module for module, docstring in docstrings.items() if PURE.search(docstring)}
    inside = {module for module in docstrings if any(module.startswith(f"{each}.") for each in declared)}
    return frozenset(declared | inside)


@cache
def import_graph() -> grimp.ImportGraph:
    return grimp.build_graph("dragoman", include_external_packages=True)


def test_modules_that_declare_themselves_pure_do_no_io() -> None:
    assert len(pure_modules()) > 60, "the pattern no longer finds the declarations"
    graph = import_graph()
    io = IO_PACKAGES & graph.modules
    assert {
        module: chain
        for module in sorted(pure_modules())
        for package in sorted(graph.find_upstream_modules(module) & io)
        if (chain := graph.find_shortest_chain(module, package))
    } == {}


def test_wire_translate_and_errors_modules_of_protocols_declare_themselves_pure() -> None:
    modules = (module.split(".") for module in import_graph().modules if module.startswith("dragoman.protocols."))
    expected = {".".join(parts) for parts in modules if PURE_BY_NAME & set(parts[3:])}
    assert sorted(expected - pure_modules()) == []


def test_the_core_and_the_ports_declare_themselves_pure() -> None:
    assert {"dragoman.core", "dragoman.ports"} <= pure_modules()


# --- the console's modules --------------------------------------------------------------------------------------------


IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"']*)["']""")


def console_imports() -> dict[str, set[str]]:
    """Which TypeScript module of the console imports which, without suffixes."""
    root = PROJECT_ROOT / "web" / "src"
    modules = {path for path in files() if path.suffix in {".ts", ".tsx"} and path.is_relative_to(root)}
    imports: dict[str, set[str]] = {}
    for path in modules:
        targets = imports.setdefault(relative_path(path), set())
        for name in IMPORT.findall(text_of(path)):
            target = (path.parent / name).resolve()
            tried = (Path(f"{target}{end}") for end in (".ts", ".tsx", "/index.ts", "/index.tsx"))
            targets |= {relative_path(each) for each in tried if each in modules}
    return imports


def circle(imports: dict[str, set[str]]) -> list[str]:
    """One circle of imports; empty if there is none."""
    try:
        tuple(TopologicalSorter(imports).static_order())
    except CycleError as error:
        return list(error.args[1])
    return []


def folder_of(module: str) -> str:
    """The unit of the console's layers: a folder of `web/src`, or a page."""
    parts = module.split("/")[2:-1]
    return "/".join(parts) or module


def test_the_console_has_no_circular_imports() -> None:
    imports = console_imports()
    assert sum(map(len, imports.values())) > 200, "the pattern no longer finds the imports"
    assert circle(imports) == []


def test_the_console_has_no_circular_imports_between_folders() -> None:
    folders: dict[str, set[str]] = {}
    for module, targets in console_imports().items():
        folder = folder_of(module)
        folders.setdefault(folder, set()).update({folder_of(target) for target in targets} - {folder})
    assert circle(folders) == []


# --- words ------------------------------------------------------------------------------------------------------------

REPLACED_WORDS = {
    "brought": "the noun, such as `client_tools`",
    "carrying": "`delta_relay`",
    "courier": "`DeltaRelay`",
    "described": "`openapi`",
    "door": "`protocol`",
    "doors": "`routing`",
    "intake": "`request_mapping`",
    "neighbours": "`cluster`",
    "onces": "`idempotency`",
    "parcel": "`batch`",
    "parcels": "`batches`",
    "summing": "`compaction`",
    "sure": "`wait_for_valid_lease`",
    "told": "`response`, `payload`, `finished`, by meaning",
    "unask": "`discard`",
}
"""Words that the project once used in a meaning of its own, and what to call the thing instead."""


def identifiers_of(path: Path) -> set[str]:
    """All names that a Python file defines or uses, and its own name."""
    names = {path.stem}
    for node in ast.walk(syntax_tree(path)):
        found = (getattr(node, member, None) for member in ("id", "attr", "name", "arg"))
        names.update(each for each in found if isinstance(each, str))
    return names


def identifiers_in_typescript(path: Path) -> set[str]:
    code = re.sub(r"""/\*.*?\*/|(?<![:\w])//[^\n]*|"(?:[^"\\\n]|\\.)*"|`[^`]*`""", " ", text_of(path), flags=re.DOTALL)
    return {path.stem, *re.findall(r"[A-Za-z_]\w*", code)}


def words_of(name: str) -> set[str]:
    return {each.lower() for each in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def may_have_replaced_words(path: Path) -> bool:
    """Whether a replaced word stands in a file, perhaps as a part of another one: parsing all files takes seconds."""
    text = f"{path.stem}\n{text_of(path)}".lower()
    return any(word in text for word in REPLACED_WORDS)


def test_identifiers_use_the_terms_of_the_field() -> None:
    """Test functions are sentences, in which any word may stand."""
    found = []
    for path in files():
        where = relative_path(path)
        if path.suffix not in {".py", ".ts", ".tsx"} or not may_have_replaced_words(path):
            continue
        if path.suffix == ".py" and where.startswith(("src/", "tests/")):
            names = identifiers_of(path)
        elif path.suffix in {".ts", ".tsx"} and where.startswith("web/src/"):
            names = identifiers_in_typescript(path)
        else:
            continue
        names = {name for name in names if not name.startswith("test_")}
        found += [f"{where}: {name}" for name in sorted(names) if words_of(name) & REPLACED_WORDS.keys()]
    assert found == []


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", FORBIDDEN_PATTERNS)
def test_no_file_contains(what: str) -> None:
    assert list(lines_with(FORBIDDEN_PATTERNS[what])) == []


def nodes_of_tests(*words: str) -> Iterator[tuple[str, ast.AST]]:
    """The syntax nodes of test files that contain one of these words: parsing all files takes seconds."""
    for path in python_files():
        if relative_path(path).startswith("tests/") and any(word in text_of(path) for word in words):
            for node in ast.walk(syntax_tree(path)):
                yield f"{relative_path(path)}:{getattr(node, 'lineno', 0)}", node


def is_sleep(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "time" and any(name.name == "sleep" for name in node.names)
    return isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node) == "time.sleep"


def test_no_test_sleeps() -> None:
    """Tests wait for a condition, with a deadline."""
    assert [where for where, node in nodes_of_tests("time.sleep", "from time import") if is_sleep(node)] == []


def test_every_skipped_test_gives_a_reason() -> None:
    marks = {"skip", "skipif", "xfail"}
    used, explained = [], set()
    for where, node in nodes_of_tests(*marks):
        if isinstance(node, ast.Call) and any(keyword.arg == "reason" for keyword in node.keywords):
            explained.add((where, ast.unparse(node.func)))
        if isinstance(node, ast.Attribute) and node.attr in marks and ast.unparse(node.value) == "pytest.mark":
            used.append((where, ast.unparse(node)))
    assert [mark for mark in used if mark not in explained] == []


PRIVATE_ACCESS = {
    "tests/agents/test_mcp.py": "waits until a connection has noticed that its server died",
    "tests/client/test_session.py": "lets ten minutes pass for one run",
    "tests/client/test_standard_only_servers.py": "moves a client to a proxy, in the middle of its session",
    "tests/crash/sabotage.py": "breaks the program on purpose, to show that the campaign would find it",
    "tests/engine/engine_under_test.py": "an engine that crashes",
    "tests/protocols/agentscope/test_events.py": "puts a bug into a translator",
    "tests/protocols/blade/client.py": "cuts a connection, which the client's library gives no way to",
    "tests/protocols/openai/test_chat_clients.py": "an attribute that OpenAI's library documents",
    "tests/buses/test_buses.py": "a race in the client's library",
    "tests/simulation/virtual_loop.py": "an event loop: what a handle of asyncio consists of",
    "tests/terminal/test_parts.py": "a line that was typed while an answer was printed, without a terminal",
    "tests/upgrades/test_rolling.py": "writes an event that only a later release has",
}
"""The tests that use private names of the program or of a library, and what for. All others use public names only."""
PUBLIC_UNDERSCORES = {"_asdict", "_exit", "_fields", "_replace"}  # of named tuples and of `os`: public, too


def private_names_of(path: Path) -> set[str]:
    """The private names of others that a file uses. What it defines itself, or reads from `self`, is its own."""
    tree = syntax_tree(path)
    own, used = set(PUBLIC_UNDERSCORES), set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.ImportFrom(module=str(module)) if module.startswith("dragoman"):
                used.update(alias.name for alias in node.names)
            case ast.Call(func=ast.Name(id="getattr" | "setattr") | ast.Attribute(attr="setattr")):
                used.update(str(each.value) for each in node.args[:2] if isinstance(each, ast.Constant))
    return {name for name in used - own if re.match(r"_[a-z]", name)}


MAY_USE_PRIVATE_NAMES = (
    re.compile(r"\._(?<!\bself\._)(?<!\bcls\._)[a-z]"),
    re.compile(r"import [^\n]*\b_[a-z]"),
    re.compile(r"""attr\([^"\n]*"_[a-z]"""),
)
"""Found in every file that uses a private name, and in few others: parsing all files takes seconds."""


def test_tests_use_public_names() -> None:
    """A test that looks behind a class fails when the class is rewritten, although it still does what it promises."""
    tests = [path for path in python_files() if relative_path(path).startswith("tests/")]
    candidates = [path for path in tests if any(each.search(text_of(path)) for each in MAY_USE_PRIVATE_NAMES)]
    found = {relative_path(path) for path in candidates if private_names_of(path)}
    assert sorted(found - PRIVATE_ACCESS.keys()) == [], "find a public way, or give the reason in PRIVATE_ACCESS"
    assert sorted(PRIVATE_ACCESS.keys() - found) == [], "no longer needed: remove it"


# --- the architecture page --------------------------------------------------------------------------------------------

ARCHITECTURE = PROJECT_ROOT / "docs" / "architecture.md"


def test_every_file_that_the_architecture_page_names_exists() -> None:
    names = re.findall(r"`([\w./-]+(?:/|\.(?:py|md|ts|tsx|toml)))`", text_of(ARCHITECTURE))
    assert len(names) > 80, "the pattern no longer finds the names"
    roots = (PROJECT_ROOT, PROJECT_ROOT / "src" / "dragoman")
    templates = {name for name in names if "NAME" in name} | OF_A_PROTOCOL
    missing = {name for name in names if not any((root / name).exists() for root in roots)}
    assert sorted(missing - templates) == []


OF_A_PROTOCOL = {"adapters/", "errors.py", "http.py", "streams.py", "translate.py", "wire.py"}
"""Files and packages that the page asks to write."""


def test_the_architecture_page_lists_every_package() -> None:
    listed = set(re.findall(r"^\| `([\w/]+)/` \|", text_of(ARCHITECTURE), re.MULTILINE))
    packages = {
        Path(where).parent.relative_to("src/dragoman").as_posix()
        for where, _ in package_inits()
        if where.startswith("src/")
    }
    assert sorted(packages - {"."}) == sorted(listed)


# --- links ------------------------------------------------------------------------------------------------------------


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_relative_link_of_a_page_works() -> None:
    broken = []
    for page in (path for path in files() if path.suffix == ".md"):
        prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)\s]+)\)", prose):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            is_external = "://" in link
            if not is_external and (not target.exists() or (anchor and anchor not in anchors_of(target))):
                broken.append(f"{relative_path(page)}: {link}")
    assert broken == []


# --- commands and lists -----------------------------------------------------------------------------------------------


def make_targets() -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", text_of(PROJECT_ROOT / "Makefile"), re.MULTILINE)
    assert phony is not None
    return set(phony[1].split())


def commands_in_prose() -> set[tuple[str, str]]:
    """Every `make TARGET` in the code of a page, with the page."""
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


SEPARATE_LISTS = {"docs", "pip", "release"}
"""Lists of programs that the tests do not use; packages that they share with the others have the same version."""


def locked(name: str) -> dict[str, str]:
    """The versions in a list."""
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
def test_a_list_satisfies_the_requirements_of_the_project(name: str, extras: list[str]) -> None:
    wanted = [*PROJECT["dependencies"], *(each for extra in extras for each in PROJECT["optional-dependencies"][extra])]
    pins = locked(name)
    missing = [
        each
        for each in map(Requirement, wanted)
        if not each.specifier.contains(pins.get(each.name, "0"), prereleases=True)
    ]
    assert missing == [], "run `make lock`"


def test_lists_contain_hashes_agree_with_each_other_and_name_no_index() -> None:
    everything = locked("test")
    for path in sorted((PROJECT_ROOT / "requirements").glob("*.txt")):
        entries = re.split(r"\n(?=[a-z0-9])", text_of(path).split("\n", 1)[1])
        assert [entry for entry in entries if " --hash=sha256:" not in entry] == []
        pins = locked(path.stem)
        assert {name: everything.get(name, pin) for name, pin in pins.items()} == pins
        assert path.stem in SEPARATE_LISTS or pins.keys() <= everything.keys()
        assert re.findall(r"://|--(?:extra-)?index|--find-links|--trusted", text_of(path)) == []
