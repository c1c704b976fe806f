"""The input of sessions, in the core's terms. Pure.

The values are decoded and within the limits of their protocol.
"""

from typing import Literal

import msgspec

from dragoman.core.content import InputBlock, Json, JsonObject, Message
from dragoman.core.events import ProtocolName, SettingsChange
from dragoman.core.ids import CallId, SessionId
from dragoman.core.run_metadata import NO_METADATA, RunMetadata
from dragoman.core.tools import ToolGrant, ToolSpec

DisconnectPolicy = Literal["cancel", "continue"]
"""What happens to a run whose client disconnects while nobody else reads it."""


class StoredImage(msgspec.Struct, frozen=True):
    """An image that was uploaded before. The protocol has checked that it belongs to the user. See `core.uploads`."""

    path: str


class UserInput(msgspec.Struct, frozen=True, kw_only=True):
    """A user's message, before the server gives it an id. `metadata` is kept with the message for the application."""

    content: str | tuple[InputBlock | StoredImage, ...]
    client_id: str | None = None
    name: str | None = None
    metadata: Json | msgspec.UnsetType = msgspec.UNSET


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The application's result for a call: for a client tool or a question.

    `raw` is the value that the tool returned, if it contains more than `content`. It is kept for client tools only.
    """

    call_id: CallId
    content: str | tuple[InputBlock, ...]
    is_error: bool = False
    raw: Json | msgspec.UnsetType = msgspec.UNSET


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The user allows or denies a call. With `remember` the tool is allowed without asking from here on.

    A call that is allowed with `arguments` runs with those instead of its own.
    """

    call_id: CallId
    granted: bool
    reason: str | None = None
    remember: bool = False
    arguments: JsonObject | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The user's answer to a question: by question index, the indices of the chosen options or a custom text."""

    call_id: CallId
    selections: dict[str, list[int]] = {}
    custom: dict[str, str] = {}


Answer = Result | Decision | Choice


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """One request to continue a session: answers first, then messages.

    Args:
        system: system entries, which enter the history before the messages. Only for a run that starts at once.
        requires_all_answers: refuse unless every waiting call is answered (AAP).
        client_tools: the application's own tools for this run alone (shared rules, 17). They take precedence over the
            session's; one with the name of a tool of the agent, or that the agent does not accept, is left out. None
            if the application does not say: then a run that continues after answers keeps those of the run that asked.
        parameters: model parameters for this run, by their OpenAI names.
        keeps_parameters: a run that continues after answers keeps those parameters that are not named here.
        metadata: what is stored with the run beside its input.
        keeps_unlisted: leave an unlisted session out of the lists. Any other input makes it listed, unless it is
            ephemeral.
    """

    protocol: ProtocolName
    system: tuple[str, ...] = ()
    messages: tuple[UserInput, ...] = ()
    answers: tuple[Answer, ...] = ()
    change: SettingsChange = SettingsChange()
    client_run_id: str | None = None
    requires_all_answers: bool = False
    client_tools: tuple[ToolSpec, ...] | None = None
    parameters: JsonObject = {}
    keeps_parameters: bool = True
    metadata: RunMetadata = NO_METADATA
    keeps_unlisted: bool = False


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """A new session. Seeds have the client's own call ids; the server chooses their message ids.

    `session_id` is the id that the client chose, if any; `name` is the client's name for the session if that is not a
    UUID. `change` sets further settings, such as a title or the mode. With `claims_calls` the open calls of the
    seeds are the application's own, whatever their names: they take a result, and never run here.
    """

    protocol: ProtocolName
    agent: str
    session_id: SessionId | None = None
    name: str | None = None
    labels: dict[str, str] = {}
    tools: Literal["all"] | tuple[ToolGrant, ...] | None = None
    options: dict[str, str] = {}
    client_tools: tuple[ToolSpec, ...] = ()
    seeds: tuple[Message, ...] = ()
    memory_enabled: bool | None = None
    change: SettingsChange = SettingsChange()
    claims_calls: bool = False
