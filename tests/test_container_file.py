"""The steps of the Dockerfile, played without a container: what they build is a server that answers."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.extent import IS_FULL
from tests.test_deploy import PROJECT_ROOT, image_command, instructions

DEADLINE_S = 1200
OF_THE_SYSTEM = ("apt-get ", "rm -rf /var/lib/apt", "useradd ")
"""Steps that change the image's system, not what is built."""
FOLDERS = ("/source", "/dragoman", "/data")


def copy_context(target: Path) -> None:
    """Copy the files of the checkout, as `COPY . .` does with a fresh clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT_ROOT / name, target / name)


def script_of(root: Path) -> str:
    """The commands of all RUN instructions, in folders below `root` in place of those of the image."""
    commands: list[str] = []
    for instruction, text in instructions():
        if instruction == "RUN":
            commands += [each for each in re.split(r"\s*&&\s*", text) if not each.startswith(OF_THE_SYSTEM)]
    script = "\n".join(commands).replace("--owner=10001", f"--owner={os.getuid()}")
    return re.sub(rf"(?<![\w./])({'|'.join(FOLDERS)})\b", rf"{root}\1", script)


@pytest.mark.slow
@pytest.mark.skipif(not IS_FULL, reason="it installs from the package index: FULL=1 plays it")
async def test_the_steps_of_the_image_build_a_server_with_a_console_that_streams_an_answer(tmp_path: Path) -> None:
    copy_context(tmp_path / "source")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    building = await asyncio.create_subprocess_exec(
        *("sh", "-eux", "-c", script_of(tmp_path)), cwd=tmp_path / "source", env={**os.environ, "PATH": path}
    )
    async with asyncio.timeout(DEADLINE_S):
        assert await building.wait() == 0
    (entry,) = shlex.split(dict(instructions())["ENTRYPOINT"].strip("[]"))
    program = tmp_path / "dragoman" / "bin" / entry
    places = {"0.0.0.0": "127.0.0.1", "8000": "0", "/data": str(tmp_path / "data")}
    command = [places.get(each, each) for each in image_command()]
    (tmp_path / "agents").mkdir()
    creating = await asyncio.create_subprocess_exec(
        *(str(program), "keys", "create", "--name", "me", "--data", str(tmp_path / "data")),
        stdout=asyncio.subprocess.PIPE,
    )
    key = (await creating.communicate())[0].decode().strip()
    server = await asyncio.create_subprocess_exec(
        *(str(program), *command), cwd=tmp_path / "agents", env={"PATH": path}, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().removeprefix("ready ").strip()
        async with httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}) as http:
            assert (await http.get("/readyz")).json() == {"status": "ready"}
            page = await http.get("/", headers={"accept": "text/html"})
            assert '<div id="app">' in page.text
            body = {"model": "rehearsal", "input": "hello", "stream": True}
            assert "I am the rehearsal agent" in (await http.post("/v1/responses", json=body)).text
    finally:
        server.terminate()
        await server.wait()
