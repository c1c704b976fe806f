"""The command line. Commands parse their arguments, call the code that does the work, and print errors on one line."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from dragoman.cli.database_commands import backup, check, compact, copy, migrate, restore
from dragoman.cli.help import ProgramGroup, SettingsCommand
from dragoman.cli.options import CliError, CliUsageError, F, FlagValue, load_settings, settings_flags
from dragoman.settings import Settings, SettingsError, UnusableData
from dragoman.settings_loading import format_settings

if TYPE_CHECKING:
    from dragoman.client import Client
    from dragoman.client.transports import ClientProtocol

MAX_EXPIRY_DAYS = 36_500
MAX_DIGITS = 18


def main() -> NoReturn:
    """Run the program `dragoman`."""
    try:
        commands.main(standalone_mode=False, prog_name="dragoman")
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except SettingsError as error:
        CliUsageError(str(error)).show()
        sys.exit(CliUsageError.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


def _print_version(context: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
    if not is_asked or context.resilient_parsing:
        return
    from dragoman.server.version import full_version

    click.echo(f"dragoman {full_version()}")
    context.exit()


@click.group(cls=ProgramGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def commands() -> None:
    """An agent server: write an agent once, every application can talk to it."""


# --- serve ------------------------------------------------------------------------------------------------------------


@commands.command(cls=SettingsCommand)
@click.argument("agents", metavar="[FILE.py[:NAME] | NAME=PROTOCOL+URL]...", nargs=-1)
@settings_flags()
def serve(agents: tuple[str, ...], **flags: FlagValue) -> None:
    """Serve agents. Without a file, serve an assistant with the default model.

    NAME=PROTOCOL+URL serves an agent that runs on another server, such as weather=ag-ui+http://127.0.0.1:9000/agent.
    Its API key is read from REMOTE_AGENT_KEY.

    Prints one line on standard output when the server accepts requests: ready http://HOST:PORT. Each setting can also
    be set in the environment as DRAGOMAN_NAME, or in a TOML file.
    """
    loaded = load_settings({**flags, "agents": agents or None})
    from dragoman.server.bundled_database import uses_bundled_database
    from dragoman.server.runner import CannotStart, run
    from dragoman.server.stores import check_database_address

    if loaded.settings.workers > 1 or uses_bundled_database(loaded.settings):
        from dragoman.server.supervisor import run
    try:
        check_database_address(loaded.settings)
        run(loaded.settings, os.environ)
    except (CannotStart, UnusableData) as error:
        raise CliError(str(error)) from error


@commands.command(short_help="Serve agents while you write them; saved files are served at once.")
@click.argument("agents", metavar="[FILE.py[:NAME]]...", nargs=-1)
@click.option("--no-open", is_flag=True, help="do not open the console in the browser")
@settings_flags("host", "port", "data", "default_agent", "default_model", "rehearsal", "auth", "log_level")
def dev(agents: tuple[str, ...], no_open: bool, **flags: FlagValue) -> None:
    """Serve agents while you write them: files are loaded again when you save.

    Without a file, app.py. Conversations continue in the new version. Errors of agents and models are shown in full.
    All other settings come from the environment or from dragoman.toml.
    """
    loaded = load_settings({**flags, "agents": agents or None})
    if not loaded.settings.agents:
        loaded = load_settings({**flags, "agents": ("app.py",)})
    from dragoman.server.dev import development_settings, run
    from dragoman.server.runner import CannotStart

    try:
        run(development_settings(loaded), os.environ, opens_console=not no_open)
    except CannotStart as error:
        raise CliError(str(error)) from error


# --- client commands --------------------------------------------------------------------------------------------------

PROTOCOLS = click.Choice(["aap", "ag-ui", "agentscope", "blade", "openai", "openai-chat", "a2a", "run-service"])


@commands.command(short_help="Talk to an agent in the terminal.")
@click.argument("url", required=False)
@click.option("--protocol", type=PROTOCOLS, default="aap", show_default=True, help="protocol to use")
@click.option("--agent", metavar="NAME", default="", help="agent to talk to  [the server's first]")
@click.option("--key", metavar="KEY|@FILE", help="API key  [the data folder's first key, for servers on this machine]")
@click.option("--session", metavar="ID", default="", help="continue this conversation")
@click.option("--last", is_flag=True, help="continue the last conversation with this server")
@click.option("-m", "--message", metavar="TEXT", default="", help="send this message, print the answer, and exit")
@click.option("--image", "images", metavar="PATH", multiple=True, help="image to send, with --message or without")
@click.option(
    "-y", "--yes", is_flag=True, help="allow all tools without asking, except for calls that may have run already"
)
@click.option("--plain", is_flag=True, help="no colors and no Markdown")
@click.option("--json", "is_json", is_flag=True, help="print events as lines of JSON")
@settings_flags("data")
def chat(
    url: str | None,
    protocol: "ClientProtocol",
    agent: str,
    key: str | None,
    session: str,
    last: bool,
    message: str,
    images: tuple[str, ...],
    yes: bool,
    plain: bool,
    is_json: bool,
    **flags: FlagValue,
) -> None:
    """Talk to an agent in the terminal, at URL or on this machine.

    In a pipe, standard input is one message and standard output is the answer. The exit code is 0 for an answer, 1 for
    none, 3 if the run waits for a decision, and 130 after Ctrl-C.
    """
    settings = load_settings(flags).settings
    from dragoman.terminal.chat_command import ChatOptions, run_chat
    from dragoman.terminal.server_target import CommandError, InvalidArgument, resolve_key, resolve_url

    try:
        server_url = resolve_url(url, settings)
        command = ["dragoman", "chat", *([url] if url else [])]
        command += ["--protocol", protocol] if protocol != "aap" else []
        command += [word for name in ("data", "config") if flags[name] for word in (f"--{name}", str(flags[name]))]
        options = ChatOptions(
            url=server_url,
            key=resolve_key(key, server_url, settings.folder),
            protocol=protocol,
            resume_command=shlex.join(command),
            state_folder=_state_folder(),
            agent=agent,
            session=session,
            resumes_last=last,
            message=message,
            images=images,
            allows_all=yes,
            is_plain=plain,
            is_json=is_json,
        )
        sys.exit(run_chat(options))
    except InvalidArgument as error:
        raise CliUsageError(str(error)) from error
    except CommandError as error:
        raise CliError(str(error)) from error
    except BrokenPipeError:
        _exit_quietly()


AGENT_KINDS = click.Choice(["model", "function", "langgraph", "pydantic-ai", "openai-agents"])


@commands.command(short_help="Write a first agent and its test.")
@click.argument("file", default="app.py", type=click.Path(path_type=Path))
@click.option("--kind", type=AGENT_KINDS, help="kind of agent; asked for in a terminal  [model]")
def init(file: Path, kind: str | None) -> None:
    """Write a first agent to FILE (app.py) and a test beside it, and print what to do next."""
    from dragoman.terminal.first_agents import FIRST_AGENTS
    from dragoman.terminal.init_command import AgentFileNotWritable, InvalidFileName, write_first_agent

    if kind is None:
        kind = _ask_for_kind({name: each.title for name, each in FIRST_AGENTS.items()})
    chosen = FIRST_AGENTS[kind]
    dev_command = shlex.join([*_program_command(), "dev", *([str(file)] if str(file) != "app.py" else [])])
    try:
        test = write_first_agent(file, chosen, dev_command)
    except InvalidFileName as error:
        raise CliUsageError(str(error)) from error
    except AgentFileNotWritable as error:
        raise CliError(str(error)) from error
    click.echo(f"created {file} and {test}")
    packages = [f"'{chosen.packages}'"] * bool(chosen.packages) + ["pytest"] * (find_spec("pytest") is None)
    if packages:
        click.echo(f"install:     pip install {' '.join(packages)}")
    click.echo(f"test it:     pytest {test}")
    click.echo(f"serve it:    {dev_command}")
    click.echo(f"talk to it:  {shlex.join([*_program_command(), 'chat'])}   (in another terminal, in this folder)")


def _ask_for_kind(titles: Mapping[str, str]) -> str:
    """Ask for the kind of agent; `model` if nobody can be asked."""
    if not sys.stdin.isatty():
        return "model"
    for number, title in enumerate(titles.values(), 1):
        click.echo(f"  {number}  {title}")
    number = click.prompt("Which kind of agent?", type=click.IntRange(1, len(titles)), default=1)
    return list(titles)[number - 1]


def _program_command() -> list[str]:
    """The command that runs this program here."""
    if shutil.which("dragoman"):
        return ["dragoman"]
    beside = Path(sys.executable).with_name("dragoman")
    if not beside.exists():
        return [sys.executable, "-m", "dragoman"]
    return [str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)]


@commands.group(short_help="List, show and export sessions.")
def sessions() -> None:
    """List, show and export sessions of a server: as text in a terminal, as lines of JSON in a pipe."""


def server_flags(command: F) -> F:
    """Add the flags that name the server and the API key."""
    for option in (
        settings_flags("data"),
        click.option("--protocol", type=PROTOCOLS, default="aap", show_default=True, help="protocol to use"),
        click.option("--key", metavar="KEY|@FILE", help="API key  [the data folder's first key]"),
        click.option("--url", help="server  [the one on this machine]"),
    ):
        command = option(command)
    return command


@sessions.command("list")
@server_flags
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="the newest N  [all]")
def sessions_list(limit: int | None, **server: FlagValue) -> None:
    """List sessions, newest first."""
    from dragoman.terminal.sessions_command import list_sessions

    with _open_client(server) as client:
        list_sessions(client, limit)


@sessions.command("show")
@click.argument("session_id", metavar="ID")
@server_flags
def sessions_show(session_id: str, **server: FlagValue) -> None:
    """Show a session's messages."""
    from dragoman.terminal.screen import screen_for
    from dragoman.terminal.sessions_command import show_session

    with _open_client(server) as client:
        show_session(client, session_id, screen_for(is_plain=False))


