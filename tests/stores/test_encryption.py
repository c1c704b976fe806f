"""What lies beside the database: the key of the secrets."""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from dragoman.stores.encryption import FileCipher, LazyCipher, derive_key, rotate_key


def test_a_derived_key_is_that_of_the_library() -> None:
    derived = HKDF(SHA256(), 32, salt=None, info=b"purpose").derive(b"k" * 32)
    assert derive_key(b"k" * 32, b"purpose") == derived


@given(st.text())
def test_a_secret_that_is_sealed_is_opened_again(plain: str) -> None:
    cipher = CIPHERS[0]
    sealed = cipher.encrypt(plain)
    assert cipher.decrypt(sealed) == plain
    assert cipher.encrypt(plain) != sealed, "equal secrets do not look equal"
    assert len(plain) < 4 or plain not in sealed


CIPHERS: list[FileCipher] = []


@pytest.fixture(autouse=True, scope="module")
def _cipher(tmp_path_factory: pytest.TempPathFactory) -> None:
    CIPHERS.append(FileCipher(tmp_path_factory.mktemp("key") / "key"))


def test_the_key_is_made_once_and_for_the_owner_alone(tmp_path: Path) -> None:
    sealed = LazyCipher(tmp_path / "key").encrypt("secret")
    assert LazyCipher(tmp_path / "key").decrypt(sealed) == "secret"
    assert oct((tmp_path / "key").stat().st_mode & 0o777) == "0o600"
    assert len((tmp_path / "key").read_bytes()) == 32
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_after_a_rotation_old_secrets_are_opened_and_new_ones_use_the_new_key(tmp_path: Path) -> None:
    before = FileCipher(tmp_path / "key")
    old = before.encrypt("old")
    rotate_key(tmp_path / "key")
    after = FileCipher(tmp_path / "key")
    assert after.decrypt(old) == "old"
    assert after.decrypt(after.encrypt("new")) == "new"
    with pytest.raises(ValueError, match="another key"):
        before.decrypt(after.encrypt("new"))
    assert len((tmp_path / "key").read_bytes()) == 64
    assert oct((tmp_path / "key").stat().st_mode & 0o777) == "0o600"


def test_a_file_that_does_not_consist_of_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"x" * 33)
    with pytest.raises(ValueError, match="expected one or more keys of 32 bytes each, got 33 bytes"):
        FileCipher(tmp_path / "key")


def test_a_folder_without_secrets_has_no_key(tmp_path: Path) -> None:
    LazyCipher(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_dies_while_it_makes_the_key_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a key would be one for ever: nothing could be sealed or opened any more."""

    def die(descriptor: int) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", die)
        with pytest.raises(SystemExit):
            FileCipher(tmp_path / "key")
    assert not (tmp_path / "key").exists()
    assert FileCipher(tmp_path / "key").decrypt(FileCipher(tmp_path / "key").encrypt("x")) == "x"


def test_what_another_key_sealed_or_what_was_changed_is_refused(tmp_path: Path) -> None:
    cipher, other = FileCipher(tmp_path / "one"), FileCipher(tmp_path / "other")
    sealed = cipher.encrypt("secret")
    changed = sealed[:-2] + ("A" if sealed[-2] != "A" else "B") + sealed[-1]
    for attempt, text in ((other, sealed), (cipher, changed), (cipher, ""), (cipher, "A"), (cipher, sealed[:20])):
        with pytest.raises(ValueError, match=r".+"):
            attempt.decrypt(text)
