"""`dragoman init`: an agent of each kind, whose test passes."""

import importlib
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dragoman.cli.main import AGENT_KINDS, commands
from dragoman.server.loading import load
from dragoman.terminal.first_agents import FIRST_AGENTS
from tests.terminal.pseudo_terminal import at_terminal


@pytest.mark.parametrize("kind", FIRST_AGENTS)
def test_an_agent_of_each_kind_can_be_served_and_its_test_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = f"first_{kind.replace('-', '_')}.py"
    written = CliRunner().invoke(commands, ["init", file, "--kind", kind])
    assert written.exit_code == 0, written.output
    assert f"test it:     pytest test_{file}\n" in written.stdout
    assert f"dev {file}\n" in written.stdout
    (agent,) = load(file)
    assert agent.spec.description or kind == "langgraph", "graphs have no description of their own"
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(f"test_{file[:-3]}")
    try:
        tests = [each for name, each in vars(module).items() if name.startswith("test_")]
        for each in tests:
            each()
        assert len(tests) == 2
    finally:
        for name in (module.__name__, file[:-3]):
            sys.modules.pop(name, None)


def test_no_file_is_ever_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(commands, ["init"]).exit_code == 0
    files = {path: path.read_text() for path in tmp_path.iterdir()}
    for file, code in {"app.py": 1, "app.txt": 2, "my-app.py": 2}.items():
        assert CliRunner().invoke(commands, ["init", file]).exit_code == code
    again = "app.py already exists. Name another file, or serve this one with: "
    assert CliRunner().invoke(commands, ["init"]).output.startswith(f"dragoman: {again}")
    (tmp_path / "app.py").unlink()
    assert "test_app.py already exists" in CliRunner().invoke(commands, ["init"]).output
    assert {path: path.read_text() for path in tmp_path.iterdir()} == {
        path: text for path, text in files.items() if path.name != "app.py"
    }


async def test_a_terminal_is_asked_for_the_kind(tmp_path: Path) -> None:
    async with at_terminal(tmp_path, "init") as user:
        await user.until("Which kind of agent? [1]: ")
        user.say("2")
        await user.until("serve it:")
        assert await user.code() == 0
    assert "@agent(" in (tmp_path / "app.py").read_text()


def test_the_command_line_knows_all_kinds() -> None:
    assert list(AGENT_KINDS.choices) == list(FIRST_AGENTS)
