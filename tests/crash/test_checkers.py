"""Tests of the checkers: correct data passes, and anything missing, doubled or changed is found."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.crash import client_checker
from tests.crash.campaign import Campaign, Options
from tests.crash.client_records import RunRecord, SessionRecord, TurnRecord
from tests.crash.endings import KillAfterReady
from tests.crash.failpoints import FailPoint, FailPointCounter, parse_fail_point
from tests.crash.forged import Order, faults_of
from tests.crash.log_checker import LogChecker, ServerLife, check_tally
from tests.crash.turn_plans import INTERRUPTED, PlannedCall, PlannedStep, TurnPlan
from tests.protocols.aap.stream import Frame

Json = Any


def assistant_message(text: str, *calls: Json, cut: bool = False) -> Json:
    message: Json = {"role": "assistant", "content": [{"type": "text", "text": text}, *calls]}
    return {**message, "_meta": {"interrupted": True}} if cut else message


CALL = {"type": "tool_use", "toolCallId": "c1", "name": "slow", "input": {"tag": "t"}}
RESULT = {"role": "tool", "toolCallId": "c1", "content": "done t"}
STOPPED = Frame("1", "turn_stop", {"stopReason": "end_turn"}, b"")
HISTORY = [
    {"role": "user", "content": "go"},
    assistant_message("let ", cut=True),
    assistant_message("let me see", CALL),
    RESULT,
    assistant_message("it is done t"),
]


def a_session() -> SessionRecord:
    """A session with one turn, in which a crash cut off the first step."""
    slow = PlannedCall("slow", {"tag": "t"}, "server", frozenset({"done t", INTERRUPTED}), "t")
    plan = TurnPlan(
        "any", "go", (PlannedStep((("text", "let me see"),), (slow,)), PlannedStep((("text", "it is {result}"),)))
    )
    config = {"agent": {"name": "rehearsal", "tools": [{"name": "slow", "trust": True}], "options": {}}, "tools": []}
    run = RunRecord([{"role": "user", "content": "go"}], "delta", None, frames=[STOPPED], deaths=1)
    return SessionRecord("s", config, "id", {"greeting": "s"}, [TurnRecord(plan, [run])], refused_texts=["never"])


def changed_session(**changes: Json) -> Json:
    agent = {"name": "rehearsal", "tools": [{"name": "slow", "trust": True}], "options": {"greeting": "s"}}
    return {"agent": {**agent, **changes}, "tools": []}


def test_a_complete_history_with_a_cut_off_step_passes() -> None:
    assert list(client_checker.check_session(a_session(), changed_session(), HISTORY)) == []


LAST = assistant_message("it is done t")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda history: history[1:], "is there 0 times"),
        (lambda history: [*history, *history], "is there 2 times"),
        (lambda history: history[:-1], "step 1 is missing"),
        (lambda history: [*history, LAST], "more than was planned"),
        (lambda history: [*history[:3], LAST], "have the results {}"),
        (lambda history: [*history[:3], {**RESULT, "content": "done"}, LAST], "has the result 'done'"),
        (lambda history: [history[0], assistant_message("lat", cut=True), *history[2:]], "does not begin with"),
        (lambda history: [*history[:4], assistant_message("it is done t and more")], "step 1 says"),
        (lambda history: [history[0], assistant_message("let me see"), *history[3:]], "step 0 calls []"),
        (lambda history: [*history[:4], assistant_message("it is done t never")], "left never behind"),
    ],
)
def test_an_error_in_a_history_is_found(change: Callable[[list[Json]], list[Json]], fault: str) -> None:
    faults = list(client_checker.check_session(a_session(), changed_session(), change(deepcopy(HISTORY))))
    assert [each for each in faults if fault in each], faults


def test_lost_settings_are_found() -> None:
    assert list(client_checker.check_session(a_session(), changed_session(options={}), HISTORY))
    assert list(client_checker.check_session(a_session(), changed_session(tools=[]), HISTORY))


def test_a_history_that_differs_from_what_a_client_saw_is_found() -> None:
    session = a_session()
    assert list(client_checker.check_view(session, HISTORY, HISTORY)) == []
    assert list(client_checker.check_view(session, HISTORY, HISTORY[:-1]))
    assert list(client_checker.check_view(session, HISTORY, [*HISTORY[:-1], assistant_message("it is another")]))


def test_a_replay_that_differs_in_a_byte_is_found() -> None:
    raw = b'id: 1\nevent: turn_stop\ndata: {"stopReason":"end_turn"}\n\n'
    run = RunRecord([], "delta", None, frames=[Frame("1", "turn_stop", {"stopReason": "end_turn"}, raw)])
    assert list(client_checker.check_replay(run, raw)) == []
    assert list(client_checker.check_replay(run, raw.replace(b"id: 1", b"id: 2")))
    assert list(client_checker.check_replay(run, b""))


def test_a_tool_that_was_started_twice_or_never_is_found() -> None:
    assert list(client_checker.check_starts({"t": 1}, [HISTORY])) == []
    assert list(client_checker.check_starts({"t": 2}, [HISTORY]))
    assert list(client_checker.check_starts({"t": 0}, [HISTORY]))


def test_a_tally_with_a_repeated_tag_is_found(tmp_path: Path) -> None:
    (tmp_path / "tally").write_bytes(b'"a"\n"b"\n')
    assert list(check_tally(tmp_path / "tally")) == []
    (tmp_path / "tally").write_bytes(b'"a"\n"b"\n"a"\n')
    assert list(check_tally(tmp_path / "tally"))


def test_a_fail_point_triggers_at_its_step_and_no_other() -> None:
    triggered: list[str] = []
    counter = FailPointCounter(parse_fail_point(str(FailPoint("commit", 2))), lambda: triggered.append("now"))
    for kind in ("statement", "commit", "committed", "statement", "statement", "published"):
        counter.reach(kind)
    assert triggered == []
    counter.reach("commit")
    counter.reach("commit")
    assert triggered == ["now"]


# --- the log of a real server -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder that a short campaign left."""
    root = tmp_path_factory.mktemp("campaign")
    report = asyncio.run(
        Campaign(root, Options(seed=7, endings=[KillAfterReady(0.3), KillAfterReady(0.3)], actors=4)).play()
    )
    assert not report.faults, str(report)
    return root / "data"


