"""Titles that sessions get from their first message: plain words, cut between them."""

import json

import pytest

from dragoman.core.titles import MAX_LENGTH, title_from


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("hello", "hello"),
        ("  two\n\nlines ", "two lines"),
        ("What is the capital of the country France?", "What is the capital of the country…"),
        ("What is the capital city of that country, please?", "What is the capital city of that…"),
        ("a" * 50, "a" * 39 + "…"),
        ("请用中文解释一下这个错误信息是什么意思" * 3, ("请用中文解释一下这个错误信息是什么意思" * 3)[:39] + "…"),
        ("# Plan\n\n- **buy** `milk`\n- [x] see [the list](https://example.com/a)", "Plan buy milk see the list"),
        ("> quoted\n\n1. first\n2) second\n\n---\n\n_end_", "quoted first second end"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b | | 1 | 2 |"),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name"),
        ("***", "***"),
        ('{"script": [{"call": {"name": "add"}}, {"say": "It is {result}."}]}', "It is {result}."),
        ('{"script": [{"stop": "refusal"}]}', "refusal"),
        ('["**bold** words"]', "bold words"),
        ("[1, 2]", "[1, 2]"),
        ("{not JSON", "{not JSON"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_a_title_is_what_a_person_would_read_first(text: str, title: str) -> None:
    assert title_from(text) == title
    assert len(title) <= MAX_LENGTH


def test_hostile_texts_have_titles_too() -> None:
    for text in ("[" * 100_000, json.dumps({"a": "*" * 1_000_000}), "*a" * 100_000, "`" * 100_000, "[" * 50 + "]" * 50):
        assert len(title_from(text)) <= MAX_LENGTH
