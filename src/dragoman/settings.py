"""The settings: one frozen struct, and how it is put together from flags, environment, file and defaults.

Read once, by the command line and `server.py`, and passed down as values: no other module looks at the environment.
"""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from dragoman.core.content import Json

ENVIRONMENT_PREFIX = "DRAGOMAN_"
CONFIG_VARIABLE = "DRAGOMAN_CONFIG"
CONFIG_FILE = "dragoman.toml"
"""Read from the current folder when no other file is named."""

_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def setting_meta(
    description: str, *, ge: float | None = None, le: float | None = None, is_secret: bool = False
) -> Meta:
    """What a setting is for, in the words of the help and of docs/configuration.md, and its bounds."""
    return Meta(description=description, ge=ge, le=le, extra={"is_secret": is_secret})


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an operator may choose. Sizes are in bytes or characters, times in seconds."""

    agents: Annotated[
        tuple[str, ...], setting_meta("Python files to serve agents from, each `FILE.py` or `FILE.py:NAME`")
    ] = ()
    default_agent: Annotated[
        str | None, setting_meta("agent for clients that name none; else the first one served")
    ] = None
    default_model: Annotated[
        str | None, setting_meta("model of agents that name none, such as `openai:gpt-5-mini`")
    ] = None
    rehearsal: Annotated[bool, setting_meta("also serve the two rehearsal agents, which need no model")] = False

    host: Annotated[str, setting_meta("address to listen on")] = "127.0.0.1"
    port: Annotated[int, setting_meta("port to listen on; 0 takes a free one", ge=0, le=65535)] = 8000
    trusted_proxies: Annotated[
        tuple[str, ...],
        setting_meta("addresses of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed"),
    ] = ()
    data: Annotated[str, setting_meta("data folder: database, blobs and secrets; made when it is not there")] = (
        "dragoman-data"
    )
    database: Annotated[
        str | None,
        setting_meta(
            "PostgreSQL database, `postgresql://USER@HOST/NAME`; not set: SQLite in the data folder", is_secret=True
        ),
    ] = None
    nats: Annotated[
        str | None,
        setting_meta(
            "NATS for hints between servers on one PostgreSQL, `nats://HOST:PORT`; they do without it", is_secret=True
        ),
    ] = None
    nats_credentials: Annotated[
        str | None, setting_meta("file that says who this is to NATS: a user's `.creds`, or the seed of an NKey")
    ] = None
    nats_subject: Annotated[
        str, setting_meta("begins the subjects on NATS; one for each installation that shares it")
    ] = "dragoman"
    blobs: Annotated[
        str | None,
        setting_meta("bucket for attachments, `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`; not set: beside the rest"),
    ] = None
    workers: Annotated[int, setting_meta("processes that share the port; more than one needs `database`", ge=1)] = 1
    lease_s: Annotated[
        float, setting_meta("silence after which other servers on the database take over this one's runs", ge=4)
    ] = 10.0
    synchronous: Annotated[
        Literal["full", "normal"],
        setting_meta("`full` syncs each commit to the disk; with `normal` a power cut may take the last ones"),
    ] = "full"

    auth: Annotated[bool, setting_meta("ask for API keys; can only be switched off on a loopback address")] = True
    first_key: Annotated[
        bool, setting_meta("make a key on the first start, keep it in the data folder, print it at every start")
    ] = False
    public_meta: Annotated[bool, setting_meta("show the list of agents to callers without a key")] = False
    public_metrics: Annotated[
        bool | None,
        setting_meta("show `/metrics` without an admin key; not set: only when listening on a loopback address"),
    ] = None
    console: Annotated[bool, setting_meta("serve the web console at `/`")] = True
    cors_origins: Annotated[
        tuple[str, ...],
        setting_meta(
            "origins of web pages that may call, and show the console; empty: any may call with keys on, none else"
        ),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...], setting_meta("names besides loopback ones that `Host` may hold when keys are off")
    ] = ()

    body_bytes: Annotated[int, setting_meta("largest request body", ge=1024)] = 16 * 1024 * 1024
    text_chars: Annotated[int, setting_meta("longest text block, in characters", ge=1)] = 1024 * 1024
    seeds: Annotated[int, setting_meta("messages that a session may be opened with", ge=0)] = 1000
    client_tools: Annotated[int, setting_meta("tools that an application may bring along", ge=0)] = 128
    schema_bytes: Annotated[int, setting_meta("largest JSON Schema of such a tool", ge=2)] = 64 * 1024
    max_runs_per_user: Annotated[
        int, setting_meta("unfinished runs of one user, running and queued; 0 for no limit", ge=0)
    ] = 1000
    max_streams_per_user: Annotated[int, setting_meta("open streams of one user; 0 for no limit", ge=0)] = 10_000
    requests_per_minute: Annotated[
        int, setting_meta("requests of one key, in bursts of as many; 0 for no limit", ge=0)
    ] = 0
    wrong_keys_per_minute: Annotated[
        int, setting_meta("wrong keys of one address before it gets 429 for them; 0 for no limit", ge=0)
    ] = 60

    time_zone: Annotated[str, setting_meta("time zone of scheduled tasks that name none, for users without one")] = (
        "UTC"
    )
    schedule_runs: Annotated[int, setting_meta("runs of schedules at the same time; further ones wait", ge=1)] = 50
    run_timeout_s: Annotated[float, setting_meta("longest run", ge=1)] = 3600.0
    drain_s: Annotated[float, setting_meta("grace that running runs get when the server stops", ge=0)] = 30.0
    heartbeat_s: Annotated[float, setting_meta("silence after which a stream gets a sign of life", ge=0.1)] = 15.0
    stalled_reader_s: Annotated[
        float, setting_meta("how long a client may take nothing before it is cut off", ge=1)
    ] = 60.0
    sessions_in_memory: Annotated[int, setting_meta("sessions kept ready in memory", ge=1)] = 1000

    aap: Annotated[bool, setting_meta("serve AAP")] = True
    aap_path: Annotated[str, setting_meta("where AAP is served")] = "/aap/v3"
    ag_ui: Annotated[bool, setting_meta("serve AG-UI's standard endpoint")] = True
    ag_ui_path: Annotated[str, setting_meta("where AG-UI's standard endpoint is served")] = "/ag-ui"
    ag_ui_on_disconnect: Annotated[
        Literal["cancel", "continue"],
        setting_meta("what becomes of an AG-UI run when its client leaves and nobody else watches"),
    ] = "cancel"
    ag_ui_min_client: Annotated[
        Literal["0.0.58", "0.0.59"], setting_meta("what AG-UI clients of 0.x understand; `0.0.58` knows no sub-agents")
    ] = "0.0.59"
    run_service: Annotated[bool, setting_meta("serve the AG-UI run service")] = True
    run_service_path: Annotated[str, setting_meta("where the AG-UI run service is served")] = "/api/v1/agent"
    run_service_streams: Annotated[
        int, setting_meta("open event streams of one user on the AG-UI run service; 0 for no limit", ge=0)
    ] = 8
    public_url: Annotated[
        str | None,
        setting_meta("address that clients reach the server at, for signed links; not set: as they asked for it"),
    ] = None
    transcription_model: Annotated[
        str | None,
        setting_meta("model for speech to text: `openai:NAME` or `openai-compatible:NAME@URL`; not set: none"),
    ] = None
    agentscope: Annotated[bool, setting_meta("serve the Agent API of AgentScope Runtime")] = True
    agentscope_path: Annotated[str, setting_meta("where runs of the Agent API begin")] = "/process"
    blade: Annotated[
        bool, setting_meta("serve Blade at `/api` and `/socket.io/`; left out where the extra `blade` is not installed")
    ] = True
    blade_memory: Annotated[
        bool, setting_meta("new sessions over Blade, and of schedules, have memory on where nobody says otherwise")
    ] = True
    blade_public_sharing: Annotated[bool, setting_meta("sessions can be shown to whoever has a link, over Blade")] = (
        True
    )
    blade_key_prefix: Annotated[str, setting_meta("begins the keys that are made over Blade's REST")] = "sk-blade-v2-"
    blade_level: Annotated[str, setting_meta("level of Blade that clients are told; those of the same number fit")] = (
        "2608.0.4"
    )
    blade_sync_patch_ms: Annotated[
        int,
        setting_meta("how often growing turns are also sent whole over Blade, as `sync` patches; 0 for never", ge=0),
    ] = 0

    log_level: Annotated[Literal["debug", "info", "warning", "error"], setting_meta("least important lines to log")] = (
        "info"
    )
    log_format: Annotated[
        Literal["auto", "console", "json"], setting_meta("`auto` is `console` in a terminal and `json` elsewhere")
    ] = "auto"
    otel: Annotated[bool, setting_meta("send OpenTelemetry spans; needs the extra `otel`")] = False
    otel_endpoint: Annotated[
        str | None, setting_meta("URL of the OTLP/HTTP collector's traces; not set: the SDK's own default")
    ] = None
    otel_headers: Annotated[
        str | None, setting_meta("headers for the collector, `NAME=VALUE,NAME=VALUE`", is_secret=True)
    ] = None

    @property
    def folder(self) -> Path:
        """The data folder."""
        return Path(self.data).expanduser()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


class SettingsError(Exception):
    """A setting is unknown, or cannot be what it is. The message names the place and what to do."""


class SettingInfo(NamedTuple):
    """A setting as a thing to be described."""

    name: str
    type: Any
    default: Json
    meta: Meta

    @property
    def description(self) -> str:
        """What it is for."""
        assert self.meta.description is not None, "every setting says what it is for"
        return self.meta.description

    @property
    def is_secret(self) -> bool:
        """Whether its value is shown to nobody."""
        return self.meta.extra is not None and bool(self.meta.extra["is_secret"])

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return ENVIRONMENT_PREFIX + self.name.upper()


class LoadedSettings(NamedTuple):
    """The settings in force, and where each came from."""

    settings: Settings
    sources: Mapping[str, str]


class _RawValue(NamedTuple):
    raw: object
    source: str


def all_settings() -> tuple[SettingInfo, ...]:
    """All settings, in the order in which they are documented."""
    hints = get_type_hints(Settings, include_extras=True)
    found = []
    for field in msgspec.structs.fields(Settings):
        kind, meta = get_args(hints[field.name])
        found.append(SettingInfo(field.name, kind, field.default, meta))
    return tuple(found)


def load(flags: Mapping[str, object], environ: Mapping[str, str], *, folder: Path | None = None) -> LoadedSettings:
    """Put the settings together: flags over environment over file over defaults.

    Args:
        flags: values by setting's name, and `config` for the file; those that are None were not given.
        environ: the process's environment.
        here: the folder in which `dragoman.toml` is looked for; else the current one.

    Raises:
        SettingsError: a name is unknown, a value is wrong, or two settings do not go together.
    """
    settings = {each.name: each for each in all_settings()}
    config = flags.get("config") or environ.get(CONFIG_VARIABLE)
    file = Path(str(config)).expanduser() if config else (folder or Path()) / CONFIG_FILE
    given: dict[str, _RawValue] = {}
    if config or file.is_file():
        given |= _from_file(file, settings)
    given |= _from_environment(environ, settings)
    for name, raw in flags.items():
        if raw is not None and name != "config":
            given[name] = _RawValue(raw, "AGENT arguments" if name == "agents" else f"flag {settings[name].flag}")
    values = {name: _convert(settings[name], *each) for name, each in given.items()}
    loaded = LoadedSettings(
        Settings(**values), {name: given[name].source if name in given else "default" for name in settings}
    )
    _check(loaded)
    return loaded


def format_settings(loaded: LoadedSettings) -> str:
    """The settings in force as TOML, each with the place that it came from; secrets as `***`."""
    lines = []
    for each in all_settings():
        value = getattr(loaded.settings, each.name)
        shown = "***" if each.is_secret and value is not None else value
        left = f"# {each.name} is not set" if value is None else f"{each.name} = {as_toml(shown)}"
        lines.append(f"{left:<44} # {loaded.sources[each.name]}")
    return "\n".join(lines)


def as_toml(value: Json) -> str:
    """A setting's value as TOML writes it."""
    return str(value) if isinstance(value, float) else msgspec.json.encode(value).decode()


