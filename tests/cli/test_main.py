"""The command line: output, errors and exit codes, and the server as a program."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from dragoman.cli.main import commands, main
from dragoman.core.tools import AgentSpec
from dragoman.server.bootstrap_key import curl_line
from dragoman.server.version import full_version, version_in
from dragoman.settings import SUBJECTS, all_settings
from tests.requirements import requirement

DEADLINE_S = 60
COMMAND = (sys.executable, "-m", "dragoman")
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}


MYSQL = "there is no database of the kind mysql://: expected an address with postgresql:// or postgres://"


def invoke(*arguments: str, **environ: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(commands, arguments, env=environ, prog_name="dragoman")


def run(*arguments: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, env=ENVIRON | environ, capture_output=True, text=True, timeout=DEADLINE_S
    )


class Program:
    """A server process."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.errors = folder.parent / f"{folder.name}.stderr"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, "serve", "--rehearsal", "--port", "0", "--data", str(folder), *arguments],
                env=ENVIRON,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        self.url = self.ready.partition(" ")[2].strip()

    def request(self, method: str, path: str, key: str | None = None, body: Any = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx2.request(method, self.url + path, headers=headers, json=body, timeout=DEADLINE_S)

    def session(self, key: str | None = None) -> str:
        """Create a session and return its path."""
        created = self.request("POST", "/aap/v3/sessions", key, {"agent": {"name": "rehearsal"}})
        return f"/aap/v3/sessions/{created.json()['sessionId']}"

    def stop(self, *signals: signal.Signals) -> int:
        for each in signals or (signal.SIGTERM,):
            self.process.send_signal(each)
        return self.process.wait(DEADLINE_S)

    def rest(self) -> str:
        """The rest of standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.read()


@contextmanager
def program(folder: Path, *arguments: str) -> Iterator[Program]:
    running = Program(folder, *arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait(DEADLINE_S)
        assert running.process.stdout is not None
        running.process.stdout.close()


def script(*steps: dict[str, Any]) -> list[dict[str, str]]:
    return [{"role": "user", "content": json.dumps({"script": steps})}]


# --- serving ----------------------------------------------------------------------------------------------------------


def test_serve_prints_one_line_when_it_is_ready_and_stops_on_a_signal(tmp_path: Path) -> None:
    with program(tmp_path / "data") as running:
        assert re.fullmatch(r"ready http://127\.0\.0\.1:[1-9]\d*\n", running.ready)
        assert running.request("GET", "/readyz").json() == {"status": "ready"}
        assert running.stop() == 0
        assert running.rest() == ""
        logged = [json.loads(line) for line in running.errors.read_text().splitlines()]
        assert {"serving", "stopping", "stopped"} <= {line["event"] for line in logged}
        assert [line["version"] for line in logged if line["event"] == "serving"] == [full_version()]
        assert not (tmp_path / "data" / "admin.sock").exists()


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGTERM)])
def test_a_running_run_is_parked_and_its_stream_ends_after_a_whole_frame(
    tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    grace = "0.2" if len(signals) == 1 else "60"
    with program(tmp_path / "data", "--no-auth", "--drain-s", grace) as running:
        path = running.session()
        body = {"messages": script({"say": "before"}, {"wait_ms": 60_000}), "stream": "delta"}
        with httpx2.stream("POST", f"{running.url}{path}/turns", json=body, timeout=DEADLINE_S) as answer:
            lines = answer.iter_lines()
            assert any(line == 'data: {"delta":"before"}' for line in lines)
            running.process.send_signal(signals[0])
            for each in signals[1:]:
                while running.request("GET", "/readyz").json() != {"status": "draining"}:
                    pass
                running.process.send_signal(each)
            assert "event: turn_stop" not in list(lines), "the run is not over: it resumes at the next start"
        assert running.process.wait(DEADLINE_S) == 0
    with program(tmp_path / "data", "--no-auth") as again:
        assert again.request("GET", path).json()["_meta"]["status"] == "running"
        assert again.stop(signal.SIGTERM, signal.SIGKILL) == -signal.SIGKILL


@requirement("faults:48:refused")
def test_a_second_server_on_a_folder_fails_and_says_what_to_do(tmp_path: Path) -> None:
    with program(tmp_path / "data"):
        second = run("serve", "--rehearsal", "--port", "0", "--data", str(tmp_path / "data"))
        assert (second.returncode, second.stdout) == (1, "")
        error = second.stderr.splitlines()[-1]
        assert error.startswith("dragoman: another server uses the data folder")
        assert "--data" in error
        assert "Traceback" not in second.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("--port", "{taken}"), 1, "Address already in use: choose another one with --host or --port"),
        (("no_such_file.py",), 1, "no_such_file.py"),
        (("--default-agent", "nobody"), 2, "no agent 'nobody'; available agents: rehearsal"),
        (("--data", "{file}"), 1, "is not a folder: choose another one with --data"),
        (("--data", "{damaged}"), 1, "file is not a database: restore a backup, or choose another folder with --data"),
    ],
)
def test_a_failed_start_is_reported_on_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "dragoman.db").write_bytes(b"no database" * 1000)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        names = {
            "{taken}": str(listener.getsockname()[1]),
            "{file}": str(tmp_path / "file"),
            "{damaged}": str(tmp_path / "damaged"),
        }
        command_line = ["--port", "0", "--data", str(tmp_path / "data"), *(names.get(each, each) for each in arguments)]
        result = run("serve", "--rehearsal", *command_line, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (code, "")
    last = result.stderr.splitlines()[-1]
    assert last.startswith("dragoman: ")
    assert expected in last
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("opnai:gpt-5-mini", "unknown provider 'opnai'; did you mean 'openai'?"),
        ("openai:gpt-5-mini", "OPENAI_API_KEY is not set"),
        ("embedded:typo.gguf", "typo.gguf"),
    ],
)
def test_a_model_that_cannot_be_used_leaves_no_data_folder(tmp_path: Path, model: str, reason: str) -> None:
    result = run("serve", "--default-model", model, "--port", "0", cwd=tmp_path)
    assert (result.returncode, [each.name for each in tmp_path.iterdir()]) == (1, [])
    assert reason in result.stderr


@pytest.mark.parametrize("text", ["def broken(:", "import nothing_of_that_name", "x = 1"])
def test_a_refused_file_leaves_no_data_folder(tmp_path: Path, text: str) -> None:
    (tmp_path / "app.py").write_text(text)
    result = run("serve", "app.py", "--port", "0", cwd=tmp_path)
    created = {each.name for each in tmp_path.iterdir()} - {"app.py", "__pycache__"}
    assert (result.returncode, created) == (1, set())


class SpanRequestHandler(BaseHTTPRequestHandler):
    """Records the requests that it receives."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, SpanCollector)
        self.server.received.append((self.path, self.headers["x-canary"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # the base class's name
        """Log nothing."""


class SpanCollector(ThreadingHTTPServer):
    """A collector of OpenTelemetry spans."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SpanRequestHandler)
        self.received: list[tuple[str, str, bytes]] = []


def test_spans_of_runs_and_tools_reach_a_collector_without_message_text(tmp_path: Path) -> None:
    with SpanCollector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
        otel_flags = ("--otel", "--otel-endpoint", endpoint, "--otel-headers", "x-canary=canary-4e1b")
        with program(tmp_path / "data", "--no-auth", *otel_flags) as running:
            messages = [{"role": "user", "content": "add 40 and 2"}]
            agent = {"tools": [{"name": "add", "trust": True}]}
            turn = running.request("POST", f"{running.session()}/turns", body={"messages": messages, "agent": agent})
            assert turn.json()["stopReason"] == "end_turn"
            assert running.stop() == 0, "the last spans are sent before the end"
            assert "canary-4e1b" not in running.errors.read_text()
        collector.shutdown()
    assert {(path, canary) for path, canary, _ in collector.received} == {("/v1/traces", "canary-4e1b")}
    sent = b"".join(body for _, _, body in collector.received)
    assert b"invoke_agent rehearsal" in sent
    assert b"execute_tool add" in sent
    assert b"The sum is" not in sent


# --- the first key ----------------------------------------------------------------------------------------------------


def printed_value(running: Program, label: str) -> str:
    match = re.search(rf"^{label} +(.*)$", running.errors.read_text(), re.MULTILINE)
    assert match is not None, running.errors.read_text()
    return match[1]


def test_the_first_key_is_created_once_and_printed_at_every_start(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with program(folder, "--first-key") as running:
        assert running.request("GET", "/healthz").status_code == 200
        key = printed_value(running, "key")
        assert running.request("GET", "/aap/v3/meta", key).status_code == 200
        assert stat.S_IMODE((folder / "first-key").stat().st_mode) == 0o600
        assert running.stop() == 0
        assert running.rest() == "", "the key is for people and goes to standard error"
    with program(folder, "--first-key") as running:
        assert running.request("GET", "/healthz").status_code == 200
        assert printed_value(running, "key") == key
        run("keys", "revoke", "first key", "--data", str(folder))
        assert running.request("GET", "/aap/v3/meta", key).status_code == 401
        assert running.stop() == 0
    with program(folder, "--first-key") as running:
        assert running.request("GET", "/healthz").status_code == 200
        assert printed_value(running, "key") != key, "a revoked key stays revoked"
        assert running.request("GET", "/aap/v3/meta", printed_value(running, "key")).status_code == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="the line is for curl, which is not installed")
@pytest.mark.parametrize("arguments", [("--first-key",), ("--first-key", "--no-auth")])
def test_the_printed_curl_line_streams_an_answer(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with program(tmp_path / "data", *arguments) as running:
        assert running.request("GET", "/healthz").status_code == 200
        line = printed_value(running, "try")
        pasted = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert pasted.stdout.startswith("event: response.created\n")
    assert "Show me everything" in line, "the first message that the agent suggests"
    assert "event: response.output_text.delta\n" in pasted.stdout
    assert "event: response.completed\n" in pasted.stdout


def test_the_curl_line_is_one_line_with_key_agent_and_address() -> None:
    agent = AgentSpec(name="assistant")
    line = curl_line("http://127.0.0.1:8000/v1", "sk-dragoman-x", agent)
    assert "\n" not in line
    assert line.count("Bearer sk-dragoman-x") == 1
    assert '{"model":"assistant","input":"What can you do?",' in line
    assert "Bearer" not in curl_line("http://127.0.0.1:8000/v1", None, agent)


def test_the_curl_line_sends_what_the_agent_suggests_first_whatever_its_characters() -> None:
    agent = AgentSpec(name="assistant", starters=('Who\'s "new"?\n$HOME `x`', "Another"))
    words = shlex.split(curl_line("http://127.0.0.1:8000/v1", None, agent))
    assert json.loads(words[-1]) == {"model": "assistant", "input": agent.starters[0], "stream": True}


def test_a_server_without_keys_says_how_to_create_one(tmp_path: Path) -> None:
    with program(tmp_path / "data") as running:
        assert running.request("GET", "/healthz").status_code == 200
        assert "dragoman keys create --name NAME --data" in running.errors.read_text()


# --- keys -------------------------------------------------------------------------------------------------------------


def test_keys_are_created_listed_and_revoked_without_a_server(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    created = run(
        "keys", "create", "--name", "laptop", "--user", "ann", "--scopes", "read,use", "--expires", "30", *data
    )
    assert created.returncode == 0
    secret = created.stdout.splitlines()[-1]
    assert created.stdout == f"{secret}\n", "alone, so that a script can read it"
    assert secret.startswith("sk-dragoman-")
    assert f"of user ann, read use, in {tmp_path / 'data'};" in created.stderr, (
        "only a server on that folder accepts it"
    )
    listed = run("keys", "list", *data)
    head, row = listed.stdout.splitlines()
    assert head.split() == ["ID", "NAME", "USER", "KEY", "SCOPES", "CREATED", "EXPIRES", "LAST", "USED", "TOKENS"]
    assert f"sk-dragoman-...{secret[-4:]}" in row
    assert re.search(r"laptop +ann +sk-\S+ +read use +\d{4}-\d\d-\d\d \d\d:\d\d +\d{4}-\S+ \S+ +- +unlimited$", row)
    assert secret not in listed.stdout + listed.stderr
    revoked = run("keys", "revoke", "laptop", *data)
    assert (revoked.returncode, revoked.stdout.split()[0]) == (0, "revoked")
    assert len(run("keys", "list", *data).stdout.splitlines()) == 1


def test_creating_a_key_in_a_folder_that_no_server_uses_says_that_the_folder_is_new(tmp_path: Path) -> None:
    create = ("keys", "create", "--name", "laptop", "--data", str(tmp_path / "typo"))
    new = f"created the data folder {tmp_path / 'typo'}: if a server runs already, name its folder with --data"
    assert new in run(*create).stderr
    assert new not in run(*create).stderr


def test_keys_are_managed_while_the_server_runs_and_a_revoked_keys_streams_end(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    data = ("--data", str(folder))
    with program(folder) as running:
        key = run("keys", "create", "--name", "laptop", *data).stdout.strip()
        path = running.session(key)
        headers = {"authorization": f"Bearer {key}"}
        with httpx2.stream("GET", f"{running.url}{path}/events", headers=headers, timeout=DEADLINE_S) as answer:
            assert answer.status_code == 200
            assert run("keys", "revoke", key, *data).returncode == 0
            assert [line for line in answer.iter_lines() if line.startswith("event:")] == []
        assert running.request("GET", path, key).status_code == 401
        assert running.stop() == 0
        assert key not in running.errors.read_text()


NO_TOKENS = "tokens a day -, tokens a month -"


def test_a_users_profile_is_set_without_a_server(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    assert run("keys", "create", "--name", "laptop", *data).returncode == 0
    both = run("users", "set", "ann", "--timezone", "Europe/Berlin", "--locale", "de", *data)
    assert (both.returncode, both.stdout) == (
        0,
        f"ann: time zone Europe/Berlin, locale de, retention days -, {NO_TOKENS}\n",
    )
    back = run("users", "set", "ann", "--timezone", "", "--retention-days", "30", *data)
    assert (back.returncode, back.stdout) == (0, f"ann: time zone -, locale de, retention days 30, {NO_TOKENS}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("users", "set", "ann"), 2, "expected --timezone ZONE, --locale TAG, --retention-days DAYS, "),
        (("users", "set", "ann", "--locale", "de"), 1, "contains no data: "),
        (("users", "set", "ann", "--retention-days", "-1"), 2, "expected a number of days, got '-1'"),
        (("keys", "create"), 2, "Missing option '--name'"),
        (("keys", "create", "--name", ""), 2, "a key's name must have 1 to 200 printable characters"),
        (("keys", "create", "--name", "x", "--scopes", "root"), 2, "expected scopes of read, use, admin, got root"),
        (("keys", "create", "--name", "x", "--expires", "soon"), 2, "--expires: expected a number of days"),
        (("keys", "create", "--name", "x", "--expires", "2020-01-01"), 2, "a key must expire in the future"),
        (("keys", "create", "--name", "x", "--expires", "²"), 2, "--expires: expected a number of days"),
        (("keys", "create", "--name", "x", "--tokens-per-day", "-1"), 2, "-1 is not in the range x>=0"),
        (("keys", "limit", "x", "--tokens-per-day", "-1"), 2, "-1 is not in the range x>=0"),
        (("keys", "limit", "x"), 2, "nothing to change: "),
        (("keys", "limit", "x", "--tokens-per-day", "1"), 1, "contains no data: "),
        (("keys", "rotate", "secrets.key"), 1, "contains no data: "),
        (("keys", "rotate", "other.key"), 2, "is not one of 'secrets.key', 'links.key'"),
        (("keys", "revoke", "none"), 1, "contains no data: "),
        (("audit",), 1, "contains no data: "),
        (("audit", "--limit", "0"), 2, "0 is not in the range"),
        (("check",), 1, "contains no data: "),
        (("compact",), 1, "contains no data: "),
        (("backup", "new"), 1, "contains no data: "),
        (("restore", "none"), 1, "none does not exist"),
        (("copy", "--from", "none", "--to", "new"), 1, "none contains no data: "),
        (("copy", "--from", "none"), 2, "Missing option '--to'"),
        (("migrate",), 1, "contains no data: "),
        (("migrate", "--data", "/dev/null"), 1, "/dev/null contains no data: "),
        (("migrate", "--database", "mysql://u:p@h/d"), 2, MYSQL),
        (("keys", "list", "--database", "mysql://u:p@h/d"), 2, MYSQL),
        (("backup", "new", "--database", "mysql://u:p@h/d"), 2, MYSQL),
        (("copy", "--from", "mysql://u:p@h/d", "--to", "new"), 2, MYSQL),
        (("serve", "--workers", "2", "--database", "mysql://u:p@h/d"), 2, MYSQL),
        (("sessions", "list", "--url", "http://127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("sessions", "list", "--protocol", "none"), 2, "'none' is not one of"),
        (("chat", "http://127.0.0.1:99999", "-m", "hello"), 1, "99999"),
        (("chat", "ftp://127.0.0.1", "-m", "hello"), 2, "expected an address such as http://127.0.0.1:8000"),
        (("sessions", "list", "--url", "http://"), 2, "expected an address such as http://127.0.0.1:8000"),
        (("chat", "http://nowhere.invalid", "-m", "hello"), 1, "Check the address"),
        (("init", "/dev/null/app.py"), 1, "/dev/null"),
        (("init", "my-app.py"), 2, "that Python can import, such as app.py or my_agent.py, got my-app.py"),
        (("keys", "list"), 1, "contains no data: "),
        (
            ("serve", "--port", "http"),
            2,
            "setting port (flag --port): expected an integer from 0 to 65535, got 'http'",
        ),
        (
            ("serve", "--port", "0", "--time-zone", "Mars"),
            2,
            "setting time_zone: expected an IANA time zone such as Europe/Berlin",
        ),
        (("serve", "--port", "0", "--mcp-authorization"), 2, "setting mcp_authorization: needs oidc_issuer too"),
        (("serve", "--prot", "1"), 2, "No such option '--prot'"),
        (
            ("serve", "--no-auth", "--host", "0.0.0.0"),
            2,
            "keys are off (flag --auth), but the server would listen on 0.0.0.0",
        ),
        (("config", "show", "--config", "none.toml"), 2, "cannot read the configuration file none.toml"),
        (("nonsense",), 2, "No such command 'nonsense'"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dragoman", *arguments])
    with pytest.raises(SystemExit) as result:
        main()
    out, err = capfd.readouterr()
    assert (result.value.code, out) == (code, "")
    assert expected in err.splitlines()[-1]
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == [], "nothing was created"


# --- help and settings ------------------------------------------------------------------------------------------------


def test_help_fits_a_terminal() -> None:
    lines = invoke("--help", COLUMNS="80").output.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    shown = {name for line in lines if line.startswith("  ") for name in line.strip().split("  ")[0].split(", ")}
    assert commands.commands.keys() <= shown
    assert not any(line.endswith("...") for line in lines[1:]), "the texts of commands are whole"


def test_flags_are_grouped_by_subject() -> None:
    output = invoke("serve", "--help").output
    places = [output.index(f"\n{title}:\n") for title in ("Options", *SUBJECTS.values())]
    assert places == sorted(places)
    assert output.index("\nAccess:") < output.index("--auth / --no-auth") < output.index("\nLimits:")


def test_help_names_every_setting_and_its_default() -> None:
    text = " ".join(invoke("serve", "--help").output.split())
    for setting in all_settings():
        if setting.name != "agents":
            assert setting.flag in text
    assert "--auth / --no-auth" in text
    assert "[8000]" in text
    assert "--synchronous [full|normal] " in text, "a setting with few values names them"
    assert "--cors-origins VALUE,... " in text, "a list says how its values are separated"


@pytest.mark.parametrize("command", [(), ("serve",), ("keys",), ("keys", "create"), ("config", "show")])
def test_every_command_has_a_help_text(command: tuple[str, ...]) -> None:
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: dragoman")


def test_the_version_is_reported() -> None:
    assert re.fullmatch(r"dragoman \d+\.\d+\.\d+(\+[0-9a-z.]+)?\n", invoke("--version").output)


def test_the_version_of_a_checkout_names_the_commit_and_says_whether_files_were_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(tmp_path), *settings, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    release = version("dragoman")
    assert version_in(tmp_path) == release, "an installation is no checkout"
    git("init", "--quiet")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "--quiet", "--message", "one")
    commit = git("rev-parse", "--short=8", "HEAD")
    assert version_in(tmp_path) == f"{release}+g{commit}"
    (tmp_path / "file").write_text("two")
    assert version_in(tmp_path) == f"{release}+g{commit}.dirty"
    git("tag", f"v{release}")
    git("commit", "--quiet", "--all", "--message", "two")
    assert version_in(tmp_path) == f"{release}+1.g{git('rev-parse', '--short=8', 'HEAD')}"
    git("tag", "--force", f"v{release}")
    assert version_in(tmp_path) == release
    (tmp_path / "file").write_text("three")
    assert version_in(tmp_path) == f"{release}+dirty"


def test_config_show_prints_the_settings_in_force_and_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dragoman.toml").write_text("seeds = 7\n")
    output = invoke("config", "show", "--no-auth", DRAGOMAN_PORT="9", DRAGOMAN_OTEL_HEADERS="a=secret").output
    assert re.search(r"^seeds = 7 +# file dragoman\.toml$", output, re.MULTILINE)
    assert re.search(r"^port = 9 +# environment DRAGOMAN_PORT$", output, re.MULTILINE)
    assert re.search(r"^auth = false +# flag --auth$", output, re.MULTILINE)
    assert re.search(r'^host = "127\.0\.0\.1" +# default$', output, re.MULTILINE)
    assert "secret" not in output