@pytest.fixture
def check_after_corruption(folder: Path, tmp_path: Path) -> Callable[[str], list[str]]:
    """Copies the folder, changes its database with a statement, and returns what the checker finds."""

    def check(statement: str) -> list[str]:
        data, scratch = tmp_path / "data", tmp_path / "scratch"
        for each in (data, scratch):
            each.mkdir()
        (data / "dragoman.db").write_bytes((folder / "dragoman.db").read_bytes())
        with closing(sqlite3.connect(data / "dragoman.db", isolation_level=None)) as connection:
            assert connection.execute(statement).rowcount != 0
        log = LogChecker(data, scratch)
        log.copy()
        return log.check(ServerLife(0, 1, 2), [])

    return check


def test_an_unchanged_log_passes(check_after_corruption: Callable[[str], list[str]]) -> None:
    assert check_after_corruption("UPDATE meta SET value = value + 1 WHERE name = 'epoch'") == []


LAST_EVENTS = "(session_id, seq) IN (SELECT session_id, max(seq) FROM events GROUP BY session_id)"
UNKNOWN_CALL_EVENT = """'{"type":"call_started","call_id":"none"}'"""


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DELETE FROM events WHERE type = 'block_closed'", "gaps"),
        (f"DELETE FROM events WHERE {LAST_EVENTS}", "its log at"),
        (f"UPDATE events SET payload = {UNKNOWN_CALL_EVENT} WHERE type = 'message_opened'", "cannot come here"),
        ("UPDATE sessions SET head = json_set(head, '$.last_stop', 'refusal')", "stored state"),
        ("DELETE FROM sessions", "rows without a session"),
        ("DELETE FROM runs", "the table of runs"),
        (
            "INSERT INTO pieces SELECT NULL, session_id, 3, 1, 'm', 0, 'text', 'root', 'x', NULL FROM sessions LIMIT 1",
            "not open",
        ),
        (
            "UPDATE events SET payload = json_set(payload, '$.reason', 'interrupted') WHERE type = 'run_stopped'",
            "early",
        ),
        (
            "UPDATE events SET payload = json_set(payload, '$.usage.input_tokens', 999999) WHERE type = 'run_stopped'",
            "used",
        ),
    ],
)
def test_an_error_in_a_log_is_found(
    check_after_corruption: Callable[[str], list[str]], statement: str, fault: str
) -> None:
    faults = check_after_corruption(statement)
    assert [each for each in faults if fault in each], faults


ORDER = Order("order-1", "{}", decisions={"c1": True, "c2": False})
PAID = [assistant_message("yes, signed order-1, paid order-1")]


@pytest.mark.parametrize(
    ("payments", "history", "fault"),
    [
        ({"c1": 1}, PAID, None),
        ({"c1": 2}, PAID, "call c1 ran 2 times"),
        ({"c1": 1, "c2": 1}, PAID, "call c2 ran without permission"),
        ({"c1": 1, "c3": 1}, PAID, "call c3 ran without permission"),
        ({}, PAID, "what was never paid is paid"),
        ({"c1": 1}, [assistant_message("FORGED"), *PAID], "a forged text is in the history"),
        ({"c1": 1}, [assistant_message("no, signed order-1, paid order-1")], "the answers have become"),
    ],
)
def test_a_payment_without_permission_and_a_forged_answer_are_found(
    payments: dict[str, int], history: list[Json], fault: str | None
) -> None:
    faults = faults_of(ORDER, payments, history)
    assert [each.startswith(str(fault)) for each in faults] == ([] if fault is None else [True])
