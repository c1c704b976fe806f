"""Compaction: summarize the older part of a conversation with the agent's own model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import structlog

from dragoman.agents.stream_cleanup import closing
from dragoman.agents.window import cut_points, shorten_text, tokens_of, tokens_of_all
from dragoman.core import agent as contract
from dragoman.core.content import (
    AssistantMessage,
    Call,
    Data,
    File,
    Image,
    Message,
    SystemMessage,
    Text,
    ToolMessage,
    Usage,
    UserMessage,
)
from dragoman.core.ids import MessageId
from dragoman.core.tokens import CHARS_PER_TOKEN, estimate_tokens
from dragoman.ports.models import Finished, Model, ModelFailed, ModelRequest, TextDelta

if TYPE_CHECKING:
    from dragoman.core.agent import Run

INSTRUCTIONS = """\
You write summaries of conversations between a user and an assistant, so that the assistant can continue from them.
Keep every fact, name, number, decision, request and open point that may matter later. Leave out small talk. Do not \
answer the conversation and do not address anybody. Write at most 300 words."""
SUMMARY_HEADING = "Summary of the conversation so far:"
SUMMARY_TOKENS = 700
SUMMARY_BUDGET_DIVISOR = 6
"""A summary takes at most one sixth of the budget."""
INSTRUCTION_TOKENS = 150
SMALL_BUDGET_TOKENS = 16_000
"""Below this budget, the length of a summary is limited. Above it, a model may think before it writes."""
MAX_PARTS = 6
"""Maximum number of model calls for one summary. The oldest parts of a longer conversation are dropped."""
MAX_ITEM_CHARS = 4_000
"""Maximum length of a single message, call or result in the text to summarize."""
RECENT_MESSAGES_SHARE = 0.4
"""Share of the budget for the newest messages, which are not summarized."""
MAX_SYSTEM_CHARS = 8_000
"""Maximum length of the system messages, which every summary repeats."""

log = structlog.get_logger(__name__)


class Compactor:
    """Summarizes conversations for one agent."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name
        self.usage = Usage()
        """Tokens used by all summaries so far."""

    async def compact(self, run: "Run", messages: Sequence[Message], budget: int) -> bool:
        """Replace the older messages of a run's context with a summary, and record it in the session.

        Args:
            run: the run whose context it is.
            messages: the context, as the run returned it.
            budget: maximum number of tokens for the conversation.

        Returns:
            False if there was nothing to summarize or if the model failed.
        """
        cut_index = find_cut_index(messages, int(budget * RECENT_MESSAGES_SHARE))
        if cut_index is None:
            return False
        summary = await self.summarize(messages, cut_index, await run.summary(), budget)
        if summary is None:
            return False
        await run.compact(
            summary.text,
            summary.keep_from,
            tokens_before=summary.tokens_before,
            tokens_after=summary.tokens_after,
        )
        return True

    async def summarize(
        self, messages: Sequence[Message], cut_index: int, previous_summary: str | None, budget: int
    ) -> contract.Summary | None:
        """Summarize the messages before `cut_index`; None if the model fails or returns nothing.

        Args:
            messages: the context.
            cut_index: index of the first message that is not summarized.
            previous_summary: the summary that precedes the messages.
            budget: maximum number of tokens for the conversation.
        """
        older = messages[:cut_index]
        try:
            summary = await self._summarize_in_parts(older, previous_summary, budget)
        except ModelFailed as error:
            log.warning("summary failed", error=str(error))
            return None
        if not summary:
            return None
        text = f"{system_texts(older, previous_summary)}{SUMMARY_HEADING}\n{summary}"
        recent_tokens = tokens_of_all(messages[cut_index:])
        older_tokens = tokens_of_all(older) + (estimate_tokens(previous_summary) if previous_summary else 0)
        return contract.Summary(
            text=text,
            keep_from=messages[cut_index].id,
            tokens_before=recent_tokens + older_tokens,
            tokens_after=recent_tokens + estimate_tokens(text),
            usage=self.usage,
        )

    async def _summarize_in_parts(self, messages: Sequence[Message], previous_summary: str | None, budget: int) -> str:
        """Summarize part by part, because the conversation may be longer than one request."""
        length = min(SUMMARY_TOKENS, budget // SUMMARY_BUDGET_DIVISOR)
        # A request also holds the previous summary and leaves room for the new one.
        room = max(budget - 2 * length - INSTRUCTION_TOKENS, budget // 3)
        summary = _without_system(previous_summary) if previous_summary else ""
        for part in split_into_parts([as_transcript_line(each) for each in messages], room)[-MAX_PARTS:]:
            before = f"{SUMMARY_HEADING}\n{summary}\n\nWhat followed:\n" if summary else ""
            text = f"{before}{part}\n\nSummarize all of this."
            text = shorten_text(text, (room + length) * CHARS_PER_TOKEN)
            summary = await self._generate(text, length if budget < SMALL_BUDGET_TOKENS else None) or summary
        return summary.strip()

    async def _generate(self, text: str, max_tokens: int | None) -> str:
        request = ModelRequest(
            model=self._name,
            messages=[UserMessage(id=MessageId("to-sum-up"), content=text)],
            instructions=INSTRUCTIONS,
            max_tokens=max_tokens,
        )
        deltas: list[str] = []
        async with closing(self._model.stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    deltas.append(event.text)
                elif isinstance(event, Finished) and event.usage is not None:
                    self.usage += event.usage
        return "".join(deltas).strip()


def find_cut_index(messages: Sequence[Message], max_tokens: int) -> int | None:
    """Index of the first message that is not summarized, so that at most `max_tokens` remain if possible.

    At least the newest message remains. The first suitable user message is preferred; None if no cut is possible.
    """
    remaining = [0] * (len(messages) + 1)
    for index in range(len(messages) - 1, -1, -1):
        remaining[index] = remaining[index + 1] + tokens_of(messages[index])
    allowed = [index for index in cut_points(messages) if index > 0]
    fitting = [index for index in allowed if remaining[index] <= max_tokens]
    if not fitting:
        return allowed[-1] if allowed else None
    return next((index for index in fitting if isinstance(messages[index], UserMessage)), fitting[0])


def find_last_cut_index(messages: Sequence[Message]) -> int | None:
    """Like `find_cut_index`, but summarizes as much as possible: up to the newest user message if there is one."""
    allowed = [index for index in cut_points(messages) if index > 0]
    users = [index for index in allowed if isinstance(messages[index], UserMessage)]
    return max(users or allowed, default=None)


def system_texts(messages: Sequence[Message], previous_summary: str | None) -> str:
    """The verbatim text of the system messages, which begins every summary."""
    before = previous_summary.partition(SUMMARY_HEADING)[0].strip() if previous_summary else ""
    texts = [each.content for each in messages if isinstance(each, SystemMessage)]
    text = "\n\n".join([before, *texts] if before else texts)
    return f"{shorten_text(text, MAX_SYSTEM_CHARS)}\n\n" if text else ""


def _without_system(summary: str) -> str:
    return summary.partition(SUMMARY_HEADING)[2].strip() or summary


def split_into_parts(items: Sequence[str], max_tokens: int) -> list[str]:
    """Join the items into texts of at most about `max_tokens` each."""
    parts: list[str] = []
    part: list[str] = []
    tokens = 0
    for item in items:
        cost = estimate_tokens(item)
        if part and tokens + cost > max_tokens:
            parts.append("\n".join(part))
            part, tokens = [], 0
        part.append(item)
        tokens += cost
    return [*parts, "\n".join(part)] if part else parts


def as_transcript_line(message: Message) -> str:
    """The message as plain text, for the model that writes the summary."""
    match message:
        case UserMessage():
            return f"User: {_content_text(message)}"
        case AssistantMessage():
            return f"Assistant: {_content_text(message)}"
        case ToolMessage():
            return f"Result of {message.name}: {_content_text(message)}"
        case SystemMessage():
            return f"Instructions: {shorten_text(message.content, MAX_ITEM_CHARS)}"


def _content_text(message: UserMessage | AssistantMessage | ToolMessage) -> str:
    if isinstance(message.content, str):
        return shorten_text(message.content, MAX_ITEM_CHARS)
    parts: list[str] = []
    for block in message.content:
        match block:
            case Text(text=text):
                parts.append(shorten_text(text, MAX_ITEM_CHARS))
            case Call(name=name, input=arguments):
                parts.append(f"[calls {name} with {shorten_text(_json_text(arguments), MAX_ITEM_CHARS)}]")
            case Image():
                parts.append("[an image]")
            case File():
                parts.append(f"[a file: {block.name or block.media}]")
            case Data():
                parts.append(shorten_text(_json_text(block.data), MAX_ITEM_CHARS))
            case _:
                pass  # thinking is not part of the conversation
    return " ".join(parts)


def _json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return str(value)
