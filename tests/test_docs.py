"""The documentation: the structure of the site, and the examples of pages that no other test plays."""

import asyncio
import re
import runpy
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import dragoman
import dragoman.client
import dragoman.testing
from dragoman import Agent
from dragoman.cli.main import commands
from dragoman.settings_loading import load
from dragoman.testing import Scripted, Served, call, serve
from tests.walkthrough import Step, assert_output, outputs_of, steps_of
from tools.docs_site import DOCS, PROJECT_ROOT, Staging, llms_txt, navigation, source_of, title_of

PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
RECORDS = re.compile(r"decisions/\d{4}-")
"""Decision records are listed on a page of their own."""


def text_of(page: str) -> str:
    return source_of(page).read_text(encoding="utf-8")


def blocks_of(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL)


# --- structure --------------------------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once() -> None:
    listed = sorted(entry.page for entry in navigation() if (DOCS / entry.page).is_file())
    assert listed == [page for page in PAGES if not RECORDS.match(page)]


def test_every_entry_of_the_navigation_is_a_page_with_a_title() -> None:
    assert [entry.page for entry in navigation() if not source_of(entry.page).is_file()] == []
    assert [page for page in PAGES if not title_of(page) or text_of(page).startswith("#") is False] == []


def test_every_decision_is_listed() -> None:
    listed = re.findall(r"\]\((\d{4}-[^)]+)\)", text_of("decisions/README.md"))
    assert [f"decisions/{each}" for each in listed] == [page for page in PAGES if RECORDS.match(page)]


def test_every_link_of_the_staged_site_works(tmp_path: Path) -> None:
    staged = tmp_path / "docs"
    Staging(staged).run()
    pages = list(staged.rglob("*.md"))
    assert len(pages) > len(PAGES), "pages outside of docs/ are missing"
    prose = {
        page: re.sub(r"^ *(`{3,}).*?^ *\1$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE) for page in pages
    }
    links = {(page, link) for page, text in prose.items() for link in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)}
    assert len(links) > 200, "the pattern no longer finds the links"
    assert (
        sorted(f"{page.relative_to(staged)}: {link}" for page, link in links if not (page.parent / link).exists()) == []
    )


def test_every_picture_of_a_page_exists() -> None:
    pages = [PROJECT_ROOT / "README.md", *DOCS.rglob("*.md")]
    pictures = [(page, each) for page in pages for each in re.findall(r'(?:src|srcset)="([^"]+)"', page.read_text())]
    assert [(page.name, each) for page, each in pictures if not (page.parent / each).is_file()] == []


def test_llms_txt_lists_every_page() -> None:
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\)", llms_txt(), re.MULTILINE)
    assert listed == [entry.page for entry in navigation()]


# --- reference --------------------------------------------------------------------------------------------------------


def test_every_name_of_the_table_of_decisions_is_defined_in_one_of_its_files() -> None:
    section = text_of("architecture.md").partition("## Where it is decided")[2].partition("\n## ")[0]
    rows = [row.split(" | ")[1:] for row in section.splitlines() if ".py`" in row]
    assert len(rows) > 15, "the rows are no longer found"
    for files, names in rows:
        paths = [PROJECT_ROOT / "src" / "dragoman" / file for file in re.findall(r"`([^`]+)`", files)]
        text = "".join(path.read_text() for path in paths)
        for name in re.findall(r"`([^`]+)`", names):
            assert re.search(rf"^\s*(?:(?:async )?def |class )?{name}\b", text, re.MULTILINE), (files, name)


def test_the_page_of_the_command_line_lists_commands_that_exist() -> None:
    """The site adds the help of every command."""
    listed = set(re.findall(r"^\| `dragoman (\w+)`", text_of("cli.md"), re.MULTILINE))
    assert len(listed) > 10
    assert listed - set(commands.commands) == set()


