"""Which server the terminal talks to, and with which key: what was given, or else the one that runs on this machine."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

from dragoman.server.bootstrap_key import KEY_FILE
from dragoman.settings import Settings, is_loopback

CONNECT_TIMEOUT_S = 10.0


class CommandError(Exception):
    """There is no server to talk to; the message says what to do."""


def resolve_url(address: str | None, settings: Settings) -> str:
    """The address: the one that was given, or that of a server with these settings. Raises NoPlace."""
    if address:
        url = (address if "://" in address else f"http://{address}").rstrip("/")
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise CommandError(f"an address such as http://127.0.0.1:8000 was expected, got {address!r}")
        return url
    if not settings.port:
        raise CommandError("the server's port is chosen when it starts: give the address that its line `ready` shows")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104  # it is not bound
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def resolve_key(key: str | None, url: str, folder: Path) -> str | None:
    """The key: the one that was given (`@FILE`: in a file), or the data folder's first one.

    That one goes to this machine alone: another's server has no business with it.

    Raises:
        NoPlace: the file cannot be read.
    """
    if key and key.startswith("@"):
        try:
            return Path(key[1:]).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"the key's file cannot be read: {error}") from error
    if key or not is_loopback(urlsplit(url).hostname or ""):
        return key or None
    try:
        return (folder / KEY_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None  # a server without keys, or it says what is missing


def check_reachable(url: str) -> None:
    """See whether somebody listens there, before anything is asked that would wait for it. Raises NoPlace."""
    address = urlsplit(url)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        because = getattr(error, "strerror", None) or error
        raise CommandError(
            f"no server answers at {url}: {because}. Start one with: dragoman serve --first-key"
        ) from error
