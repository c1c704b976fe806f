"""Asks a person what a run waits for: permissions, questions, and results of functions that nobody here has."""

import re
from collections.abc import Callable, Sequence
from typing import assert_never

from dragoman.client import Allow, Choice, ClientCall, Deny, Permission, Question, Result
from dragoman.client.events import Answer, Pending, QuestionItem
from dragoman.terminal.formatting import call_line, strip_control_characters

YES = {"y", "yes", "j", "ja", "是", "好"}
NO = {"n", "no", "nein", "不", "否"}
ALWAYS = {"a", "always"}

ShowLines = Callable[[Sequence[str]], None]
ReadLine = Callable[[str], str]


class Prompter:
    """Puts questions to a person, one after the other.

    Args:
        tell: shows what is to be decided.
        line: reads what is said to it; an interrupt or the end of input leaves everything open.
        allows_all: no permission is asked for.
    """

    def __init__(self, show_lines: ShowLines, read_line: ReadLine, *, allows_all: bool) -> None:
        self._show_lines = show_lines
        self._read_line = read_line
        self._allows_all = allows_all
        self._always_allowed_tools: set[str] = set()
        """Tools that may always run, as long as this program does."""

    def collect_answers(self, pending: Sequence[Pending]) -> tuple[Answer, ...] | None:
        """Answers to all that waits; None when something stays open."""
        answers: list[Answer] = []
        for each in pending:
            try:
                answer = self._prompt_for(each)
            except (KeyboardInterrupt, EOFError):
                return None
            if answer is None:
                return None
            answers.append(answer)
        return tuple(answers)

    def _prompt_for(self, pending: Pending) -> Answer | None:
        match pending:
            case Permission():
                return self._prompt_permission(pending)
            case Question():
                return self._prompt_question(pending)
            case ClientCall():
                return self._prompt_result(pending)
            case _:
                assert_never(pending)

    def _prompt_permission(self, permission: Permission) -> Answer:
        if self._allows_all or permission.name in self._always_allowed_tools:
            return Allow(call_id=permission.call_id)
        self._show_lines([f"May this run?  {call_line(permission.name, permission.arguments)}"])
        while not (said := self._read_line("[y]es, [n]o, [a]lways, or why not: ")):
            pass
        word = said.casefold()
        if word in ALWAYS:
            self._always_allowed_tools.add(permission.name)
        if word in YES | ALWAYS:
            return Allow(call_id=permission.call_id)
        return Deny(call_id=permission.call_id, reason="" if word in NO else said)

    def _prompt_question(self, question_call: Question) -> Answer:
        selections: dict[int, tuple[str, ...]] = {}
        custom: dict[int, str] = {}
        for place, question in enumerate(question_call.questions):
            self._show_lines(question_lines(question))
            said = self._read_line(question_prompt(question))
            while (chosen := parse_choice(said, question)) is None:
                said = self._read_line(question_prompt(question))
            if chosen:
                selections[place] = chosen
            else:
                custom[place] = said
        return Choice(call_id=question_call.call_id, selections=selections, custom=custom)

    def _prompt_result(self, call: ClientCall) -> Answer | None:
        self._show_lines(
            [
                f"A function of another application was called:  {call_line(call.name, call.arguments)}",
                "What did it give? An empty line leaves it open.",
            ]
        )
        said = self._read_line("result: ")
        return Result(call_id=call.call_id, text=said) if said else None


def question_lines(item: QuestionItem) -> list[str]:
    """A question with its numbered choices."""
    header = f"[{strip_control_characters(item.header)}] " if item.header else ""
    lines = [header + strip_control_characters(item.question)]
    for number, option in enumerate(item.options, start=1):
        description = f"  {strip_control_characters(option.description)}" if option.description else ""
        lines.append(f"  {number}  {strip_control_characters(option.label)}{description}")
    return lines


def question_prompt(item: QuestionItem) -> str:
    """What may be said to it."""
    if not item.options:
        return "answer: "
    return "numbers, or words of your own: " if item.multi_select else "number, or words of your own: "


def parse_choice(text: str, item: QuestionItem) -> tuple[str, ...] | None:
    """The labels that were chosen; none for words of one's own; None when it says nothing that can be meant."""
    if not text:
        return None
    labels = [option.label for option in item.options]
    by_name = [label for label in labels if label.casefold() == text.casefold()]
    if by_name:
        return (by_name[0],)
    numbers = re.split(r"[\s,]+", text.strip(", "))
    if not labels or not all(re.fullmatch(r"[0-9]{1,4}", number) for number in numbers):
        return ()
    places = list(dict.fromkeys(int(number) - 1 for number in numbers))
    if any(not 0 <= place < len(labels) for place in places) or (len(places) > 1 and not item.multi_select):
        return None
    return tuple(labels[place] for place in places)
