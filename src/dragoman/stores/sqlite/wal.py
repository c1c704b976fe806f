"""Finds damage in a write-ahead log before SQLite opens it.

SQLite reads a log up to the first frame whose checksum is wrong and drops the rest. After a crash that is right: the
rest is one commit that was never finished. If more commits follow, they were acknowledged, and would be lost silently.
"""

from array import array
from pathlib import Path
from sys import byteorder
from typing import NamedTuple

HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
_MAGIC = 0x377F0682
"""The last bit is the byte order of the checksums."""
_MASK = 0xFFFFFFFF


class WalReport(NamedTuple):
    """The commits in a log."""

    readable_commits: int
    lost_commits: int
    """Commits after a damaged frame. A power failure may have cut off one of them."""
    is_header_damaged: bool = False


def inspect_wal(path: Path) -> WalReport:
    """Read a database's write-ahead log. Its commits are not changed."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return WalReport(0, 0)
    header = content[:HEADER_BYTES]
    if len(content) <= HEADER_BYTES or bool(header[3] & 1) != (byteorder == "big"):  # empty, or from another machine
        return WalReport(0, 0)
    page_bytes = int.from_bytes(header[8:12], "big")
    salts = header[16:24]
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    sums = _checksum(header[:24], (0, 0))
    is_intact = (
        int.from_bytes(header[:4], "big") & ~1 == _MAGIC
        and page_bytes in {1 << bits for bits in range(9, 17)}
        and header[24:32] == _stored(sums)
    )
    if not is_intact:  # its fields cannot be trusted, so the commits cannot be counted
        return WalReport(0, 0, is_header_damaged=True)
    readable = lost = 0
    for start in range(HEADER_BYTES, len(content) - frame_bytes + 1, frame_bytes):
        frame = content[start : start + frame_bytes]
        if frame[8:16] != salts:  # damaged, or left from an earlier use of the file, as all that follows
            is_intact = False
            continue
        if is_intact:
            sums = _checksum(frame[FRAME_HEADER_BYTES:], _checksum(frame[:8], sums))
            is_intact = frame[16:24] == _stored(sums)
        if frame[4:8] != b"\0\0\0\0":  # the last frame of a commit
            readable += is_intact
            lost += not is_intact
    return WalReport(readable, lost)


def _checksum(content: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's checksum of words, in this machine's byte order as SQLite writes it."""
    first, second = sums
    words = iter(array("I", content))
    for word in words:
        first = (first + word + second) & _MASK
        second = (second + next(words) + first) & _MASK
    return first, second


def _stored(sums: tuple[int, int]) -> bytes:
    return b"".join(each.to_bytes(4, "big") for each in sums)
