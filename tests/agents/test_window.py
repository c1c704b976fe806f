"""What of a conversation is sent to a model: whole pairs, in order, within the budget."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.compaction import HEADING, cut_place, parts, system_texts, told
from dragoman.agents.window import (
    MEDIA_TOKENS,
    arranged,
    cuts,
    fitted,
    shortened_text,
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
from dragoman.core.tokens import tokens_of_text


def user(text: str) -> UserMessage:
    return UserMessage(id=MessageId(text), content=text)


def asks(*ids: str, text: str = "", **arguments: object) -> AssistantMessage:
    words = (Text(text),) if text else ()
    calls = tuple(Call(CallId(each), "look", dict(arguments)) for each in ids)
    return AssistantMessage(id=MessageId("+".join(ids) or text), content=(*words, *calls))


def gives(call_id: str, text: str = "result") -> ToolMessage:
    return ToolMessage(id=MessageId(f"r{call_id}"), call_id=CallId(call_id), name="look", content=text)


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Messages as a log has them: results after their calls, others between, some calls open."""
    found: list[Message] = []
    open_calls: list[str] = []
    for number in range(draw(st.integers(1, 25))):
        match draw(st.sampled_from(["user", "say", "call", "result", "result", "system"])):
            case "user":
                found.append(user(f"u{number}" + "x" * draw(st.integers(0, 400))))
            case "say":
                found.append(asks(text=f"s{number}"))
            case "call":
                names = [f"{number}-{place}" for place in range(draw(st.integers(1, 3)))]
                found.append(asks(*names, path="y" * draw(st.integers(0, 400))))
                open_calls += names
            case "result" if open_calls:
                name = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
                found.append(gives(name, "z" * draw(st.integers(0, 800))))
            case _:
                found.append(SystemMessage(id=MessageId(f"i{number}"), content="be kind"))
    return found


def assert_paired(messages: Sequence[Message]) -> None:
    """Each call is followed by its result before anything else is said, and no result stands alone."""
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
def test_an_arranged_conversation_has_every_call_with_its_result(messages: list[Message]) -> None:
    found = arranged(messages)
    assert_paired(found)
    answered = {message.call_id for message in messages if isinstance(message, ToolMessage)}
    assert {message.call_id for message in found if isinstance(message, ToolMessage)} == answered
    others = [message.id for message in messages if isinstance(message, UserMessage | SystemMessage)]
    assert [message.id for message in found if isinstance(message, UserMessage | SystemMessage)] == others
    assert arranged(found) == found


def test_results_move_behind_their_calls_and_what_has_no_partner_goes() -> None:
    messages: list[Message] = [
        gives("0"),
        asks("b", "a", "open"),
        user("hm"),
        gives("a"),
        gives("b"),
        asks("open2"),
        asks(text="so"),
    ]
    found = arranged(messages)
    assert ids(found) == ["b+a+open", "rb", "ra", "hm", "so"]
    assert [call.call_id for call in asks("b", "a").calls()] == ["b", "a"]


@given(conversations())
def test_no_cut_parts_a_call_from_its_result(messages: list[Message]) -> None:
    for place in cuts(messages):
        asked = {
            call.call_id for each in messages[:place] if isinstance(each, AssistantMessage) for call in each.calls()
        }
        before = {each.call_id for each in messages[:place] if isinstance(each, ToolMessage)}
        assert asked == before
        assert not isinstance(messages[place], ToolMessage)


@given(conversations(), st.integers(50, 3000))
def test_what_is_fitted_stays_paired_ends_the_same_and_is_within_the_budget(
    messages: list[Message], budget: int
) -> None:
    whole = arranged(messages)
    found = fitted(whole, budget)
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


