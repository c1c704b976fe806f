"""What is due, what is asked of a schedule, and what becomes of its runs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dragoman.core.events import RunStopped
from dragoman.core.ids import RunId, UserId
from dragoman.core.refusals import Invalid
from dragoman.core.schedules import (
    MISSED,
    SKIPPED,
    Due,
    Expired,
    Schedule,
    ScheduleId,
    fire_result,
    occurrences,
    validate,
)
from dragoman.core.schedules import due_action as due
from tests.requirements import requirement

NINE = datetime(2026, 3, 4, 9, tzinfo=UTC)
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


def daily(**fields: Any) -> Schedule:
    """A schedule that is due next at nine."""
    given: dict[str, Any] = {
        "schedule_id": ScheduleId("s"),
        "user": UserId("ann"),
        "title": "Report",
        "prompt": "write it",
        "cron": "0 9 * * *",
        "time_zone": "UTC",
        "created_at": NINE - DAY,
        "updated_at": NINE - DAY,
        "next_at": NINE,
    }
    return Schedule(**{**given, **fields})


def test_nothing_is_due_before_its_time() -> None:
    assert due(daily(), NINE - timedelta(microseconds=1), is_running=False) is None


def test_at_its_time_it_is_due_and_the_next_is_known() -> None:
    assert due(daily(), NINE, is_running=False) == Due(NINE, NINE + DAY)


def test_what_is_not_enabled_is_never_due() -> None:
    assert due(daily(enabled=False), NINE + DAY, is_running=False) is None
    assert due(daily(next_at=None), NINE + DAY, is_running=False) is None


def test_a_time_less_than_five_minutes_late_is_due_and_a_later_one_is_missed() -> None:
    late = timedelta(minutes=5)
    assert due(daily(), NINE + late - timedelta(microseconds=1), is_running=False) == Due(NINE, NINE + DAY)
    assert due(daily(), NINE + late, is_running=False) == Due(NINE, NINE + DAY, MISSED)


def test_of_several_times_that_passed_the_last_one_counts() -> None:
    now = NINE + 3 * DAY + MINUTE
    assert due(daily(), now, is_running=False) == Due(NINE + 3 * DAY, NINE + 4 * DAY)
    assert due(daily(), now + DAY / 2, is_running=False) == Due(NINE + 3 * DAY, NINE + 4 * DAY, MISSED)


def test_a_time_is_skipped_while_the_previous_fire_runs() -> None:
    assert due(daily(), NINE, is_running=True) == Due(NINE, NINE + DAY, SKIPPED)


def test_an_expired_schedule_is_disabled_at_its_time() -> None:
    assert due(daily(expires_at=NINE), NINE, is_running=False) == Expired()
    assert due(daily(expires_at=NINE + MINUTE), NINE, is_running=False) == Due(NINE, NINE + DAY)


def test_a_schedule_that_expired_during_downtime_missed_its_last_time() -> None:
    schedule = daily(expires_at=NINE + DAY)
    assert due(schedule, NINE + 5 * DAY, is_running=False) == Due(NINE, NINE + 6 * DAY, MISSED)


def test_occurrences_end_before_the_end_and_before_expiry() -> None:
    assert list(occurrences(daily(), NINE, NINE + 2 * DAY)) == [NINE, NINE + DAY]
    assert list(occurrences(daily(expires_at=NINE + DAY), NINE, NINE + 2 * DAY)) == [NINE]


def test_a_checked_schedule_knows_its_next_time() -> None:
    checked_one = validate(daily(time_zone="Asia/Shanghai", next_at=None), NINE)
    assert checked_one.next_at == datetime(2026, 3, 5, 1, tzinfo=UTC)


@requirement("faults:51:refused")
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"title": ""}, "title"),
        ({"title": " "}, "title"),
        ({"title": "t" * 201}, "title"),
        ({"title": "\ud800"}, "title"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "\n"}, "prompt"),
        ({"model": ""}, "model"),
        ({"model": "m" * 201}, "model"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"time_zone": "Mars/Olympus"}, "timezone"),
        ({"time_zone": "../../etc/passwd"}, "timezone"),
        ({"time_zone": ""}, "timezone"),
    ],
)
def test_an_invalid_field_is_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(Invalid) as refused:
        validate(daily(**fields), NINE)
    assert refused.value.path == path


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("end_turn", None, ("completed", None)),
        ("max_tokens", None, ("completed", None)),
        ("refusal", None, ("completed", None)),
        ("max_steps", "too many", ("completed", None)),
        ("tool_use", None, ("failed", "the run was stopped while it waited")),
        ("cancelled", "The run was stopped", ("failed", "The run was stopped")),
        ("interrupted", None, ("failed", "interrupted")),
        ("error", "The agent failed", ("failed", "The agent failed")),
    ],
)
def test_the_end_of_the_run_is_the_end_of_the_fire(
    reason: Any, message: str | None, expected: tuple[str, str | None]
) -> None:
    assert fire_result(RunStopped(run_id=RunId("r"), reason=reason, message=message)) == expected
