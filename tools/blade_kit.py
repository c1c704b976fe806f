"""Install the vendor's Python client of Blade for the tests. It needs Python 3.12, and therefore its own environment.

Several releases are installed side by side, with the same dependencies. Without Python 3.12, nothing is installed and
the tests are skipped.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parent.parent
INSTALL_FOLDER = PROJECT_ROOT / "build" / "blade-kit"
REQUIREMENTS_LIST = PROJECT_ROOT / "tests" / "protocols" / "blade" / "clients" / "kit.txt"
RELEASES = re.compile(r"^# release (\S+) (--hash=sha256:[0-9a-f]{64})$", re.MULTILINE)


def main() -> int:
    """Install what is missing."""
    stamp = INSTALL_FOLDER / "installed"
    if stamp.exists() and stamp.stat().st_mtime > REQUIREMENTS_LIST.stat().st_mtime:
        return 0
    python = python_3_12()
    if python is None:
        sys.stdout.write("blade-agent-kit needs Python 3.12, which was not found: its tests will be skipped\n")
        return 0
    sys.stdout.write(f"installing the releases of blade-agent-kit with {python}\n")
    shutil.rmtree(INSTALL_FOLDER, ignore_errors=True)
    subprocess.run([python, "-m", "venv", INSTALL_FOLDER / "venv"], check=True)
    pip = [
        str(INSTALL_FOLDER / "venv" / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    pip += ["--no-deps", "--no-compile", "--require-hashes"]
    subprocess.run([*pip, "-r", str(REQUIREMENTS_LIST)], check=True)
    for release, digest in RELEASES.findall(REQUIREMENTS_LIST.read_text(encoding="utf-8")):
        requirements = INSTALL_FOLDER / f"{release}.txt"
        requirements.write_text(f"blade-agent-kit=={release} {digest}\n", encoding="utf-8")
        subprocess.run([*pip, "--target", str(INSTALL_FOLDER / release), "-r", str(requirements)], check=True)
    stamp.touch()
    return 0


def python_3_12() -> str | None:
    """Python 3.12: this one, or one on the path or of pyenv. No other version can install all releases."""
    pyenv = sorted(Path.home().glob(".pyenv/versions/3.12.*/bin/python"))
    for candidate in filter(None, map(shutil.which, [sys.executable, "python3.12", *map(str, pyenv)])):
        check = [candidate, "-c", "import sys; sys.exit(sys.version_info[:2] != (3, 12))"]  # pyenv's shims may fail
        if subprocess.run(check, check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return candidate
    return None


if __name__ == "__main__":
    sys.exit(main())
