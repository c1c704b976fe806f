"""The store that the engine's tests use is held against the contract, so that they test over what there could be."""

import pytest

from dragoman.core.ids import SessionId
from dragoman.core.refusals import SessionUnreadable
from tests.stores.contract import Damage, StoreContract
from tests.stores.kept_contract import KeptContract
from tests.stores.simulated import SimulatedLog


class TestSimulatedLog(StoreContract, KeptContract):
    @pytest.fixture
    def unreadable(self) -> list[SessionUnreadable]:
        return []

    @pytest.fixture
    def store(self, unreadable: list[SessionUnreadable]) -> SimulatedLog:
        return SimulatedLog(unreadable.append)

    @pytest.fixture
    def damage(self, store: SimulatedLog) -> Damage:
        async def write(session_id: SessionId, seq: int | None = None) -> None:
            store.damage(session_id, seq)

        return write
