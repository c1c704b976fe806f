"""The layout of help texts: commands by what they are for, and the flags of settings by subject."""

from collections.abc import Sequence
from typing import Any

import click

from dragoman.settings import SUBJECTS, SettingInfo

DEVELOP = ("init", "dev", "chat")
"""The commands for writing an agent, in the order of use. All others are for operating a server."""
OPERATE = ("serve", "keys", "users", "sessions", "config")
PAIRS = {
    ("backup", "restore"): "Back up everything into one file; restore it.",
    ("check", "compact"): "Check that the database is intact; free disk space.",
    ("copy", "migrate"): "Copy everything to another database; migrate one.",
}
"""Commands that share a line of the help."""


class ProgramGroup(click.Group):
    """The program: its help fits a terminal of 24 lines and 80 columns."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first, then the options."""
        pairs = [(", ".join(pair), text) for pair, text in PAIRS.items()]
        width = formatter.width - 4 - max(len(names) for names, _ in pairs)
        paired = [name for pair in PAIRS for name in pair]
        others = [name for name in self.commands if name not in (*DEVELOP, *OPERATE, *paired)]
        with formatter.section("Write an agent"):
            formatter.write_dl(self._rows(DEVELOP, width))
        with formatter.section("Operate a server"):
            formatter.write_dl([*self._rows([*OPERATE, *others], width), *pairs])
        click.Command.format_options(self, ctx, formatter)

    def _rows(self, names: Sequence[str], width: int) -> list[tuple[str, str]]:
        return [(name, self.commands[name].get_short_help_str(width)) for name in names]


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
