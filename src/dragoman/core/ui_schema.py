"""UI schema 2.0: compiles the user interface that an agent writes into a tree that every renderer accepts.

One compiler for live events and for histories. What comes out holds to the schema, or is None: a bad hint never fails
a run. Pure.

Source: seed 002, "UiSchemaRenderer"; the run service's specification, A.8.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dragoman.core.content import Json, JsonObject

MAX_LEVELS = 8
"""Maximum nesting of nodes, including the root."""
MAX_NODES = 200
TRUNCATION_CAPTION = "There is more that is not shown here."
"""The caption in place of nodes that were left out."""

Status = Literal["info", "success", "warning", "error", "pending"]
Theme = Literal["default", "light", "dark"]
Gap = Literal["none", "sm", "md", "lg"]
Appearance = Literal["plain", "card"]
HttpsUrl = Annotated[str, Meta(pattern=r"^https://[^\s]+$")]
ImageUrl = Annotated[str, Meta(pattern=r"^(https?://[^\s]+|data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=]+)$")]
Pixels = Annotated[int, Meta(ge=1)]


class _SchemaStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the tree. Unknown members are removed; absent members stay absent."""


class Navigation(_SchemaStruct, frozen=True, kw_only=True, tag="navigation", tag_field="type"):
    """Navigates inside the application."""

    path: str
    params: JsonObject | UnsetType = UNSET


class OpenUrl(_SchemaStruct, frozen=True, kw_only=True, tag="url", tag_field="type"):
    """Opens a link."""

    url: HttpsUrl


class RaiseEvent(_SchemaStruct, frozen=True, kw_only=True, tag="event", tag_field="type"):
    """Raises an event of the application."""

    name: str
    payload: Json | UnsetType = UNSET


class UseTool(_SchemaStruct, frozen=True, kw_only=True, tag="tool", tag_field="type"):
    """Asks the user, then starts a new run whose text names the call. It never executes the call itself."""

    tool: str
    args: JsonObject


class Copy(_SchemaStruct, frozen=True, kw_only=True, tag="copy", tag_field="type"):
    """Copies a text."""

    text: str


class Payload(_SchemaStruct, frozen=True, kw_only=True, tag="payload", tag_field="type"):
    """A value that is sent with the next user message."""

    payload: Json


Action = Navigation | OpenUrl | RaiseEvent | UseTool | Copy | Payload


class _Node(_SchemaStruct, frozen=True, kw_only=True):
    id: str | UnsetType = UNSET
    status: Status | UnsetType = UNSET


class Stack(_Node, frozen=True, kw_only=True, tag="stack", tag_field="type"):
    """Nodes stacked vertically or horizontally."""

    direction: Literal["vertical", "horizontal"] | UnsetType = UNSET
    gap: Gap | UnsetType = UNSET
    align: Literal["start", "center", "end", "stretch"] | UnsetType = UNSET
    appearance: Appearance | UnsetType = UNSET
    children: list["Node"]


class Grid(_Node, frozen=True, kw_only=True, tag="grid", tag_field="type"):
    """Nodes in columns."""

    columns: Annotated[int, Meta(ge=1, le=12)] | UnsetType = UNSET
    gap: Gap | UnsetType = UNSET
    appearance: Appearance | UnsetType = UNSET
    children: list["Node"]


