"""The conversation that is sent to a model: complete pairs, in order, within the budget."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.compaction import (
    SUMMARY_HEADING,
    as_transcript_line,
    find_cut_index,
    split_into_parts,
    system_texts,
)
from dragoman.agents.window import (
    MEDIA_TOKENS,
    cut_points,
    fit_to_budget,
    order_for_model,
    shorten_text,
    tokens_of,
    tokens_of_all,
)
from dragoman.core.content import (
    AssistantMessage,
    Call,
    Data,
    File,
    Image,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolMessage,
    UserMessage,
)
from dragoman.core.ids import CallId, MessageId
from dragoman.core.tokens import estimate_tokens


def user(text: str) -> UserMessage:
    return UserMessage(id=MessageId(text), content=text)


def call_message(*ids: str, text: str = "", **arguments: object) -> AssistantMessage:
    texts = (Text(text),) if text else ()
    calls = tuple(Call(CallId(each), "look", dict(arguments)) for each in ids)
    return AssistantMessage(id=MessageId("+".join(ids) or text), content=(*texts, *calls))


def result_message(call_id: str, text: str = "result") -> ToolMessage:
    return ToolMessage(id=MessageId(f"r{call_id}"), call_id=CallId(call_id), name="look", content=text)


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Messages as in a log: results after their calls, other messages in between, some calls without a result."""
    found: list[Message] = []
    open_calls: list[str] = []
    for number in range(draw(st.integers(1, 25))):
        match draw(st.sampled_from(["user", "say", "call", "result", "result", "system"])):
            case "user":
                found.append(user(f"u{number}" + "x" * draw(st.integers(0, 400))))
            case "say":
                found.append(call_message(text=f"s{number}"))
            case "call":
                names = [f"{number}-{place}" for place in range(draw(st.integers(1, 3)))]
                found.append(call_message(*names, path="y" * draw(st.integers(0, 400))))
                open_calls += names
            case "result" if open_calls:
                name = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
                found.append(result_message(name, "z" * draw(st.integers(0, 800))))
            case _:
                found.append(SystemMessage(id=MessageId(f"i{number}"), content="be kind"))
    return found


def assert_paired(messages: Sequence[Message]) -> None:
    """Each call is followed by its result before any other message, and no result is unpaired."""
    awaited: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.call_id == awaited.pop(0)
        else:
            assert awaited == []
            if isinstance(message, AssistantMessage):
                awaited = [call.call_id for call in message.calls()]
    assert awaited == []


@given(conversations())
def test_an_ordered_conversation_has_every_call_with_its_result(messages: list[Message]) -> None:
    found = order_for_model(messages)
    assert_paired(found)
    answered = {message.call_id for message in messages if isinstance(message, ToolMessage)}
    assert {message.call_id for message in found if isinstance(message, ToolMessage)} == answered
    others = [message.id for message in messages if isinstance(message, UserMessage | SystemMessage)]
    assert [message.id for message in found if isinstance(message, UserMessage | SystemMessage)] == others
    assert order_for_model(found) == found


def test_results_move_after_their_calls_and_unpaired_ones_are_dropped() -> None:
    messages: list[Message] = [
        result_message("0"),
        call_message("b", "a", "open"),
        user("hm"),
        result_message("a"),
        result_message("b"),
        call_message("open2"),
        call_message(text="so"),
    ]
    found = order_for_model(messages)
    assert ids(found) == ["b+a+open", "rb", "ra", "hm", "so"]
    assert [call.call_id for call in call_message("b", "a").calls()] == ["b", "a"]


@given(conversations())
def test_no_cut_separates_a_call_from_its_result(messages: list[Message]) -> None:
    for place in cut_points(messages):
        call_ids = {
            call.call_id for each in messages[:place] if isinstance(each, AssistantMessage) for call in each.calls()
        }
        before = {each.call_id for each in messages[:place] if isinstance(each, ToolMessage)}
        assert call_ids == before
        assert not isinstance(messages[place], ToolMessage)


@given(conversations(), st.integers(50, 3000))
def test_a_fitted_conversation_stays_paired_and_within_the_budget_and_ends_the_same(
    messages: list[Message], budget: int
) -> None:
    whole = order_for_model(messages)
    found = fit_to_budget(whole, budget)
    assert_paired(found)
    assert ids(found)[-1:] == ids(whole)[-1:]
    if tokens_of_all(whole) <= budget:
        assert found == whole
    last_user = max((place for place, each in enumerate(whole) if isinstance(each, UserMessage)), default=len(whole))
    newest = ids(whole[last_user:])
    assert ids(found)[len(found) - len(newest) :] == newest
    least = tokens_of_all(whole[last_user:]) + sum(tokens_of(each) for each in whole if isinstance(each, SystemMessage))
    if newest and least <= budget:
        assert tokens_of_all(found) <= budget


