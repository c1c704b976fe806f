"""NATS credentials from a file: a user's JWT and seed (`.creds`), or a seed alone (an NKey).

The file is read for each connection, so that credentials can be changed while the server runs.
Source: docs.nats.io, "NKeys" and "Decentralized JWT authentication"; github.com/nats-io/nkeys for the text forms.
"""

import binascii
import re
from base64 import b32decode, b32encode, b64encode
from pathlib import Path
from typing import NamedTuple

_SEED_PREFIX, _USER_PREFIX = 18 << 3, 20 << 3
"""Prefixes of an encoded seed and of a user's public key."""
_JWT = re.compile(r"-+BEGIN NATS USER JWT-+\s+(\S+)\s+-+END NATS USER JWT-+")
_NKEY = re.compile(r"-+BEGIN USER NKEY SEED-+\s+(\S+)\s+-+END USER NKEY SEED-+")


class Credentials(NamedTuple):
    """A user. `jwt` is None if NATS identifies users by their keys."""

    jwt: str | None
    seed: bytes

    @property
    def public_key(self) -> str:
        """The user's public key, `U…`."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        raw = bytes((_USER_PREFIX,)) + Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        return b32encode(raw + _checksum(raw)).decode().rstrip("=")

    def sign(self, nonce: str) -> bytes:
        """Sign the challenge of NATS."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return b64encode(Ed25519PrivateKey.from_private_bytes(self.seed).sign(nonce.encode()))


def read_credentials(path: Path) -> Credentials:
    """Read a credentials file.

    Raises:
        ValueError: it is not such a file; the message contains nothing of it.
        OSError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="ascii")
    except UnicodeDecodeError:
        text = ""
    jwt, nkey = _JWT.search(text), _NKEY.search(text)
    if jwt is not None and nkey is not None:
        return Credentials(jwt[1], _decode_seed(nkey[1]))
    if jwt is not None or nkey is not None:
        raise ValueError("expected a user's JWT and a seed, and found one of them")
    return Credentials(None, _decode_seed(text.strip()))


def _decode_seed(text: str) -> bytes:
    try:
        raw = b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raw = b""
    kind = (raw[0] & 0b111) << 5 | raw[1] >> 3 if len(raw) == 36 else 0
    if len(raw) != 36 or raw[0] & 0xF8 != _SEED_PREFIX or kind != _USER_PREFIX or _checksum(raw[:-2]) != raw[-2:]:
        raise ValueError("expected a user's seed, which begins with SU")
    return raw[2:34]


def _checksum(raw: bytes) -> bytes:
    """CRC-16 (XMODEM), little-endian."""
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")
