"""The protocol's settings. Pure."""

from typing import Literal
from urllib.parse import urlsplit

import msgspec

from dragoman.core.content import JsonObject
from dragoman.core.inputs import DisconnectPolicy

METADATA_PATH = ".well-known/oauth-protected-resource"

Approvals = Literal["elicit", "other_clients"]


class Authorization(msgspec.Struct, frozen=True):
    """Where hosts get tokens for this server: RFC 9728 and MCP's page "Authorization".

    Attributes:
        resource: the address of the endpoint, for which tokens are issued.
        issuer: the authorization server.
        scopes: the issuer's scopes for hosts, if tokens carry such.
    """

    resource: str
    issuer: str
    scopes: tuple[str, ...] = ()

    @property
    def metadata(self) -> JsonObject:
        """The protected resource's metadata: RFC 9728, section 2."""
        return {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            **({"scopes_supported": list(self.scopes)} if self.scopes else {}),
            "bearer_methods_supported": ["header"],
            "resource_name": "Dragoman",
        }

    @property
    def metadata_url(self) -> str:
        """The metadata's address: the well-known path goes between the host and the resource's path."""
        parts = urlsplit(self.resource)
        return f"{parts.scheme}://{parts.netloc}/{METADATA_PATH}{parts.path}"

    def describes(self, path: str) -> bool:
        """Whether a path after `METADATA_PATH` is that of the endpoint, or of an agent below it; empty for any."""
        own = urlsplit(self.resource).path
        return path == "" or f"{path}/".startswith(f"{own}/")


class McpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the MCP endpoint.

    Attributes:
        path: where it is mounted.
        version: of the server, for its description.
        body_limit: bytes of a request.
        answer_within_s: how long a run may take before its call is answered with `working`; 0 for any time.
        task_after_s: how long until the call of a client with tasks is answered with a task; 0 for any time.
        approvals: who answers approvals: the host's user, in a form, or other clients only.
        resources: whether conversations can be read.
        on_disconnect: what happens to a run when the request that began it is given up, in the new version.
        public_url: the address of the server, if it is known.
        authorization: where hosts get tokens; None if they need a key.
    """

    path: str = "/mcp"
    version: str = ""
    body_limit: int = 16 * 1024 * 1024
    answer_within_s: float = 50.0
    task_after_s: float = 10.0
    approvals: Approvals = "elicit"
    resources: bool = True
    on_disconnect: DisconnectPolicy = "cancel"
    public_url: str | None = None
    authorization: "Authorization | None" = None

    @property
    def server_info(self) -> JsonObject:
        """What the server says about itself."""
        return {"name": "dragoman", "title": "Dragoman", "version": self.version}
