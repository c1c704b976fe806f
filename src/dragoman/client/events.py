"""Events, messages and answers: one set of types for all protocols. Pure values.

A run is a sequence of events that ends with exactly one `Ended`; a history is a list of messages, whose blocks are of
the same types. A decision for a person arrives as `Permission` or `Question` and is answered with `Allow`, `Deny` or
`Choice`.
"""

from typing import Literal

import msgspec

from dragoman.core.content import Json, JsonObject

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "max_steps", "cancelled", "error", "interrupted"]
"""Why a run ended. `tool_use`: it waits for answers. `error` also covers what a protocol does not distinguish."""

Role = Literal["user", "assistant", "tool", "system"]


class _TaggedStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A frozen struct, encoded as JSON with its class name in `type`."""


# --- events of a run --------------------------------------------------------------------------------------------------


class Text(_TaggedStruct, frozen=True, kw_only=True):
    """Text of the answer: in a run a delta, in a history a whole block."""

    text: str
    loop: str = ""
    """The sub-agent that wrote it; empty for the agent itself."""


class Thinking(_TaggedStruct, frozen=True, kw_only=True):
    """Reasoning, if the model exposes it; in deltas like `Text`."""

    text: str
    loop: str = ""


class Restarted(_TaggedStruct, frozen=True, kw_only=True):
    """The server crashed while the agent spoke, and the agent says it again: `text` and `thinking`, the end of what the
    agent has said so far, are cut off and no longer part of the answer. Precedes the first event that repeats it.
    """

    text: str = ""
    thinking: str = ""
    loop: str = ""


class Image(_TaggedStruct, frozen=True, kw_only=True):
    """An image: an `https://` URL or a `data:` URI."""

    url: str
    loop: str = ""


class ToolCall(_TaggedStruct, frozen=True, kw_only=True):
    """The agent calls a tool."""

    id: str
    name: str
    arguments: JsonObject
    loop: str = ""


class ToolResult(_TaggedStruct, frozen=True, kw_only=True):
    """The result of a call, of one of the server's tools or of one of this client's functions."""

    call_id: str
    name: str
    text: str
    images: tuple[str, ...] = ()
    loop: str = ""


class Permission(_TaggedStruct, frozen=True, kw_only=True):
    """A tool call waits until a person allows or denies it.

    `is_repeat`: the server restarted while the call ran, so it may have run already. To allow it is to run it again.
    """

    call_id: str
    name: str
    arguments: JsonObject
    loop: str = ""
    is_repeat: bool = False


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """One option of a question."""

    label: str
    description: str = ""


class QuestionItem(msgspec.Struct, frozen=True, omit_defaults=True, rename={"multi_select": "multiSelect"}):
    """One question with its options. Free text is always a valid answer as well."""

    question: str
    header: str = ""
    options: tuple[Option, ...] = ()
    multi_select: bool = False


class Question(_TaggedStruct, frozen=True, kw_only=True):
    """The agent asks a person something. Replaces the `ToolCall` that carries the question."""

    call_id: str
    questions: tuple[QuestionItem, ...]
    loop: str = ""


class Notice(_TaggedStruct, frozen=True, kw_only=True):
    """Anything that is not part of the answer: `reconnecting`, `plan`, and events that only one protocol has."""

    kind: str
    content: Json = None
    loop: str = ""


class Usage(msgspec.Struct, frozen=True):
    """Token counts, if the server reports them."""

    input_tokens: int
    output_tokens: int


class Problem(msgspec.Struct, frozen=True):
    """Why a run failed: the server's code and message."""

    code: str
    message: str


class ClientCall(_TaggedStruct, frozen=True, kw_only=True):
    """A call of one of the application's own tools that waits for its result."""

    call_id: str
    name: str
    arguments: JsonObject


Pending = Permission | Question | ClientCall
"""What can wait for an answer."""


class Ended(_TaggedStruct, frozen=True, kw_only=True):
    """The run is over. Always the last event, and sent only once."""

    reason: StopReason
    run_id: str = ""
    usage: Usage | None = None
    problem: Problem | None = None
    pending: tuple[Pending, ...] = ()
    """With `tool_use`: what still waits for an answer."""


