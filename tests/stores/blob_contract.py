"""What every store of blobs promises: the contract of `Blobs`. An adapter's tests provide a fixture `blobs`."""

import asyncio

import pytest

from dragoman.ports.blobs import BlobStore


class BlobsContract:
    """To be inherited."""

    async def test_a_blob_is_read_as_it_was_put(self, blobs: BlobStore) -> None:
        assert await blobs.get("a/b.c-d_e") is None
        for content in (b"\0one\xff", b"", bytes(range(256)) * 10_000, b"two"):
            await blobs.put("a/b.c-d_e", content)
            assert await blobs.get("a/b.c-d_e") == content

    async def test_a_blob_goes_with_its_folder_and_takes_no_other(self, blobs: BlobStore) -> None:
        names = ["s/1-a", "s/1.a", "s/1/a", "s/1/b/c", "s/12", "s/2", "z"]
        for name in names:
            await blobs.put(name, b"x")
        assert await blobs.names() == names
        assert await blobs.names("s/1") == ["s/1/a", "s/1/b/c"]
        assert await blobs.names("s") == names[:-1]
        assert await blobs.names("z") == await blobs.names("nothing/here") == []
        await blobs.delete("s/1")
        await blobs.delete("s/1")
        await blobs.delete("nothing/here")
        left = ["s/1-a", "s/1.a", "s/12", "s/2", "z"]
        assert await blobs.names() == left
        assert [name for name in names if await blobs.get(name) is not None] == left
        await blobs.delete("z")
        assert await blobs.names() == left[:-1]

    async def test_many_blobs_of_a_folder_go_at_once(self, blobs: BlobStore) -> None:
        await asyncio.gather(*(blobs.put(f"many/{number}", b"x") for number in range(30)))
        assert len(await blobs.names()) == 30
        await blobs.delete("many")
        assert await blobs.names() == []

    async def test_a_bad_name_reaches_nothing(self, blobs: BlobStore) -> None:
        for name in ("", "/", "a/", "/a", "..", "a/../b", "a//b", ".hidden", "a/.b", "a b", "a\n", "é", "a\\b", "a\0"):
            for attempt in (blobs.put(name, b"x"), blobs.get(name), blobs.delete(name), blobs.names(name)):
                with pytest.raises(ValueError, match="not a blob's name"):
                    await attempt
        assert await blobs.names() == []
