"""What each protocol demands, as data, and the mark that ties a test to it.

Every module of this package holds one protocol's `REQUIREMENTS`. A test says which of them it holds:

    @requirement("aap:health:ok")
    def test_health_answers_ok() -> None: ...

An unknown id fails at import. `tests/test_requirements.py` checks both directions: no requirement without a test, and
no test of a protocol without a requirement.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

TestFunction = TypeVar("TestFunction", bound=Callable[..., object])

MARK = "__requirements__"
"""The attribute of a test function in which its requirements' ids stand."""


@dataclass(frozen=True)
class Requirement:
    """One thing that a protocol demands.

    Args:
        id: `protocol:subject:rule`, in lower case.
        text: the demand, in our own words.
        source: the document and section where it stands.
        gap: why we knowingly differ or are not there yet; None when it is met. One with a gap needs no test.
    """

    id: str
    text: str
    source: str
    gap: str | None = None


def table(*requirements: Requirement) -> Mapping[str, Requirement]:
    """Put requirements under their ids.

    Raises:
        ValueError: two have the same id.
    """
    found: dict[str, Requirement] = {}
    for each in requirements:
        if each.id in found:
            raise ValueError(f"requirement {each.id!r} stands twice")
        found[each.id] = each
    return found


def load() -> Mapping[str, Requirement]:
    """Gather `REQUIREMENTS` of every module of this package."""
    everything: list[Requirement] = []
    for module in pkgutil.iter_modules(__path__):
        requirements: Iterable[Requirement] = importlib.import_module(f"{__name__}.{module.name}").REQUIREMENTS
        everything.extend(requirements)
    return table(*everything)


def requirement(*ids: str) -> Callable[[TestFunction], TestFunction]:
    """Mark a test as one that holds these requirements.

    Raises:
        LookupError: there is no such requirement; raised while the test's module is imported.
    """
    for each in ids:
        if each not in KNOWN:
            raise LookupError(f"there is no requirement {each!r} in tests/requirements/")

    def mark(function: TestFunction) -> TestFunction:
        setattr(function, MARK, (*getattr(function, MARK, ()), *ids))
        return function

    return mark


def requirements_of(function: object) -> tuple[str, ...]:
    """The ids that a test function was marked with."""
    found: tuple[str, ...] = getattr(function, MARK, ())
    return found


KNOWN = load()
