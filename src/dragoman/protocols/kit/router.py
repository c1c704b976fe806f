"""Routes from a method and a path to a handler."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]
KeyScope = Literal["read", "use", "admin"]


class Route(NamedTuple):
    """What answers to a method and a path.

    Attributes:
        method: `GET` also answers `HEAD`.
        path: relative to where the protocol is mounted, for example `sessions/{session}/turns`. `{name}` stands for
            one part of the path, `{name:path}` for one or more. Handlers read them from `request.path_params`. A
            part that is written out wins over one that is not.
        handler: answers the request.
        scope: what the caller's key must allow; by default `read` for GET, `use` for the rest.
        is_open: whether the route can be called without a key.
    """

    method: str
    path: str
    handler: Handler
    scope: KeyScope | None = None
    is_open: bool = False

    @property
    def required_scope(self) -> KeyScope:
        """The scope that the caller's key must have."""
        return self.scope or ("read" if self.method == "GET" else "use")


class RouteMatch(NamedTuple):
    """What is known of a path: its routes by method, and the values of its variables."""

    routes: dict[str, Route]
    variables: dict[str, str]


class _Node:
    """One place in the tree of paths."""

    __slots__ = ("is_path", "name", "parts", "routes", "variable")

    def __init__(self) -> None:
        self.parts: dict[str, _Node] = {}
        self.variable: _Node | None = None
        self.name = ""
        self.is_path = False
        self.routes: dict[str, Route] = {}

    def find(self, parts: Sequence[str], method: str) -> RouteMatch | None:
        node = self
        for at, part in enumerate(parts):
            following = node.parts.get(part)
            if node.variable is not None and part:
                return node._find_among(following, node.variable, parts[at:], method)
            if following is None:
                return None
            node = following
        return RouteMatch(node.routes, {}) if node.routes else None

    def _find_among(
        self, node: "_Node | None", variable: "_Node", parts: Sequence[str], method: str
    ) -> RouteMatch | None:
        """Find a path whose first part may be written out, or be the value of a variable, alone or with others."""
        match = None if node is None else node.find(parts[1:], method)
        if match is not None:
            return match
        for length in range(1, len(parts) + 1) if variable.is_path else (1,):  # the shortest value that fits
            found = variable.find(parts[length:], method)
            if found is not None and (match is None or method in found.routes):
                match = found
                match.variables[variable.name] = "/".join(parts[:length])
                if method in match.routes:
                    return match
        return match


class Router:
    """Finds routes in a tree of path parts; the cost grows with the length of the path, not with the routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.path.split("/"):
                if part.startswith("{"):
                    node.variable = node.variable or _Node()
                    node = node.variable
                    node.name, _, kind = part[1:-1].partition(":")
                    node.is_path = kind == "path"
                else:
                    node = node.parts.setdefault(part, _Node())
            node.routes[route.method] = route

    def find(self, path: str, method: str) -> RouteMatch | None:
        """Find a path, which is relative to where the protocol is mounted. None if there is nothing.

        The method decides only where a value of several parts could end: `DELETE chats/a/stream` is for the chat
        `a/stream`, if streams cannot be deleted.
        """
        return self._root.find(path.strip("/").split("/"), method)
