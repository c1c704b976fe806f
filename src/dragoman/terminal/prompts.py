"""Asks a person what a run waits for: permissions, questions, and results of functions that nobody here has."""

import re
from collections.abc import Callable, Sequence
from typing import assert_never

from dragoman.client import Allow, Choice, ClientCall, Deny, Permission, Question, Result
from dragoman.client.events import Answer, Asked, Pending
from dragoman.terminal.formatting import call_line, clean

YES = {"y", "yes", "j", "ja", "是", "好"}
NO = {"n", "no", "nein", "不", "否"}
ALWAYS = {"a", "always"}

Tell = Callable[[Sequence[str]], None]
Line = Callable[[str], str]


class Asker:
    """Puts questions to a person, one after the other.

    Args:
        tell: shows what is to be decided.
        line: reads what is said to it; an interrupt or the end of input leaves everything open.
        allows_all: no permission is asked for.
    """

    def __init__(self, tell: Tell, line: Line, *, allows_all: bool) -> None:
        self._tell = tell
        self._line = line
        self._allows_all = allows_all
        self._allowed: set[str] = set()
        """Tools that may always run, as long as this program does."""

    def all(self, pending: Sequence[Pending]) -> tuple[Answer, ...] | None:
        """Answers to all that waits; None when something stays open."""
        answers: list[Answer] = []
        for each in pending:
            try:
                answer = self._one(each)
            except (KeyboardInterrupt, EOFError):
                return None
            if answer is None:
                return None
            answers.append(answer)
        return tuple(answers)

    def _one(self, pending: Pending) -> Answer | None:
        match pending:
            case Permission():
                return self._permission(pending)
            case Question():
                return self._question(pending)
            case ClientCall():
                return self._result(pending)
            case _:
                assert_never(pending)

    def _permission(self, asked: Permission) -> Answer:
        if self._allows_all or asked.name in self._allowed:
            return Allow(call_id=asked.call_id)
        self._tell([f"May this run?  {call_line(asked.name, asked.arguments)}"])
        while not (said := self._line("[y]es, [n]o, [a]lways, or why not: ")):
            pass
        word = said.casefold()
        if word in ALWAYS:
            self._allowed.add(asked.name)
        if word in YES | ALWAYS:
            return Allow(call_id=asked.call_id)
        return Deny(call_id=asked.call_id, reason="" if word in NO else said)

    def _question(self, asked: Question) -> Answer:
        selections: dict[int, tuple[str, ...]] = {}
        custom: dict[int, str] = {}
        for place, question in enumerate(asked.questions):
            self._tell(question_lines(question))
            said = self._line(prompt_of(question))
            while (chosen := chosen_by(said, question)) is None:
                said = self._line(prompt_of(question))
            if chosen:
                selections[place] = chosen
            else:
                custom[place] = said
        return Choice(call_id=asked.call_id, selections=selections, custom=custom)

    def _result(self, asked: ClientCall) -> Answer | None:
        self._tell(
            [
                f"A function of another application was called:  {call_line(asked.name, asked.arguments)}",
                "What did it give? An empty line leaves it open.",
            ]
        )
        said = self._line("result: ")
        return Result(call_id=asked.call_id, text=said) if said else None


def question_lines(asked: Asked) -> list[str]:
    """A question with its numbered choices."""
    header = f"[{clean(asked.header)}] " if asked.header else ""
    lines = [header + clean(asked.question)]
    for number, option in enumerate(asked.options, start=1):
        description = f"  {clean(option.description)}" if option.description else ""
        lines.append(f"  {number}  {clean(option.label)}{description}")
    return lines


def prompt_of(asked: Asked) -> str:
    """What may be said to it."""
    if not asked.options:
        return "answer: "
    return "numbers, or words of your own: " if asked.multi_select else "number, or words of your own: "


def chosen_by(said: str, asked: Asked) -> tuple[str, ...] | None:
    """The labels that were chosen; none for words of one's own; None when it says nothing that can be meant."""
    if not said:
        return None
    labels = [option.label for option in asked.options]
    by_name = [label for label in labels if label.casefold() == said.casefold()]
    if by_name:
        return (by_name[0],)
    numbers = re.split(r"[\s,]+", said.strip(", "))
    if not labels or not all(re.fullmatch(r"[0-9]{1,4}", number) for number in numbers):
        return ()
    places = list(dict.fromkeys(int(number) - 1 for number in numbers))
    if any(not 0 <= place < len(labels) for place in places) or (len(places) > 1 and not asked.multi_select):
        return None
    return tuple(labels[place] for place in places)
