"""Tests remote agents against servers that are too large for the environment of the tests.

python -m tools.remote_servers agentscope|llama [arguments of pytest]

`agentscope` installs `agentscope-runtime` in an environment of its own, build/remote-servers/agentscope.
`llama` is llama.cpp's server with the embedded model, which only takes time.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("agentscope-runtime==1.1.6.post2", "langchain>=1.4,<2", "langgraph>=1.2,<2")
TESTS = {
    "agentscope": ("tests/gateway/test_published_servers.py", "-k", "agentscope"),
    "llama": ("tests/gateway/test_llama_server.py",),
}


def install_agentscope() -> None:
    """Create the environment, unless it is there."""
    folder = ROOT / "build" / "remote-servers" / "agentscope"
    if (folder / "installed").exists():
        return
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True)
    (folder / "installed").touch()


def main(server: str, *arguments: str) -> int:
    if server == "agentscope":
        install_agentscope()
    command = [sys.executable, "-m", "pytest", *TESTS[server], *(arguments or ("-n", "0"))]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "FULL": "1"}).returncode


if __name__ == "__main__":
    if sys.argv[1:2] not in ([name] for name in TESTS):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
