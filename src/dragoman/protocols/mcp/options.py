"""The protocol's settings. Pure."""

from typing import Literal

import msgspec

from dragoman.core.content import JsonObject

Approvals = Literal["elicit", "other_clients"]


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
    """

    path: str = "/mcp"
    version: str = ""
    body_limit: int = 16 * 1024 * 1024
    answer_within_s: float = 50.0
    task_after_s: float = 10.0
    approvals: Approvals = "elicit"
    resources: bool = True
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    public_url: str | None = None

    @property
    def server_info(self) -> JsonObject:
        """What the server says about itself."""
        return {"name": "dragoman", "title": "Dragoman", "version": self.version}
