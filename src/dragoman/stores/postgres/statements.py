"""The SQL of this store: `sql/*.sql`, where a line `-- name: NAME` starts each statement. Comments are removed."""

import re
from importlib import resources
from typing import LiteralString

_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def statements(area: str) -> dict[str, LiteralString]:
    """Read the statements of one file by name."""
    script = resources.files("dragoman.stores.postgres").joinpath("sql", f"{area}.sql").read_text(encoding="utf-8")
    _, *rest = _NAME.split(script)
    return {name: _COMMENT.sub("", text).strip() for name, text in zip(rest[::2], rest[1::2], strict=True)}