def test_the_oldest_goes_first_but_never_the_instructions_nor_the_question() -> None:
    rule = SystemMessage(id=MessageId("rule"), content="be kind")
    long = "word " * 400
    messages: list[Message] = [
        rule,
        user("old"),
        asks("a", text=long),
        gives("a", long),
        user("new"),
        asks("b"),
        gives("b", long),
    ]
    assert ids(fitted(messages, 600)) == ["rule", "new", "b", "rb"]


def test_a_long_result_is_shortened_in_the_middle() -> None:
    messages: list[Message] = [user("go"), asks("a"), gives("a", "b" * 500_000 + "e" * 500_000)]
    (_, _, result) = fitted(messages, 10_000)
    assert isinstance(result.content, str)
    assert result.content.startswith("bbb")
    assert result.content.endswith("eee")
    assert "[… 984000 characters left out …]" in result.content
    assert shortened_text("short", 10) == "short"


@pytest.mark.parametrize(
    ("text", "at_least", "at_most"),
    [("", 0, 1), ("a" * 400, 100, 101), ("日本語" * 100, 300, 450), ("привет" * 100, 300, 600), ("\ud800", 0, 2)],
)
def test_tokens_are_estimated_for_any_script(text: str, at_least: int, at_most: int) -> None:
    assert at_least <= tokens_of_text(text) <= at_most


def test_media_count_by_the_piece_and_not_by_their_size() -> None:
    picture = Image("data:image/png;base64," + "A" * 1_000_000)
    message = UserMessage(
        id=MessageId("1"), content=(Text("abcd"), picture, File("https://a.example/x"), Data({"a": "\ud800"}))
    )
    assert 2 * MEDIA_TOKENS < tokens_of(message) < 2 * MEDIA_TOKENS + 50


# --- summing up -------------------------------------------------------------------------------------------------------


def test_a_cut_falls_before_a_users_words_if_it_can() -> None:
    messages: list[Message] = [
        user("a" * 400),
        asks("1", text="b" * 400),
        gives("1"),
        user("c" * 40),
        asks(text="d" * 40),
        user("e"),
    ]
    assert cut_place(messages, 60) == 3
    assert cut_place(messages, 5) == 5
    assert cut_place(messages[:3], 150) == 1
    assert cut_place([user("a")], 5) is None
    assert cut_place([asks("1"), gives("1")], 5) is None


@given(conversations(), st.integers(0, 1000))
def test_a_cut_leaves_something_on_both_sides(messages: list[Message], keep: int) -> None:
    place = cut_place(messages, keep)
    if place is not None:
        assert 0 < place < len(messages)
        assert place in set(cuts(messages))


def test_system_messages_outlive_summaries_word_for_word() -> None:
    first = system_texts([SystemMessage(id=MessageId("1"), content="Be kind."), user("hi")], None)
    assert first == "Be kind.\n\n"
    summary = f"{first}{HEADING}\nThey met."
    second = system_texts([SystemMessage(id=MessageId("2"), content="Rhyme.")], summary)
    assert second == "Be kind.\n\nRhyme.\n\n"
    assert system_texts([user("hi")], f"{HEADING}\nThey met.") == ""


def test_parts_are_about_as_long_as_there_is_room() -> None:
    items = ["a" * 400, "b" * 400, "c" * 4000, "d" * 40]
    assert parts(items, 250) == ["a" * 400 + "\n" + "b" * 400, "c" * 4000, "d" * 40]
    assert parts([], 10) == []


@pytest.mark.parametrize(
    ("message", "words"),
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
            'Assistant: Let me look. [calls look with {"at":"x"}] [a picture]',
        ),
        (gives("1", "seen"), "Result of look: seen"),
        (
            UserMessage(id=MessageId("1"), content=(File("https://a", name="b.pdf"), Data({"c": 1}))),
            'User: [a file: b.pdf] {"c":1}',
        ),
        (SystemMessage(id=MessageId("1"), content="Be kind."), "Instructions: Be kind."),
    ],
)
def test_messages_are_told_in_words(message: Message, words: str) -> None:
    assert told(message) == words
