"""An agent's card: what it is, and how it is called. Pure.

Clients of 0.3 read the members at the end, which those of 1.0 ignore.
"""

from dragoman.core.content import JsonObject
from dragoman.core.tools import AgentSpec
from dragoman.protocols.a2a.translate import OUTPUT_MODES
from dragoman.protocols.a2a.wire import ANSWERS

IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
FILE_TYPES = ("application/pdf",)
"""Agents that take files take any; callers look for this type."""


def card_of(spec: AgentSpec, url: str, *, has_keys: bool) -> JsonObject:
    """The card of an agent at an address. Its tools and options are its own affair."""
    takes_images = spec.capabilities.image_data or spec.capabilities.image_http
    files = (*(IMAGE_TYPES if takes_images else ()), *(FILE_TYPES if spec.capabilities.files else ()))
    description = spec.description or spec.title or spec.name
    interfaces = (("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"))
    answers = {
        "uri": ANSWERS,
        "description": "Calls that wait are shown, and answered, as data parts with their ids.",
        "required": False,
    }
    card: JsonObject = {
        "name": spec.name,
        "description": description,
        "version": spec.version,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": version} for binding, version in interfaces
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": False,
            "extensions": [answers],
        },
        "defaultInputModes": ["text/plain", "application/json", *files],
        "defaultOutputModes": list(OUTPUT_MODES),
        "skills": [{"id": spec.name, "name": spec.title or spec.name, "description": description, "tags": ["agent"]}],
    }
    if has_keys:
        scheme = {"httpAuthSecurityScheme": {"scheme": "Bearer"}, "type": "http", "scheme": "bearer"}
        card["securitySchemes"] = {"bearer": scheme}
        card["securityRequirements"] = [{"schemes": {"bearer": {"list": []}}}]
        card["security"] = [{"bearer": []}]
    return {**card, "url": url, "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}
