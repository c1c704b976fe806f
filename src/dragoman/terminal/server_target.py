"""Finds the server and the API key: those given on the command line, or those of the server on this machine."""

import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from dragoman.server.bootstrap_key import ADDRESS_FILE, KEY_FILE
from dragoman.settings import Settings, is_loopback

CONNECT_TIMEOUT_S = 10.0


class CommandError(Exception):
    """A command cannot continue. The message says why and what to do."""


class InvalidArgument(CommandError):
    """An argument is invalid. The message says what is expected."""


def resolve_url(address: str | None, settings: Settings) -> str:
    """The server's address.

    It is the given one, that of the server started last on the data folder, or the one that a server with these
    settings would have.

    Raises:
        InvalidArgument: the given address is not one.
        CommandError: none is known.
    """
    if address:
        url = (address if "://" in address else f"http://{address}").rstrip("/")
        try:
            is_valid = urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname
        except ValueError:  # such as a bracket that is not closed
            is_valid = False
        if not is_valid:
            raise InvalidArgument(f"expected an address such as http://127.0.0.1:8000, got {address!r}")
        return url
    with suppress(OSError, UnicodeDecodeError):
        return (settings.folder / ADDRESS_FILE).read_text(encoding="utf-8").strip()
    if not settings.port:
        raise CommandError("the server chooses its port at the start: pass the address from its line `ready …`")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104  # not used to bind
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def resolve_key(key: str | None, url: str, folder: Path) -> str | None:
    """The API key: the given one (`@FILE` reads it from a file), or the first key in the data folder.

    The data folder's key is sent to addresses of this machine only.

    Raises:
        CommandError: the file cannot be read.
    """
    if key and key.startswith("@"):
        try:
            return Path(key[1:]).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read the key from a file: {error}") from error
    if key or not is_loopback(urlsplit(url).hostname or ""):
        return key or None
    try:
        return (folder / KEY_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None  # the server may have keys off; otherwise it refuses the request


def check_reachable(url: str) -> None:
    """Check that the server accepts connections, so that a wrong address fails at once. Raises CommandError."""
    address = urlsplit(url)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        is_local = is_loopback(address.hostname or "")
        advice = "Start one with: dragoman serve --first-key" if is_local else "Check the address"
        raise CommandError(f"no server answers at {url}: {reason}. {advice}") from error
