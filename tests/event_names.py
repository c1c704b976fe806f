"""Which types of events a piece of source code handles, for tests that no type is forgotten."""

import ast
from collections.abc import Iterator


def named_events(code: ast.AST) -> Iterator[str]:
    """The classes that code names in a pattern or in a check of a type."""
    for node in ast.walk(code):
        if isinstance(node, ast.MatchClass):
            yield from _names_in(node.cls)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            yield from _names_in(node.args[1])
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is):  # `type(event) is …`
            yield from _names_in(node.comparators[0])


def _names_in(kinds: ast.expr) -> Iterator[str]:
    """The names that stand alone: an attribute, as in `wire.RunStarted`, is a protocol's own."""
    owned = {each.value for each in ast.walk(kinds) if isinstance(each, ast.Attribute)}
    return (each.id for each in ast.walk(kinds) if isinstance(each, ast.Name) and each not in owned)
