"""Who the server is to a NATS with keys, with accounts, and behind TLS."""

import asyncio
import binascii
import json
import os
from base64 import b32encode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from structlog.testing import capture_logs

from dragoman.buses import nats as nats_module
from dragoman.buses.nats import NatsBus
from dragoman.buses.nats_credentials import Credentials, read_credentials
from dragoman.settings import SettingsError
from dragoman.settings_loading import load
from tests.buses.contract import DEADLINE_S, RecordingSubscriber
from tests.buses.nats_server import server

OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3


@pytest.fixture(autouse=True)
def _no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_module, "RETRY_DELAY_S", 0.02)


class Key:
    """A key as NATS's own tools make them, of an operator, an account or a user."""

    def __init__(self, kind: int) -> None:
        self.private = Ed25519PrivateKey.from_private_bytes(os.urandom(32))
        self._kind = kind

    @property
    def public(self) -> str:
        raw = bytes((self._kind,)) + self.private.public_key().public_bytes_raw()
        return b32encode(raw + checksum(raw)).decode().rstrip("=")

    @property
    def seed(self) -> str:
        raw = bytes((18 << 3 | self._kind >> 5, (self._kind & 31) << 3)) + self.private.private_bytes_raw()
        return b32encode(raw + checksum(raw)).decode().rstrip("=")

    def signs(self, name: str, subject: "Key", nats: dict[str, Any]) -> str:
        """A token about another key."""
        claims = {"iss": self.public, "sub": subject.public, "name": name, "iat": 1_700_000_000, "jti": name}
        parts = ({"typ": "JWT", "alg": "ed25519-nkey"}, {**claims, "nats": {**nats, "version": 2}})
        text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        return f"{text}.{_base64(self.private.sign(text.encode()))}"


def checksum(raw: bytes) -> bytes:
    """CRC-16 (XMODEM), little-endian."""
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


async def connected(bus: NatsBus) -> None:
    bus.start()
    async with asyncio.timeout(DEADLINE_S):
        while not bus.is_connected:  # noqa: ASYNC110  # nobody is told but the log
            await asyncio.sleep(0.005)


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine's loopback address, signed by itself, and its key."""
    import ipaddress

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nats of the tests")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


async def test_an_nkey_is_let_in_over_tls_and_another_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, strangers = Key(USER), Key(USER)
    certificate, private = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    (tmp_path / "seed").write_text(ours.seed + "\n")
    (tmp_path / "other").write_text(strangers.seed)
    (tmp_path / "nats.conf").write_text(
        f'tls {{ cert_file: "{certificate}", key_file: "{private}" }}\n'
        f"authorization {{ users: [ {{ nkey: {ours.public}, permissions: {{"
        ' publish: "dragoman.>", subscribe: "dragoman.>" } } ] }\n'
    )
    assert read_credentials(tmp_path / "seed").public_key == ours.public
    with server("-c", str(tmp_path / "nats.conf")) as nats, capture_logs() as logs:
        url = nats.url.replace("nats://", "tls://")
        one, two = (NatsBus(url, credentials=tmp_path / "seed") for _ in range(2))
        stranger = NatsBus(url, credentials=tmp_path / "other")
        await connected(one)
        await connected(two)
        ear = RecordingSubscriber(two, "log")
        one.publish("log", "over TLS")
        assert await ear.until("over TLS") == ["over TLS"]
        stranger.start()
        async with asyncio.timeout(DEADLINE_S):
            while not any(each["event"] == "cannot reach the bus" for each in logs):  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.005)
        assert not stranger.is_connected
        for bus in (one, two, stranger):
            await bus.close()
    assert ours.seed not in str(logs)
    assert strangers.seed not in str(logs)


async def test_credentials_of_an_account_are_let_in_and_accounts_are_apart(tmp_path: Path) -> None:
    operator, accounts, users = Key(OPERATOR), (Key(ACCOUNT), Key(ACCOUNT)), (Key(USER), Key(USER))
    unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    tokens = [
        operator.signs(f"account{place}", each, {"type": "account", "limits": {**unlimited, "wildcards": True}})
        for place, each in enumerate(accounts)
    ]
    preload = ", ".join(f"{each.public}: {token}" for each, token in zip(accounts, tokens, strict=True))
    (tmp_path / "nats.conf").write_text(
        f"operator: {operator.signs('operator', operator, {'type': 'operator'})}\n"
        f"resolver: MEMORY\nresolver_preload: {{ {preload} }}\n"
    )
    for account, user, name in zip(accounts, users, ("one", "two"), strict=True):
        jwt = account.signs(name, user, {"type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1})
        (tmp_path / f"{name}.creds").write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )
    with server("-c", str(tmp_path / "nats.conf")) as nats:
        here, there, elsewhere = (
            NatsBus(nats.url, credentials=tmp_path / f"{name}.creds") for name in ("one", "one", "two")
        )
        for bus in (here, there, elsewhere):
            await connected(bus)
        heard, not_heard = RecordingSubscriber(there, "log"), RecordingSubscriber(elsewhere, "log")
        here.publish("log", "ours")
        elsewhere.publish("log", "theirs")
        await heard.until("ours")
        await not_heard.until("theirs")
        assert (heard.received, not_heard.received) == (["ours"], ["theirs"])
        for bus in (here, there, elsewhere):
            await bus.close()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "SU" + "A" * 56,
        Key(ACCOUNT).seed,
        Key(USER).public,
        Key(USER).seed[:-1],
        "-----BEGIN NATS USER JWT-----\nabc\n------END NATS USER JWT------\n",
        "\u00e9",
    ],
    ids=["empty", "no checksum", "of an account", "public", "cut", "no seed", "no text"],
)
def test_what_holds_no_credentials_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(ValueError, match=r"^expected a user's") as refused:
        read_credentials(tmp_path / "file")
    assert not content or content not in str(refused.value)


def test_a_seed_reads_back_as_it_was_written(tmp_path: Path) -> None:
    key = Key(USER)
    (tmp_path / "file").write_text(key.seed)
    assert read_credentials(tmp_path / "file") == Credentials(None, key.private.private_bytes_raw())


def test_credentials_without_nats_are_refused_with_what_to_do() -> None:
    with pytest.raises(SettingsError, match=r"setting nats_credentials .*: only used with NATS: set nats too"):
        load({"nats_credentials": "here.creds"}, {})