def test_the_oldest_messages_are_dropped_first_but_never_the_instructions_or_the_question() -> None:
    rule = SystemMessage(id=MessageId("rule"), content="be kind")
    long = "word " * 400
    messages: list[Message] = [
        rule,
        user("old"),
        call_message("a", text=long),
        result_message("a", long),
        user("new"),
        call_message("b"),
        result_message("b", long),
    ]
    assert ids(fit_to_budget(messages, 600)) == ["rule", "new", "b", "rb"]


def test_a_long_result_is_shortened_in_the_middle() -> None:
    messages: list[Message] = [user("go"), call_message("a"), result_message("a", "b" * 500_000 + "e" * 500_000)]
    (_, _, result) = fit_to_budget(messages, 10_000)
    assert isinstance(result.content, str)
    assert result.content.startswith("bbb")
    assert result.content.endswith("eee")
    assert "[… 984000 characters omitted …]" in result.content
    assert shorten_text("short", 10) == "short"


@pytest.mark.parametrize(
    ("text", "at_least", "at_most"),
    [("", 0, 1), ("a" * 400, 100, 101), ("日本語" * 100, 300, 450), ("привет" * 100, 300, 600), ("\ud800", 0, 2)],
)
def test_tokens_are_estimated_for_any_writing_system(text: str, at_least: int, at_most: int) -> None:
    assert at_least <= estimate_tokens(text) <= at_most


def test_the_tokens_of_media_do_not_depend_on_their_size() -> None:
    picture = Image("data:image/png;base64," + "A" * 1_000_000)
    message = UserMessage(
        id=MessageId("1"), content=(Text("abcd"), picture, File("https://a.example/x"), Data({"a": "\ud800"}))
    )
    assert 2 * MEDIA_TOKENS < tokens_of(message) < 2 * MEDIA_TOKENS + 50


# --- summing up -------------------------------------------------------------------------------------------------------


def test_a_cut_is_before_a_user_message_if_possible() -> None:
    messages: list[Message] = [
        user("a" * 400),
        call_message("1", text="b" * 400),
        result_message("1"),
        user("c" * 40),
        call_message(text="d" * 40),
        user("e"),
    ]
    assert find_cut_index(messages, 60) == 3
    assert find_cut_index(messages, 5) == 5
    assert find_cut_index(messages[:3], 150) == 1
    assert find_cut_index([user("a")], 5) is None
    assert find_cut_index([call_message("1"), result_message("1")], 5) is None


@given(conversations(), st.integers(0, 1000))
def test_a_cut_leaves_messages_on_both_sides(messages: list[Message], keep: int) -> None:
    place = find_cut_index(messages, keep)
    if place is not None:
        assert 0 < place < len(messages)
        assert place in set(cut_points(messages))


def test_summaries_contain_system_messages_verbatim() -> None:
    first = system_texts([SystemMessage(id=MessageId("1"), content="Be kind."), user("hi")], None)
    assert first == "Be kind.\n\n"
    summary = f"{first}{SUMMARY_HEADING}\nThey met."
    second = system_texts([SystemMessage(id=MessageId("2"), content="Rhyme.")], summary)
    assert second == "Be kind.\n\nRhyme.\n\n"
    assert system_texts([user("hi")], f"{SUMMARY_HEADING}\nThey met.") == ""


def test_parts_are_as_long_as_the_limit_allows() -> None:
    items = ["a" * 400, "b" * 400, "c" * 4000, "d" * 40]
    assert split_into_parts(items, 250) == ["a" * 400 + "\n" + "b" * 400, "c" * 4000, "d" * 40]
    assert split_into_parts([], 10) == []


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (user("hi"), "User: hi"),
        (
            AssistantMessage(
                id=MessageId("1"),
                content=(
                    Thinking("hm"),
                    Text("Let me look."),
                    Call(CallId("c"), "look", {"at": "x"}),
                    Image("https://a"),
                ),
            ),
            'Assistant: Let me look. [calls look with {"at":"x"}] [an image]',
        ),
        (result_message("1", "seen"), "Result of look: seen"),
        (
            UserMessage(id=MessageId("1"), content=(File("https://a", name="b.pdf"), Data({"c": 1}))),
            'User: [a file: b.pdf] {"c":1}',
        ),
        (SystemMessage(id=MessageId("1"), content="Be kind."), "Instructions: Be kind."),
    ],
)
def test_messages_become_transcript_lines(message: Message, text: str) -> None:
    assert as_transcript_line(message) == text
