"""The protocols that a server can mount, for tests that have something for each of them.

The list is the server's own. A protocol that is added there fails each of these tests when it is collected, and the
error names the table that lacks it.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from dragoman.server.protocols import PROTOCOLS

T = TypeVar("T")

PROTOCOL_NAMES = frozenset(factory.__name__.removeprefix("mount_") for factory in PROTOCOLS)


def for_every_protocol(
    table: Mapping[str, T], *, without: Mapping[str, str] = MappingProxyType({}), variants: Iterable[str] = ()
) -> Mapping[str, T]:
    """Check that a table has an entry for each protocol, and return it.

    Args:
        table: by protocol, as the factory in `server/protocols.py` is called after `mount_`.
        without: why a protocol has no entry.
        variants: entries besides, such as an older form of a protocol.
    """
    expected = PROTOCOL_NAMES - without.keys() | set(variants)
    assert table.keys() >= expected, f"add {sorted(expected - table.keys())} to this table, or say why it has none"
    assert table.keys() <= expected, f"{sorted(table.keys() - expected)}: there is no such protocol"
    assert without.keys() <= PROTOCOL_NAMES, f"{sorted(without.keys() - PROTOCOL_NAMES)}: there is no such protocol"
    return table
