"""The requirements of each protocol, as data, and the decorator that links a test to them.

Every module of this package contains the `REQUIREMENTS` of one protocol. A test names those that it verifies:

    @requirement("aap:health:ok")
    def test_health_answers_ok() -> None: ...

An unknown ID fails at import. `tests/test_requirements.py` checks both directions: no requirement without a test, and
no test of a protocol without a requirement.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

TestFunction = TypeVar("TestFunction", bound=Callable[..., object])

MARK = "__requirements__"
"""The attribute of a test function that contains the IDs of its requirements."""


@dataclass(frozen=True)
class Requirement:
    """One requirement of a protocol.

    Args:
        id: `protocol:subject:rule`, in lower case.
        text: the requirement, in our own words.
        source: the document and section that state it.
        gap: why the server deliberately differs, or does not meet it yet; None if it does. A requirement with a gap
            needs no test.
    """

    id: str
    text: str
    source: str
    gap: str | None = None


def table(*requirements: Requirement) -> Mapping[str, Requirement]:
    """Index requirements by ID.

    Raises:
        ValueError: two have the same ID.
    """
    by_id: dict[str, Requirement] = {}
    for each in requirements:
        if each.id in by_id:
            raise ValueError(f"requirement {each.id!r} is defined twice")
        by_id[each.id] = each
    return by_id


def load() -> Mapping[str, Requirement]:
    """Collect the `REQUIREMENTS` of all modules in this package."""
    everything: list[Requirement] = []
    for module in pkgutil.iter_modules(__path__):
        requirements: Iterable[Requirement] = importlib.import_module(f"{__name__}.{module.name}").REQUIREMENTS
        everything.extend(requirements)
    return table(*everything)


def requirement(*ids: str) -> Callable[[TestFunction], TestFunction]:
    """Mark a test that verifies these requirements.

    Raises:
        LookupError: there is no such requirement. Raised when the test's module is imported.
    """
    for each in ids:
        if each not in KNOWN:
            raise LookupError(f"there is no requirement {each!r} in tests/requirements/")

    def mark(function: TestFunction) -> TestFunction:
        setattr(function, MARK, (*getattr(function, MARK, ()), *ids))
        return function

    return mark


def requirements_of(function: object) -> tuple[str, ...]:
    """Return the IDs of a test function's requirements."""
    ids: tuple[str, ...] = getattr(function, MARK, ())
    return ids


KNOWN = load()
