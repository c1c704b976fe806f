"""Lists as PostgreSQL arrays in binary format. Each class has one type, so that a statement is prepared only once.

psycopg's own adapter inspects every item for the best type, which results in a statement for each size of number.
"""

from collections.abc import Iterable
from struct import Struct

from psycopg import Connection
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = Struct(">iiIii")
_SIZE = Struct(">i")
_BIGINT = Struct(">iq")
_NULL = _SIZE.pack(-1)
_EMPTY = Struct(">iiI")


class Texts(list[str | bytes | None]):
    """`text[]`; bytes are UTF-8."""


class Bytes(list[bytes]):
    """`bytea[]`."""


class Bigints(list[int | None]):
    """`bigint[]`."""


def _array(element: int, size: int, items: Iterable[bytes]) -> bytes:
    if not size:
        return _EMPTY.pack(0, 0, element)
    return _HEAD.pack(1, 1, element, size, 1) + b"".join(items)


class _TextsDumper(Dumper):
    format = Format.BINARY
    oid = 1009

    def dump(self, obj: Texts) -> bytes:
        return _array(25, len(obj), map(_text, obj))


class _BytesDumper(Dumper):
    format = Format.BINARY
    oid = 1001

    def dump(self, obj: Bytes) -> bytes:
        return _array(17, len(obj), (_SIZE.pack(len(item)) + item for item in obj))


class _BigintsDumper(Dumper):
    format = Format.BINARY
    oid = 1016

    def dump(self, obj: Bigints) -> bytes:
        return _array(20, len(obj), (_NULL if item is None else _BIGINT.pack(8, item) for item in obj))


def _text(item: str | bytes | None) -> bytes:
    if item is None:
        return _NULL
    raw = item.encode() if isinstance(item, str) else item
    return _SIZE.pack(len(raw)) + raw


def register(connection: Connection) -> None:
    """Register these types with a connection."""
    for kind, dumper in ((Texts, _TextsDumper), (Bytes, _BytesDumper), (Bigints, _BigintsDumper)):
        connection.adapters.register_dumper(kind, dumper)
