"""What the API sends: responses, their items, conversations, models and lists. Pure.

Every field of a response is always there, because strict clients refuse an object that lacks one.
"""

from typing import Generic, Literal, TypeVar

import msgspec

from dragoman.core.content import Json, JsonObject

T = TypeVar("T")
ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class _Tagged(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Something that its `type` distinguishes."""


# --- content ----------------------------------------------------------------------------------------------------------


class OutputText(_Tagged, frozen=True, tag="output_text"):
    """Text of the agent."""

    text: str = ""
    annotations: tuple[JsonObject, ...] = ()
    logprobs: tuple[JsonObject, ...] = ()


class SummaryText(_Tagged, frozen=True, tag="summary_text"):
    """Reasoning of the agent."""

    text: str = ""


class InputText(_Tagged, frozen=True, tag="input_text"):
    """Text that the application sent."""

    text: str


class InputImage(_Tagged, frozen=True, tag="input_image"):
    """An image that the application sent, by URL or as a `data:` URI."""

    image_url: str
    detail: str = "auto"
    file_id: None = None


class InputFile(_Tagged, frozen=True, tag="input_file", omit_defaults=True):
    """A file that the application sent."""

    file_url: str | None = None
    file_data: str | None = None
    filename: str | None = None


Part = InputText | InputImage | InputFile | OutputText


# --- items ------------------------------------------------------------------------------------------------------------


class Message(_Tagged, frozen=True, tag="message"):
    """What the agent said in one step, or a message that the application sent."""

    id: str
    status: ItemStatus = "in_progress"
    role: Literal["user", "assistant", "system"] = "assistant"
    content: tuple[Part, ...] = ()


class Reasoning(_Tagged, frozen=True, tag="reasoning"):
    """What the model thought. It has no `encrypted_content`: OpenAI allows null there, Open Responses does not."""

    id: str
    status: ItemStatus = "in_progress"
    summary: tuple[SummaryText, ...] = ()


class FunctionCall(_Tagged, frozen=True, tag="function_call"):
    """A call that the application executes. Its `arguments` are JSON as text."""

    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: ItemStatus = "in_progress"


class McpError(_Tagged, frozen=True, tag="mcp_tool_execution_error"):
    """Why a call failed."""

    content: str


class McpCall(_Tagged, frozen=True, tag="mcp_call"):
    """A call that the server executes, whether or not the tool belongs to an MCP server."""

    id: str
    server_label: str
    name: str
    arguments: str = ""
    output: str | None = None
    error: McpError | None = None
    status: Literal["in_progress", "completed", "failed", "incomplete"] = "in_progress"
    approval_request_id: str | None = None


class McpApprovalRequest(_Tagged, frozen=True, tag="mcp_approval_request", omit_defaults=True):
    """A call that waits for approval. `repeat`, an extension: it may have run already (shared rules, 20)."""

    id: str
    server_label: str
    name: str
    arguments: str
    repeat: bool = False


class Compaction(_Tagged, frozen=True, tag="compaction"):
    """The summary of a conversation. The name of its content is OpenAI's; it is the summary itself."""

    id: str
    encrypted_content: str


OutputItem = Message | Reasoning | FunctionCall | McpCall | McpApprovalRequest


class FunctionCallOutput(_Tagged, frozen=True, tag="function_call_output"):
    """What the application's tool returned: a text, or parts if there is more than text."""

    id: str
    call_id: str
    output: str | tuple[Part, ...]
    status: ItemStatus = "completed"


class McpApprovalResponse(_Tagged, frozen=True, tag="mcp_approval_response"):
    """Somebody's decision about a call."""

    id: str
    approval_request_id: str
    approve: bool
    reason: str | None = None


Item = OutputItem | FunctionCallOutput | McpApprovalResponse


# --- responses --------------------------------------------------------------------------------------------------------


class ErrorInfo(msgspec.Struct, frozen=True):
    """Why a response failed. The AI SDK's provider accepts none without `type`."""

    code: str
    message: str
    type: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why a response ended early."""

    reason: Literal["max_output_tokens", "content_filter"]


class InputTokensDetails(msgspec.Struct, frozen=True):
    """A part of the input tokens."""

    cached_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """A part of the output tokens."""

    reasoning_tokens: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of all model calls of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int


class ConversationRef(msgspec.Struct, frozen=True):
    """The conversation of a response."""

    id: str


class ToolEcho(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the application, as a response repeats it."""

    type: Literal["function"] = "function"
    name: str
    description: str | None
    parameters: JsonObject | None
    strict: bool | None


class ReasoningEcho(msgspec.Struct, frozen=True):
    """The settings of the model's reasoning."""

    effort: str | None = None
    summary: str | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response: one run of an agent."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    error: ErrorInfo | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    output: tuple[OutputItem, ...] = ()
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: ConversationRef | None = None
    tools: tuple[ToolEcho, ...] = ()
    tool_choice: Json = "auto"
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    temperature: float = 1
    top_p: float = 1
    presence_penalty: float = 0
    frequency_penalty: float = 0
    top_logprobs: int = 0
    text: JsonObject = msgspec.field(default_factory=lambda: {"format": {"type": "text"}})
    reasoning: ReasoningEcho = ReasoningEcho()
    truncation: str = "disabled"
    service_tier: Literal["default"] = "default"
    store: bool = True
    background: bool = False
    metadata: dict[str, str] = {}
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    usage: Usage | None = None
    user: str | msgspec.UnsetType = msgspec.UNSET


class CompactedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in fewer items. The usage is an estimate."""

    id: str
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int
    output: tuple[Message | Compaction, ...]
    usage: Usage


class DeletedResponse(msgspec.Struct, frozen=True):
    """The answer to the deletion of a response."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


# --- conversations, models, lists -------------------------------------------------------------------------------------


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation: a session."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str] = {}


class DeletedConversation(msgspec.Struct, frozen=True):
    """The answer to the deletion of a conversation."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a list; `after=last_id` continues it."""

    object: Literal["list"] = "list"
    data: tuple[T, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An agent."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "dragoman"
    name: str
    description: str | None


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """All agents."""

    object: Literal["list"] = "list"
    data: tuple[ModelInfo, ...]


class ErrorFacts(msgspec.Struct, frozen=True):
    """What went wrong: a sentence for people, a code for programs, and the field of the request at fault."""

    message: str
    type: str
    param: str
    code: str


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every error."""

    error: ErrorFacts


class SocketError(msgspec.Struct, frozen=True, kw_only=True):
    """The event that answers a failure on a WebSocket."""

    type: Literal["error"] = "error"
    status: int
    error: ErrorFacts
