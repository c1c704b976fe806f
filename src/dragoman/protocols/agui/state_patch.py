"""JSON Patch: what changed between two shared states. Pure.

Source: RFC 6902; specification of AG-UI, B.5.
"""

from collections.abc import Iterator

import msgspec

from dragoman.core.content import Json, JsonObject

_ENCODE = msgspec.json.Encoder(order="deterministic").encode


def delta_of(old: Json, new: Json) -> list[JsonObject] | None:
    """The operations that turn one state into another; None if they are not smaller than the new state."""
    operations = list(_operations(old, new, ""))
    return operations if len(_ENCODE(operations)) < len(_ENCODE(new)) else None


def _operations(old: Json, new: Json, path: str) -> Iterator[JsonObject]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() - new.keys():
            yield {"op": "remove", "path": f"{path}/{_escape(name)}"}
        for name, value in new.items():
            if name in old:
                yield from _operations(old[name], value, f"{path}/{_escape(name)}")
            else:
                yield {"op": "add", "path": f"{path}/{_escape(name)}", "value": value}
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) <= len(new):
        for index, value in enumerate(old):
            yield from _operations(value, new[index], f"{path}/{index}")
        for value in new[len(old) :]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    elif _ENCODE(old) != _ENCODE(new):  # Python takes 1 and true for equal
        yield {"op": "replace", "path": path, "value": new}


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
