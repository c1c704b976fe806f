"""Which server the terminal talks to, and with which key: what was given, or else the one that runs on this machine."""

import socket
from pathlib import Path
from urllib.parse import urlsplit

from dragoman.server.bootstrap_key import FILE
from dragoman.settings import Settings, is_loopback

PATIENCE_S = 10.0


class NoPlace(Exception):
    """There is no server to talk to; the message says what to do."""


def url_for(given: str | None, settings: Settings) -> str:
    """The address: the one that was given, or that of a server with these settings. Raises NoPlace."""
    if given:
        url = (given if "://" in given else f"http://{given}").rstrip("/")
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise NoPlace(f"an address such as http://127.0.0.1:8000 was expected, got {given!r}")
        return url
    if not settings.port:
        raise NoPlace("the server's port is chosen when it starts: give the address that its line `ready` shows")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104  # it is not bound
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def key_for(given: str | None, url: str, folder: Path) -> str | None:
    """The key: the one that was given (`@FILE`: in a file), or the data folder's first one.

    That one goes to this machine alone: another's server has no business with it.

    Raises:
        NoPlace: the file cannot be read.
    """
    if given and given.startswith("@"):
        try:
            return Path(given[1:]).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NoPlace(f"the key's file cannot be read: {error}") from error
    if given or not is_loopback(urlsplit(url).hostname or ""):
        return given or None
    try:
        return (folder / FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None  # a server without keys, or it says what is missing


def knock(url: str) -> None:
    """See whether somebody listens there, before anything is asked that would wait for it. Raises NoPlace."""
    address = urlsplit(url)
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=PATIENCE_S).close()
    except (OSError, ValueError) as error:
        because = getattr(error, "strerror", None) or error
        raise NoPlace(f"no server answers at {url}: {because}. Start one with: dragoman serve --first-key") from error