Event = Text | Thinking | Restarted | Image | ToolCall | ToolResult | Permission | Question | Notice | Ended


# --- answers ----------------------------------------------------------------------------------------------------------


class Allow(_TaggedStruct, frozen=True, kw_only=True):
    """Allow the call. With `always`, allow all later calls of the tool in this session as well."""

    call_id: str = ""
    always: bool = False


class Deny(_TaggedStruct, frozen=True, kw_only=True):
    """Deny the call. The model reads the reason."""

    call_id: str = ""
    reason: str = ""


class Choice(_TaggedStruct, frozen=True, kw_only=True):
    """The answer to a question: labels of selected options, free text, or both. `Choice.of` covers the usual case.

    `selections` and `custom` map a question's index, counted from 0, to its answer.
    """

    call_id: str = ""
    selections: dict[int, tuple[str, ...]] = {}
    custom: dict[int, str] = {}

    @staticmethod
    def of(*labels: str, custom: str = "", call_id: str = "") -> "Choice":
        """Answer a call that asks a single question."""
        return Choice(
            call_id=call_id,
            selections={0: labels} if labels else {},
            custom={0: custom} if custom else {},
        )


class Result(_TaggedStruct, frozen=True, kw_only=True):
    """The result of a call of one of the application's own tools."""

    call_id: str
    text: str
    images: tuple[str, ...] = ()


Answer = Allow | Deny | Choice | Result


# --- histories, agents, sessions --------------------------------------------------------------------------------------


Block = Text | Thinking | Image | ToolCall | ToolResult | Question | Notice


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a history."""

    role: Role
    blocks: tuple[Block, ...]
    id: str = ""
    interrupted: bool = False
    """Whether a stop or a crash of the server cut the message off."""
    cut: bool = False
    """Whether it was a crash. The agent repeats what a crash cut off, in the next message."""

    @property
    def text(self) -> str:
        """The text of all blocks."""
        return "".join(each.text for each in self.blocks if isinstance(each, Text | ToolResult))


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The declaration of a tool: one of the server's, or one of the application's without a function."""

    name: str
    description: str = ""
    parameters: JsonObject = {}


class AgentOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An option of an agent. The server never returns the value of a secret."""

    name: str
    kind: Literal["text", "secret", "select"]
    description: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""


class Agent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent of a server, with as much detail as the protocol provides."""

    name: str
    title: str = ""
    description: str = ""
    version: str = ""
    tools: tuple[Tool, ...] = ()
    options: tuple[AgentOption, ...] = ()


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session, with as much detail as the protocol provides. Times are RFC 3339 strings."""

    id: str
    agent: str = ""
    title: str = ""
    status: str = ""
    """`idle`, `running` or `waiting` (for answers); empty if the server does not report it."""
    created_at: str = ""
    updated_at: str = ""
    pending: tuple[Pending, ...] = ()
    labels: dict[str, str] = {}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    events: tuple[Event, ...]

    @property
    def text(self) -> str:
        """The agent's text, without sub-agents and without what a crash of the server cut off."""
        said: list[str] = []
        for each in self.events:
            if isinstance(each, Text) and not each.loop:
                said.append(each.text)
            elif isinstance(each, Restarted) and not each.loop:
                said = ["".join(said).removesuffix(each.text)]
        return "".join(said)

    @property
    def thinking(self) -> str:
        """The agent's reasoning, as far as the model exposes it; without what `text` leaves out."""
        said: list[str] = []
        for each in self.events:
            if isinstance(each, Thinking) and not each.loop:
                said.append(each.text)
            elif isinstance(each, Restarted) and not each.loop:
                said = ["".join(said).removesuffix(each.thinking)]
        return "".join(said)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The agent's tool calls."""
        return tuple(each for each in self.events if isinstance(each, ToolCall) and not each.loop)

    @property
    def end(self) -> Ended:
        """The last event."""
        last = self.events[-1]
        assert isinstance(last, Ended), "a run's last event is Ended"
        return last
