"""The layout of help texts: commands by what they are for, and the flags of settings by subject."""

from collections.abc import Sequence
from typing import Any

import click

from dragoman.settings import SUBJECTS, SettingInfo

DEVELOP = ("init", "dev", "chat")
"""The commands for writing an agent, in the order of use. All others are for operating a server."""
OPERATE = ("serve", "keys", "users", "sessions", "config", "check", "copy", "migrate")


class ProgramGroup(click.Group):
    """The program: its help fits a terminal of 24 lines and 80 columns."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first, then the options."""
        for title, names in (("Write an agent", DEVELOP), ("Operate a server", self._operating())):
            commands = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(title):
                width = formatter.width - 4 - max(map(len, (*DEVELOP, *self._operating())))
                formatter.write_dl(
                    [(name, each.get_short_help_str(width)) for name, each in commands.items() if each is not None]
                )
        click.Command.format_options(self, ctx, formatter)

    def _operating(self) -> Sequence[str]:
        others = [name for name in self.commands if name not in (*DEVELOP, *OPERATE)]
        return [*(name for name in OPERATE if name in self.commands), *others]


class SettingFlag(click.Option):
    """The flag of a setting."""

    def __init__(self, *arguments: Any, setting: SettingInfo, **options: Any) -> None:  # noqa: ANN401  # click's
        super().__init__(*arguments, **options)
        self.setting = setting


class SettingsCommand(click.Command):
    """A command with the flags of settings, which are grouped by subject in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags of each subject under its title."""
        subjects: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *SUBJECTS.values())}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = parameter.setting.subject if isinstance(parameter, SettingFlag) else "Options"
                subjects[title].append(record)
        for title, records in subjects.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
