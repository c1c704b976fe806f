"""Asks a person for what a run is waiting for: permissions, answers, and results of other applications' tools."""

import re
from collections.abc import Callable, Sequence
from typing import assert_never

from dragoman.client import Allow, Choice, ClientCall, Deny, Permission, Question, Result
from dragoman.client.events import Answer, Pending, QuestionItem
from dragoman.core.question_text import repeat_question
from dragoman.terminal.formatting import call_line, on_one_line, shorten, strip_control_characters

YES = {"y", "yes", "j", "ja", "是", "好"}
NO = {"n", "no", "nein", "不", "否"}
ALWAYS = {"a", "always"}

ShowLines = Callable[[Sequence[str]], None]
ReadLine = Callable[[str], str]


class Prompter:
    """Asks for decisions, one after the other.

    Args:
        show_lines: shows what has to be decided.
        read_line: reads the answer. KeyboardInterrupt and EOFError leave everything pending.
        allows_all: allow all tools without asking, except for calls that may have run already.
    """

    def __init__(self, show_lines: ShowLines, read_line: ReadLine, *, allows_all: bool) -> None:
        self._show_lines = show_lines
        self._read_line = read_line
        self._allows_all = allows_all
        self._always_allowed_tools: set[str] = set()
        """Tools that the user allowed for as long as this program runs."""

    def collect_answers(self, pending: Sequence[Pending]) -> tuple[Answer, ...] | None:
        """Ask for everything pending; None if one request is left unanswered."""
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
        if not permission.is_repeat and (self._allows_all or permission.name in self._always_allowed_tools):
            return Allow(call_id=permission.call_id)
        # Long arguments may have moved the call off the screen, and their end may look like another call.
        name, call = shorten(on_one_line(permission.name)), call_line(permission.name, permission.arguments)
        if permission.is_repeat:
            self._show_lines([repeat_question(name), call])
            prompt, decisions = f"{name} again: [y]es, [n]o: ", YES | NO
        else:
            self._show_lines([f"Allow this call?  {call}"])
            prompt, decisions = f"{name}: [y]es, [n]o, [a]lways: ", YES | NO | ALWAYS
        while (decision := self._read_line(prompt).casefold()) not in decisions:
            pass
        if decision in NO:
            return Deny(call_id=permission.call_id, reason=self._read_line("reason, or an empty line for none: "))
        if decision in ALWAYS:
            self._always_allowed_tools.add(permission.name)
        return Allow(call_id=permission.call_id)

    def _prompt_question(self, question_call: Question) -> Answer:
        selections: dict[int, tuple[str, ...]] = {}
        custom: dict[int, str] = {}
        for index, question in enumerate(question_call.questions):
            self._show_lines(question_lines(question))
            line = self._read_line(question_prompt(question))
            while (labels := parse_choice(line, question)) is None:
                if line:
                    count = "numbers" if question.multi_select else "one number"
                    self._show_lines([f"expected {count} from 1 to {len(question.options)}"])
                line = self._read_line(question_prompt(question))
            if labels:
                selections[index] = labels
            else:
                custom[index] = line
        return Choice(call_id=question_call.call_id, selections=selections, custom=custom)

    def _prompt_result(self, call: ClientCall) -> Answer | None:
        self._show_lines(
            [
                f"The agent called another application's tool:  {call_line(call.name, call.arguments)}",
                "Enter its result, or an empty line to leave the call pending.",
            ]
        )
        line = self._read_line("result: ")
        return Result(call_id=call.call_id, text=line) if line else None


def question_lines(item: QuestionItem) -> list[str]:
    """A question with its numbered options."""
    header = f"[{strip_control_characters(item.header)}] " if item.header else ""
    lines = [header + strip_control_characters(item.question)]
    for number, option in enumerate(item.options, start=1):
        description = f"  {strip_control_characters(option.description)}" if option.description else ""
        lines.append(f"  {number}  {strip_control_characters(option.label)}{description}")
    return lines


def question_prompt(item: QuestionItem) -> str:
    """The prompt for a question's answer."""
    if not item.options:
        return "answer: "
    return "numbers, or your own text: " if item.multi_select else "number, or your own text: "


def parse_choice(text: str, item: QuestionItem) -> tuple[str, ...] | None:
    """The labels of the selected options; an empty tuple for free text; None if the input is not a valid answer."""
    if not text:
        return None
    labels = [option.label for option in item.options]
    matching = [label for label in labels if label.casefold() == text.casefold()]
    if matching:
        return (matching[0],)
    numbers = re.split(r"[\s,]+", text.strip(", "))
    if not labels or not all(re.fullmatch(r"[0-9]{1,4}", number) for number in numbers):
        return ()
    indexes = list(dict.fromkeys(int(number) - 1 for number in numbers))
    if any(not 0 <= index < len(labels) for index in indexes) or (len(indexes) > 1 and not item.multi_select):
        return None
    return tuple(labels[index] for index in indexes)
