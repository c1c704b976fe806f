"""Answers in words, results of tools, and ids: whatever comes in, something that can be stored comes out."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.answers import (
    answer_text,
    answer_texts,
    choice_from,
    compact_json,
    questions_of,
    result_content,
    settle_choice,
    settle_with_value,
)
from dragoman.core.content import Call, Data, InputBlock, Json, Text
from dragoman.core.events import CallSettled, encode
from dragoman.core.ids import CallId, MessageId, parse_session_id, uuid7
from dragoman.core.inputs import Choice
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import InvalidAnswer
from dragoman.core.tools import ASK_USER_QUESTION
from tests.core.strategies import input_blocks, json_values


def question(*options: str, multi: bool = False) -> Json:
    return {"question": "Which?", "options": [{"label": option} for option in options], "multiSelect": multi}


def parsed_questions(*questions: Json) -> OpenCall:
    call = Call(call_id=CallId("c"), name=ASK_USER_QUESTION, input={"questions": list(questions)})
    return OpenCall(call=call, kind="question", message_id=MessageId("m"))


def settle(call: OpenCall, text: str) -> CallSettled:
    return settle_choice(call, choice_from(call, text), lambda: "id", content=text)


TWO = parsed_questions(question("red", "blue"), question("s", "m", "l", multi=True))


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("anything", "anything, anything"),
        ('{"selections": {"0": [1], "1": [0, 2]}}', "blue, s, l"),
        ('{"selections": {"0": ["red"], "1": ["m"]}}', "red, m"),
        ('{"selections": {"0": [0]}, "custom": {"1": "none"}}', "red, none"),
        ('{"selections": {"0": [0]}, "custom": "none"}', "red, none"),
        ('{"custom": "both"}', "both, both"),
        (' {"custom": "both"}', "both, both"),
        ('{"other": 1}', '{"other": 1}, {"other": 1}'),
        ('{"custom": "\\ud800"}', '{"custom": "\\ud800"}, {"custom": "\\ud800"}'),
        ("{not json", "{not json, {not json"),
        ("[1]", "[1], [1]"),
    ],
)
def test_a_text_answer_is_parsed(text: str, expected_text: str) -> None:
    assert answer_text(settle(TWO, text).result) == expected_text


@pytest.mark.parametrize("text", [" Red ", '{"custom": "Red"}'])
def test_a_text_that_is_the_label_of_an_option_chooses_it(text: str) -> None:
    """Pages with a button for each option answer with its label."""
    call = parsed_questions(question("red", "blue"))
    assert settle(call, text).result.raw == {"answers": [{"question": "Which?", "labels": ["red"], "custom": None}]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"selections": {"0": [0]}}',
        '{"selections": {"0": [0, 1], "1": [0]}}',
        '{"selections": {"0": [2], "1": [0]}}',
        '{"selections": {"0": [-1], "1": [0]}}',
        '{"selections": {"0": ["green"], "1": [0]}}',
        '{"selections": {"0": [true], "1": [0]}}',
        '{"selections": {"0": [0.0], "1": [0]}}',
        '{"selections": {"0": 0, "1": [0]}}',
        '{"selections": {"0": [[0]], "1": [0]}}',
        '{"selections": {"²": [0], "1": [0]}}',
        '{"selections": {"00": [0], "1": [0]}}',
        '{"selections": {"' + "9" * 5000 + '": [0], "1": [0]}}',
        '{"selections": 7, "custom": "x"}',
        '{"selections": {"0": [0]}, "custom": {"1": 5}}',
    ],
    ids=range(15),
)
def test_an_answer_that_answers_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidAnswer) as refused:
        settle(TWO, text)
    assert len(str(refused.value)) < 300


def test_any_answer_is_stored_or_refused() -> None:
    outcomes: Counter[str] = Counter()

    @given(
        st.text(st.characters(exclude_categories=["Cs"]))  # no protocol accepts half characters
        | json_values.map(json.dumps)
        | st.builds(lambda value: json.dumps({"selections": value}), json_values)
    )
    def answer(text: str) -> None:
        for call in (TWO, parsed_questions(question()), parsed_questions()):
            try:
                event = settle(call, text)
            except InvalidAnswer:
                outcomes["refused"] += 1
            else:
                encode(event)
                outcomes["stored"] += 1

    answer()
    assert outcomes.keys() == {"stored", "refused"}


@pytest.mark.parametrize("arguments", [{}, {"questions": 5}, {"questions": [{}]}, {"questions": [{"question": 1}]}])
def test_a_malformed_question_accepts_a_free_text(arguments: Json) -> None:
    call = OpenCall(call=Call(CallId("c"), ASK_USER_QUESTION, arguments), kind="question", message_id=MessageId("m"))
    assert answer_text(settle(call, "so be it").result) == "so be it"
    assert len(questions_of(arguments).questions) == 1


@pytest.mark.parametrize(
    "value",
    [{"answers": [3]}, {"answers": 3}, {"answers": [{}]}, {"answers": [{"labels": [3], "custom": None}]}, {"x": 1}],
)
def test_an_applications_object_is_no_answer_to_a_question(value: Json) -> None:
    result = settle_with_value(TWO, "done", value, lambda: "id").result
    assert result.raw == value
    assert (answer_texts(result), answer_text(result)) == ([], compact_json(value))


def test_a_choice_is_stored_with_its_question_and_labels() -> None:
    event = settle_choice(TWO, Choice(call_id=CallId("c"), selections={"0": [1], "1": [0, 2]}), lambda: "id")
    assert event.result.raw == {
        "answers": [
            {"question": "Which?", "labels": ["blue"], "custom": None},
            {"question": "Which?", "labels": ["s", "l"], "custom": None},
        ]
    }
    assert json.loads(str(event.result.content)) == event.result.raw


# --- results ----------------------------------------------------------------------------------------------------------


@given(json_values)
def test_a_tools_value_is_a_text_that_can_be_stored(value: Json) -> None:
    content = result_content(value)
    if isinstance(value, str):
        assert content == value
    elif isinstance(value, dict):
        assert json.loads(str(content)) == {key: each for key, each in value.items() if key != "_meta"}
    else:
        assert json.loads(str(content)) == value


@given(st.lists(input_blocks, min_size=1, max_size=4))
def test_blocks_of_a_tool_stay_blocks(blocks: list[InputBlock]) -> None:
    assert result_content(blocks) == tuple(blocks)


def test_a_list_that_is_not_all_blocks_is_no_json() -> None:
    with pytest.raises(TypeError):
        result_content([object(), Text("a")])
    assert result_content([]) == "[]"
    assert result_content((Data({"a": 1}),)) == (Data({"a": 1}),)


# --- ids --------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**72 - 1))
def test_an_id_is_a_uuid_of_version_7_that_holds_its_time(unix_ms: int, random: int) -> None:
    made = uuid7(unix_ms, random)
    assert parse_session_id(made) == made
    assert (made[14], made[19] in "89ab") == ("7", True)
    assert int(made[:8] + made[9:13], 16) == unix_ms


@given(st.lists(st.tuples(st.integers(0, 2**48 - 1), st.integers(0, 2**72 - 1)), max_size=5))
def test_ids_sort_by_their_time_and_then_by_their_number(moments: list[tuple[int, int]]) -> None:
    assert sorted(uuid7(*moment) for moment in moments) == [uuid7(*moment) for moment in sorted(moments)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "00000000-0000-0000-0000-000000000000",
        "{0191b6c8-0000-7000-8000-000000000001}",
        "urn:uuid:0191b6c8-0000-7000-8000-000000000001",
        "0191b6c8000070008000000000000001",
        "0191b6c8-0000-7000-8000-000000000001\n",
        " 0191b6c8-0000-7000-8000-000000000001",
        "0191b6c8-0000-7000-8000-00000000000g",
        "٠191b6c8-0000-7000-8000-000000000001",
    ],
)
def test_strings_that_are_not_session_ids_are_rejected(text: str) -> None:
    assert parse_session_id(text) is None


def test_a_session_id_may_be_written_in_any_case() -> None:
    assert parse_session_id("0191B6C8-0000-7000-8000-00000000ABCD") == "0191b6c8-0000-7000-8000-00000000abcd"
