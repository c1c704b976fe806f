"""Every store of blobs against the contract, and what only one of them does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dragoman.core.refusals import StoreUnavailable
from dragoman.ports.blobs import BlobStore
from dragoman.server.stores import open_stores
from dragoman.settings import Settings, SettingsError
from dragoman.stores.folder_blobs import FolderBlobs
from dragoman.stores.postgres.blobs import PostgresBlobs
from dragoman.stores.postgres.database import Database
from dragoman.stores.s3_blobs import BucketLocation, S3Blobs, open_bucket, parse_address
from tests.stores.blob_contract import BlobsContract
from tests.stores.simulated import SimulatedBlobs


class TestSimulated(BlobsContract):
    @pytest.fixture
    def blobs(self) -> BlobStore:
        return SimulatedBlobs()


class TestFolder(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> BlobStore:
        return FolderBlobs(tmp_path / "blobs")

    async def test_nothing_is_left_beside_a_blob(self, blobs: BlobStore, tmp_path: Path) -> None:
        await blobs.put("a/b", b"one")
        await blobs.put("a/b", b"two")
        assert [path.name for path in (tmp_path / "blobs" / "a").iterdir()] == ["b"]

    async def test_a_blob_that_cannot_be_stored_is_the_stores_failure(self, blobs: BlobStore, tmp_path: Path) -> None:
        (tmp_path / "blobs").write_bytes(b"in the way")
        with pytest.raises(StoreUnavailable):
            await blobs.put("a", b"x")

    async def test_nobody_else_can_read_a_blob(self, blobs: BlobStore, tmp_path: Path) -> None:
        await blobs.put("a/b", b"x")
        modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "blobs").rglob("*")}
        assert modes == {"a": "0o700", "b": "0o600"}


class TestPostgres(BlobsContract):
    @pytest.fixture
    def blobs(self, postgres_url: str) -> Iterator[BlobStore]:
        database = Database(postgres_url, access="unlocked")
        yield PostgresBlobs(database)
        database.close()


class TestS3(BlobsContract):
    @pytest.fixture
    def blobs(self, bucket: str) -> BlobStore:
        return open_bucket(bucket)

    async def test_two_places_of_a_bucket_are_apart(self, blobs: BlobStore, bucket: str) -> None:
        other = open_bucket(bucket.replace("?", "0?"))
        await blobs.put("a", b"x")
        await other.put("b", b"y")
        assert (await blobs.names(), await other.names()) == (["a"], ["b"])

    async def test_a_bucket_that_is_gone_is_the_stores_failure_and_is_logged(self, bucket: str) -> None:
        gone = S3Blobs(parse_address(bucket)._replace(bucket="gone", prefix="a"))
        with capture_logs() as logs:
            for attempt in (gone.put("a", b"x"), gone.delete("a"), gone.names()):
                with pytest.raises(StoreUnavailable, match="the store of attachments cannot be used now"):
                    await attempt
        warning = {"event": "blobs cannot be used", "log_level": "warning", "bucket": "s3://gone/a"}
        assert logs == [{**warning, "cause": "NoSuchBucket"}] * 3

    async def test_a_store_that_cannot_be_reached_is_given_up_in_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dragoman.stores.s3_blobs.RETRY_TIMEOUT_S", 0.1)
        blobs = S3Blobs(parse_address("s3://bucket?endpoint=http://127.0.0.1:1"))
        for attempt in (blobs.put("a", b"x"), blobs.get("a"), blobs.delete("a"), blobs.names()):
            with pytest.raises(StoreUnavailable):
                await attempt


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("s3://mine", BucketLocation("mine", "", None, None)),
        ("s3://mine/", BucketLocation("mine", "", None, None)),
        ("s3://mine/a/b_c.d/", BucketLocation("mine", "a/b_c.d", None, None)),
        ("s3://mine?region=eu-west-1", BucketLocation("mine", "", None, "eu-west-1")),
        (
            "s3://mine/a?endpoint=https://s3.example:9000&region=x",
            BucketLocation("mine", "a", "https://s3.example:9000", "x"),
        ),
    ],
)
def test_an_address_names_a_bucket_and_a_place_in_it(address: str, place: BucketLocation) -> None:
    assert parse_address(address) == place


@pytest.mark.parametrize(
    "address",
    [
        "",
        "mine",
        "https://mine",
        "s3://",
        "s3://Mine",
        "s3://key:secret@mine",
        "s3://mine/..",
        "s3://mine/a//b",
        "s3://mine#a",
        "s3://mine?key=secret",
        "s3://mine?endpoint=s3.example",
        "s3://mine?endpoint=https://key:secret@s3.example",
    ],
)
def test_what_is_no_address_or_holds_a_secret_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"expected an|takes endpoint and region"):
        parse_address(address)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("s3://", "s3:/"), "setting blobs: expected an address such as s3://"),
        (("bucket-of-", "nobodys-"), "cannot be used: NoSuchBucket"),
    ],
)
def test_a_server_does_not_start_without_its_bucket(
    bucket: str, tmp_path: Path, change: tuple[str, str], expected: str
) -> None:
    settings = Settings(data=str(tmp_path), blobs=bucket.replace(*change))
    for _ in range(2):  # the second time shows that the folder was let go
        with pytest.raises(SettingsError, match=expected):
            open_stores(settings)


def test_a_wrong_secret_is_reported_at_the_start(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(SettingsError, match="cannot be used: SignatureDoesNotMatch"):
        open_stores(Settings(data=str(tmp_path), blobs=bucket))
