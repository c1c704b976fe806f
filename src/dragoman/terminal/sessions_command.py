"""`dragoman sessions`: lists, shows and exports sessions, as text in a terminal and as lines of JSON in a pipe."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path

import msgspec

from dragoman.client import Client, ClientError, Message, SessionInfo, Unsupported
from dragoman.client.transports import ClientProtocol
from dragoman.terminal.chat import describe_error, open_session
from dragoman.terminal.formatting import pending_line, strip_control_characters
from dragoman.terminal.screen import Screen
from dragoman.terminal.server_target import CommandError, check_reachable
from dragoman.terminal.table import format_table

MAX_TITLE_CHARACTERS = 60


class SessionExport(msgspec.Struct, frozen=True, kw_only=True):
    """A session with its messages: one line of an export."""

    session: SessionInfo
    messages: tuple[Message, ...]


@contextmanager
def open_client(url: str, key: str | None, protocol: ClientProtocol) -> Iterator[Client]:
    """Open a client. All its errors are raised as CommandError."""
    check_reachable(url)
    try:
        with Client(url, key=key, protocol=protocol) as client:
            yield client
    except Unsupported as error:
        others = " or ".join(each for each in ("aap", "blade") if each != protocol)
        raise CommandError(f"{error} (or use --protocol {others})") from error
    except ClientError as error:
        raise CommandError(describe_error(error)) from error


def list_sessions(client: Client, limit: int | None) -> None:
    """List the sessions, newest first."""
    sessions = islice(client.sessions(), limit)
    if not sys.stdout.isatty():
        for each in sessions:
            _write_json(each)
        return
    rows: list[tuple[str, ...]] = [("ID", "AGENT", "STATUS", "UPDATED", "TITLE")]
    with show_progress("sessions") as count:
        for each in sessions:
            count(len(rows))
            title = strip_control_characters(each.title).replace("\n", " ")
            if len(title) > MAX_TITLE_CHARACTERS:
                title = title[: MAX_TITLE_CHARACTERS - 1] + "…"
            columns = [strip_control_characters(text) for text in (each.id, each.agent, each.status)]
            rows.append((*columns, format_local_time(each.updated_at or each.created_at), title))
    for line in format_table(rows):
        _write_line(line)


def show_session(client: Client, session_id: str, screen: Screen) -> None:
    """Show a session's messages and what it is waiting for."""
    session = open_session(client, session_id)
    info, messages = session.info(), session.history()
    if not sys.stdout.isatty():
        _write_json(SessionExport(session=info, messages=messages))
        return
    summary = [info.id, info.agent, info.status, info.title, format_local_time(info.updated_at or info.created_at)]
    screen.show_note("  ".join(strip_control_characters(each).replace("\n", " ") for each in summary if each))
    for message in messages:
        screen.show_message(message)
    for each in info.pending:
        screen.show_note(f"waiting for {pending_line(each)}")


def export_sessions(client: Client, ids: Sequence[str], output: Path | None) -> None:
    """Export sessions with their messages as lines of JSON; all sessions if none is named."""
    selected: Iterable[str] = ids or (each.id for each in client.sessions())
    if output is None:
        _export(client, selected, _write_json)
        return
    try:
        with output.open("xb") as file:
            try:
                _export(client, selected, lambda exported: file.write(msgspec.json.encode(exported) + b"\n"))
            except BaseException:
                output.unlink()  # a partial export would look like a complete one
                raise
    except FileExistsError as error:
        raise CommandError(f"{output} already exists: name another file") from error
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror}") from error


def _export(client: Client, ids: Iterable[str], write: Callable[[SessionExport], object]) -> None:
    with show_progress("exported") as count:
        for number, each in enumerate(ids, start=1):
            session = open_session(client, each)
            write(SessionExport(session=session.info(), messages=session.history()))
            count(number)


@contextmanager
def show_progress(label: str) -> Iterator[Callable[[int], None]]:
    """Show a counter on standard error if that is a terminal, and erase it at the end."""
    is_terminal = sys.stderr.isatty()

    def count(number: int) -> None:
        if is_terminal:
            sys.stderr.write(f"\r{label}: {number}\x1b[K")
            sys.stderr.flush()

    try:
        yield count
    finally:
        if is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def format_local_time(at: str) -> str:
    """A server's timestamp in this machine's time zone; empty if it is none."""
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""


def _write_json(value: SessionInfo | SessionExport) -> None:
    _write_line(msgspec.json.encode(value).decode())


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")
