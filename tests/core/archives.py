"""Archives of sessions, made for tests."""

from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import msgspec

MANIFEST = {"format": "dragoman-session", "format_version": 1, "exported_at": "2026-01-01T00:00:00Z"}
FILES: dict[str, Any] = {"manifest.json": MANIFEST, "session.json": {"intent": "tea"}, "turns.json": []}


class SequentialIds:
    """Ids in order."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"new-{self.count}"


def packed(files: dict[str, Any], method: int = ZIP_DEFLATED) -> bytes:
    """An archive with these files."""
    created = BytesIO()
    with ZipFile(created, "w", method) as archive:
        for name, value in files.items():
            archive.writestr(name, value if isinstance(value, bytes) else msgspec.json.encode(value))
    return created.getvalue()
