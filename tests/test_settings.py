"""Settings: precedence of the sources, refused values, `config show`, and that every setting is documented."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.settings import Settings, SettingsError, all_settings, is_loopback
from dragoman.settings_loading import as_toml, describe_expected_value, format_settings, load

DOCS = Path(__file__).parent.parent / "docs" / "configuration.md"
CANARY = "canary-2f6a"


def write(folder: Path, text: str, name: str = "dragoman.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


# --- sources ----------------------------------------------------------------------------------------------------------


def test_without_any_source_the_defaults_apply(tmp_path: Path) -> None:
    settings, sources = load({}, {}, folder=tmp_path)
    assert settings == Settings()
    assert set(sources.values()) == {"default"}
    assert set(sources) == set(Settings.__struct_fields__)


def test_flags_override_environment_overrides_file_overrides_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, 'host = "127.0.0.2"\nport = 1\nseeds = 1\n')
    loaded = load({"port": "3", "host": None}, {"DRAGOMAN_PORT": "2", "DRAGOMAN_SEEDS": "2"}, folder=tmp_path)
    settings, sources = loaded
    assert (settings.port, settings.seeds, settings.host, settings.auth) == (3, 2, "127.0.0.2", True)
    assert {name: sources[name] for name in ("port", "seeds", "host", "auth")} == {
        "port": "flag --port",
        "seeds": "environment DRAGOMAN_SEEDS",
        "host": f"file {file}",
        "auth": "default",
    }


def test_another_file_can_be_named_by_flag_or_environment(tmp_path: Path) -> None:
    write(tmp_path, "port = 1")
    one, two = write(tmp_path, "port = 2", "one.toml"), write(tmp_path, "port = 3", "two.toml")
    assert load({"config": str(one)}, {"DRAGOMAN_CONFIG": str(two)}, folder=tmp_path).settings.port == 2
    assert load({}, {"DRAGOMAN_CONFIG": str(two)}, folder=tmp_path).settings.port == 3


def test_other_environment_variables_are_ignored(tmp_path: Path) -> None:
    assert load({}, {"PATH": "x", "DRAGON": "y", "dragoman_port": "1"}, folder=tmp_path).settings == Settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("drain_s", "1.5", 1.5),
        ("drain_s", "2", 2.0),
        ("auth", "false", False),
        ("auth", "Off", False),
        ("rehearsal", "YES", True),
        ("rehearsal", "1", True),
        ("public_metrics", "no", False),
        ("public_metrics", "", None),
        ("cors_origins", "https://a.example, http://b.example:1,", ("https://a.example", "http://b.example:1")),
        ("cors_origins", "", ()),
        ("cors_origins", "*", ("*",)),
        ("default_model", "", None),
        ("log_format", "json", "json"),
    ],
)
def test_strings_from_the_environment_are_converted_to_every_type(
    tmp_path: Path, name: str, text: str, value: Any
) -> None:
    assert getattr(load({}, {f"DRAGOMAN_{name.upper()}": text}, folder=tmp_path).settings, name) == value


def test_every_setting_can_be_set_in_every_source(tmp_path: Path) -> None:
    """The file and the environment accept the defaults as they are printed."""
    for setting in all_settings():
        examples: dict[str, Any] = {"agents": ("app.py",), "cors_origins": ("https://a.example",)}
        value = examples.get(setting.name, setting.default)
        if value is None or value == ():
            continue
        file = write(tmp_path, f"{setting.name} = {as_toml(value)}", "one.toml")
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        for loaded in (
            load({"config": str(file)}, {}, folder=tmp_path),
            load({}, {setting.variable: text}, folder=tmp_path),
            load({setting.name: text}, {}, folder=tmp_path),
        ):
            assert getattr(loaded.settings, setting.name) == value
            assert loaded.sources[setting.name] != "default"


# --- refused values ---------------------------------------------------------------------------------------------------


def refusal(flags: dict[str, object], environ: dict[str, str], folder: Path) -> str:
    with pytest.raises(SettingsError) as refused:
        load(flags, environ, folder=folder)
    return str(refused.value)


def test_an_unknown_name_is_refused_with_its_source_and_the_closest_name(tmp_path: Path) -> None:
    message = refusal({}, {"DRAGOMAN_PROT": "1"}, tmp_path)
    assert message == "unknown setting DRAGOMAN_PROT (environment): did you mean DRAGOMAN_PORT?"
    file = write(tmp_path, "[server]\nport = 1")
    assert refusal({}, {}, tmp_path).startswith(f"unknown setting server (file {file}): ")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"PORT": "abc"},
            "setting port (environment DRAGOMAN_PORT): expected an integer from 0 to 65535, got 'abc'",
        ),
        (
            {"PORT": "65536"},
            "setting port (environment DRAGOMAN_PORT): expected an integer from 0 to 65535, got '65536'",
        ),
        ({"DRAIN_S": "-1"}, "setting drain_s (environment DRAGOMAN_DRAIN_S): expected a number, at least 0, got '-1'"),
        (
            {"DRAIN_S": "nan"},
            "setting drain_s (environment DRAGOMAN_DRAIN_S): expected a number, at least 0, got 'nan'",
        ),
        (
            {"HEARTBEAT_S": "inf"},
            "setting heartbeat_s (environment DRAGOMAN_HEARTBEAT_S): expected at most 1000000000000000, got 'inf'",
        ),
        ({"AUTH": "maybe"}, "setting auth (environment DRAGOMAN_AUTH): expected true or false, got 'maybe'"),
        ({"AUTH": ""}, "setting auth (environment DRAGOMAN_AUTH): expected true or false, got ''"),
        (
            {"LOG_FORMAT": "xml"},
            "setting log_format (environment DRAGOMAN_LOG_FORMAT): expected one of auto, console, json, got 'xml'",
        ),
    ],
)
def test_an_invalid_value_is_refused_with_what_was_expected(
    tmp_path: Path, environ: dict[str, str], message: str
) -> None:
    assert refusal({}, {f"DRAGOMAN_{name}": text for name, text in environ.items()}, tmp_path) == message


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "-1", "1e400", str(10**15 + 1)])
def test_every_number_is_finite_not_negative_and_not_too_large(tmp_path: Path, text: str) -> None:
    numbers = [each for each in all_settings() if each.type in (int, float)]
    assert len(numbers) > 25
    for each in numbers:
        assert f"setting {each.name} (flag {each.flag}): expected" in refusal({each.name: text}, {}, tmp_path)


@pytest.mark.parametrize("text", ["auth = 1", "port = true", "port = 1.5", "cors_origins = [1]", "port", "\xff"])
def test_an_error_in_the_file_is_refused_with_the_files_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_bytes(text.encode("latin-1"))
    assert str(file) in refusal({}, {}, tmp_path)


def test_a_missing_file_is_refused_if_it_was_named(tmp_path: Path) -> None:
    assert "cannot read the configuration file" in refusal({"config": str(tmp_path / "no.toml")}, {}, tmp_path)
    assert "cannot read the configuration file" in refusal({"config": str(tmp_path)}, {}, tmp_path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_keys_cannot_be_off_on_an_address_that_others_can_reach(tmp_path: Path, host: str) -> None:
    message = refusal({"auth": False, "host": host}, {}, tmp_path)
    assert message.startswith(f"keys are off (flag --auth), but the server would listen on {host} (flag --host)")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "::1"])
def test_keys_can_be_off_on_loopback(tmp_path: Path, host: str) -> None:
    assert load({"auth": False, "host": host}, {}, folder=tmp_path).settings.is_loopback


@pytest.mark.parametrize(
    "name", ["", "localhost.evil.example", "127.0.0.1.evil.example", "0177.0.0.1", "2130706433", "::ffff:192.0.2.1"]
)
def test_names_that_only_look_like_loopback_are_not(name: str) -> None:
    assert not is_loopback(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cors_origins", "app.example"),
        ("cors_origins", "https://app.example/"),
        ("cors_origins", "ftp://app.example"),
        ("aap_path", "aap"),
        ("aap_path", "/aap/"),
        ("agentscope_path", "process"),
        ("mcp_path", "mcp"),
        ("agentscope_path", "/process/"),
        ("otel_endpoint", "collector:4318"),
    ],
)
def test_a_value_that_could_never_work_is_refused(tmp_path: Path, name: str, text: str) -> None:
    message = refusal({name: text}, {}, tmp_path)
    assert message.startswith(f"setting {name} (flag --{name.replace('_', '-')}): expected ")
    assert message.endswith(f"got {text!r}")


def test_without_keys_not_every_origin_can_be_allowed(tmp_path: Path) -> None:
    assert "cors_origins" in refusal({"auth": False, "cors_origins": "*"}, {}, tmp_path)


# --- showing settings -------------------------------------------------------------------------------------------------


def test_the_output_of_config_show_is_a_file_with_the_same_settings(tmp_path: Path) -> None:
    chosen = {"port": "1234", "cors_origins": "https://a.example", "default_model": "openai:x", "drain_s": "0.5"}
    loaded = load(chosen, {}, folder=tmp_path)
    output = format_settings(loaded)
    again = load({"config": str(write(tmp_path, output))}, {}, folder=tmp_path)
    assert again.settings == loaded.settings
    assert re.search(r"^port = 1234 +# flag --port$", output, re.MULTILINE)
    assert set(tomllib.loads(output)) | set(re.findall(r"^# (\w+) is not set", output, re.MULTILINE)) == {
        setting.name for setting in all_settings()
    }


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    loaded = load({}, {"DRAGOMAN_OTEL_HEADERS": f"authorization={CANARY}"}, folder=tmp_path)
    assert 'otel_headers = "***"' in format_settings(loaded)
    assert CANARY not in format_settings(loaded)
    write(tmp_path, f"otel_headers = ['{CANARY}']")
    assert CANARY not in refusal({}, {}, tmp_path)


def test_settings_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]  # deliberately wrong
    assert msgspec.structs.replace(Settings(), port=1).port == 1


# --- documentation ----------------------------------------------------------------------------------------------------


def test_the_docs_have_a_row_for_every_setting_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name: (default, text) for name, default, text in rows}
    expected = {}
    for setting in all_settings():
        default = "—" if setting.default in (None, ()) else f"`{as_toml(setting.default)}`"
        expected[setting.name] = (default, f"{setting.description} ({describe_expected_value(setting)})")
    missing = [
        f"| `{name}` | {default} | {text} |"
        for name, (default, text) in expected.items()
        if documented.get(name) != (default, text)
    ]
    assert "\n".join(missing) == ""
    assert sorted(documented) == sorted(expected)
