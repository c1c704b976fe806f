"""What applications send into a session, in the core's words.

Pure values, already decoded and within their door's limits.
"""

from typing import Literal

import msgspec

from dragoman.core.content import InputBlock, JsonObject, Message
from dragoman.core.events import ProtocolName, SettingsChange
from dragoman.core.ids import CallId, SessionId
from dragoman.core.run_metadata import NO_METADATA, RunMetadata
from dragoman.core.tools import ToolGrant, ToolSpec


class StoredImage(msgspec.Struct, frozen=True):
    """A picture that was uploaded before; its door has made sure that it is the user's own. See `core.uploads`."""

    path: str


class UserInput(msgspec.Struct, frozen=True, kw_only=True):
    """A user's message, before it has an id of ours."""

    content: str | tuple[InputBlock | StoredImage, ...]
    client_id: str | None = None
    name: str | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The application's result for a call: for a client tool, for a question, or in place of a server tool."""

    call_id: CallId
    content: str | tuple[InputBlock, ...]
    is_error: bool = False


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The user allows or forbids a call. With `remember` the tool is allowed from here on without asking."""

    call_id: CallId
    granted: bool
    reason: str | None = None
    remember: bool = False


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The user's answer to a question: by question index, the indices of the chosen options or a text of its own."""

    call_id: CallId
    selections: dict[str, list[int]] = {}
    custom: dict[str, str] = {}


Answer = Result | Decision | Choice


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """One request to go on with a session: answers first, then messages.

    Args:
        complete: refuse unless every waiting call is answered or a message comes (the rule of AAP's door).
        client_tools: the application's tools for this run alone (shared rules, 17). They take precedence over the
            session's. One that the agent does not support, or that has the name of an agent's tool, is dropped.
        parameters: settings of the model for this run, by their OpenAI names.
        metadata: what is stored with the run beside its input.
    """

    protocol: ProtocolName
    messages: tuple[UserInput, ...] = ()
    answers: tuple[Answer, ...] = ()
    change: SettingsChange = SettingsChange()
    client_run_id: str | None = None
    requires_all_answers: bool = False
    client_tools: tuple[ToolSpec, ...] = ()
    parameters: JsonObject = {}
    metadata: RunMetadata = NO_METADATA


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """A new session. Seeds carry the client's own call ids; their message ids are ours.

    `session_id` is the client's choice, where it made one; `name` is what the client calls it, if that is no UUID.
    `change` sets what stands in no field here, such as a title or the mode.
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
