"""Summing up the older part of a conversation with the agent's own model, so that the rest fits into its window."""

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
You write summaries of conversations between a user and an assistant, for the assistant to go on from.
Keep every fact, name, number, decision, request and open point that may matter later. Leave out what was said along \
the way. Do not answer the conversation and do not address anybody. Write at most 300 words."""
SUMMARY_HEADING = "Summary of the conversation so far:"
SUMMARY_TOKENS = 700
SUMMARY_BUDGET_DIVISOR = 6
"""A summary has at most so great a part of the budget, one sixth."""
INSTRUCTION_TOKENS = 150
SMALL_BUDGET_TOKENS = 16_000
"""Budgets under this leave no room for a summary without end. Elsewhere a model may think before it writes."""
MAX_PARTS = 6
"""Model calls for one summary; of a longer conversation the oldest part is given up."""
MAX_ITEM_CHARS = 4_000
"""That a single message, call or result contributes."""
RECENT_MESSAGES_SHARE = 0.4
"""Of the budget: the newest messages that stay as they are."""
MAX_SYSTEM_CHARS = 8_000
"""Of a conversation's system messages, which outlive every summary."""

log = structlog.get_logger(__name__)


class Compactor:
    """Sums up for one agent."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name
        self.usage = Usage()
        """What the summaries cost so far."""

    async def compact(self, run: "Run", messages: Sequence[Message], budget: int) -> bool:
        """Put a summary in the place of the older messages of a run's context.

        Args:
            run: told of the summary, which is then part of the session.
            messages: the context, as the run gave it.
            budget: tokens that the conversation may have.

        Returns:
            Whether something was summed up. Nothing is when there is nothing that could be, or when the model fails.
        """
        place = find_cut_index(messages, int(budget * RECENT_MESSAGES_SHARE))
        made = None if place is None else await self.summarize(messages, place, await run.summary(), budget)
        if made is None:
            return False
        await run.compact(made.text, made.keep_from, tokens_before=made.tokens_before, tokens_after=made.tokens_after)
        return True

    async def summarize(
        self, messages: Sequence[Message], cut_index: int, previous_summary: str | None, budget: int
    ) -> contract.Summary | None:
        """A summary of the messages before a place; None when the model fails, or has nothing to say.

        Args:
            messages: the context.
            place: of the first message that stays.
            earlier: the summary that stands before the messages.
            budget: tokens that the conversation may have.
        """
        older = messages[:cut_index]
        try:
            summary = await self._summarize_in_parts(older, previous_summary, budget)
        except ModelFailed as error:
            log.warning("no summary", error=str(error))
            return None
        if not summary:
            return None
        whole = f"{system_texts(older, previous_summary)}{SUMMARY_HEADING}\n{summary}"
        kept = tokens_of_all(messages[cut_index:])
        return contract.Summary(
            text=whole,
            keep_from=messages[cut_index].id,
            tokens_before=kept + tokens_of_all(older) + (estimate_tokens(previous_summary) if previous_summary else 0),
            tokens_after=kept + estimate_tokens(whole),
        )

    async def _summarize_in_parts(self, messages: Sequence[Message], previous_summary: str | None, budget: int) -> str:
        """The summary, made part by part where the conversation is longer than a request."""
        length = min(SUMMARY_TOKENS, budget // SUMMARY_BUDGET_DIVISOR)
        room = max(budget - 2 * length - INSTRUCTION_TOKENS, budget // 3)  # there is the one before, and the new one
        summary = _without_system(previous_summary) if previous_summary else ""
        for part in split_into_parts([as_transcript_line(each) for each in messages], room)[-MAX_PARTS:]:
            before = f"{SUMMARY_HEADING}\n{summary}\n\nWhat followed:\n" if summary else ""
            text = f"{before}{part}\n\nWrite the summary of all this."
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
        words: list[str] = []
        async with closing(self._model.stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    words.append(event.text)
                elif isinstance(event, Finished) and event.usage is not None:
                    self.usage += event.usage
        return "".join(words).strip()


def find_cut_index(messages: Sequence[Message], keep: int) -> int | None:
    """Where to cut: so that at most `keep` tokens stay, if possible, and at least the newest message.

    Of the places in question the first one is taken that begins with a user's words, else the first.
    """
    left = [0] * (len(messages) + 1)
    for place in range(len(messages) - 1, -1, -1):
        left[place] = left[place + 1] + tokens_of(messages[place])
    allowed = [place for place in cut_points(messages) if place > 0]
    fitting = [place for place in allowed if left[place] <= keep]
    if not fitting:
        return allowed[-1] if allowed else None
    return next((place for place in fitting if isinstance(messages[place], UserMessage)), fitting[0])


def find_last_cut_index(messages: Sequence[Message]) -> int | None:
    """Where to cut when all that can be is to be summed up: before the newest words of a user, if possible."""
    allowed = [place for place in cut_points(messages) if place > 0]
    users = [place for place in allowed if isinstance(messages[place], UserMessage)]
    found = users or allowed
    return found[-1] if found else None


def system_texts(messages: Sequence[Message], previous_summary: str | None) -> str:
    """What the conversation's system messages say, word for word, as the beginning of a summary."""
    before = previous_summary.partition(SUMMARY_HEADING)[0].strip() if previous_summary else ""
    texts = [each.content for each in messages if isinstance(each, SystemMessage)]
    text = "\n\n".join([before, *texts] if before else texts)
    return f"{shorten_text(text, MAX_SYSTEM_CHARS)}\n\n" if text else ""


def _without_system(summary: str) -> str:
    return summary.partition(SUMMARY_HEADING)[2].strip() or summary


def split_into_parts(items: Sequence[str], max_tokens: int) -> list[str]:
    """The items, put together to texts of about so many tokens each."""
    found: list[str] = []
    gathered: list[str] = []
    tokens = 0
    for item in items:
        cost = estimate_tokens(item)
        if gathered and tokens + cost > max_tokens:
            found.append("\n".join(gathered))
            gathered, tokens = [], 0
        gathered.append(item)
        tokens += cost
    return [*found, "\n".join(gathered)] if gathered else found


def as_transcript_line(message: Message) -> str:
    """A message in words, as a summary's author reads it."""
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
    words: list[str] = []
    for block in message.content:
        match block:
            case Text(text=text):
                words.append(shorten_text(text, MAX_ITEM_CHARS))
            case Call(name=name, input=arguments):
                words.append(f"[calls {name} with {shorten_text(_json_text(arguments), MAX_ITEM_CHARS)}]")
            case Image():
                words.append("[a picture]")
            case File():
                words.append(f"[a file: {block.name or block.media}]")
            case Data():
                words.append(shorten_text(_json_text(block.data), MAX_ITEM_CHARS))
            case _:
                pass  # what was thought is not what was said
    return " ".join(words)


def _json_text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return str(value)
