"""UI schema 2.0: compiles the user interface that an agent writes into a tree that every renderer accepts.

One compiler for live events and for histories. The result conforms to the schema or is None: an invalid card never
fails a run. Pure.

Source: seed 002, "UiSchemaRenderer"; the run service's specification, A.8.
"""

import re
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
            raise ValueError("an icon's link must begin with https://")


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
    """The renderer tree of an agent's user interface; None if nothing of it is valid. See `check_card`."""
    return check_card(card, locale)[0]


def check_card(card: Json, locale: str = "en") -> tuple[JsonObject | None, list[str]]:
    """The renderer tree of an agent's user interface, and what was wrong with the interface.

    A root that is not a container is put into a stack. A wrong optional member is removed; a number in place of a text
    is written as one, and an image without `alt` gets an empty one. Any other wrong node, or one of an unknown type,
    becomes its `content` or `label` as text, or is left out. More than `MAX_LEVELS` levels or `MAX_NODES` nodes are
    replaced by a caption.

    Args:
        card: the tree with its root, or the root node alone.
        locale: the one to use if the agent names none.

    Returns:
        The tree, None if nothing of it is left; and for the agent's author the path and the reason of each fault.
    """
    checker = _Checker()
    if not isinstance(card, dict):
        return None, ["expected an object"]
    whole = card if "root" in card else {"root": card}
    root = whole["root"]
    if isinstance(root, dict) and _kind(root) not in CONTAINERS:
        root = {"type": "stack", "children": [root]}
    checked = checker.node(root, "root", 1)
    if checked is None:
        return None, checker.faults
    if _count(checked) > MAX_NODES:
        checked = _Truncator().truncate(checked)
    given = {name: value for name, value in whole.items() if name not in ("locale", "root")}
    named = whole.get("locale", locale)
    if not isinstance(named, str):
        checker.fault("locale", "expected a string")
        named = locale
    head = checker.members({"locale": named, **given, "root": {"type": "divider"}}, Renderer, "", keep=("version",))
    return None if head is None else {**head, "root": checked}, checker.faults


MAX_FAULTS = 20
"""How many faults of a card are reported."""
_LEAF_TYPES: dict[str, type[_Node]] = {
    "text": TextNode,
    "icon": Icon,
    "badge": Badge,
    "button": Button,
    "image": Image,
    "kv": KeyValueList,
    "divider": Divider,
}
_TEXT_MEMBERS = ("content", "label", "value")
"""Members whose numbers are written as text."""
_FAULTY_MEMBER = re.compile(r"(?: - at `\$\.(?P<path>\w+)|missing required field `(?P<missing>\w+))")


def _kind(node: JsonObject) -> Json:
    kind = node.get("type")
    return kind if isinstance(kind, str) else None


class _Checker:
    """Keeps what is valid of a tree, and collects the faults of the rest."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def fault(self, path: str, reason: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(f"{path}: {reason}")

    def node(self, node: Json, path: str, level: int) -> JsonObject | None:
        """A node without what is not valid in it; None if nothing is left."""
        if not isinstance(node, dict):
            self.fault(path, "expected a node, which is an object")
            return None
        kind = _kind(node)
        if kind in CONTAINERS:
            return self._container(node, path, level)
        if kind in LEAVES:
            checked = self._leaf(node, kind, path)
        else:
            checked = None
            self.fault(path, f"unknown type {node.get('type')!r}")
        if checked is not None:
            return checked
        text = next((node[name] for name in ("content", "label") if isinstance(node.get(name), str)), None)
        return None if text is None else {"type": "text", "content": text}

    def _container(self, node: JsonObject, path: str, level: int) -> JsonObject | None:
        children = node.get("children")
        if not isinstance(children, list | tuple):
            self.fault(f"{path}.children", "expected a list")
            return None
        if level == MAX_LEVELS and children:
            return _caption()
        placed = (self.node(child, f"{path}.children[{index}]", level + 1) for index, child in enumerate(children))
        checked = [child for child in placed if child is not None]
        own = self.members({**node, "children": []}, Stack if node["type"] == "stack" else Grid, path)
        return None if own is None or (children and not checked) else {**own, "children": checked}

    def _leaf(self, node: JsonObject, kind: str, path: str) -> JsonObject | None:
        node = self._with_texts(node, path)
        if kind == "image" and node.get("alt") is None:
            self.fault(f"{path}.alt", "missing; an empty one says that the image is decoration")
            node = {**node, "alt": ""}
        if kind == "kv" and isinstance(items := node.get("items"), list | tuple):
            paths = [f"{path}.items[{index}]" for index in range(len(items))]
            checked = [self._item(item, own) for item, own in zip(items, paths, strict=True)]
            node = {**node, "items": [item for item in checked if item is not None]}
            if items and not node["items"]:
                return None
        return self.members(node, _LEAF_TYPES[kind], path)

    def _item(self, item: Json, path: str) -> JsonObject | None:
        if not isinstance(item, dict):
            self.fault(path, "expected an object with label and value")
            return None
        return self.members(self._with_texts(item, path), KeyValue, path)

    def _with_texts(self, node: JsonObject, path: str) -> JsonObject:
        """The node with numbers as text, where a text belongs."""
        numbers = {name: node[name] for name in _TEXT_MEMBERS if isinstance(node.get(name), bool | int | float)}
        for name in numbers:
            self.fault(f"{path}.{name}", "expected a string; the number is written as one")
        return {**node, **{name: msgspec.json.encode(value).decode() for name, value in numbers.items()}}

    def members(
        self, given: JsonObject, kind: type[_SchemaStruct], path: str, keep: tuple[str, ...] = ()
    ) -> JsonObject | None:
        """The valid members of an object, if all that it needs are among them. Those in `keep` must be valid too."""
        required = {each.encode_name for each in msgspec.structs.fields(kind) if each.required}
        while True:
            try:
                built: JsonObject = msgspec.to_builtins(msgspec.convert(given, kind))
            except (msgspec.ValidationError, TypeError, ValueError) as error:
                match = _FAULTY_MEMBER.search(str(error))
                name = None if match is None else match["path"] or match["missing"]
                reason = str(error).partition(" - at ")[0].replace("`", "")
                self.fault(f"{path}.{name}".strip(".") if name else path, reason[:1].lower() + reason[1:])
                if name is None or name in required or name in keep or name not in given:
                    return None
                given = {other: value for other, value in given.items() if other != name}
            else:
                return built


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
