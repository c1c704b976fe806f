"""Messages and answers of the log, as the types of the client library that a remote server gets."""

from dragoman.client import (
    Allow,
    Choice,
    ClientCall,
    Deny,
    Image,
    Message,
    Permission,
    Question,
    Result,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.client.codec import UserInput
from dragoman.client.events import QuestionItem
from dragoman.core import content as core
from dragoman.core.ids import CallId, MessageId
from dragoman.core.inputs import Decision
from dragoman.gateway.conversion import to_answer, to_history, to_user_input, with_transcript


def result(call_id: str, text: str = "r", **members: object) -> core.ToolMessage:
    return core.ToolMessage(
        id=MessageId(f"m-{call_id}"),
        call_id=CallId(call_id),
        name="t",
        content=text,
        **members,  # type: ignore[arg-type]  # members of the message
    )


def assistant(*blocks: core.Block, status: core.MessageStatus = "completed") -> core.AssistantMessage:
    return core.AssistantMessage(id=MessageId("a"), content=blocks, status=status)


def user(*blocks: core.InputBlock) -> core.UserMessage:
    return core.UserMessage(id=MessageId("u"), content=blocks)


def test_a_history_has_the_remote_ids_of_calls_and_no_orphans_reasoning_or_repeated_steps() -> None:
    call = core.Call(call_id=CallId("ours"), name="t", input={"x": 1}, origin="theirs")
    assert to_history(
        [
            result("of an older call"),
            user(core.Text("look"), core.Image("https://example.org/a.png")),
            assistant(core.Text("hal"), status="cut"),
            assistant(core.Thinking("hm"), core.Text("half"), call),
            result("ours"),
        ]
    ) == (
        Message(role="user", id="u", blocks=(Text(text="look"), Image(url="https://example.org/a.png"))),
        Message(
            role="assistant",
            id="a",
            blocks=(Text(text="half"), ToolCall(id="theirs", name="t", arguments={"x": 1})),
        ),
        Message(role="tool", id="m-ours", blocks=(ToolResult(call_id="theirs", name="t", text="r"),)),
    )


def test_several_messages_are_sent_as_one_with_the_addresses_of_files() -> None:
    pieces = (
        user(core.Text("one"), core.Image("data:image/png;base64,AA==")),
        user(
            core.Data({"a": 1}), core.File("https://example.org/a.pdf"), core.File("data:application/pdf;base64,AA==")
        ),
    )
    assert to_user_input(pieces) == UserInput(
        text='one\n\n{"a":1}https://example.org/a.pdf', images=("data:image/png;base64,AA==",)
    )


def test_a_transcript_precedes_the_message_unless_nothing_was_said() -> None:
    message = UserInput(text="now")
    assert with_transcript((), message) == message
    said = (Message(role="user", blocks=(Text(text="then"),)), Message(role="assistant", blocks=(Text(text="yes"),)))
    text = "The conversation so far:\n\nuser: then\n\nassistant: yes\n\nThe new message:\n\nnow"
    assert with_transcript(said, message) == UserInput(text=text)


def test_answers_are_sent_in_the_form_of_what_was_asked() -> None:
    call_id = CallId("ours")
    permission = Permission(call_id="p", name="t", arguments={})
    question = Question(call_id="q", questions=(QuestionItem(question="Which?"), QuestionItem(question="And?")))
    client_call = ClientCall(call_id="c", name="t", arguments={})
    chosen = {"answers": [{"labels": ["a", "b"], "custom": None}, {"labels": [], "custom": "own words"}]}
    assert to_answer(permission, Decision(call_id=call_id, granted=True)) == Allow(call_id="p")
    assert to_answer(permission, Decision(call_id=call_id, granted=False, reason="too dear")) == Deny(
        call_id="p", reason="too dear"
    )
    assert to_answer(question, result("ours", "text", raw=chosen)) == Choice(
        call_id="q", selections={0: ("a", "b")}, custom={1: "own words"}
    )
    assert to_answer(question, result("ours", "text")) == Choice(call_id="q", custom={0: "text"})
    assert to_answer(client_call, result("ours", "wet", raw={"answers": [3]})) == Result(call_id="c", text="wet")
