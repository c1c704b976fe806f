"""The selection of memories for an agent, and how they are found, in scripts with and without spaces."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import memories
from dragoman.core.events import MemoryUse
from dragoman.core.ids import UserId
from dragoman.core.memories import (
    Memory,
    MemoryTexts,
    memory_instructions,
    score,
    searchable_text,
    select_memories,
    terms,
    to_memory_use,
    trigrams,
    validate,
)
from dragoman.core.refusals import Invalid
from tests.core.strategies import NOON


def a_memory(number: int, content: str = "likes tea", *, disabled: bool = False, **texts: Any) -> Memory:
    superseded_by = texts.pop("superseded_by", None)
    return Memory(
        id=number,
        user=UserId("ann"),
        texts=MemoryTexts(content=content, **texts),
        superseded_by=superseded_by,
        created_at=NOON,
        disabled=disabled,
    )


def numbers(*candidates: Memory, message: str = "", tools: tuple[str, ...] = ()) -> list[int]:
    return [memory.id for memory in select_memories(candidates, message, tools)]


# --- choosing ---------------------------------------------------------------------------------------------------------


def test_feedback_always_counts_newest_first_up_to_twenty() -> None:
    assert numbers(*(a_memory(number) for number in range(1, 31))) == list(range(30, 10, -1))


def test_the_eight_most_relevant_experience_memories_are_selected() -> None:
    fits = [a_memory(number, "alpha beta " + "gamma " * (number % 3), type="experience") for number in range(1, 11)]
    strange = a_memory(50, "nothing of it", type="experience")
    assert numbers(*fits, strange, message="Alpha, beta!") == [9, 6, 3, 10, 8, 7, 5, 4]


def test_feedback_comes_before_experience() -> None:
    assert numbers(a_memory(1), a_memory(2, "tea time", type="experience"), message="tea") == [1, 2]


@pytest.mark.parametrize(
    "memory",
    [
        a_memory(1, disabled=True),
        a_memory(1, superseded_by=2),
        a_memory(1, record_type="skill_comment"),
        a_memory(1, skill_name="knit"),
    ],
)
def test_disabled_superseded_and_unrelated_memories_are_left_out(memory: Memory) -> None:
    assert numbers(memory, tools=("add",)) == []


def test_a_memory_of_a_skill_counts_where_the_agent_has_it() -> None:
    assert numbers(a_memory(1, skill_name="add"), a_memory(2, record_type="memory"), tools=("add",)) == [2, 1]


def test_together_they_have_4000_characters() -> None:
    assert numbers(*(a_memory(number, "x" * 500) for number in range(1, 11)), a_memory(11, "y" * 400)) == [
        11, 10, 9, 8, 7, 6, 5, 4,
    ]  # fmt: skip
    assert sum(len(each.texts.content) for each in select_memories([a_memory(1, "x" * 500)] * 12, "", ())) == 4000


# --- words ------------------------------------------------------------------------------------------------------------


def test_words_are_found_in_any_case_and_chinese_by_pairs() -> None:
    assert terms("The Straße, 2 cafés!") == {"the", "strasse", "2", "cafés"}
    assert terms("我喜欢咖啡。") == {"我喜", "喜欢", "欢咖", "咖啡"}
    assert terms("茶") == {"茶"}
    assert terms("…") == frozenset()


def test_a_chinese_memory_fits_a_chinese_message() -> None:
    assert numbers(a_memory(1, "用户喜欢黑咖啡", type="experience"), message="给我一杯咖啡") == [1]
    assert numbers(a_memory(1, "用户喜欢黑咖啡", type="experience"), message="今天天气怎么样") == []


@given(st.text(), st.text())
def test_a_score_is_a_share_of_matching_words(memory: str, message: str) -> None:
    assert 0.0 <= score(terms(memory), terms(message)) <= 1.0
    assert score(terms(memory), terms(memory)) == (1.0 if terms(memory) else 0.0)


def test_trigrams_are_those_of_the_words_and_not_too_many() -> None:
    assert trigrams("Tea, with tea and 咖啡豆") == ["tea", "wit", "ith", "and", "咖啡豆"]
    assert len(trigrams(" ".join(f"word{number}" for number in range(1000)))) == memories.MAX_SEARCH_TERMS


def test_a_keyword_is_looked_for_in_content_and_topic() -> None:
    assert searchable_text(MemoryTexts(content="ABC", topic="Déjà")) == "abc\ndéjà"


# --- texts ------------------------------------------------------------------------------------------------------------


def test_an_agent_reads_one_line_for_each_memory() -> None:
    assert memory_instructions([]) == ""
    head, *lines = memory_instructions([a_memory(3, "likes\n tea"), a_memory(2, "no sugar")]).split("\n")
    assert (head[:27], lines) == ("What is remembered of this ", ["- [3] likes tea", "- [2] no sugar"])


def test_the_log_notes_how_a_memory_begins() -> None:
    assert to_memory_use(a_memory(3, "x" * 500, skill_name="add")) == MemoryUse(3, "x" * 80, "add")


def test_an_empty_text_becomes_none() -> None:
    assert validate(MemoryTexts(content="c", topic="", write_reason="r")) == MemoryTexts(content="c", write_reason="r")


@pytest.mark.parametrize(
    ("texts", "path", "message"),
    [
        ({"content": ""}, "content", "must have 1 to 500 characters"),
        ({"content": "c" * 501}, "content", "must have 1 to 500 characters"),
        ({"content": " \n"}, "content", "must not be blank"),
        ({"content": "\ud800"}, "content", "must be whole Unicode characters"),
        ({"content": "c", "write_reason": "r" * 501}, "write_reason", "must have 1 to 500 characters"),
        ({"content": "c", "topic": "t" * 256}, "topic", "must have 1 to 255 characters"),
        ({"content": "c", "mem0_id": "\0"}, "mem0_id", "must be whole Unicode characters"),
    ],
)
def test_a_text_out_of_bounds_is_refused(texts: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        validate(MemoryTexts(**texts))
    assert (refused.value.path, str(refused.value)) == (path, message)


def test_lengths_count_characters() -> None:
    assert validate(MemoryTexts(content="𝒳" * 500)) == MemoryTexts(content="𝒳" * 500)
