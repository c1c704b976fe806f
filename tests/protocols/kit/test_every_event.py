"""Every event of the core is shown by each protocol, or listed here as one that the protocol has no form for.

The translators ignore events that they do not name, because a later release may write others. So that none is forgotten
by accident, this page says which ones they ignore on purpose.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest

from dragoman.core.events import Event
from tests.core import strategies
from tests.protocols.every_protocol import for_every_protocol

PROTOCOLS = Path(__file__).parents[3] / "src" / "dragoman" / "protocols"
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


def named_events(path: str) -> Iterator[str]:
    """The core's events that a module names in a pattern or in a check of a type."""
    for node in ast.walk(ast.parse((PROTOCOLS / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.MatchClass):
            yield from names_in(node.cls)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            yield from names_in(node.args[1])
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is):  # `type(event) is …`
            yield from names_in(node.comparators[0])


def names_in(kinds: ast.expr) -> Iterator[str]:
    """The names that stand alone: an attribute, as in `wire.RunStarted`, is a protocol's own."""
    owned = {each.value for each in ast.walk(kinds) if isinstance(each, ast.Attribute)}
    return (each.id for each in ast.walk(kinds) if isinstance(each, ast.Name) and each not in owned)


@pytest.mark.parametrize("protocol", TRANSLATORS)
def test_every_event_is_shown_or_ignored_on_purpose(protocol: str) -> None:
    shown = {name for path in TRANSLATORS[protocol] for name in named_events(path)} & EVENTS
    ignored = SERVERS_OWN | IGNORED[protocol]
    assert shown & ignored == set(), "is shown: remove it from IGNORED"
    assert EVENTS - shown - ignored == set(), "show it, or add it to IGNORED with the reason"
    assert ignored - EVENTS == set(), "there is no such event"


def test_the_tests_of_the_fold_generate_every_event() -> None:
    assert EVENTS - vars(strategies).keys() == {"UnknownEvent"}