@sessions.command("export")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="a new file  [standard output]")
@server_flags
def sessions_export(ids: tuple[str, ...], output: Path | None, **server: FlagValue) -> None:
    """Export sessions with their messages, each as a line of JSON: those named, or all."""
    from dragoman.terminal.sessions_command import export_sessions

    with _open_client(server) as client:
        export_sessions(client, ids, output)


@contextmanager
def _open_client(flags: dict[str, Any]) -> Iterator["Client"]:
    url, key, protocol = flags.pop("url"), flags.pop("key"), flags.pop("protocol")
    settings = load_settings(flags).settings
    from dragoman.terminal.server_target import CommandError, InvalidArgument, resolve_key, resolve_url
    from dragoman.terminal.sessions_command import open_client

    try:
        server_url = resolve_url(url, settings)
        with open_client(server_url, resolve_key(key, server_url, settings.folder), protocol) as client:
            yield client
            sys.stdout.flush()
    except InvalidArgument as error:
        raise CliUsageError(str(error)) from error
    except CommandError as error:
        raise CliError(str(error)) from error
    except BrokenPipeError:
        _exit_quietly()


def _state_folder() -> Path:
    from dragoman.terminal.saved_sessions import state_folder

    return state_folder(str(Path.home()), os.environ.get("XDG_STATE_HOME", ""))


