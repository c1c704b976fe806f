"""Every protocol says what it answers to each refusal, so that a new refusal is not answered by accident."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest

from dragoman import protocols
from dragoman.core.refusals import all_refusals
from dragoman.protocols.kit.errors import REQUEST_ERRORS, ErrorTable

BY_FAMILY = {"a2a", "mcp"}
"""The protocols whose errors have too few codes for a row each: the row of a refusal is that of its nearest base."""


def error_tables() -> Iterator[tuple[str, ErrorTable]]:
    """The tables in the modules `errors` of all protocols."""
    for module in pkgutil.walk_packages(protocols.__path__, f"{protocols.__name__}."):
        protocol = module.name.removeprefix(f"{protocols.__name__}.").removesuffix(".errors")
        if module.name.endswith(".errors") and protocol not in {"kit", *BY_FAMILY}:
            for name, value in vars(import_module(module.name)).items():
                if isinstance(value, ErrorTable):
                    yield f"{protocol}: {name}", value


TABLES = dict(error_tables())


@pytest.mark.parametrize("table", TABLES)
def test_an_error_table_has_a_row_for_every_refusal(table: str) -> None:
    assert {*all_refusals(), *REQUEST_ERRORS} - TABLES[table].rows.keys() == set()


def test_every_protocol_has_an_error_table() -> None:
    packages = {each.name for each in pkgutil.iter_modules(protocols.__path__)} - {"kit", *BY_FAMILY}
    assert packages - {table.partition(":")[0] for table in TABLES} == set()
