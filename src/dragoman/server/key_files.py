"""The keys in the data folder. Data can be used only with the keys it was written with, which is checked at start."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from dragoman.core.key_digests import KeyHasher
from dragoman.ports.stores import KeyFingerprints
from dragoman.settings import UnusableData
from dragoman.stores.encryption import KEY_FILES, SECRETS_KEY, derive_key, load_keys, rotate_key

_PEPPER = b"dragoman pepper of API keys"
_COPY = f"copy {' and '.join(KEY_FILES)} from a backup, or from the data folder of another server on this database."
_WHAT_TO_DO = f"{_COPY} If they are lost: dragoman keys rotate --lost"


async def check_key_files(folder: Path, fingerprints: KeyFingerprints) -> None:
    """Check that the keys in a data folder are those with which the data was written.

    The first start creates them.

    Raises:
        UnusableData: a key is missing, or is another one.
    """
    for name in KEY_FILES:
        path = folder / name
        registered = await fingerprints.find(name)
        if registered is not None and not path.exists():
            raise UnusableData(f"{path} is missing, and the data was written with it: {_WHAT_TO_DO} {name}")
        keys = _load(path)
        fingerprint = fingerprint_of(name, *keys)
        registered = await fingerprints.register(name, fingerprint)
        if registered == fingerprint_of(name, *keys[1:]):
            raise UnusableData(f"the rotation of {path} was interrupted: run dragoman keys rotate {name} again")
        if registered != fingerprint:
            raise UnusableData(
                f"{path} has the fingerprint {fingerprint}, and the data was written with {registered}: {_WHAT_TO_DO}"
                f" {name}"
            )


def load_key_hasher(folder: Path) -> KeyHasher:
    """What computes the digests of API keys, with peppers derived from `secrets.key`, which is created if needed."""
    return KeyHasher(*(derive_key(key, _PEPPER) for key in _load(folder / SECRETS_KEY)))


async def find_key_hasher(folder: Path, fingerprints: KeyFingerprints) -> KeyHasher:
    """That of the servers, for a command on their database. Without their `secrets.key` its digests are plain."""
    path = folder / SECRETS_KEY
    if path.exists() and await fingerprints.find(SECRETS_KEY) == fingerprint_of(SECRETS_KEY, *_load(path)):
        return load_key_hasher(folder)
    return KeyHasher()


async def rotate(folder: Path, name: str, fingerprints: KeyFingerprints, *, is_lost: bool = False) -> str:
    """Make a new current key in a data folder that no server uses. Returns the fingerprint of the file.

    A rotation that was interrupted after the key was written is finished, with that key.

    Args:
        folder: the data folder.
        name: the key's file.
        fingerprints: those of the data, to which the new one is written.
        is_lost: continue with the keys of the folder, whatever the data was written with.

    Raises:
        UnusableData: the folder has no such key, or it is not the one with which the data was written.
    """
    path = folder / name
    if is_lost:
        fingerprint = fingerprint_of(name, *_load(path))
        await fingerprints.replace(name, fingerprint)
        return fingerprint
    if not path.exists():
        raise UnusableData(f"{path} does not exist: name the data folder of a server with --data")
    keys = _load(path)
    fingerprint = fingerprint_of(name, *keys)
    registered = await fingerprints.find(name) or fingerprint
    if registered == fingerprint:
        rotate_key(path)
        fingerprint = fingerprint_of(name, *_load(path))
    elif registered != fingerprint_of(name, *keys[1:]):
        raise UnusableData(f"{path} is not the key with which the data was written: {_WHAT_TO_DO} {name}")
    await fingerprints.replace(name, fingerprint)
    return fingerprint


def _load(path: Path) -> Sequence[bytes]:
    try:
        return load_keys(path)
    except ValueError as error:
        what_to_do = f"{_COPY} If it is lost: delete the file and run dragoman keys rotate --lost {path.name}"
        raise UnusableData(f"{error}: {what_to_do}") from error


def fingerprint_of(name: str, *keys: bytes) -> str:
    """A digest that tells the keys of a file apart and reveals nothing about them."""
    return hashlib.sha256(f"dragoman {name}\n".encode() + b"".join(keys)).hexdigest()[:16]
