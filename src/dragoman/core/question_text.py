"""Questions to the user as text: clients without a form for them show it, and the user's next message answers. Pure."""

from collections.abc import Sequence

from dragoman.core.answers import Question, option_index, questions_of
from dragoman.core.content import Call, JsonObject
from dragoman.core.inputs import Choice

NO_ANSWER = "(no answer)"
"""The answer to the questions after the first one: one text answers one question."""


def question_text(arguments: JsonObject) -> str:
    """Questions and their options as lines of text."""
    return "\n\n".join(
        "\n".join((each.question, *(f"- {option.label}" for option in each.options)))
        for each in questions_of(arguments).questions
    )


def choice_from_text(call: Call, text: str) -> Choice:
    """The answer that a user's message gives: an option, if it is the label of one, otherwise a text of the user's."""
    first, *others = questions_of(call.input).questions or (Question(question=""),)
    labels = [option.label.strip().casefold() for option in first.options]
    wanted = text.strip().casefold()
    declined = {str(place): NO_ANSWER for place, _ in enumerate(others, 1)}
    if wanted in labels:
        return Choice(call_id=call.call_id, selections={"0": [labels.index(wanted)]}, custom=declined)
    return Choice(call_id=call.call_id, custom={"0": text, **declined})


def choice_of_labels(call: Call, labels: Sequence[str]) -> Choice:
    """The answer that chooses options of the first question by their labels.

    Raises:
        InvalidAnswer: there is no such option.
    """
    questions = questions_of(call.input).questions or (Question(question=""),)
    return Choice(
        call_id=call.call_id,
        selections={"0": [option_index(questions[0], each) for each in labels]},
        custom={str(place): NO_ANSWER for place, _ in enumerate(questions[1:], 1)},
    )
