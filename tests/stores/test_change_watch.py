"""Looking after what other programs change in a shared database."""

import asyncio
from pathlib import Path

import pytest

from dragoman.core.refusals import StoreUnavailable
from dragoman.server import stores as server_stores
from dragoman.server.stores import open_stores_at, watch_for_changes


async def test_changes_are_reported_once_each_whatever_goes_wrong_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_stores, "CHANGE_POLL_INTERVAL_S", 0.0)
    seen: list[int | Exception] = [1, 1, 2, StoreUnavailable("away"), 2, RuntimeError("a slip of ours"), 2, 3]
    counts: list[int] = []
    at_end = asyncio.Event()

    async def changes() -> int:
        if len(seen) == 1:
            at_end.set()
            return 3
        found = seen.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def changed() -> None:
        counts.append(len(seen))

    stores = open_stores_at(str(tmp_path))
    watching = asyncio.create_task(watch_for_changes(stores._replace(accounts_version=changes), changed))
    async with asyncio.timeout(60):
        await at_end.wait()
        await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait([watching])
    stores.close()
    assert counts == [7, 5, 1]
