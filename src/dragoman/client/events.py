"""What a client hears and says: one vocabulary for the four protocols. Pure values.

A run is told as events and ends with exactly one `Ended`; a history is told as messages, whose blocks are of the same
kinds. What a person has to decide comes as `Permission` or `Question`, and is answered with `Allow`, `Deny` or
`Choice`.
"""

from typing import Literal

import msgspec

from dragoman.core.content import Json, JsonObject

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "max_steps", "cancelled", "error", "interrupted"]
"""Why a run ended. `tool_use`: it waits for the application's answers. What a protocol cannot tell apart is `error`."""

Role = Literal["user", "assistant", "tool", "system"]


class _TaggedStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Frozen, and written as JSON with its kind in `type`."""


# --- what a run tells -------------------------------------------------------------------------------------------------


class Text(_TaggedStruct, frozen=True, kw_only=True):
    """Words of the answer; in a run a piece of them, in a history a whole block."""

    text: str
    loop: str = ""
    """Which sub-agent says it; empty: the agent itself."""


class Thinking(_TaggedStruct, frozen=True, kw_only=True):
    """Reasoning, where the model shows it; pieces like `Text`."""

    text: str
    loop: str = ""


class Image(_TaggedStruct, frozen=True, kw_only=True):
    """A picture: an `https://` URL or a `data:` URI."""

    url: str
    loop: str = ""


class ToolCall(_TaggedStruct, frozen=True, kw_only=True):
    """The agent uses a tool."""

    id: str
    name: str
    arguments: JsonObject
    loop: str = ""


class ToolResult(_TaggedStruct, frozen=True, kw_only=True):
    """What a call gave: of a tool of the server's, or of a function of this client's."""

    call_id: str
    name: str
    text: str
    images: tuple[str, ...] = ()
    loop: str = ""


class Permission(_TaggedStruct, frozen=True, kw_only=True):
    """A call waits until a person allows or forbids it."""

    call_id: str
    name: str
    arguments: JsonObject
    loop: str = ""


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """One choice of a question."""

    label: str
    description: str = ""


class QuestionItem(msgspec.Struct, frozen=True, omit_defaults=True, rename={"multi_select": "multiSelect"}):
    """One question with its choices. Words of one's own are always an answer too."""

    question: str
    header: str = ""
    options: tuple[Option, ...] = ()
    multi_select: bool = False


class Question(_TaggedStruct, frozen=True, kw_only=True):
    """The agent asks a person. It comes instead of the `ToolCall` that stands behind it."""

    call_id: str
    questions: tuple[QuestionItem, ...]
    loop: str = ""


class Notice(_TaggedStruct, frozen=True, kw_only=True):
    """What is worth knowing and part of no answer: `reconnecting`, `plan`, and what only one protocol has."""

    kind: str
    content: Json = None
    loop: str = ""


class Usage(msgspec.Struct, frozen=True):
    """Tokens, where the server reports them."""

    input_tokens: int
    output_tokens: int


class Problem(msgspec.Struct, frozen=True):
    """Why a run failed, in the server's words."""

    code: str
    message: str


class ClientCall(_TaggedStruct, frozen=True, kw_only=True):
    """A call of a tool of the application's that waits for its result."""

    call_id: str
    name: str
    arguments: JsonObject


Pending = Permission | Question | ClientCall
"""What waits for an answer."""


class Ended(_TaggedStruct, frozen=True, kw_only=True):
    """The run is over: always the last event, and there is only one."""

    reason: StopReason
    run_id: str = ""
    usage: Usage | None = None
    problem: Problem | None = None
    pending: tuple[Pending, ...] = ()
    """With `tool_use`: what has no answer so far."""


Event = Text | Thinking | Image | ToolCall | ToolResult | Permission | Question | Notice | Ended


# --- what a person or an application answers --------------------------------------------------------------------------


class Allow(_TaggedStruct, frozen=True, kw_only=True):
    """The call may run. `always`: and every later one of its tool in this session."""

    call_id: str = ""
    always: bool = False


class Deny(_TaggedStruct, frozen=True, kw_only=True):
    """The call must not run."""

    call_id: str = ""
    reason: str = ""


class Choice(_TaggedStruct, frozen=True, kw_only=True):
    """The answer to a question: labels of chosen options, or one's own words. `Choice.of` makes the usual ones.

    Both are by the question's place, counted from 0.
    """

    call_id: str = ""
    selections: dict[int, tuple[str, ...]] = {}
    custom: dict[int, str] = {}

    @staticmethod
    def of(*labels: str, custom: str = "", call_id: str = "") -> "Choice":
        """The answer to a call with one question."""
        return Choice(
            call_id=call_id,
            selections={0: labels} if labels else {},
            custom={0: custom} if custom else {},
        )


class Result(_TaggedStruct, frozen=True, kw_only=True):
    """The result of a call of the application's own tool."""

    call_id: str
    text: str
    images: tuple[str, ...] = ()


Answer = Allow | Deny | Choice | Result


# --- what was ---------------------------------------------------------------------------------------------------------


Block = Text | Thinking | Image | ToolCall | ToolResult | Question | Notice


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of a history."""

    role: Role
    blocks: tuple[Block, ...]
    id: str = ""

    @property
    def text(self) -> str:
        """Its words, of all blocks."""
        return "".join(each.text for each in self.blocks if isinstance(each, Text | ToolResult))


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as it is declared: one of the server's, or one of the application's without a function behind it."""

    name: str
    description: str = ""
    parameters: JsonObject = {}


class AgentOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A setting of an agent's. A secret is never shown again."""

    name: str
    kind: Literal["text", "secret", "select"]
    description: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""


class Agent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that a server offers, as far as the protocol tells."""

    name: str
    title: str = ""
    description: str = ""
    version: str = ""
    tools: tuple[Tool, ...] = ()
    options: tuple[AgentOption, ...] = ()


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session, as far as the protocol tells. Times are RFC 3339."""

    id: str
    agent: str = ""
    title: str = ""
    status: str = ""
    """`idle`, `running` or `waiting` (for answers); empty where the server does not tell."""
    created_at: str = ""
    updated_at: str = ""
    pending: tuple[Pending, ...] = ()


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run: its events put together."""

    events: tuple[Event, ...]

    @property
    def text(self) -> str:
        """What the agent said."""
        return "".join(each.text for each in self.events if isinstance(each, Text) and not each.loop)

    @property
    def thinking(self) -> str:
        """What it thought, as far as it showed that."""
        return "".join(each.text for each in self.events if isinstance(each, Thinking) and not each.loop)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tools that it used."""
        return tuple(each for each in self.events if isinstance(each, ToolCall) and not each.loop)

    @property
    def end(self) -> Ended:
        """How it ended."""
        last = self.events[-1]
        assert isinstance(last, Ended), "a run's last event is its end"
        return last
