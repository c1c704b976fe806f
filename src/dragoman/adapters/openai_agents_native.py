"""Tools of the OpenAI Agents SDK that are not functions: those that the provider runs, computers, shells.

Pure: a model's output items as calls for the log.
"""

from typing import Any

import msgspec
from openai import BaseModel

from dragoman.adapters.openai_agents_items import Item, arguments_of
from dragoman.core.content import Json, JsonObject

_IDENTITY = {"id", "type", "status", "call_id", "created_by"}
_RUN_BY_SDK = {"computer_call", "local_shell_call", "shell_call", "apply_patch_call", "custom_tool_call"}
"""Their outputs are items of their own, which the SDK makes."""


class NativeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool that is not a function.

    Args:
        origin: the provider's id of the call.
        result: what the provider's tool returned; UNSET if the SDK runs the tool or somebody has to approve it.
        asks: the provider waits for an approval.
    """

    name: str
    arguments: JsonObject
    origin: str
    server: str | None = None
    result: Json | msgspec.UnsetType = msgspec.UNSET
    is_error: bool = False
    asks: bool = False


def native_call(output: BaseModel | dict[str, Any]) -> NativeCall | None:
    """The call that an output item stands for; None if it is none, or a function's."""
    item: Item = output if isinstance(output, dict) else output.model_dump(mode="json", exclude_none=True)
    kind = str(item.get("type"))
    origin = str(item.get("call_id") or item.get("id"))
    match kind:
        case "web_search_call":
            return NativeCall(
                name="web_search", arguments=item.get("action") or {}, origin=origin, result=item.get("status")
            )
        case "file_search_call":
            arguments = {"queries": item.get("queries", [])}
            return NativeCall(name="file_search", arguments=arguments, origin=origin, result=item.get("results", []))
        case "code_interpreter_call":
            arguments = {"code": item.get("code", "")}
            return NativeCall(
                name="code_interpreter", arguments=arguments, origin=origin, result=item.get("outputs", [])
            )
        case "mcp_call":
            error = item.get("error")
            return NativeCall(
                name=item["name"],
                arguments=arguments_of(item.get("arguments")),
                origin=origin,
                server=item.get("server_label"),
                result=item.get("output", "") if error is None else error,
                is_error=error is not None,
            )
        case "mcp_approval_request":
            return NativeCall(
                name=item["name"],
                arguments=arguments_of(item.get("arguments")),
                origin=origin,
                server=item.get("server_label"),
                asks=True,
            )
        case _ if kind in _RUN_BY_SDK:
            arguments = {name: value for name, value in item.items() if name not in _IDENTITY}
            return NativeCall(name=item.get("name") or kind.removesuffix("_call"), arguments=arguments, origin=origin)
        case _:
            return None
