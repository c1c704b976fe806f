"""The paths of errors: they name the request's own parts."""

import pytest

from dragoman.core.content import AssistantMessage, Text, UserMessage
from dragoman.core.ids import MessageId
from dragoman.core.refusals import Invalid, InvalidSeed
from dragoman.protocols.kit.error_paths import paths_in_request

STEP = AssistantMessage(id=MessageId("1"), content=(Text("a"),))
SEEDS = {"input[0]": UserMessage(id=MessageId("0"), content="a"), "input[1]": STEP}


def path_at_client(path: str) -> str:
    """The path that a client gets of an error which the core raised with `path`."""
    with (
        pytest.raises(Invalid) as refused,
        paths_in_request("input", messages=SEEDS, answers={"input[7]": "an answer"}),
    ):
        raise InvalidSeed("wrong", path=path)
    return refused.value.path


def test_an_error_names_the_part_of_the_request_that_the_core_s_input_was_made_of() -> None:
    assert path_at_client("messages[0].content[1]") == "input[0].content[1]"
    assert path_at_client("answers[0].content") == "input[7].content"


def test_of_a_step_that_several_parts_make_an_error_names_the_first() -> None:
    assert path_at_client("messages[1].content[1]") == "input[1]"


def test_an_error_about_all_messages_names_the_member_that_has_them() -> None:
    assert path_at_client("messages") == "input"


def test_other_paths_stay_as_they_are() -> None:
    assert path_at_client("tools[0].name") == "tools[0].name"
    assert path_at_client("agent") == "agent"
