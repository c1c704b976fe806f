"""Loading the settings: flags, environment, file and defaults are merged, and checked against each other.

The command line loads them once and passes them down; no other module reads the environment.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args, get_origin

import msgspec

from dragoman.core.content import Json
from dragoman.settings import ENVIRONMENT_PREFIX, SettingInfo, Settings, SettingsError, all_settings

CONFIG_VARIABLE = "DRAGOMAN_CONFIG"
OTHER_VARIABLES = (CONFIG_VARIABLE, "DRAGOMAN_UNTESTED")
"""Variables that are not settings. `adapters.frameworks` reads the second one."""
CONFIG_FILE = "dragoman.toml"
"""Read from the current folder if no other file is named."""
MAX_NUMBER = 10**15
"""No setting is larger, so that its value fits into every database, timer and date that it is used with."""
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class LoadedSettings(NamedTuple):
    """The settings in force, and the source of each."""

    settings: Settings
    sources: Mapping[str, str]


class _RawValue(NamedTuple):
    raw: object
    source: str


def load(flags: Mapping[str, object], environ: Mapping[str, str], *, folder: Path | None = None) -> LoadedSettings:
    """Load the settings: flags override the environment, which overrides the file, which overrides the defaults.

    Args:
        flags: values by setting name, and `config` for the file; None means that a flag was not given.
        environ: the process's environment.
        folder: where `dragoman.toml` is looked for; defaults to the current folder.

    Raises:
        SettingsError: a name is unknown, a value is invalid, or two settings contradict each other.
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
    """The settings in force as TOML, each with its source; secrets as `***`."""
    lines = []
    for each in all_settings():
        value = getattr(loaded.settings, each.name)
        masked = "***" if each.is_secret and value is not None else value
        setting = f"# {each.name} is not set" if value is None else f"{each.name} = {as_toml(masked)}"
        lines.append(f"{setting:<44} # {loaded.sources[each.name]}")
    return "\n".join(lines)


def as_toml(value: Json) -> str:
    """A setting's value in TOML."""
    return str(value) if isinstance(value, float) else msgspec.json.encode(value).decode()


def _from_file(file: Path, settings: Mapping[str, SettingInfo]) -> dict[str, _RawValue]:
    import tomllib  # takes 10 ms, and most starts need none

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
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in OTHER_VARIABLES:
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
    """Convert a raw value to the setting's type. Flags and the environment provide strings for all types."""
    value = raw
    if isinstance(raw, str):
        if type(None) in get_args(setting.type) and not raw:
            return None
        if get_origin(setting.type) is tuple:
            value = [part.strip() for part in raw.split(",") if part.strip()]
        elif bool in (setting.type, *get_args(setting.type)):
            value = _BOOLEANS.get(raw.strip().lower(), raw)
    masked = "***" if setting.is_secret else repr(raw)
    try:
        converted = msgspec.convert(value, Annotated[setting.type, setting.meta], strict=not isinstance(raw, str))
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"setting {setting.name} ({source}): expected {describe_expected_value(setting)}, got {masked}"
        ) from error
    if isinstance(converted, int | float) and converted > MAX_NUMBER:  # also `inf`, which msgspec accepts
        raise SettingsError(f"setting {setting.name} ({source}): expected at most {MAX_NUMBER}, got {masked}")
    return converted


def describe_expected_value(setting: SettingInfo) -> str:
    """A description of the values that a setting accepts."""
    kind = next(each for each in (*get_args(setting.type), setting.type) if each is not type(None))
    if get_origin(setting.type) is Literal:
        return "one of " + ", ".join(get_args(setting.type))
    if get_origin(setting.type) is tuple:
        return "a list of strings"
    expected = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}[kind]
    if setting.meta.ge is not None and setting.meta.le is not None:
        return f"{expected} from {setting.meta.ge} to {setting.meta.le}"
    return expected if setting.meta.ge is None else f"{expected}, at least {setting.meta.ge}"


def _check(loaded: LoadedSettings) -> None:
    settings, sources = loaded
    if not settings.auth and not settings.is_loopback:
        raise SettingsError(
            f"keys are off ({sources['auth']}), but the server would listen on {settings.host} ({sources['host']}),"
            " which other machines can reach: turn keys on, or listen on 127.0.0.1"
        )
    for name, message in _faults(settings):
        raise SettingsError(f"setting {name} ({sources[name]}): {message}")


def _faults(settings: Settings) -> Iterator[tuple[str, str]]:
    """The settings that are invalid or contradict others, each with the reason."""
    if settings.nats is not None and settings.database is None:
        yield "nats", "NATS connects servers on a shared PostgreSQL database: set database, or remove nats"
    if settings.nats_credentials is not None and settings.nats is None:
        yield "nats_credentials", "only used with NATS: set nats too"
    if re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", settings.nats_subject) is None:
        yield "nats_subject", f"expected a NATS subject such as dragoman.staging, got {settings.nats_subject!r}"
    for each in all_settings():
        path = getattr(settings, each.name)
        if each.name.endswith("_path") and (not path.startswith("/") or path.endswith("/")):
            yield each.name, f"expected a path such as {each.default}, got {path!r}"
    for name, example in (
        ("public_url", "https://agents.example.org"),
        ("otel_endpoint", "http://127.0.0.1:4318/v1/traces"),
    ):
        url = getattr(settings, name)
        if url and not url.startswith(("http://", "https://")):
            yield name, f"expected a URL such as {example}, got {url!r}"
    for origin in settings.cors_origins:
        if origin == "*" and settings.auth:
            continue  # the same as the default; without keys it would allow every web page
        scheme, _, rest = origin.partition("://")
        if scheme not in ("http", "https") or not rest or "/" in rest:
            yield "cors_origins", f"expected origins such as https://app.example, got {origin!r}"
