"""Translate MCP tools and results into ours. Pure; the SDK's types are read, its package is never imported.

Source: Model Context Protocol, "Tools".
"""

import re
from typing import TYPE_CHECKING

from dragoman.core.agent import ToolFailed
from dragoman.core.content import File, Image, InputBlock, Json, JsonObject, Text
from dragoman.core.tools import ToolSpec

if TYPE_CHECKING:
    from mcp import Tool
    from mcp_types import CallToolResult, ContentBlock, EmbeddedResource

MAX_NAME_CHARS = 64
RESERVED_META_PREFIX = "io.modelcontextprotocol/"
"""Prefix of `_meta` keys that concern only the MCP client and server."""
_INVALID_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def to_tool_spec(tool: "Tool", prefix: str) -> ToolSpec:
    """The specification of an MCP tool. Characters that model providers do not accept in names become underscores."""
    title = tool.title or (tool.annotations.title if tool.annotations is not None else None)
    schema: JsonObject = {"type": "object", **tool.input_schema}
    return ToolSpec(
        name=_INVALID_NAME_CHARACTER.sub("_", f"{prefix}{tool.name}")[:MAX_NAME_CHARS],
        description=tool.description or "",
        parameters=schema,
        title=title,
    )


def is_repeatable(tool: "Tool") -> bool:
    """Whether the server declares the tool as read-only or idempotent."""
    hints = tool.annotations
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


def to_tool_result(result: "CallToolResult") -> Json:
    """The result of a call: blocks if it has more than text, else the structured value, else the text.

    Raises:
        ToolFailed: the tool reported an error.
    """
    blocks = [_block(each) for each in result.content]
    text = "\n".join(block.text for block in blocks if isinstance(block, Text))
    if result.is_error:
        raise ToolFailed(text or "the tool failed without a message")
    if any(not isinstance(block, Text) for block in blocks):
        return tuple(blocks)
    structured = result.structured_content
    if isinstance(structured, dict) and set(structured) == {"result"}:
        structured = structured["result"]  # this is how servers wrap a value that is not an object
    if structured is None:
        return text
    meta = {key: value for key, value in (result.meta or {}).items() if not key.startswith(RESERVED_META_PREFIX)}
    if isinstance(structured, dict) and meta:
        return {**structured, "_meta": meta}
    return structured


def _block(content: "ContentBlock") -> InputBlock:
    match content.type:
        case "text":
            return Text(content.text)
        case "image":
            return Image(f"data:{content.mime_type};base64,{content.data}")
        case "audio":
            url = f"data:{content.mime_type};base64,{content.data}"
            return File(url, media="audio", media_type=content.mime_type)
        case "resource_link":
            return File(str(content.uri), media_type=content.mime_type, name=content.name)
        case "resource":
            return _resource(content)


def _resource(content: "EmbeddedResource") -> InputBlock:
    resource = content.resource
    text = getattr(resource, "text", None)
    if text is not None:
        return Text(text)
    media_type = resource.mime_type or "application/octet-stream"
    blob = getattr(resource, "blob", "")
    return File(f"data:{media_type};base64,{blob}", media_type=media_type, name=str(resource.uri))
