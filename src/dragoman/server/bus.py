"""Opens the bus that the settings ask for: in process, through PostgreSQL, or over NATS."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dragoman.buses.local import LocalBus
from dragoman.ports.bus import Bus
from dragoman.settings import Settings, SettingsError
from dragoman.stores.encryption import SECRETS_KEY, load_keys

if TYPE_CHECKING:
    from dragoman.buses.nats import NatsBus


class OpenedBus(NamedTuple):
    """The bus, and the NATS connection behind it if there is one, for readiness and metrics."""

    bus: Bus
    nats: "NatsBus | None" = None


def open_bus(settings: Settings, database_url: str | None, stack: AsyncExitStack) -> OpenedBus:
    """Open the bus.

    Args:
        settings: whether NATS is used, and how.
        database_url: the PostgreSQL database that several servers share; None with SQLite.
        stack: closes the bus.

    Raises:
        SettingsError: the NATS settings cannot be used. A NATS server that cannot be reached yet is not an error.
    """
    if settings.nats is not None:
        nats = _make_nats_bus(settings, settings.nats)
        nats.start()
        stack.push_async_callback(nats.close)
        return OpenedBus(nats, nats)
    if database_url is None:
        return OpenedBus(LocalBus())
    from dragoman.buses.postgres import PostgresBus

    bus = PostgresBus(database_url)
    bus.start()
    stack.push_async_callback(bus.close)
    return OpenedBus(bus)


def _make_nats_bus(settings: Settings, url: str) -> "NatsBus":
    try:
        from dragoman.buses.nats import NatsBus
    except ModuleNotFoundError as error:
        raise SettingsError(
            "NATS is configured, but its driver is not installed: pip install 'dragoman[nats]', or in a checkout"
            " make run EXTRAS=nats"
        ) from error
    key, *_ = load_keys(settings.folder / SECRETS_KEY)
    credentials = _check_nats_credentials(settings)
    try:
        return NatsBus(url, subject=settings.nats_subject, key=key, credentials=credentials)
    except ValueError as error:
        raise SettingsError(f"setting nats: {error}") from error


def _check_nats_credentials(settings: Settings) -> Path | None:
    """The credentials file, if one is configured; read once, so that a bad file fails the start."""
    if settings.nats_credentials is None:
        return None
    from dragoman.buses.nats_credentials import read_credentials

    path = Path(settings.nats_credentials).expanduser()
    try:
        read_credentials(path)
    except (OSError, ValueError) as error:
        raise SettingsError(f"setting nats_credentials: {path}: {error}") from error
    return path
