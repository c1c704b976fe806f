"""The library's types under two strict checkers: mypy checks them with all tests, pyright here."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("typed_program.py")
PROJECT_ROOT = Path(__file__).parent.parent.parent


def test_a_typed_program_passes_pyright_in_strict_mode(tmp_path: Path) -> None:
    """Each error in it carries an ignore comment, and an unnecessary ignore comment is an error."""
    config = {
        "include": [str(PROGRAM)],
        "extraPaths": [str(PROJECT_ROOT / "src"), str(PROJECT_ROOT)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,  # for mypy
        "reportUnnecessaryTypeIgnoreComment": True,
        "reportUnnecessaryComparison": False,  # in the `assert_never` branch
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "0 errors" in done.stdout) == (0, True), done.stdout + done.stderr
