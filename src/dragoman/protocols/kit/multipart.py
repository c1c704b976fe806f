"""Forms with files (`multipart/form-data`), read from a body that is in memory. Pure.

Source: RFC 7578 and RFC 2046, section 5.1.
"""

import re
from typing import NamedTuple

PARTS_LIMIT = 20

_BOUNDARY = re.compile(
    r"""multipart/form-data\s*;.*?\bboundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE
)
_NAME = re.compile(rb'(?:^|[;\s])name="([^"\r\n]*)"', re.IGNORECASE)
_FILENAME = re.compile(rb'(?:^|[;\s])filename="([^"\r\n]*)"', re.IGNORECASE)


class InvalidForm(Exception):
    """A body is not a readable form."""


class Part(NamedTuple):
    """One field. A file also has a file name."""

    name: str
    content: bytes
    filename: str | None
    content_type: str | None


def read_form(content_type: str, body: bytes) -> list[Part]:
    """The fields of a form, in their order. Raises InvalidForm."""
    declared = _BOUNDARY.match(content_type)
    if declared is None:
        raise InvalidForm("expected multipart/form-data with a boundary")
    delimiter = b"\r\n--" + (declared[1] or declared[2]).encode()
    pieces = (b"\r\n" + body).split(delimiter, PARTS_LIMIT + 2)
    if len(pieces) - 2 > PARTS_LIMIT:
        raise InvalidForm(f"the form has more than {PARTS_LIMIT} parts")
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise InvalidForm("the form has no end")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> Part:
    padding, line, rest = piece.partition(b"\r\n")
    head, blank, content = (line + rest).partition(b"\r\n\r\n")
    if padding.strip(b" \t") or not line or not blank:
        raise InvalidForm("a part of the form has no head")
    headers = {}
    for each in head.split(b"\r\n"):
        name, _, value = each.partition(b":")
        headers[name.strip().lower()] = value.strip()
    disposition = headers.get(b"content-disposition", b"")
    field = _NAME.search(disposition)
    if field is None:
        raise InvalidForm("a part of the form has no name")
    filename = _FILENAME.search(disposition)
    declared = headers.get(b"content-type")
    return Part(
        field[1].decode("utf-8", "replace"),
        content,
        None if filename is None else filename[1].decode("utf-8", "replace"),
        None if declared is None else declared.decode("latin-1"),
    )
