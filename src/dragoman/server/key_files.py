"""The keys in the data folder. All servers of one database need the same ones, which is checked at start."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dragoman.settings import SettingsError
from dragoman.stores.encryption import load_keys, rotate_key

SECRETS_KEY = "secrets.key"
"""Encrypts the values of secret options, and what servers send over NATS."""
LINKS_KEY = "links.key"
"""Signs links to uploaded images."""
KEY_FILES = (SECRETS_KEY, LINKS_KEY)


class KeyFingerprints(Protocol):
    """The fingerprints in a database, by the names of the files. The first server registers them."""

    async def find(self, name: str) -> str | None:
        """The registered fingerprint of a key."""

    async def register(self, name: str, fingerprint: str) -> str:
        """Register a fingerprint unless there is one. Returns the one that counts."""

    async def replace(self, name: str, fingerprint: str) -> None:
        """Register a fingerprint in place of the present one."""


async def check_key_files(folder: Path, fingerprints: KeyFingerprints) -> None:
    """Check that the keys in a data folder are those of the other servers on the database.

    The first server creates them.

    Raises:
        SettingsError: a key is missing, or is another one.
    """
    for name in KEY_FILES:
        path = folder / name
        registered = await fingerprints.find(name)
        if registered is not None and not path.exists():
            raise SettingsError(
                f"{path} is missing: the servers of this database share the keys of fingerprint {registered};"
                f" copy {' and '.join(KEY_FILES)} from the data folder of another server"
            )
        keys = _load(path)
        fingerprint = fingerprint_of(name, *keys)
        registered = await fingerprints.register(name, fingerprint)
        if registered == fingerprint_of(name, *keys[1:]):
            raise SettingsError(f"the rotation of {path} was interrupted: run dragoman keys rotate {name} again")
        if registered != fingerprint:
            raise SettingsError(
                f"{path} has the fingerprint {fingerprint}, and the other servers of this database have {registered};"
                f" copy {' and '.join(KEY_FILES)} from the data folder of another server"
            )


async def rotate(folder: Path, name: str, fingerprints: KeyFingerprints | None) -> str:
    """Make a new current key in a data folder that no server uses. Returns the fingerprint of the file.

    A rotation that was interrupted after the key was written is finished, with that key.

    Args:
        folder: the data folder.
        name: the key's file.
        fingerprints: those of the database that several servers share, to which the new one is written.

    Raises:
        SettingsError: the folder has no such key, or it is not the one of the database's servers.
    """
    path = folder / name
    if not path.exists():
        raise SettingsError(f"{path} does not exist: name the data folder of a server with --data")
    keys = _load(path)
    fingerprint = fingerprint_of(name, *keys)
    registered = fingerprint if fingerprints is None else await fingerprints.find(name) or fingerprint
    if registered == fingerprint:
        rotate_key(path)
        fingerprint = fingerprint_of(name, *_load(path))
    elif registered != fingerprint_of(name, *keys[1:]):
        raise SettingsError(f"{path} is not the key of this database's servers: name the data folder of one of them")
    if fingerprints is not None:
        await fingerprints.replace(name, fingerprint)
    return fingerprint


def _load(path: Path) -> Sequence[bytes]:
    try:
        return load_keys(path)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def fingerprint_of(name: str, *keys: bytes) -> str:
    """A digest that tells the keys of a file apart and reveals nothing about them."""
    return hashlib.sha256(f"dragoman {name}\n".encode() + b"".join(keys)).hexdigest()[:16]