def _exit_quietly() -> NoReturn:
    """Exit after the reader of standard output has closed it, as `head` does. Nothing may be flushed at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


# --- keys -------------------------------------------------------------------------------------------------------------


@commands.group(short_help="Manage API keys and their budgets; rotate encryption keys.")
def keys() -> None:
    """Create, list, limit and revoke API keys, whether a server is running or not."""


def _token_budgets(default: int | None) -> Callable[[F], F]:
    """The options for the token budgets of a key."""

    def add(command: F) -> F:
        for period in ("month", "day"):
            text = f"tokens that its runs may use in a {period} (UTC); 0 for no limit"
            option = click.option(f"--tokens-per-{period}", type=click.IntRange(min=0), default=default, help=text)
            command = option(command)
        return command

    return add


@keys.command("create")
@click.option("--name", required=True, help="what the key is for")
@click.option("--user", default="local", show_default=True, help="user whose sessions the key gives access to")
@click.option("--scopes", default="use", show_default=True, help="read, use (includes read) or admin (includes both)")
@click.option("--expires", metavar="DAYS|DATE", help="number of days, or a date such as 2027-01-31  [never]")
@_token_budgets(default=0)
@settings_flags("data", "database")
def keys_create(
    name: str,
    user: str,
    scopes: str,
    expires: str | None,
    tokens_per_day: int,
    tokens_per_month: int,
    **flags: FlagValue,
) -> None:
    """Create a key. It is shown only once, as the last line of standard output."""
    from dragoman.server.admin_socket import CreateKey

    scope_names = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    settings = load_settings(flags).settings
    request = CreateKey(
        name=name,
        user=user,
        scopes=scope_names,
        expires_at=_parse_expiry(expires),
        tokens_per_day=tokens_per_day,
        tokens_per_month=tokens_per_month,
    )
    is_new = settings.database is None and not settings.folder.exists()
    reply = _send_admin_request(settings, request)
    key = reply.keys[0]
    # The key works only for a server on this store, and the default data folder may be another than the server's.
    store = settings.folder if settings.database is None else "the database"
    if is_new:
        click.echo(f"created the data folder {store}: if a server runs already, name its folder with --data", err=True)
    click.echo(f"key {key.key_id} of user {key.user}, {' '.join(key.scopes)}, in {store}; shown only now:", err=True)
    click.echo(reply.secret)


@keys.command("list")
@settings_flags("data", "database")
def keys_list(**flags: FlagValue) -> None:
    """List all keys, oldest first."""
    from dragoman.server.admin_socket import ListKeys
    from dragoman.terminal.table import format_table

    rows = [("ID", "NAME", "USER", "KEY", "SCOPES", "CREATED", "EXPIRES", "LAST USED", "TOKENS")]
    for key in _send_admin_request(load_settings(flags).settings, ListKeys()).keys:
        times = [_format_minute(at) for at in (key.created_at, key.expires_at, key.last_used_at)]
        rows.append((key.key_id, key.name, key.user, key.masked, " ".join(key.scopes), *times, str(key.token_limits)))
    for line in format_table(rows):
        click.echo(line)


@keys.command("revoke")
@click.argument("which")
@settings_flags("data", "database")
def keys_revoke(which: str, **flags: FlagValue) -> None:
    """Revoke a key permanently. WHICH is its ID, its masked form, its name, or the key itself. Its open streams end."""
    from dragoman.server.admin_socket import RevokeKey

    key = _send_admin_request(load_settings(flags).settings, RevokeKey(which=which)).keys[0]
    click.echo(f"revoked {key.key_id} ({key.name}, {key.masked})")


@keys.command("limit")
@click.argument("which")
@_token_budgets(default=None)
@settings_flags("data", "database")
def keys_limit(which: str, tokens_per_day: int | None, tokens_per_month: int | None, **flags: FlagValue) -> None:
    """Change the token budgets of a key. WHICH is its ID, its masked form, its name, or the key itself.

    What was used today and this month still counts. Running servers apply it to the next step of every run.
    """
    from dragoman.server.admin_socket import LimitKey

    if tokens_per_day is None and tokens_per_month is None:
        raise CliUsageError("nothing to change: give --tokens-per-day, --tokens-per-month or both")
    request = LimitKey(which=which, tokens_per_day=tokens_per_day, tokens_per_month=tokens_per_month)
    key = _send_admin_request(load_settings(flags).settings, request).keys[0]
    click.echo(f"key {key.key_id} ({key.name}, {key.masked}): tokens {key.token_limits}")


@keys.command("rotate")
@click.argument("file", type=click.Choice(["secrets.key", "links.key"]))
@click.option(
    "--lost", is_flag=True, help="the key is lost: continue without data that it has encrypted, signed or hashed"
)
@settings_flags("data", "database")
def keys_rotate(file: str, lost: bool, **flags: FlagValue) -> None:
    """Add a new encryption key to the data folder, and use it from now on.

    The older keys stay in the file, for data that they have encrypted or signed. No server may be running. With several
    servers, copy the file to all data folders before you start them. With --lost, the server accepts the file that the
    folder has, or a new one.
    """
    settings = load_settings(flags).settings
    from dragoman.cli.database import DatabaseCommandError, rotate_key_file
    from dragoman.server.logging import configure_logging

    configure_logging("console", "error")
    try:
        fingerprint = rotate_key_file(settings, file, is_lost=lost)
    except DatabaseCommandError as error:
        raise CliError(str(error)) from error
    what = "is the key of the data now" if lost else "has a new key"
    click.echo(f"{settings.folder / file} {what}; its fingerprint is {fingerprint}")


# --- audit log --------------------------------------------------------------------------------------------------------


@commands.command(short_help="Show the audit log.")
@click.option(
    "--limit", default=100, show_default=True, help="how many of the newest entries", type=click.IntRange(1, 1000)
)
@click.option("--user", help="only what this user did")
@click.option("--action", help="only one kind of entry, such as key.created")
@click.option("--json", "as_json", is_flag=True, help="one JSON object per line")
@settings_flags("data", "database")
def audit(limit: int, user: str | None, action: str | None, as_json: bool, **flags: FlagValue) -> None:
    """Show who created and revoked keys, logged in, shared, deleted and exported; newest first."""
    import msgspec

    from dragoman.server.admin_socket import ListAudit
    from dragoman.terminal.table import format_table

    request = ListAudit(limit=limit, user=user, action=action)
    entries = _send_admin_request(load_settings(flags).settings, request).audit
    if as_json:
        for each in entries:
            click.echo(msgspec.json.encode(each))
        return
    rows = [("TIME", "ACTION", "USER", "ADDRESS", "TARGET", "TIMES", "DETAIL")]
    rows += [
        (_format_minute(each.at), each.action, each.user, each.address, each.target, str(each.count), each.detail)
        for each in entries
    ]
    for line in format_table(rows):
        click.echo(line)


# --- users ------------------------------------------------------------------------------------------------------------


@commands.group(short_help="Set time zones, retention and token budgets of users.")
def users() -> None:
    """Manage user profiles, whether a server is running or not."""


@users.command("set")
@click.argument("user")
@click.option("--timezone", metavar="ZONE", help="IANA time zone of the user's events, such as Europe/Berlin")
@click.option("--locale", metavar="TAG", help="language tag, such as de or zh-CN")
@click.option("--retention-days", metavar="DAYS", help="delete sessions this long after their last change; 0 for never")
@click.option("--tokens-per-day", metavar="TOKENS", help="tokens that runs may use in a day (UTC); 0 for no limit")
@click.option("--tokens-per-month", metavar="TOKENS", help="tokens that runs may use in a month (UTC); 0 for no limit")
@settings_flags("data", "database")
def users_set(
    user: str,
    timezone: str | None,
    locale: str | None,
    retention_days: str | None,
    tokens_per_day: str | None,
    tokens_per_month: str | None,
    **flags: FlagValue,
) -> None:
    """Set a user's time zone, locale, session retention and token budgets.

    What is not given stays as it is. An empty value returns to the server's setting.
    """
    from dragoman.server.admin_socket import SetUser

    changed: dict[str, Any] = {
        name: value or None for name, value in {"time_zone": timezone, "locale": locale}.items() if value is not None
    }
    numbers = {
        "retention_days": (retention_days, "days"),
        "tokens_per_day": (tokens_per_day, "tokens"),
        "tokens_per_month": (tokens_per_month, "tokens"),
    }
    for name, (text, unit) in numbers.items():
        if text and not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
            raise CliUsageError(f"--{name.replace('_', '-')}: expected a number of {unit}, got {text!r:.80}")
        if text is not None:
            changed[name] = int(text) if text else None
    if not changed:
        raise CliUsageError(
            "expected --timezone ZONE, --locale TAG, --retention-days DAYS, --tokens-per-day TOKENS,"
            " --tokens-per-month TOKENS or several"
        )
    profile = _send_admin_request(load_settings(flags).settings, SetUser(user=user, **changed)).profile
    shown = {
        "time zone": profile.time_zone or None,
        "locale": profile.locale or None,
        "retention days": profile.retention_days,
        "tokens a day": profile.tokens_per_day,
        "tokens a month": profile.tokens_per_month,
    }
    click.echo(f"{profile.user}: " + ", ".join(f"{name} {'-' if it is None else it}" for name, it in shown.items()))


def _send_admin_request(settings: Settings, request: Any) -> Any:  # noqa: ANN401  # avoids an import that slows `serve`
    from dragoman.cli.keys import AdminRequestError, handle_request
    from dragoman.server.logging import configure_logging

    configure_logging("console", "error")
    try:
        reply = handle_request(settings, request)
    except AdminRequestError as error:
        raise CliError(str(error)) from error
    if reply.error is not None:
        raise CliUsageError(reply.error) if reply.is_invalid else CliError(reply.error)
    return reply


def _parse_expiry(text: str | None) -> datetime | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit() and int(text) <= MAX_EXPIRY_DAYS:
        return datetime.now(UTC) + timedelta(days=int(text))
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise CliUsageError(
            f"--expires: expected a number of days up to {MAX_EXPIRY_DAYS}, or a date such as 2027-01-31, got {text!r}"
        ) from error
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _format_minute(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


# --- config -----------------------------------------------------------------------------------------------------------


@commands.group()
def config() -> None:
    """Show the settings."""


@config.command("show", cls=SettingsCommand)
@settings_flags()
def config_show(**flags: FlagValue) -> None:
    """Show the settings in force, as TOML, each with its source."""
    click.echo(format_settings(load_settings(flags)))


for command in (backup, restore, check, compact, copy, migrate):
    commands.add_command(command)