class TextNode(_Node, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """Text."""

    content: str
    format: Literal["plain", "markdown"] | UnsetType = UNSET
    role: Literal["title", "subtitle", "body", "caption", "code"] | UnsetType = UNSET


class Icon(_Node, frozen=True, kw_only=True, tag="icon", tag_field="type"):
    """An icon. `label` is for screen readers."""

    source: Literal["icon", "emoji", "url"]
    value: str
    label: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.source == "url" and not self.value.startswith("https://"):
            raise ValueError("an icon's link begins with https://")


class Badge(_Node, frozen=True, kw_only=True, tag="badge", tag_field="type"):
    """A short label with a status."""

    label: str


class Button(_Node, frozen=True, kw_only=True, tag="button", tag_field="type"):
    """A button with an action."""

    label: str
    style: Literal["primary", "secondary", "ghost", "danger"] | UnsetType = UNSET
    action: Action
    disabled: bool | UnsetType = UNSET


class Image(_Node, frozen=True, kw_only=True, tag="image", tag_field="type"):
    """An image. `alt` is required but may be empty."""

    url: ImageUrl
    alt: str
    width: Pixels | UnsetType = UNSET
    height: Pixels | UnsetType = UNSET


class KeyValue(_SchemaStruct, frozen=True, kw_only=True):
    """A labelled value."""

    label: str
    value: str
    copyable: bool | UnsetType = UNSET


class KeyValueList(_Node, frozen=True, kw_only=True, tag="kv", tag_field="type"):
    """Labelled values."""

    items: list[KeyValue]


class Divider(_Node, frozen=True, kw_only=True, tag="divider", tag_field="type"):
    """A dividing line."""


Node = Stack | Grid | TextNode | Icon | Badge | Button | Image | KeyValueList | Divider
CONTAINERS = frozenset({"stack", "grid"})
LEAVES = frozenset({"text", "icon", "badge", "button", "image", "kv", "divider"})


class Origin(_SchemaStruct, frozen=True, kw_only=True):
    """The sources of the answer, as the agent states them."""

    request_id: str | UnsetType = UNSET
    tool_id: str | UnsetType = UNSET
    trace_id: str | UnsetType = UNSET
    user_id: str | UnsetType = UNSET


class Renderer(_SchemaStruct, frozen=True, kw_only=True):
    """The complete tree."""

    version: Literal["2.0"] = "2.0"
    locale: str
    status: Status = "info"
    theme: Theme = "default"
    meta: Origin | UnsetType = UNSET
    root: Node


def compile_card(card: Json, locale: str = "en") -> JsonObject | None:
    """The renderer tree of an agent's user interface; None if it is not valid.

    Args:
        card: the tree with its root, or the root node alone.
        locale: used where the agent names none.

    A node of an unknown type becomes its `content` or `label` as text, or nothing. More than `LEVELS` levels or `NODES`
    nodes are cut, and a caption says so.
    """
    if not isinstance(card, dict):
        return None
    whole = card if "root" in card else {"root": card}
    root = _prune(whole["root"], 1)
    if not isinstance(root, dict):
        return None
    if _count(root) > MAX_NODES:
        root = _Truncator().truncate(root)
    try:
        tree = msgspec.convert({"locale": locale, **whole, "root": root}, Renderer)
        built = msgspec.to_builtins(tree)
    except (msgspec.ValidationError, TypeError, ValueError):
        return None
    assert isinstance(built, dict), "a struct becomes an object"
    return built


def _prune(node: Json, level: int) -> Json:
    """The node without unknown types and nodes that are nested too deeply; None if nothing is left."""
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    if not isinstance(kind, str) or kind in LEAVES:
        return node
    if kind not in CONTAINERS:
        text = next((node[name] for name in ("content", "label") if isinstance(node.get(name), str)), None)
        return None if text is None else {"type": "text", "content": text}
    children = node.get("children")
    if not isinstance(children, list | tuple):
        return node
    if level == MAX_LEVELS and children:
        return _caption()
    pruned = [_prune(child, level + 1) for child in children]
    return {**node, "children": [child for child in pruned if child is not None]}


def _count(node: Json) -> int:
    return 1 + sum(map(_count, _children(node)))


def _children(node: Json) -> list[Json]:
    children = node.get("children") if isinstance(node, dict) and node.get("type") in ("stack", "grid") else None
    return children if isinstance(children, list) else []


def _caption() -> JsonObject:
    return {"type": "text", "content": TRUNCATION_CAPTION, "role": "caption"}


class _Truncator:
    """Keeps the first nodes, from the top down, and puts one caption in place of the first that is left out."""

    def __init__(self) -> None:
        self._remaining = MAX_NODES - 1
        self._has_caption = False

    def truncate(self, node: JsonObject) -> JsonObject:
        self._remaining -= 1
        children = _children(node)
        if not children:
            return node
        remaining: list[Json] = []
        for child in children:
            if self._remaining:
                remaining.append(self.truncate(child) if isinstance(child, dict) else child)
            elif not self._has_caption:
                self._has_caption = True
                remaining.append(_caption())
        return {**node, "children": remaining}
