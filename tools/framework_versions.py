"""Tests the adapters with the lowest or the newest versions of the frameworks that pyproject.toml allows.

python -m tools.framework_versions lowest|newest [arguments of pytest]

The versions are installed in a folder of their own, build/frameworks-lowest or -newest; the environment stays as it is.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
FRAMEWORKS = ("langgraph", "openai-agents", "pydantic-ai")
"""The extras with a range, each of one package."""


def requirements(which: str, extras: dict[str, list[str]]) -> list[str]:
    """What pip installs: of each range the lowest version, or the whole range, of which it takes the newest."""
    ranges = [extras[name][0] for name in FRAMEWORKS]
    if which == "lowest":
        ranges = [each.partition(",")[0].replace(">=", "==") for each in ranges]
    return [*ranges, "langchain", "langchain-openai"]  # of the tests' agents: any that fit


def main(which: str, *arguments: str) -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = ROOT / "build" / f"frameworks-{which}"
    wanted = requirements(which, project["optional-dependencies"])
    print("installing", *wanted, flush=True)
    install = ["pip", "install", "--quiet", "--upgrade", "--target", str(folder), *wanted]
    subprocess.run([sys.executable, "-m", *install], check=True)
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    tests = ["pytest", "tests/adapters", *(arguments or ("-n", "0"))]
    return subprocess.run([sys.executable, "-m", *tests], cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}).returncode


if __name__ == "__main__":
    if sys.argv[1:2] not in (["lowest"], ["newest"]):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
