"""Packages that are built from a checkout: one installation, without extras, serves the console and all protocols."""

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import httpx2
import pytest

from dragoman.asgi.console import FOLDER
from tests.browser import Browser
from tests.console.conftest import SCREENSHOTS
from tests.console.console_page import ConsolePage
from tests.console.test_conversations import say
from tests.test_optional_dependencies import OPTIONAL

PROJECT_ROOT = Path(__file__).parents[2]
DEADLINE_S = 120
PATHS = (
    "/readyz",
    "/aap/v3/meta",
    "/ag-ui/rehearsal/capabilities",
    "/api/v1/agent/history",
    "/api/sessions",
    "/v1/models",
)
"""One of each protocol that answers a GET."""
PROGRAM = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # as if it were not installed
import dragoman
assert dragoman.__file__.startswith({folder!r})
from dragoman.cli.main import main
main()
"""


def copy_of_checkout(folder: Path) -> Path:
    """Copy what a package is built from, with the times of the files."""
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy2(PROJECT_ROOT / name, folder / name)
    for name in ("src", "tools", "web"):
        ignored = shutil.ignore_patterns("node_modules", "__pycache__", "*.egg-info")
        shutil.copytree(PROJECT_ROOT / name, folder / name, ignore=ignored)
    return folder


def build_wheel(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    flags = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", str(target), str(source)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def build_sdist(source: Path, target: Path) -> Path:
    """Build a source distribution as build tools do, and unpack it."""
    code = f"import build_backend; print(build_backend.build_sdist({str(target)!r}))"
    environment = {**os.environ, "PYTHONPATH": str(source / "tools")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    archive = target / done.stdout.split()[-1]
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    return target / archive.name.removesuffix(".tar.gz")


def install(folder: Path) -> Path:
    """Build a source distribution from a copy of the checkout, a wheel from that, and install it in a new environment.

    The environment takes the packages on which it depends from that of the tests, so that no network is needed.

    Returns:
        the environment.
    """
    (folder / "checkout").mkdir()
    unpacked = build_sdist(copy_of_checkout(folder / "checkout"), folder)
    assert not (unpacked / "web").exists(), "a source distribution needs no Node"
    done = build_wheel(unpacked, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    wheel = next(folder.glob("*.whl"))
    flags = ("--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", *flags, str(wheel)]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return environment


async def read_until_served(process: asyncio.subprocess.Process) -> tuple[str, str, str]:
    """The log up to the console's address, the server's URL, and the key in the address."""
    lines: list[str] = []
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        async for line in process.stderr:
            lines.append(line.decode())
            if lines[-1].startswith("open "):
                url, _, key = lines[-1].split()[1].partition("/#key=")
                return "".join(lines), url, key
    raise RuntimeError(f"the server exited: {''.join(lines)}")


@pytest.mark.slow
async def test_an_installation_without_extras_serves_the_console_and_all_protocols_and_says_how_to_get_a_model(
    chromium: Browser, tmp_path: Path
) -> None:
    if not (FOLDER / ".built").is_file():
        pytest.skip("the console is not built: run `make console`")
    installed = install(tmp_path)
    code = PROGRAM.format(blocked=OPTIONAL, folder=str(installed))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = (installed / "bin" / "python", "-c", code, "serve", "--first-key", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        log, url, key = await read_until_served(process)
        assert "no model is installed, serving the rehearsal agent" in log
        assert "pip install 'dragoman[embedded]'" in log
        async with httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}) as http:
            assert [(path, (await http.get(path)).status_code) for path in PATHS] == [(path, 200) for path in PATHS]
        console_page = ConsolePage(await chromium.page(), url, key, SCREENSHOTS)
        await console_page.open()
        await say(console_page, "hello")
        await console_page.wait_for_text("Hello! I am the rehearsal agent.", ".assistant")
        for page, title in (("schedules", "Scheduled tasks"), ("memories", "Memories")):
            await console_page.open(page)
            await console_page.wait_for_text(title, "h1")
            assert await console_page.run("document.querySelector('main [role=alert]')") is None
        assert console_page.console == []
        await console_page.close()
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.slow
def test_a_wheel_without_the_console_is_not_built_and_the_message_says_why(tmp_path: Path) -> None:
    source = copy_of_checkout(tmp_path)
    shutil.rmtree(source / "src" / "dragoman" / "console", ignore_errors=True)
    modules = source / "web" / "node_modules"
    modules.mkdir()
    (modules / ".installed").touch()  # as if an installation had been interrupted
    done = build_wheel(source, tmp_path / "wheels")
    assert done.returncode != 0
    assert "the web console could not be built, and no wheel is made without it" in done.stdout + done.stderr
    shutil.rmtree(source / "web")
    done = build_wheel(source, tmp_path / "wheels")
    assert done.returncode != 0
    assert "the web console is missing" in done.stdout + done.stderr
    assert not list(tmp_path.rglob("*.whl"))