def is_loopback(host: str) -> bool:
    """Whether a host's name or address stands for this machine alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- inside -----------------------------------------------------------------------------------------------------------


def _from_file(file: Path, settings: Mapping[str, SettingInfo]) -> dict[str, _RawValue]:
    import tomllib  # 10 ms that most starts save

    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the configuration file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the configuration file {file} is not TOML: {error}") from error
    for name in content:
        if name not in settings:
            raise SettingsError(_unknown_setting_message(name, f"file {file}", settings))
    return {name: _RawValue(raw, f"file {file}") for name, raw in content.items()}


def _from_environment(environ: Mapping[str, str], settings: Mapping[str, SettingInfo]) -> dict[str, _RawValue]:
    names = {each.variable: name for name, each in settings.items()}
    given = {}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable not in names:
            raise SettingsError(_unknown_setting_message(variable, "environment", names))
        given[names[variable]] = _RawValue(text, f"environment {variable}")
    return given


def _unknown_setting_message(name: str, source: str, settings: Mapping[str, object]) -> str:
    import difflib

    near = difflib.get_close_matches(name, settings, n=1)
    hint = f"did you mean {near[0]}?" if near else "`dragoman config show` lists all"
    return f"unknown setting {name} ({source}): {hint}"


def _convert(setting: SettingInfo, raw: object, source: str) -> Json:
    """Read a value. Texts, which is all that flags and the environment have, may stand for any type."""
    value = raw
    if isinstance(raw, str):
        if type(None) in get_args(setting.type) and not raw:
            return None
        if get_origin(setting.type) is tuple:
            value = [part.strip() for part in raw.split(",") if part.strip()]
        elif bool in (setting.type, *get_args(setting.type)):
            value = _BOOLEANS.get(raw.strip().lower(), raw)
    try:
        return msgspec.convert(value, Annotated[setting.type, setting.meta], strict=not isinstance(raw, str))
    except msgspec.ValidationError as error:
        shown = "***" if setting.is_secret else repr(raw)
        raise SettingsError(
            f"setting {setting.name} ({source}): expected {describe_expected_value(setting)}, got {shown}"
        ) from error


def describe_expected_value(setting: SettingInfo) -> str:
    """What a setting takes, in words."""
    kind = next(each for each in (*get_args(setting.type), setting.type) if each is not type(None))
    if get_origin(setting.type) is Literal:
        return "one of " + ", ".join(get_args(setting.type))
    if get_origin(setting.type) is tuple:
        return "a list of texts"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
    if setting.meta.ge is not None and setting.meta.le is not None:
        return f"{words} from {setting.meta.ge} to {setting.meta.le}"
    return words if setting.meta.ge is None else f"{words}, at least {setting.meta.ge}"


def _check_nats(settings: Settings, sources: Mapping[str, str]) -> None:
    if settings.nats is not None and settings.database is None:
        raise SettingsError(
            f"setting nats ({sources['nats']}): servers that talk share a PostgreSQL database: name it with"
            " --database, or leave NATS out"
        )
    if settings.nats_credentials is not None and settings.nats is None:
        raise SettingsError(
            f"setting nats_credentials ({sources['nats_credentials']}): they are for NATS: name it with --nats"
        )
    if re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", settings.nats_subject) is None:
        raise SettingsError(
            f"setting nats_subject ({sources['nats_subject']}): expected words with dots between them,"
            f" got {settings.nats_subject!r}"
        )


def _check(loaded: LoadedSettings) -> None:
    settings, places = loaded
    if not settings.auth and not settings.is_loopback:
        raise SettingsError(
            f"keys are off ({places['auth']}) and the server would listen on {settings.host} ({places['host']}), where"
            " others can reach it: leave keys on, or listen on 127.0.0.1"
        )
    _check_nats(settings, places)
    if settings.workers > 1 and settings.database is None:
        raise SettingsError(
            f"several workers ({places['workers']}) share a PostgreSQL database: name one with --database, or leave it"
            " at one"
        )
    for name, example in (
        ("aap_path", "/aap/v3"),
        ("ag_ui_path", "/ag-ui"),
        ("run_service_path", "/api/v1/agent"),
        ("agentscope_path", "/process"),
    ):
        path = getattr(settings, name)
        if not path.startswith("/") or path.endswith("/"):
            raise SettingsError(f"setting {name} ({places[name]}): expected a path such as {example}, got {path!r}")
    if settings.public_url is not None and not settings.public_url.startswith(("http://", "https://")):
        raise SettingsError(
            f"setting public_url ({places['public_url']}): expected a URL such as https://agents.example.org,"
            f" got {settings.public_url!r}"
        )
    if settings.otel_endpoint and not settings.otel_endpoint.startswith(("http://", "https://")):
        raise SettingsError(
            f"setting otel_endpoint ({places['otel_endpoint']}): expected a URL such as"
            f" http://127.0.0.1:4318/v1/traces, got {settings.otel_endpoint!r}"
        )
    for origin in settings.cors_origins:
        if origin == "*" and settings.auth:
            continue  # the default, in words; without keys it would let every web page in
        scheme, _, rest = origin.partition("://")
        if scheme not in ("http", "https") or not rest or "/" in rest:
            raise SettingsError(
                f"setting cors_origins ({places['cors_origins']}): expected origins such as https://app.example,"
                f" got {origin!r}"
            )
