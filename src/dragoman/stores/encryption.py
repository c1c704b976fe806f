"""The keys in the data folder, and secrets at rest: AES-256-GCM with one of them."""

import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dragoman.stores import atomic_files

SECRETS_KEY = "secrets.key"
"""Encrypts the values of secret options and what servers send over NATS, and gives the pepper of API keys."""
LINKS_KEY = "links.key"
"""Signs links to uploaded images."""
KEY_FILES = (SECRETS_KEY, LINKS_KEY)
_NONCE_BYTES = 12
KEY_BYTES = 32
_CONTEXT = b"dragoman secret option"


class FileCipher:
    """`Cipher` with its keys in a file that only the server's user may read. The first use creates the key."""

    def __init__(self, path: Path) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 40 ms that most starts save

        self._current, *self._older = [AESGCM(key) for key in load_keys(path)]

    def encrypt(self, plaintext: str) -> str:
        """Encrypt a secret."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._current.encrypt(nonce, plaintext.encode("utf-8", "surrogatepass"), _CONTEXT)
        return urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, ciphertext: str) -> str:
        """Decrypt a secret. Raises ValueError if it was encrypted with another key."""
        from cryptography.exceptions import InvalidTag

        raw = urlsafe_b64decode(ciphertext)
        for key in (self._current, *self._older):
            with suppress(InvalidTag):
                return key.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _CONTEXT).decode("utf-8", "surrogatepass")
        raise ValueError("this secret was encrypted with another key")


class LazyCipher:
    """A `FileCipher` that is created when the first secret is encrypted or decrypted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cipher: FileCipher | None = None

    def encrypt(self, plaintext: str) -> str:
        """Encrypt a secret."""
        return self._get_cipher().encrypt(plaintext)

    def decrypt(self, ciphertext: str) -> str:
        """Decrypt a secret. Raises ValueError if it was encrypted with another key."""
        return self._get_cipher().decrypt(ciphertext)

    def _get_cipher(self) -> FileCipher:
        if self._cipher is None:
            self._cipher = FileCipher(self._path)
        return self._cipher


def derive_key(key: bytes, purpose: bytes) -> bytes:
    """A key for another purpose, which reveals nothing about this one.

    Source: RFC 5869, HKDF with SHA-256, no salt and one block. Written out, because every start derives one, and
    importing `cryptography` takes 40 ms.
    """
    return hmac.digest(hmac.digest(bytes(KEY_BYTES), key, "sha256"), purpose + b"\x01", "sha256")


def load_keys(path: Path) -> Sequence[bytes]:
    """Read the keys from a file, the current one first. The first use creates one.

    Raises:
        ValueError: the file does not consist of keys.
    """
    content = load_or_create_key(path)
    if not content or len(content) % KEY_BYTES:
        raise ValueError(f"{path}: expected one or more keys of {KEY_BYTES} bytes each, got {len(content)} bytes")
    return [content[start : start + KEY_BYTES] for start in range(0, len(content), KEY_BYTES)]


def rotate_key(path: Path) -> None:
    """Make a new current key. Those before remain valid for what they have encrypted or signed."""
    atomic_files.write(path, os.urandom(KEY_BYTES) + b"".join(load_keys(path)))


def load_or_create_key(path: Path) -> bytes:
    """Read the content of a key file. The first use creates one random key.

    Only a process that holds the folder's lock may create it.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        key = os.urandom(KEY_BYTES)
    atomic_files.write(path, key)
    return key
