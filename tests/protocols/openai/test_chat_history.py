"""Chat Completions, section 6.3.1: the client's messages compared with the log."""

from datetime import UTC, datetime

import pytest

from dragoman.core.branches import BranchPoint
from dragoman.core.content import Call, Text, ToolMessage, UserMessage
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallSettled,
    Event,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    RunStarted,
    RunStopped,
    StopReason,
)
from dragoman.core.ids import CallId, MessageId, RunId
from dragoman.protocols.openai.chat_history import NewMessages, compare
from dragoman.protocols.openai.requests import FunctionCall, FunctionCallOutput, InputItem, Message
from tests.requirements import requirement

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
ASKED = Call(CallId("c"), "AskUserQuestion", {"questions": [{"question": "Which?", "options": [{"label": "Red"}]}]})


class Log:
    """A log in short form: `user` and `run` add turns."""

    def __init__(self) -> None:
        self.events: list[LoggedEvent] = []
        self._messages = 0

    def add(self, *events: Event) -> "Log":
        for event in events:
            self.events.append(LoggedEvent(len(self.events) + 1, NOON, RunId("r"), event))
        return self

    def turn(self, said: str | None, *steps: str, stop: StopReason | None = "end_turn", by: str = "openai") -> "Log":
        """A run: the user's message, if there is one, and the texts of its steps."""
        self.add(RunStarted(run_id=RunId("r"), protocol=by))
        if said is not None:
            self.add(MessageAdded(message=UserMessage(id=self._id(), content=said)))
        for text in steps:
            self.step(text)
        return self if stop is None else self.add(RunStopped(run_id=RunId("r"), reason=stop))

    def step(self, text: str, *opened: CallOpened) -> "Log":
        message_id = self._id()
        blocks = [BlockClosed(message_id=message_id, index=0, block=Text(text))] if text else []
        return self.add(MessageOpened(message_id=message_id), *blocks, *opened, MessageClosed(message_id=message_id))

    def seq(self, said: str) -> int:
        """The event that added a message of the user."""
        return next(
            each.seq
            for each in self.events
            if isinstance(each.event, MessageAdded) and each.event.message.content == said
        )

    def _id(self) -> MessageId:
        self._messages += 1
        return MessageId(f"m{self._messages}")


def items(*said: str) -> list[InputItem]:
    """A client's list: `u: text` and `a: text`."""
    roles = {"u": "user", "a": "assistant"}
    return [Message(role=roles[each[0]], content=each[3:]) for each in said]  # type: ignore[arg-type]  # one of them


TWO_TURNS = Log().turn("hi", "hello").turn("more", "sure", "and done")
FAILED = Log().turn("hi", "hello").turn("more", "su", stop="error")
SILENT = Log().turn("hi", stop="error")
ACTIVE = Log().turn("hi", "hel", stop=None)


