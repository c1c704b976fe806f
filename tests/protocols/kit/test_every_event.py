"""Every event of the core is shown by each protocol, or listed here as one that the protocol has no form for.

The translators ignore events that they do not name, because a later release may write others. So that none is forgotten
by accident, this page says which ones they ignore on purpose. The same for the modules that make messages of a log.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

import dragoman
from dragoman.core.events import Event
from tests.core import strategies
from tests.event_names import named_events
from tests.protocols.every_protocol import for_every_protocol

SRC = Path(dragoman.__file__).parent
EVENTS = {each.__name__ for each in get_args(Event)}
SERVERS_OWN = {"RunResumed", "RunParked", "UnknownEvent"}
"""What a session records for the server alone."""

TRANSLATORS: Mapping[str, tuple[str, ...]] = for_every_protocol(
    {
        "aap": ("aap/translate.py", "aap/streams.py"),
        "agui": ("agui/translate.py", "agui/messages.py"),
        "run_service": ("agui/translate.py", "agui/run_service/translate.py"),
        "agentscope": ("agentscope/translate.py",),
        "openai": ("openai/translate.py",),
        "chat_completions": ("openai/chat_events.py",),
        "ai_sdk": ("aisdk/translate.py",),
        "mcp": ("mcp/translate.py", "mcp/streams.py"),
        "a2a": ("a2a/translate.py",),
        "blade": ("blade/projection/projection.py",),
    },
    variants=["chat_completions"],
)
NOT_IN_STREAMS = {
    "SessionCreated",
    "SettingsChanged",
    "Branched",
    "CompactionMade",
    "MemoriesInjected",
    "CallStarted",
    "AnswerGiven",  # the result of its call follows
}
"""What clients read of the session itself, if at all."""
IGNORED: Mapping[str, set[str]] = for_every_protocol(
    {
        "aap": {
            *NOT_IN_STREAMS,
            *("MessageAdded", "RunQueued"),
            "CallParked",  # `FlatCalls` follows the open calls
            *("PlanUpdated", "CardUpdated", "StageChanged", "SharedStateReplaced"),  # no form in AAP
        },
        "agui": {*NOT_IN_STREAMS, "RunQueued"},
        "run_service": NOT_IN_STREAMS,
        "agentscope": {
            *NOT_IN_STREAMS,
            *("MessageAdded", "MessageOpened", "RunQueued"),
            *("CardUpdated", "StageChanged", "SharedStateReplaced"),  # no form in the Agent API
        },
        "openai": {
            *NOT_IN_STREAMS - {"CallStarted"},
            *("MessageAdded", "MessageOpened", "RunQueued"),
            *("PlanUpdated", "CardUpdated", "StageChanged", "SharedStateReplaced"),  # no form in OpenAI's API
        },
        "chat_completions": {
            *NOT_IN_STREAMS,
            *("MessageAdded", "RunQueued"),
            "CallSettled",  # clients would execute calls that they are shown
            *("PlanUpdated", "CardUpdated", "StageChanged", "SharedStateReplaced"),  # no form in Chat Completions
        },
        "ai_sdk": {*NOT_IN_STREAMS - {"AnswerGiven"}, "MessageAdded", "RunQueued"},
        "mcp": {
            *NOT_IN_STREAMS - {"AnswerGiven"},
            *("MessageOpened", "BlockClosed", "MessageClosed", "RunQueued"),  # the host gets the messages of the result
            "CallParked",  # in the session's state
            *("PlanUpdated", "CardUpdated", "StageChanged", "SharedStateReplaced"),  # no form in MCP
        },
        "a2a": {
            *NOT_IN_STREAMS - {"AnswerGiven"},
            "MessageOpened",
            *("CallOpened", "CallParked"),  # in the task's state
            *("CardUpdated", "StageChanged", "SharedStateReplaced"),  # no form in A2A
        },
        "blade": {"RunQueued", "CardUpdated", "StageChanged", "SharedStateReplaced"},  # its own cards are in results
    },
    variants=["chat_completions"],
)

OF_STEPS = {"MessageOpened", "BlockClosed", "CallOpened", "MessageClosed"}
ON_THE_WAY = {"PlanUpdated", "StageChanged", "SharedStateReplaced", "CardUpdated"}
NOT_IN_HISTORIES: Mapping[str, set[str]] = {
    "core/history.py": {
        *NOT_IN_STREAMS,
        *("RunQueued", "RunStarted", "RunStopped", "CallParked"),
        *ON_THE_WAY,  # no messages
    },
    "core/history_days.py": {
        *NOT_IN_STREAMS,
        *("RunQueued", "MessageOpened", "CallOpened", "CallParked"),
        *ON_THE_WAY - {"CardUpdated"},
    },
    "protocols/agui/messages.py": {
        *NOT_IN_STREAMS,
        *("MessageClosed", "RunQueued", "RunStarted", "RunStopped", "CallParked"),  # `core/history.py` and the state
        *("StageChanged", "SharedStateReplaced"),  # a snapshot of its own
    },
    "protocols/openai/items.py": {
        *NOT_IN_STREAMS - {"AnswerGiven", "SessionCreated", "SettingsChanged"},
        "RunQueued",
        *OF_STEPS - {"CallOpened"},  # the translator of the response makes items of them
        *ON_THE_WAY,  # no form in OpenAI's API
    },
    "protocols/openai/chat_history.py": {
        *NOT_IN_STREAMS,
        *("RunQueued", "CallParked"),
        *OF_STEPS - {"MessageClosed"},  # `ShownRun` makes texts of them
        *ON_THE_WAY,  # no form in Chat Completions
    },
    "protocols/aisdk/history.py": {
        *NOT_IN_STREAMS,
        *("RunQueued", "CallParked", "CallSettled"),
        *OF_STEPS,
        *ON_THE_WAY,  # the translator makes chunks of all of them
    },
}
"""By the module that makes messages of a log: the events that it leaves to the translator, or that change none."""


def handled_events(path: str) -> set[str]:
    """The core's events that a module of this project names."""
    return set(named_events(ast.parse((SRC / path).read_text(encoding="utf-8")))) & EVENTS


@pytest.mark.parametrize("protocol", TRANSLATORS)
def test_every_event_is_shown_or_ignored_on_purpose(protocol: str) -> None:
    shown = {name for path in TRANSLATORS[protocol] for name in handled_events(f"protocols/{path}")}
    ignored = SERVERS_OWN | IGNORED[protocol]
    assert shown & ignored == set(), "is shown: remove it from IGNORED"
    assert EVENTS - shown - ignored == set(), "show it, or add it to IGNORED with the reason"
    assert ignored - EVENTS == set(), "there is no such event"


@pytest.mark.parametrize("path", NOT_IN_HISTORIES)
def test_every_event_changes_a_history_or_is_left_out_on_purpose(path: str) -> None:
    handled, left_out = handled_events(path), SERVERS_OWN | NOT_IN_HISTORIES[path]
    assert handled & left_out == set(), "is handled: remove it from NOT_IN_HISTORIES"
    assert EVENTS - handled - left_out == set(), "handle it, or add it to NOT_IN_HISTORIES with the reason"


def test_the_tests_of_the_fold_generate_every_event() -> None:
    assert EVENTS - vars(strategies).keys() == {"UnknownEvent"}
