"""`dragoman dev`: a conversation goes on while the agent's file is edited, broken and mended."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from dragoman.client import Client, RunFailed
from dragoman.server.dev import ConsoleFile, development_settings
from dragoman.settings_loading import load
from tests.cli.test_main import COMMAND, ENVIRON, invoke
from tests.servers import START_DEADLINE_S

APP = """
from dragoman import agent

@agent(history=True)
async def echo(run):
    if run.text == "fail":
        raise ValueError("a bug")
    yield "first: " + run.text
"""

FATAL_APP = """
import os, pathlib, signal
from dragoman import agent

@agent(history=True)
async def echo(run):
    mark = pathlib.Path("was-killed")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield "survived"
"""


class DevServer:
    """The program, on a folder with the file `app.py`."""

    def __init__(self, folder: Path) -> None:
        self._app = folder / "app.py"
        self._app.write_text(APP, encoding="utf-8")
        self.process = subprocess.Popen(
            [*COMMAND, "dev", "--no-open", "--port", "0"],
            cwd=folder,
            env=ENVIRON,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        Thread(target=self._read, daemon=True).start()
        self.url = self.wait_for("ready http").split()[-1]
        self.key = self.wait_for("key   ").split()[-1]
        self.wait_for("try ")

    def save(self, text: str) -> None:
        self._app.write_text(text, encoding="utf-8")

    def wait_for(self, text: str) -> str:
        """The next line with this text."""
        seen = []
        while True:
            seen.append(self._lines.get(timeout=START_DEADLINE_S))
            if text in seen[-1]:
                return seen[-1]
            assert seen[-1], f"the program ended without {text!r}: {seen}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")


@contextmanager
def dev_server(folder: Path) -> Iterator[DevServer]:
    server = DevServer(folder)
    try:
        yield server
        server.process.send_signal(signal.SIGINT)
        server.wait_for("stopped")
        assert server.process.wait(START_DEADLINE_S) == 0
    finally:
        server.process.kill()


def test_a_conversation_continues_while_its_agent_is_edited(tmp_path: Path) -> None:
    with dev_server(tmp_path) as server, Client(server.url, key=server.key) as client:
        session = client.create("echo")
        assert session.ask("a").text == "first: a"
        with pytest.raises(RunFailed, match=r"ValueError: a bug \(app\.py:7\)"):
            session.ask("fail")
        server.save(APP.replace("async def", "asyncdef"))
        server.wait_for("line 5: SyntaxError")
        server.wait_for("the last version is still served")
        assert session.ask("b").text == "first: b"
        server.save(APP.replace("first", "second"))
        server.wait_for("serving the new files")
        assert session.ask("c").text == "second: c"
        server.save(APP + "import time\nprint('imports for ever', flush=True)\ntime.sleep(3600)\n")
        server.wait_for("imports for ever")
        assert session.ask("d").text == "second: d"
        server.save(APP.replace("first", "third"))
        server.wait_for("serving the new files")
        assert session.ask("e").text == "third: e"
        assert [each.text for each in session.history() if each.role == "assistant"] == [
            "first: a",
            "first: b",
            "second: c",
            "second: d",
            "third: e",
        ]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for the new process in /proc")
@pytest.mark.parametrize("mapped", ["", "lib-dynload"], ids=["it is being started", "it imports modules"])
def test_ctrl_c_while_a_server_process_begins_prints_no_traceback(tmp_path: Path, mapped: str) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    command = [*COMMAND, "dev", "--no-open", "--port", "0"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        while not _has_begun_in_its_group(process.pid, mapped):
            assert process.poll() is None, "the program ended"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        output, _ = process.communicate(timeout=START_DEADLINE_S)
    finally:
        process.kill()
    assert (process.returncode, "stopped" in output, "Traceback" in output) == (0, True, False), output


def _has_begun_in_its_group(pid: int, mapped: str) -> bool:
    """Whether there is a server process that Ctrl-C still reaches, and that has a file of this name in memory."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            is_server = "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
            if is_server and os.getpgid(int(child)) == pid and mapped in Path(f"/proc/{child}/maps").read_text():
                return True
    return False


def test_a_server_that_is_killed_is_started_again_and_continues_its_run(tmp_path: Path) -> None:
    with dev_server(tmp_path) as server, Client(server.url, key=server.key) as client:
        server.save(FATAL_APP)
        server.wait_for("serving the new files")
        reply = client.create("echo").ask("a")
        server.wait_for("the server died, restarting it")
        assert (reply.text, reply.end.reason) == ("survived", "end_turn")


def test_the_page_with_the_key_is_new_and_for_its_owner_alone_and_does_not_stay(tmp_path: Path) -> None:
    old = tmp_path / "open-console.html"
    old.write_text("old", encoding="utf-8")
    old.chmod(0o644)
    console_file = ConsoleFile(tmp_path)
    written = console_file.write("http://127.0.0.1:9/#key=k-1")
    assert "url=http://127.0.0.1:9/#key=k-1" in written.read_text(encoding="utf-8")
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    console_file.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_exist_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("dev", "--port", "0")
    assert (done.exit_code, done.output) == (
        1,
        "dragoman: app.py: no such file. `dragoman init app.py` writes a first agent\n",
    )


@pytest.mark.parametrize(("host", "shows"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_only_clients_on_this_machine_see_the_errors_of_agents(tmp_path: Path, host: str, shows: bool) -> None:
    settings = development_settings(load({"host": host, "log_level": "error"}, {}, folder=tmp_path))
    assert (settings.agent_error_details, settings.first_key, settings.log_level) == (shows, True, "error")
