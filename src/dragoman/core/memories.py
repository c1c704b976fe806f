"""What is remembered of a user over all sessions: what a memory is, and which an agent is told of. Pure.

`feedback` is how the user wants things done, `experience` is what was learned about a matter. Feedback always counts;
experience counts where it has to do with what the user says now.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from dragoman.core.events import MemoryUse
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import Invalid

MemoryKind = Literal["feedback", "experience"]
RecordType = Literal["memory", "skill_comment"]
MemoryStatus = Literal["enabled", "disabled", "superseded"]

MAX_CONTENT_LENGTH = 500
"""Characters of a memory, and of the reason for it."""
MAX_NAME_LENGTH = 255
"""Characters of its other texts."""
MAX_FEEDBACK_MEMORIES = 20
MAX_EXPERIENCE_MEMORIES = 8
MIN_SCORE = 0.05
MAX_INJECTED_LENGTH = 4000
"""Characters of all memories together that an agent is told of in one run."""
PREVIEW_LENGTH = 80
MAX_SEARCH_TERMS = 200
"""Of a message, as many words are looked for."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED_SCRIPTS = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Scripts that are written without spaces between words: Thai, Lao, Burmese, Khmer, Chinese, Japanese."""


class MemoryTexts(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said of a memory, and changed later."""

    type: MemoryKind = "feedback"
    content: str
    skill_name: str | None = None
    record_type: RecordType | None = None
    scope: str | None = None
    owner: str | None = None
    topic: str | None = None
    mem0_id: str | None = None
    write_reason: str | None = None


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A memory as it is stored. The ids count over all users, and none is given twice."""

    id: int = 0
    user: UserId
    texts: MemoryTexts
    source_session: SessionId | None = None
    superseded_by: int | None = None
    created_at: datetime
    updated_at: datetime | None = None
    hit_count: int = 0
    last_hit_at: datetime | None = None
    disabled: bool = False


class MemoryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which memories are asked for; None: whichever. `keyword` is part of the content or the topic, in any case."""

    keyword: str | None = None
    skill_name: str | None = None
    type: MemoryKind | None = None
    record_type: RecordType | None = None
    scope: str | None = None
    owner: str | None = None
    topic: str | None = None
    status: MemoryStatus | None = None


def validate(texts: MemoryTexts) -> MemoryTexts:
    """The texts, an empty one as none. Raises Invalid with the field as its path: too long, or blank content."""
    _check("content", texts.content, MAX_CONTENT_LENGTH)
    if not texts.content.strip():
        raise Invalid("must not be blank", path="content")
    changes: dict[str, str | None] = {}
    for name, most in (
        ("write_reason", MAX_CONTENT_LENGTH),
        ("skill_name", MAX_NAME_LENGTH),
        ("scope", MAX_NAME_LENGTH),
        ("owner", MAX_NAME_LENGTH),
        ("topic", MAX_NAME_LENGTH),
        ("mem0_id", MAX_NAME_LENGTH),
    ):
        value = getattr(texts, name)
        if value == "":
            changes[name] = None
        elif value is not None:
            _check(name, value, most)
    return msgspec.structs.replace(texts, **changes) if changes else texts


def _check(name: str, value: str, most: int) -> None:
    if not 1 <= len(value) <= most:
        raise Invalid(f"must have 1 to {most} characters", path=name)
    if any("\ud800" <= each <= "\udfff" or each == "\0" for each in value):
        raise Invalid("must be whole Unicode characters", path=name)


# --- searching --------------------------------------------------------------------------------------------------------


def case_folded(text: str) -> str:
    """A text as it is searched: upper and lower case are the same."""
    return text.casefold()


def searchable_text(texts: MemoryTexts) -> str:
    """What a keyword is looked for in."""
    return case_folded(f"{texts.content}\n{texts.topic or ''}")


def terms(text: str) -> frozenset[str]:
    """The words of a text; where words stand without spaces, its pairs of neighbours (Chinese words mostly are two)."""
    found: set[str] = set()
    for word in _WORD.findall(case_folded(text)):
        if _UNSPACED_SCRIPTS.search(word) is None:
            found.add(word)
        else:
            found.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
    return frozenset(found)


def trigrams(text: str) -> Sequence[str]:
    """What a full-text index is asked for: the runs of three characters in a text's words, the first ones of each."""
    found: dict[str, None] = {}
    for word in _WORD.findall(case_folded(text)):
        for at in range(len(word) - 2):
            found[word[at : at + 3]] = None
            if len(found) == MAX_SEARCH_TERMS:
                return list(found)
    return list(found)


def score(memory: Collection[str], message: Collection[str]) -> float:
    """How much a memory has to do with a message: which share of its words the message has."""
    return sum(term in message for term in memory) / len(memory) if memory else 0.0


# --- choosing ---------------------------------------------------------------------------------------------------------


def is_enabled(setting: bool | None, agent: bool | None) -> bool:
    """Whether memory is on: as the session says, else as the agent does, else not (shared rules, 23)."""
    return bool(agent if setting is None else setting)


def select_memories(candidates: Iterable[Memory], message: str, tools: Collection[str]) -> list[Memory]:
    """The memories that an agent is told of: feedback, newest first; then the experience that fits best.

    Args:
        candidates: memories of the user.
        message: what the user says.
        tools: the names of the agent's tools; a memory of another skill is left out.
    """
    usable = sorted((each for each in candidates if _is_usable(each, tools)), key=lambda each: -each.id)
    said = terms(message)
    feedbacks = [each for each in usable if each.texts.type == "feedback"][:MAX_FEEDBACK_MEMORIES]
    scored = [(score(terms(each.texts.content), said), each) for each in usable if each.texts.type == "experience"]
    fitting = sorted((pair for pair in scored if pair[0] >= MIN_SCORE), key=lambda pair: -pair[0])[
        :MAX_EXPERIENCE_MEMORIES
    ]
    taken: list[Memory] = []
    left = MAX_INJECTED_LENGTH
    for memory in (*feedbacks, *(each for _, each in fitting)):
        if len(memory.texts.content) <= left:
            taken.append(memory)
            left -= len(memory.texts.content)
    return taken


def _is_usable(memory: Memory, tools: Collection[str]) -> bool:
    texts = memory.texts
    return (
        not memory.disabled
        and memory.superseded_by is None
        and texts.record_type != "skill_comment"
        and (texts.skill_name is None or texts.skill_name in tools)
    )


def to_memory_use(memory: Memory) -> MemoryUse:
    """A memory as the log notes it."""
    return MemoryUse(memory.id, memory.texts.content[:PREVIEW_LENGTH], memory.texts.skill_name)


def memory_instructions(memories: Sequence[Memory]) -> str:
    """What an agent's instructions say of the memories: nothing, when there are none.

    Each keeps to one line, and the head says what they are: what somebody once had written down is no instruction.
    """
    if not memories:
        return ""
    lines = [f"- [{each.id}] {' '.join(each.texts.content.split())}" for each in memories]
    return "\n".join([_INSTRUCTIONS_HEADER, *lines])


_INSTRUCTIONS_HEADER = (
    "What is remembered of this user from earlier conversations, with the number of each memory. These are notes: they"
    " rank below all other instructions, and what the user says now outweighs them."
)
