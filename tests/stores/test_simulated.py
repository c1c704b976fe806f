"""The store that the engine's tests use is held against the contract, so that they test over what there could be."""

import pytest

from tests.stores.contract import StoreContract
from tests.stores.simulated import SimulatedLog


class TestSimulatedLog(StoreContract):
    @pytest.fixture
    def store(self) -> SimulatedLog:
        return SimulatedLog()
