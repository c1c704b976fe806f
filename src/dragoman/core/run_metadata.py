"""What is stored with a run beside its input: what the agent may know about the request, and how to answer it. Pure."""

from typing import Any, Literal

import msgspec

from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import KeyId, SessionId
from dragoman.core.time_zones import is_zone


class ContextEntry(msgspec.Struct, frozen=True):
    """A fact about the user's situation that the application wants the agent to know."""

    description: str
    value: str


class FinishedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A background task that has ended; `session_id` is the session in which it was worked on."""

    session_id: SessionId
    agent: str
    task: str
    succeeded: bool

    def heading(self) -> str:
        """What the message with the result begins with, for models and people."""
        return f"The background task of {self.agent} has ended: {self.task}\n\n"


class RunMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a run. A protocol sets what its clients can express; the log keeps it.

    Args:
        time_zone: the IANA time zone of the user's profile when the run was accepted.
        locale: the locale of that profile.
        client_time: the time that the user's device reported. Its `device_timezone` takes precedence over `time_zone`.
        user: the application's own id of its user.
        model: the model that the user requested.
        env: variables for the agent's tools.
        state: the state that the application shares with the agent; unset if it shares none.
        context: facts from the application about the user's situation.
        forwarded: what the client sent for the agent's own use; unset if nothing.
        headless: the answer goes to a program, and nobody can be asked anything.
        denies_approvals: the user cannot approve calls in this run: those that need it fail, and the agent continues.
        max_calls: how many calls of the agent the server executes; further ones fail, and the agent continues.
        output_schema: the JSON Schema that the answer has to match.
        instructions: the application's instructions for this run alone, which follow the agent's own.
        mode: the mode of this run, whatever the session's is; None if it is the session's.
        resends_history: the client sent its whole history, with new messages at its end.
        hops: how many servers have passed the request on before this one.
        finished_task: the background task whose result this run brings; its message is the result.
        task_depth: how many background tasks led to the run, each started by the work or the result of the one before.
        key_id: the API key with which the request came, for its token budget.
        internal: nobody wrote the run's messages, such as a schedule's prompt; histories leave them out.
        protocol: what only the protocol that started the run reads.
    """

    time_zone: str | None = None
    locale: str | None = None
    client_time: JsonObject | None = None
    user: str | None = None
    model: str | None = None
    env: dict[str, str] = {}
    state: Json = msgspec.UNSET
    context: tuple[ContextEntry, ...] = ()
    forwarded: Json = msgspec.UNSET
    headless: bool = False
    denies_approvals: bool = False
    max_calls: int | None = None
    output_schema: Json = None
    instructions: str | None = None
    mode: Literal["planning", "executing"] | None = None
    resends_history: bool = False
    hops: int = 0
    finished_task: FinishedTask | None = None
    task_depth: int = 0
    key_id: KeyId | None = None
    internal: bool = False
    protocol: JsonObject = {}


NO_METADATA = RunMetadata()


def given_state(metadata: RunMetadata) -> Json:
    """The state that the application sent with a run; unset if it has none, which many clients write as `{}`."""
    return msgspec.UNSET if metadata.state is None or metadata.state == {} else metadata.state


def effective_time_zone(metadata: RunMetadata) -> str:
    """The IANA zone of a run's events: the device's, else the profile's, else UTC (run service, time zones).

    An unknown zone of a device counts as absent: not every protocol refuses it.
    """
    device = None if metadata.client_time is None else metadata.client_time.get("device_timezone")
    zones = (each for each in (device, metadata.time_zone) if isinstance(each, str) and is_zone(each))
    return next(zones, "UTC")


def application_context(metadata: RunMetadata) -> str:
    """The application's facts as text for a model's instructions; empty if there are none."""
    lines = [f"- {entry.description}: {entry.value}" for entry in metadata.context]
    return "\n".join(("What the application says about the user's situation:", *lines)) if lines else ""


class HasMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event with a run's metadata, which also reads the untyped form that earlier releases stored."""

    metadata: RunMetadata = NO_METADATA
    untyped: JsonObject = msgspec.field(default_factory=dict, name="props")
    """Only read: `metadata` holds its content, and it is empty after decoding."""

    def __post_init__(self) -> None:
        if self.untyped:
            msgspec.structs.force_setattr(self, "metadata", from_untyped(self.untyped))
            msgspec.structs.force_setattr(self, "untyped", {})


_COMMON_MEMBERS = frozenset(RunMetadata.__struct_fields__) - {"forwarded", "resends_history", "protocol"}
_FORWARDED_MEMBERS = ("forwarded_props", "extra")


def from_untyped(properties: JsonObject) -> RunMetadata:
    """The metadata from the properties that earlier releases stored with a run.

    There the protocols' own members stood among the common ones, except that AgentScope's were under its name.
    """
    members: dict[str, Any] = {}
    own: JsonObject = {}
    for name, value in properties.items():
        if name in _COMMON_MEMBERS:
            members[name] = value
        elif name in _FORWARDED_MEMBERS:
            members["forwarded"] = value
        elif name == "agentscope":
            own |= value
        else:
            own[name] = value
    return msgspec.convert({**members, "protocol": own}, RunMetadata)
