"""Questions to the user as text: clients without a form for them show it, and the user's next message answers. Pure."""

from collections.abc import Iterable, Sequence

from dragoman.core.answers import Question, option_index, option_named, questions_of
from dragoman.core.content import Call, InputBlock, JsonObject, Text
from dragoman.core.inputs import Answer, Choice, Decision, StoredImage
from dragoman.core.open_calls import OpenCall

NO_ANSWER = "(no answer)"
"""The answer to the questions after the first one: one text answers one question."""


def repeat_question(tool: str) -> str:
    """The question whether a call that a crash interrupted runs again, for every text that asks about `is_repeat`."""
    return f"The server restarted while {tool or 'a tool'} ran, so it may have run already. Run it again?"


def question_text(arguments: JsonObject) -> str:
    """Questions and their options as lines of text."""
    return "\n\n".join(
        "\n".join((each.question, *(f"- {option.label}" for option in each.options)))
        for each in questions_of(arguments).questions
    )


def choice_from_text(call: Call, text: str) -> Choice:
    """The answer that a user's message gives: an option, if it is the label of one, otherwise a text of the user's."""
    first, *others = questions_of(call.input).questions or (Question(question=""),)
    declined = {str(index): NO_ANSWER for index, _ in enumerate(others, 1)}
    if (option := option_named(first, text)) is not None:
        return Choice(call_id=call.call_id, selections={"0": [option]}, custom=declined)
    return Choice(call_id=call.call_id, custom={"0": text, **declined})


def answers_from_text(
    waiting: Iterable[OpenCall], content: str | tuple[InputBlock | StoredImage, ...]
) -> tuple[Answer, ...]:
    """The answers that a user's message gives to calls that wait, where clients show questions as text.

    The text answers the first question; all other calls are declined. Empty if no question waits.
    """
    calls = list(waiting)
    asked = next((call for call in calls if call.waits_for == "question"), None)
    if asked is None:
        return ()
    text = content if isinstance(content, str) else "".join(each.text for each in content if isinstance(each, Text))
    declined = (Decision(call_id=call.call.call_id, granted=False) for call in calls if call is not asked)
    return (choice_from_text(asked.shown(), text), *declined)


def choice_of_labels(call: Call, labels: Sequence[str]) -> Choice:
    """The answer that chooses options of the first question by their labels.

    Raises:
        InvalidAnswer: there is no such option.
    """
    questions = questions_of(call.input).questions or (Question(question=""),)
    return Choice(
        call_id=call.call_id,
        selections={"0": [option_index(questions[0], each) for each in labels]},
        custom={str(index): NO_ANSWER for index, _ in enumerate(questions[1:], 1)},
    )