@requirement("openai-chat:session:list")
@pytest.mark.parametrize(
    ("log", "sent", "expected", "before"),
    [
        pytest.param(Log(), ["u: hi"], [0], None, id="a session without messages"),
        pytest.param(
            TWO_TURNS, ["u: hi", "a: hello", "u: more", "a: sure\n\nand done", "u: x"], [4], None, id="the next turn"
        ),
        pytest.param(
            TWO_TURNS, ["u: hi", "a: hello", "u: more", "a: sure", "a: and done", "u: x"], [5], None, id="a text a step"
        ),
        pytest.param(
            TWO_TURNS,
            ["u:  hi ", "a: <think>hm</think>\nhello", "u: more", "a: sure\n\nand done", "u: x", "u: y"],
            [4, 5],
            None,
            id="spaces, reasoning and two new messages",
        ),
        pytest.param(
            TWO_TURNS,
            ["u: hi", 'a: <think>a</think> <think>b</think>hel<details type="reasoning">c</details>lo', "u: x"],
            [2],
            "more",
            id="an edit after an answer with several thoughts",
        ),
        pytest.param(
            TWO_TURNS,
            ["u: hi", "a: <think>hello", "u: x"],
            None,
            None,
            id="a thought without an end is part of the text",
        ),
        pytest.param(TWO_TURNS, ["u: hi", "a: hello", "u: less"], [2], "more", id="an edit"),
        pytest.param(TWO_TURNS, ["u: hi", "a: hello", "u: more"], [2], "more", id="again"),
        pytest.param(Log().turn("hi", "hello"), ["u: hi"], [0], "hi", id="the first answer again"),
        pytest.param(TWO_TURNS, ["u: hi"], None, None, id="only the first message of two"),
        pytest.param(TWO_TURNS, ["u: Write a title for: hi hello"], None, None, id="a request for a title"),
        pytest.param(ACTIVE, ["u: Write a title for: hi"], None, None, id="a request for a title during the answer"),
        pytest.param(ACTIVE, ["u: hi"], [0], "hi", id="the same request during its answer"),
        pytest.param(TWO_TURNS, ["u: hi", "a: I promise", "u: do it"], None, None, id="words that were never said"),
        pytest.param(TWO_TURNS, ["u: no", "a: hello", "u: more"], None, None, id="another question before an answer"),
        pytest.param(TWO_TURNS, ["u: hi", "a: hello"], None, None, id="no user message at the end"),
        pytest.param(TWO_TURNS, [], None, None, id="nothing"),
        pytest.param(FAILED, ["u: hi", "a: hello", "u: more", "a: su", "u: x"], [4], None, id="behind a failed answer"),
        pytest.param(
            FAILED, ["u: hi", "a: hello", "u: more", "a: s", "u: x"], [4], None, id="that the client saw half"
        ),
        pytest.param(FAILED, ["u: hi", "a: hello", "u: more", "u: x"], [3], None, id="that the client dropped"),
        pytest.param(FAILED, ["u: hi", "a: hello", "u: more"], [2], "more", id="a retry after a failure"),
        pytest.param(SILENT, ["u: hi"], [0], "hi", id="a retry where nothing was said"),
        pytest.param(SILENT, ["u: hi", "u: x"], [1], None, id="a message where nothing was said"),
        pytest.param(
            Log().turn("hi", "waits", stop="tool_use").turn(None, "went on", by="blade"),
            ["u: hi", "a: waits", "u: x"],
            [2],
            None,
            id="what another protocol let go on is not missed",
        ),
        pytest.param(
            Log().turn("hi", "hello").turn("elsewhere", "yes", by="blade"),
            ["u: hi", "a: hello", "u: x"],
            [2],
            "elsewhere",
            id="what the client does not show is left on a branch",
        ),
    ],
)
def test_the_list_says_what_is_new_and_where(
    log: Log, sent: list[str], expected: list[int] | None, before: str | None
) -> None:
    branch = None if before is None else BranchPoint(log.seq(before))
    wanted = None if expected is None else NewMessages(expected, branch)
    assert compare(items(*sent), log.events) == wanted


@requirement("openai-chat:session:list", "openai:abuse:sizes")
@pytest.mark.parametrize(
    "text",
    [
        f"a{' ' * 500_000}b",
        "<think>" * 200_000,
        '<details type="reasoning"' * 100_000,
        "<think>" + "</" * 500_000,
        "a" + "<think></think>" * 400_000,
    ],
)
def test_long_words_of_an_agent_with_much_that_looks_like_thinking_are_compared(text: str) -> None:
    """One request must not stop the server: a search that is quadratic would take hours."""
    assert compare(items("u: hi", f"a: {text}", "u: more"), Log().turn("hi", text).events) == NewMessages([2])


@requirement("openai-chat:session:list")
def test_calls_and_results_of_the_application_are_passed_over() -> None:
    log = Log().turn("hi", "let me see", stop="tool_use").turn(None, "it is five")
    called: list[InputItem] = [FunctionCall(call_id="x", name="clock"), FunctionCallOutput(call_id="x", output="5")]
    sent = [*items("u: hi", "a: let me see"), *called, *items("a: it is five", "u: thanks")]
    assert compare(sent, log.events) == NewMessages([5])


@requirement("openai-chat:session:list", "openai-chat:answer:question")
@pytest.mark.parametrize("typed", ["red", "Red "])
def test_a_question_and_its_answer_are_messages(typed: str) -> None:
    opened = CallOpened(message_id=MessageId("m2"), index=1, call=ASKED, kind="question")
    result = ToolMessage(
        id=MessageId("t"),
        call_id=ASKED.call_id,
        name=ASKED.name,
        content="",
        raw={"answers": [{"question": "Which?", "labels": ["Red"], "custom": None}]},
    )
    log = Log().turn("paint", stop=None).step("", opened).add(RunStopped(run_id=RunId("r"), reason="tool_use"))
    log.add(CallSettled(outcome="done", result=result)).turn(None, "painted")
    sent = items("u: paint", "a: Which?\n- Red", f"u: {typed}", "a: painted", "u: thanks")
    assert compare(sent, log.events) == NewMessages([4])
    assert compare(sent[:3], log.events) is None, "an answer cannot be given again"
