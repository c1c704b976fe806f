"""Commands that work on a whole database: `migrate`, `check`, `backup`, `restore`, `compact` and `copy`."""

from pathlib import Path

import click

from dragoman.cli.options import CliError, FlagValue, load_settings, settings_flags


@click.command(short_help="Migrate the database without serving.")
@settings_flags("data", "database")
def migrate(**flags: FlagValue) -> None:
    """Migrate the database without serving, for example as a separate step of an upgrade."""
    settings = load_settings(flags).settings
    from dragoman.cli.database import DatabaseCommandError, migrate_database
    from dragoman.server.logging import configure_logging

    configure_logging("console", "error")
    try:
        before, now = migrate_database(settings)
    except DatabaseCommandError as error:
        raise CliError(str(error)) from error
    click.echo(f"schema {now}" if before == now else f"schema {now}, was {before}")


@click.command(short_help="Check that the database is intact.")
@settings_flags("data", "database")
@click.option("--repair", is_flag=True, help="quarantine damaged sessions, and export their intact events")
@click.option(
    "--accept-loss", is_flag=True, help="continue without the changes that a damaged write-ahead log has lost"
)
def check(repair: bool, accept_loss: bool, **flags: FlagValue) -> None:
    """Check that the database is intact: its structure, and every event of every session.

    No server may use it, except with PostgreSQL and without --repair. Exits with 1 if something is damaged.

    With --repair, damaged sessions are put into quarantine: they can be deleted, and nothing else. Their events before
    the damage are written to quarantine/ID.json in the data folder.
    """
    settings = load_settings(flags).settings
    from dragoman.cli.database import DatabaseCommandError, check_database
    from dragoman.server.logging import configure_logging

    configure_logging("console", "error")
    try:
        report = check_database(settings, repair=repair, accept_loss=accept_loss)
    except DatabaseCommandError as error:
        raise CliError(str(error)) from error
    for problem in (*report.repaired, *report.problems):
        click.echo(problem)
    click.echo(f"{report.sessions} sessions with {report.events} events checked", err=True)
    if report.problems:
        found = "1 problem" if len(report.problems) == 1 else f"{len(report.problems)} problems"
        raise CliError(f"{found}: restore a backup, or run dragoman check --repair")


@click.command(short_help="Back up everything into one file.")
@click.argument("file", type=click.Path(path_type=Path))
@settings_flags("data", "database", "blobs")
def backup(file: Path, **flags: FlagValue) -> None:
    """Back up everything into a new FILE: sessions, API keys, attachments, encryption keys. Servers may be running.

    The file is checked before it gets its name. It contains the encryption keys: store it as safely as the data folder.
    """
    settings = load_settings(flags).settings
    from dragoman.cli.database import DatabaseCommandError, backup_database
    from dragoman.server.logging import configure_logging

    configure_logging("console", "error")
    try:
        manifest = backup_database(settings, file, _print_progress)
    except DatabaseCommandError as error:
        raise CliError(str(error)) from error
    click.echo(f"backed up to {file}: {manifest}")


@click.command(short_help="Restore a backup into an empty store.")
@click.argument("file", type=click.Path(path_type=Path))
@settings_flags("data", "database", "blobs")
def restore(file: Path, **flags: FlagValue) -> None:
    """Restore a backup into a new data folder, or an empty database.

    A backup of SQLite can be restored into PostgreSQL, and the other way round. Everything is checked first: if that
    fails, nothing has been changed. Stop the server that was backed up before you start one on the copy: both would
    continue the same runs.
    """
    settings = load_settings(flags).settings
    from dragoman.cli.database import DatabaseCommandError, restore_database
    from dragoman.server.logging import configure_logging

    configure_logging("console", "error")
    try:
        manifest = restore_database(settings, file, _print_progress)
    except DatabaseCommandError as error:
        raise CliError(str(error)) from error
    click.echo(f"restored from {file} of {manifest.created_at:%Y-%m-%d %H:%M} UTC: {manifest}")


@click.command(short_help="Give the space of deleted sessions back.")
@settings_flags("data", "database")
def compact(**flags: FlagValue) -> None:
    """Give the space of deleted sessions back to the file system.

    No server may use the database. It needs free space for a second copy of the database while it runs.
    """
    settings = load_settings(flags).settings
    from dragoman.cli.database import DatabaseCommandError, compact_database
    from dragoman.server.logging import configure_logging

    configure_logging("console", "error")
    try:
        before, after = compact_database(settings)
    except DatabaseCommandError as error:
        raise CliError(str(error)) from error
    click.echo(f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")


def _print_progress(step: str, done: int, total: int) -> None:
    click.echo(f"{step}: {done} of {total}", err=True)


@click.command(short_help="Copy everything to another database.")
@click.option("--from", "source", metavar="STORE", required=True, help="data folder, or address of a database")
@click.option("--to", "target", metavar="STORE", required=True, help="the same; must be empty")
@click.option("--from-blobs", metavar="ADDRESS", help="bucket with the source's attachments, s3://…")
@click.option("--to-blobs", metavar="ADDRESS", help="bucket for the target's attachments; must be empty")
def copy(source: str, target: str, from_blobs: str | None, to_blobs: str | None) -> None:
    """Copy everything to another store, from SQLite to PostgreSQL or back, and compare every session.

    No server may use either of them. The encryption keys are not copied: copy secrets.key and links.key to the new data
    folder yourself.
    """
    from dragoman.cli.database import DatabaseCommandError, copy_database
    from dragoman.server.logging import configure_logging

    configure_logging("console", "error")
    try:
        counts = copy_database(
            source,
            target,
            _print_progress,
            source_blobs=from_blobs,
            target_blobs=to_blobs,
        )
    except DatabaseCommandError as error:
        raise CliError(str(error)) from error
    click.echo(f"copied and compared: {counts}")