@pytest.mark.parametrize("module", [dragoman, dragoman.client, dragoman.testing], ids=lambda each: each.__name__)
def test_the_page_of_the_python_api_lists_every_public_name(module: ModuleType) -> None:
    _, _, section = text_of("python-api.md").partition(f"\n## {module.__name__}\n")
    rows = re.findall(r"^\|[^|]+\|(.*)\|$", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(module.__all__)


def test_the_settings_of_the_production_page_are_valid(tmp_path: Path) -> None:
    (text,) = blocks_of("production.md", "toml")
    (tmp_path / "dragoman.toml").write_text(text)
    loaded = load({"config": str(tmp_path / "dragoman.toml")}, {}).settings
    assert (loaded.trusted_proxies, loaded.public_url) == (("127.0.0.1",), "https://agents.example")


def test_the_proxies_of_the_production_page_send_streams_on_to_the_port_of_the_server() -> None:
    nginx, caddy, traefik = (blocks_of("production.md", each)[0] for each in ("nginx", "caddy", "yaml"))
    assert "proxy_buffering off;" in nginx
    assert "flush_interval -1" in caddy
    (service,) = yaml.safe_load(traefik)["http"]["services"].values()
    assert service["loadBalancer"]["servers"] == [{"url": "http://127.0.0.1:8000"}]
    assert all("127.0.0.1:8000" in each and "/metrics" in each for each in (nginx, caddy, traefik))


# --- examples ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def page_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder with the Python files of a page, from which they can be imported."""
    files = dict(
        re.findall(r"\A# (\w+\.py)\n(.*)\Z", block, re.DOTALL)[0] for block in blocks_of(request.param, "python")
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        sys.modules.pop(name.removesuffix(".py"), None)  # other tests serve files of the same names
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in files:
        sys.modules.pop(name.removesuffix(".py"), None)


def run_tests(module: str) -> list[str]:
    """Call the test functions of a module; their names."""
    functions = [each for name, each in vars(import_module(module)).items() if name.startswith("test_")]
    for function in functions:
        function()
    return [each.__name__ for each in functions]


def output_of(file: Path, server: Served, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a program with the server in its environment. Returns what it prints."""
    monkeypatch.setenv("URL", server.url)
    monkeypatch.setenv("KEY", server.key)
    printed: list[str] = []  # standard output has the server's log, too
    runpy.run_path(str(file), {"print": lambda *values: printed.append(" ".join(map(str, values)))})
    return printed


@pytest.mark.parametrize("page_files", ["quickstart.md"], indirect=True)
def test_the_quickstart_works_as_printed(page_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(run_tests("test_app")) == 2
    steps = steps_of("quickstart.md", "4. Talk to it from a shell")
    (rest_command,), (rest_output,) = blocks_of("rest-api.md", "sh"), blocks_of("rest-api.md", "text")
    steps.append(Step(rest_command, rest_output))
    add, send = call("add", a=20, b=22), call("send", to="Ann", text="Hi")
    model = Scripted([add, "It is 42.", add, "It is 42.", send, "I greeted her."])
    with serve(import_module("app").assistant, model=model) as server:
        outputs = asyncio.run(outputs_of(steps, page_files, URL=server.url, KEY=server.key))
        for step, output in zip(steps, outputs, strict=True):
            assert_output(step, output)
        assert output_of(page_files / "ask.py", server, monkeypatch) == ["I greeted her."]


def test_the_container_of_the_quickstart_is_built_and_run_with_files_and_options_that_exist() -> None:
    build, run = (block.replace("\\\n", "") for block in blocks_of("quickstart.md", "sh") if "docker" in block)
    assert (PROJECT_ROOT / re.findall(r"--file (\S+)", build)[0]).is_file()
    _, _, arguments = run.partition(" dragoman ")
    serve_command, *options = arguments.split()
    assert serve_command == "serve"
    assert commands.commands["serve"].make_context("serve", options).params["agents"] == ("app.py",)


@pytest.mark.parametrize("page_files", ["approvals.md"], indirect=True)
def test_the_guide_to_approvals_works_as_printed(page_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(run_tests("test_shop")) == 2
    shop = import_module("shop")
    with serve(shop.clerk, model=Scripted([call("refund", order="A-2"), "Refunded."])) as server:
        assert output_of(page_files / "approve.py", server, monkeypatch) == ["refund {'order': 'A-2'}", "Refunded."]
    assert shop.refunded == ["A-2"]


@pytest.mark.parametrize("page_files", ["coming-from.md"], indirect=True)
def test_a_conversation_can_be_brought_along_as_printed(page_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Scripted(["Your name is Ann."])
    with serve(Agent("assistant", history=True), model=model) as server:
        assert output_of(page_files / "bring.py", server, monkeypatch) == ["Your name is Ann."]
    assert model.read() == ["user: My name is Ann.", "assistant: Hello, Ann!", "user: What is my name?"]


@pytest.mark.parametrize("page", ["react-app.md"])
def test_the_code_of_a_page_is_that_of_an_example(page: str) -> None:
    examples = "".join(path.read_text() for path in (PROJECT_ROOT / "examples").glob("*/*.js*"))
    blocks = blocks_of(page, "jsx?")
    assert blocks
    assert [block for block in blocks if block not in examples] == []
