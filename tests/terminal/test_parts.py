"""The terminal's parts: screens, prompts, keyboard, saved sessions, and the choice of server and key."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client import (
    Allow,
    Choice,
    Client,
    ClientCall,
    Deny,
    Ended,
    Message,
    Notice,
    Permission,
    Question,
    Restarted,
    Result,
    Text,
)
from dragoman.client.events import Option, Pending, QuestionItem
from dragoman.core.question_text import repeat_question
from dragoman.server.bootstrap_key import announce_ready
from dragoman.settings import Settings
from dragoman.terminal.chat import Chat, SessionSelection
from dragoman.terminal.formatting import call_line, pending_line, strip_control_characters
from dragoman.terminal.keyboard import Keyboard
from dragoman.terminal.prompts import Prompter, parse_choice
from dragoman.terminal.rich_screen import RichScreen, split_at_blocks
from dragoman.terminal.saved_sessions import SavedSession, load_last_session, save_last_session, state_folder
from dragoman.terminal.screen import JsonLinesScreen, PlainScreen, Screen
from dragoman.terminal.server_target import CommandError, resolve_key, resolve_url

WHERE = QuestionItem(question="Where?", options=(Option("here"), Option("there")))
STAMP = Permission(call_id="c1", name="stamp", arguments={"text": "x"})


def test_control_characters_are_removed() -> None:
    assert strip_control_characters("a\x1b[31mb\x1b]0;title\x07c\x9bd\u202ee\r\nf\tg\r") == "a[31mb]0;titlecde\nf\tg"
    assert call_line("run\x1b[A", {"cmd": "rm\n\u202ex"}) == 'run[A(cmd="rm\\nx")'


@pytest.mark.parametrize("is_rich", [False, True], ids=["plain", "rich"])
def test_words_that_a_crash_cut_off_are_shown_as_cut(is_rich: bool) -> None:
    output = io.StringIO()
    screen: Screen = RichScreen(output) if is_rich else PlainScreen(output, output, is_raw=False)
    with screen.live_display():
        for event in (Text(text="Once upon "), Restarted(text="Once upon "), Text(text="Once upon a time.")):
            screen.show_event(event)
        screen.show_event(Ended(reason="end_turn"))
    shown = [line.strip() for line in output.getvalue().splitlines() if line.strip()]
    assert shown[:3] == [
        "Once upon",
        "the server restarted: the last words were cut off and are repeated",
        "Once upon a time.",
    ]


@pytest.mark.parametrize("is_rich", [False, True], ids=["plain", "rich"])
def test_a_lost_connection_is_one_line_however_often_the_client_tries_again(is_rich: bool) -> None:
    output = io.StringIO()
    screen: Screen = RichScreen(output) if is_rich else PlainScreen(output, output, is_raw=False)
    attempt = Notice(kind="reconnecting", content={"after_s": 0.1, "because": "refused"})
    with screen.live_display():
        for event in (Text(text="Once"), attempt, attempt, attempt, Text(text="upon"), attempt, attempt):
            screen.show_event(event)
        screen.show_event(Ended(reason="end_turn"))
    shown = [line.strip() for line in output.getvalue().splitlines() if "connect" in line or line.strip() == "upon"]
    lost = ["the connection was lost for 0 s"] if is_rich else ["connection lost; reconnecting", "connected again"]
    assert shown == [*lost, "upon", *lost]


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_run_without_a_connection_says_what_the_next_interrupt_does(is_stopping: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    output = Terminal()
    screen = RichScreen(output)
    with screen.live_display(lambda: is_stopping):
        screen.show_event(Notice(kind="reconnecting", content={"after_s": 0.1, "because": "refused"}))
    assert f"reconnecting ({'Ctrl-C again to exit' if is_stopping else 'Ctrl-C to stop'})" in output.getvalue()


def test_a_table_that_is_too_wide_for_the_terminal_loses_no_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    output = io.StringIO()
    screen = RichScreen(output)
    table = "| name | number |\n|---|---|\n| a long name of something | 12345678901234567890 |\n"
    screen.show_message(Message(role="assistant", blocks=(Text(text=table),)))
    assert "…" not in output.getvalue()
    assert sorted(filter(str.isdigit, output.getvalue())) == sorted("12345678901234567890")


@pytest.mark.parametrize("is_rich", [False, True], ids=["plain", "rich"])
def test_an_interrupted_message_of_the_history_is_marked(is_rich: bool) -> None:
    output = io.StringIO()
    screen: Screen = RichScreen(output) if is_rich else PlainScreen(output, output, is_raw=False)
    screen.show_message(Message(role="assistant", blocks=(Text(text="Once upon "),), interrupted=True))
    assert [line.strip() for line in output.getvalue().splitlines()] == ["Once upon", "[cut off]"]


@pytest.mark.parametrize(
    "screen_to",
    [lambda out: PlainScreen(out, out, is_raw=False), lambda out: JsonLinesScreen(out, out), RichScreen],
    ids=["plain", "json", "rich"],
)
def test_no_screen_shows_control_characters(screen_to: Callable[[TextIO], Screen]) -> None:
    output = io.StringIO()
    screen = screen_to(output)
    screen.show_note("session a\x1b]0;title\x07b")
    screen.show_error("no \x1b[31mred")
    assert output.getvalue().split("\n")[:2] in (
        ["session a]0;titleb", "no [31mred"],
        ["session a]0;titleb", "dragoman: no [31mred"],
    )


@given(st.lists(st.sampled_from(["a\n", "\n", "```\n", "- x\n", "  y\n", "~~~py\n", "b", " "])))
def test_splitting_a_text_into_blocks_loses_nothing(pieces: list[str]) -> None:
    text, blocks, rest = "".join(pieces), "", ""
    for piece in pieces:
        block, rest = split_at_blocks(rest + piece)
        blocks += block
    assert blocks + rest == text


def test_a_block_ends_when_another_begins_outside_fences_and_lists() -> None:
    assert split_at_blocks("one\n\ntwo") == ("one\n\n", "two")
    assert split_at_blocks("one\n\n") == ("", "one\n\n")
    assert split_at_blocks("- one\n\n  more") == ("", "- one\n\n  more")
    assert split_at_blocks("```\na\n\nb\n```\n\nc") == ("```\na\n\nb\n```\n\n", "c")


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("1", ("here",)), ("THERE", ("there",)), ("3", None), ("1 2", None), ("", None), ("nowhere", ()), ("10 km", ())],
)
def test_a_choice_is_a_number_a_label_or_free_text(text: str, chosen: tuple[str, ...] | None) -> None:
    assert parse_choice(text, WHERE) == chosen


def test_several_options_are_selected_by_several_numbers() -> None:
    several = QuestionItem(question="Where?", options=WHERE.options, multi_select=True)
    assert parse_choice("2, 1", several) == ("there", "here")


@pytest.mark.parametrize(
    ("pending", "lines", "answer"),
    [
        (STAMP, ["", "Y"], Allow(call_id="c1")),
        (STAMP, ["no", ""], Deny(call_id="c1")),
        (STAMP, ["N", "not today"], Deny(call_id="c1", reason="not today")),
        (STAMP, ["and then send it", "y"], Allow(call_id="c1")),
        (Question(call_id="q", questions=(WHERE,)), ["7", "2"], Choice.of("there", call_id="q")),
        (Question(call_id="q", questions=(WHERE,)), ["home"], Choice.of(custom="home", call_id="q")),
        (ClientCall(call_id="f", name="weather", arguments={}), ["sunny"], Result(call_id="f", text="sunny")),
    ],
)
def test_a_typed_line_becomes_an_answer(pending: Pending, lines: list[str], answer: object) -> None:
    typed = iter(lines)
    assert Prompter(lambda _: None, lambda _: next(typed), allows_all=False).collect_answers([pending]) == (answer,)


@pytest.mark.parametrize(("is_multi", "expected"), [(False, "one number"), (True, "numbers")])
def test_a_number_that_no_option_has_is_refused_with_those_that_there_are(is_multi: bool, expected: str) -> None:
    typed, shown = iter(["3", "", "2"]), list[str]()
    question = Question(call_id="c1", questions=(msgspec.structs.replace(WHERE, multi_select=is_multi),))
    prompter = Prompter(shown.extend, lambda _: next(typed), allows_all=False)
    assert prompter.collect_answers([question]) == (Choice(call_id="c1", selections={0: ("there",)}),)
    assert shown == ["Where?", "  1  here", "  2  there", f"expected {expected} from 1 to 2"]


def test_no_argument_can_make_one_call_look_like_another() -> None:
    """The names of arguments are the model's, and so, after an injection, an attacker's."""
    call = Permission(call_id="c1", name="pay", arguments={"a\n\nAllow this call?  look(": "x\ny", "amount": 5})
    shown, prompts = list[str](), list[str]()

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return "y"

    Prompter(shown.extend, read, allows_all=False).collect_answers([call])
    assert shown == [r'Allow this call?  pay("a\n\nAllow this call?  look("="x\ny", amount=5)']
    assert prompts == ["pay: [y]es, [n]o, [a]lways: "], "the call may have scrolled away"


def test_a_tool_that_is_always_allowed_is_not_asked_about_again() -> None:
    typed = iter(["a"])
    prompter = Prompter(lambda _: None, lambda _: next(typed), allows_all=False)
    assert prompter.collect_answers([STAMP, STAMP]) == (Allow(call_id="c1"), Allow(call_id="c1"))


@pytest.mark.parametrize(("typed", "answer"), [("y", Allow(call_id="c1")), ("n", Deny(call_id="c1", reason="no"))])
def test_a_call_that_may_have_run_already_is_asked_about_whatever_was_allowed_before(
    typed: str, answer: Allow | Deny
) -> None:
    lines, shown, prompts = iter(["a", typed, "no"]), list[str](), list[str]()

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return next(lines)

    repeat = Permission(call_id="c1", name="stamp", arguments={"text": "x"}, is_repeat=True)
    assert Prompter(shown.extend, read, allows_all=True).collect_answers([STAMP, repeat]) == (
        Allow(call_id="c1"),
        answer,
    )
    assert shown == [repeat_question("stamp"), 'stamp(text="x")']
    assert prompts[:2] == ["stamp again: [y]es, [n]o: "] * 2, "`always` is no answer to it"
    assert pending_line(repeat) == 'permission to run again, as it may have run already: stamp(text="x")'


class ScriptedKeyboard(Keyboard):
    """A keyboard with prepared input."""

    def __init__(self, *keys: str | type[BaseException]) -> None:
        super().__init__(None)
        self.keys = list(keys)

    def read_line(self, prompt: str, *, is_message: bool = False) -> str:
        key = self.keys.pop(0)
        if isinstance(key, str):
            return key
        raise key


@pytest.mark.parametrize(
    "keys",
    [
        (KeyboardInterrupt, KeyboardInterrupt),
        (KeyboardInterrupt, "", KeyboardInterrupt, KeyboardInterrupt),
        ("/session", "/quit"),
        (EOFError,),
    ],
)
def test_two_interrupts_in_a_row_or_the_end_of_input_exit(keys: tuple[str | type[BaseException]]) -> None:
    keyboard = ScriptedKeyboard(*keys)
    output = io.StringIO()
    with Client("http://127.0.0.1:9") as client:
        Chat(
            client,
            SessionSelection(),
            PlainScreen(output, output, is_raw=False),
            keyboard,
            resume_command="",
            allows_all=False,
        ).run_interactive()
    assert keyboard.keys == []


def test_a_line_typed_ahead_is_the_next_message_and_never_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard = Keyboard(None)
    keyboard._typed_ahead.append("y")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert keyboard.read_line("allow? ") == "n"
    assert keyboard.read_line("> ", is_message=True) == "y"


def test_the_first_key_is_sent_to_this_machine_only(tmp_path: Path) -> None:
    (tmp_path / "first-key").write_text("sk-first\n")
    assert resolve_key(None, "http://127.0.0.1:8000", tmp_path) == "sk-first"
    assert resolve_key(None, "https://agents.example", tmp_path) is None
    assert resolve_key("sk-mine", "https://agents.example", tmp_path) == "sk-mine"
    assert resolve_key(f"@{tmp_path / 'first-key'}", "https://agents.example", tmp_path) == "sk-first"
    assert resolve_key(None, "http://localhost:8000", tmp_path / "nowhere") is None


def test_the_address_is_that_of_the_server_which_was_started_last_on_the_data_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data=str(tmp_path))
    assert resolve_url(None, settings) == "http://127.0.0.1:8000"
    for url, local in (("http://127.0.0.1:9000", "http://127.0.0.1:9000"), ("http://[::]:80", "http://[::1]:80")):
        announce_ready(tmp_path, url)
        assert capsys.readouterr().out == f"ready {url}\n"
        assert resolve_url(None, settings) == local
    assert resolve_url("localhost:9001", settings) == "http://localhost:9001"


def test_the_address_is_the_given_one_or_from_the_settings(tmp_path: Path) -> None:
    assert resolve_url("localhost:9000", Settings()) == "http://localhost:9000"
    assert resolve_url(None, Settings(host="0.0.0.0", port=9000, data=str(tmp_path))) == "http://127.0.0.1:9000"
    assert resolve_url(None, Settings(host="::1", data=str(tmp_path))) == "http://[::1]:8000"
    for address in ("ftp://x", "http://[", "http://"):
        with pytest.raises(CommandError, match="expected an address such as"):
            resolve_url(address, Settings())


def test_the_last_conversation_is_saved_by_server_and_protocol(tmp_path: Path) -> None:
    save_last_session(tmp_path / "state", "http://a", "aap", SavedSession("s1"))
    save_last_session(tmp_path / "state", "http://a", "blade", SavedSession("s2", "planner"))
    save_last_session(tmp_path / "state", "http://a", "aap", SavedSession("s3"))
    assert load_last_session(tmp_path / "state", "http://a", "aap") == SavedSession("s3")
    assert load_last_session(tmp_path / "state", "http://a", "blade") == SavedSession("s2", "planner")
    assert load_last_session(tmp_path / "state", "http://b", "aap") is None
    assert (tmp_path / "state" / "last-sessions.json").stat().st_mode & 0o777 == 0o600
    assert state_folder("/me", "relative") == Path("/me/.local/state/dragoman")
