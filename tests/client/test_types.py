"""The library's types, as two strict checkers see them: mypy with the rest of the tests, and pyright here."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("typed_program.py")
PROJECT_ROOT = Path(__file__).parent.parent.parent


def test_a_program_over_the_library_is_understood_by_pyright_in_its_strict_mode(tmp_path: Path) -> None:
    """What is wrong in it carries an ignore, and an ignore too much is an error."""
    config = {
        "include": [str(PROGRAM)],
        "extraPaths": [str(PROJECT_ROOT / "src"), str(PROJECT_ROOT)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,  # those are mypy's
        "reportUnnecessaryTypeIgnoreComment": True,
        "reportUnnecessaryComparison": False,  # of the branch that says that there is no other
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "0 errors" in done.stdout) == (0, True), done.stdout + done.stderr
