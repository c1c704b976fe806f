"""What all commands share: the flags of settings, and errors, which are printed on one line."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import click

from dragoman.cli.help import SettingFlag
from dragoman.settings import SettingInfo, SettingsError, all_settings
from dragoman.settings_loading import LoadedSettings, as_toml, load

F = TypeVar("F", bound=Callable[..., Any])
FlagValue = str | bool | None
"""The value of a setting's flag; None if it was not given."""


class CliError(click.ClickException):
    """A command failed."""

    exit_code = 1

    def show(self, file: Any = None) -> None:  # noqa: ANN401  # click's signature
        """Print the error on one line."""
        click.echo(f"dragoman: {self.message}", err=True)


class CliUsageError(CliError):
    """The arguments of a command are invalid."""

    exit_code = 2


def settings_flags(*only: str) -> Callable[[F], F]:
    """Add a flag for each setting, or for those named in `only`, and `--config` for the file."""

    def add(command: F) -> F:
        for setting in reversed(all_settings()):
            if setting.name != "agents" and (not only or setting.name in only):
                command = _flag(setting)(command)
        return click.option("--config", metavar="FILE", help="TOML file  [dragoman.toml, if it exists]")(command)

    return add


def _flag(setting: SettingInfo) -> Callable[[F], F]:
    is_switch = "bool" in str(setting.type)
    name = f"{setting.flag}/--no-{setting.flag[2:]}" if is_switch else setting.flag
    default = "" if setting.default in (None, ()) else f"  [{as_toml(setting.default)}]"
    text = setting.description.replace("`", "")
    return click.option(
        name,
        setting.name,
        default=None,
        help=text + default,
        metavar=_metavar(setting),
        cls=SettingFlag,
        setting=setting,
    )


def _metavar(setting: SettingInfo) -> str:
    """What stands for the value in the help: all values if there are few, as in click's own choices."""
    kind = get_origin(setting.type)
    if kind is Literal:
        return f"[{'|'.join(get_args(setting.type))}]"
    return "VALUE,..." if kind is tuple else "VALUE"


def load_settings(flags: Mapping[str, object]) -> LoadedSettings:
    """Load the settings. Raises CliUsageError if one is invalid."""
    try:
        return load(flags, os.environ)
    except SettingsError as error:
        raise CliUsageError(str(error)) from error
