"""Times by cron: the dialect, and what happens where a zone's clock jumps."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.cron import last_time, next_time, parse, times_after
from dragoman.core.refusals import Invalid
from tests.requirements import requirement


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def due(cron: str, zone: str, first: str, last: str) -> list[str]:
    """The times from `first` up to, not including, `last`."""
    found = []
    for each in times_after(parse(cron), ZoneInfo(zone), at(first) - timedelta(microseconds=1)):
        if each >= at(last):
            break
        found.append(each.strftime("%m-%d %H:%M"))
    return found


def in_march(cron: str) -> list[str]:
    """The days of March 2026 on which an expression is due."""
    return [each.split()[0].removeprefix("03-") for each in due(cron, "UTC", "2026-03-01T00Z", "2026-04-01T00Z")]


# --- the dialect ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "times"),
    [
        ("0 9 * * *", ["03-02 09:00"]),
        ("*/20 9 * * *", ["03-02 09:00", "03-02 09:20", "03-02 09:40"]),
        ("5/25 9 * * *", ["03-02 09:05", "03-02 09:30", "03-02 09:55"]),
        ("10-30/10 9 * * *", ["03-02 09:10", "03-02 09:20", "03-02 09:30"]),
        ("15,45 8,9 * * *", ["03-02 08:15", "03-02 08:45", "03-02 09:15", "03-02 09:45"]),
        ("0 */8 * * *", ["03-02 00:00", "03-02 08:00", "03-02 16:00"]),
        ("0,0 9 2 3 1", ["03-02 09:00"]),
        ("0 9 * MAR Mon", ["03-02 09:00"]),
        ("0 9 * apr *", []),
        ("00 09 02 03 *", ["03-02 09:00"]),
        (" 0  9\t* * * ", ["03-02 09:00"]),
    ],
)
def test_fields_are_parsed_like_those_of_cron(cron: str, times: list[str]) -> None:
    assert due(cron, "UTC", "2026-03-02T00Z", "2026-03-03T00Z") == times


def test_0_and_7_are_both_sunday() -> None:
    sundays = ["01", "08", "15", "22", "29"]
    assert [in_march(f"0 0 * * {sunday}") for sunday in ("0", "7", "sun", "0,7")] == [sundays] * 4
    assert in_march("0 0 * * fri-sun")[:4] == ["01", "06", "07", "08"]
    assert in_march("0 0 * * 5-7")[:4] == ["01", "06", "07", "08"]
    assert in_march("0 0 * * sun-mon")[:4] == ["01", "02", "08", "09"]


def test_either_day_is_enough_where_both_are_restricted() -> None:
    assert in_march("0 0 13 * mon") == ["02", "09", "13", "16", "23", "30"]
    assert in_march("0 0 */10 * mon") == []  # 1, 11, 21, 31: a step over all days restricts, but is no choice
    assert in_march("0 0 13 * *") == ["13"]
    assert in_march("0 0 * * mon") == ["02", "09", "16", "23", "30"]


def test_the_29th_of_february_comes_every_four_years() -> None:
    times = times_after(parse("0 0 29 2 *"), ZoneInfo("UTC"), at("2095-01-01T00Z"))
    assert [each.year for each in islice(times, 2)] == [2096, 2104]


@requirement("faults:51:refused")
@requirement("blade:schedules:cron")
@pytest.mark.parametrize(
    "cron",
    [
        "", "* * * *", "* * * * * *", "@daily", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *",
        "* * * 13 *", "* * * * 8", "* * * * 5-1", "*/0 * * * *", "5- * * * *", "-5 * * * *", "1,,2 * * * *",
        "a * * * *", "* * * mon *", "* * * * jan", "1.5 * * * *", "²  * * * *", "٣ * * * *", "* * * * *, ", "* * L * *",
        "* * * * 1#2",
        "? * * * *", "H * * * *", "0 0 31 2 *", "0 0 30,31 2 *", "0 0 31 4,6,9,11 *", "0 0 30 2 */2",
        "1" * 101 + " * * * *", "0" * 97 + " * * * *",
    ],
)  # fmt: skip
def test_what_is_no_expression_or_never_matches_is_refused(cron: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(cron)
    assert refused.value.path == "cron"


# --- where the clock jumps --------------------------------------------------------------------------------------------


@requirement("faults:46:daylight")
@requirement("blade:schedules:daylight")
@pytest.mark.parametrize(
    ("cron", "zone", "first", "last", "times"),
    [
        # The specification's own examples.
        ("30 2 * * *", "America/New_York", "2027-03-14T00-05", "2027-03-15T00-04", ["03-14 07:00"]),
        ("30 1 * * *", "America/New_York", "2027-11-07T00-04", "2027-11-08T00-05", ["11-07 05:30"]),
        ("0 9 * * *", "America/New_York", "2027-03-13T00-05", "2027-03-16T00-04",
         ["03-13 14:00", "03-14 13:00", "03-15 13:00"]),
        # Several times in one gap are due once, together with a time that is due at its end anyway.
        ("*/15 2 * * *", "America/New_York", "2027-03-14T00-05", "2027-03-15T00-04", ["03-14 07:00"]),
        ("0,30 2,3 * * *", "America/New_York", "2027-03-14T00-05", "2027-03-15T00-04", ["03-14 07:00", "03-14 07:30"]),
        ("0 1-3 * * *", "America/New_York", "2027-03-14T00-05", "2027-03-15T00-04", ["03-14 06:00", "03-14 07:00"]),
        # Every hour: what is skipped is not due, what comes twice is due twice.
        ("30 * * * *", "America/New_York", "2027-03-14T01-05", "2027-03-14T04-04", ["03-14 06:30", "03-14 07:30"]),
        ("30 * * * *", "America/New_York", "2027-11-07T00-04", "2027-11-07T03-05",
         ["11-07 04:30", "11-07 05:30", "11-07 06:30", "11-07 07:30"]),
        ("0 */2 * * *", "Europe/Berlin", "2027-03-28T00+01", "2027-03-28T06+02", ["03-27 23:00", "03-28 02:00"]),
        ("0 */2 * * *", "Europe/Berlin", "2027-10-31T00+02", "2027-10-31T05+01",
         ["10-30 22:00", "10-31 00:00", "10-31 01:00", "10-31 03:00"]),
        ("0 2 * * *", "Europe/Berlin", "2027-10-31T00+02", "2027-11-01T00+01", ["10-31 00:00"]),
        # Cairo's clock jumps at midnight, and back over midnight.
        ("0 0 * * *", "Africa/Cairo", "2027-04-29T12+02", "2027-05-01T12+03", ["04-29 22:00", "04-30 21:00"]),
        ("30 0 30 4 *", "Africa/Cairo", "2027-04-29T12+02", "2027-05-01T12+03", ["04-29 22:00"]),
        ("30 23 * * *", "Africa/Cairo", "2027-10-28T12+03", "2027-10-29T12+02", ["10-28 20:30"]),
        ("30 * * * *", "Africa/Cairo", "2027-10-28T22+03", "2027-10-29T01+02",
         ["10-28 19:30", "10-28 20:30", "10-28 21:30", "10-28 22:30"]),
        # Half an hour.
        ("15 2 * * *", "Australia/Lord_Howe", "2027-10-03T00+10:30", "2027-10-04T00+11", ["10-02 15:30"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2027-04-04T00+11", "2027-04-05T00+10:30", ["04-03 14:45"]),
        # A day that Samoa never had.
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T00-10", "2012-01-01T00+14",
         ["12-29 19:00", "12-30 10:00", "12-30 19:00"]),
        ("0 * 30 12 *", "Pacific/Apia", "2011-12-29T00-10", "2012-01-01T00+14", []),
        # Newfoundland went back from a minute past midnight, into the day before.
        ("0,30 * * * *", "America/St_Johns", "2010-11-06T23-02:30", "2010-11-07T01-03:30",
         ["11-07 01:30", "11-07 02:00", "11-07 02:30", "11-07 03:00", "11-07 03:30", "11-07 04:00"]),
    ],
)  # fmt: skip
def test_where_the_clock_jumps_each_time_is_due_as_the_table_says(
    cron: str, zone: str, first: str, last: str, times: list[str]
) -> None:
    assert due(cron, zone, first, last) == times


ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Africa/Cairo", "Australia/Lord_Howe", "Asia/Shanghai")
CRONS = ("0 9 * * *", "30 2 * * *", "15 0 * * *", "30 */5 * * *", "0 0 1 * *", "45 23 * * sun", "0,30 1-3 * * *")
moments = st.integers(0, 3 * 365 * 86400).map(lambda seconds: at("2026-01-01T00Z") + timedelta(seconds=seconds))


@given(st.sampled_from(CRONS), st.sampled_from(ZONES), moments)
def test_times_come_in_order_from_wherever_one_begins(cron: str, zone: str, begin: datetime) -> None:
    parsed, where = parse(cron), ZoneInfo(zone)
    times = list(islice(times_after(parsed, where, begin), 12))
    assert times == sorted(set(times))
    assert times[0] > begin
    for place, each in enumerate(times[:-1]):
        assert next_time(parsed, where, each) == times[place + 1]
        assert next_time(parsed, where, each + timedelta(seconds=1)) == times[place + 1]


@given(st.sampled_from(CRONS), st.sampled_from(ZONES), moments, st.integers(0, 20))
def test_the_last_time_is_the_one_before_the_next(cron: str, zone: str, begin: datetime, count: int) -> None:
    parsed, where = parse(cron), ZoneInfo(zone)
    times = list(islice(times_after(parsed, where, begin), count + 2))
    for until in (times[count], times[count + 1] - timedelta(microseconds=1)):
        assert last_time(parsed, where, times[0], until) == times[count]


@given(st.sampled_from(("0 9 * * *", "30 2 * * *", "15 0 * * *", "45 23 * * *")), st.sampled_from(ZONES))
def test_a_fixed_time_is_due_once_a_day_all_year(cron: str, zone: str) -> None:
    times = due(cron, zone, "2027-01-01T00Z", "2028-01-01T00Z")
    assert len(times) == 365


@given(st.sampled_from(ZONES))
def test_every_hour_is_due_in_every_hour_that_there_is(zone: str) -> None:
    assert len(due("30 * * * *", zone, "2027-01-01T00Z", "2028-01-01T00Z")) in (365 * 24, 365 * 24 - 1, 365 * 24 + 1)


@given(st.text(st.sampled_from("0123456789*,-/ monjanL#@?"), max_size=40))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        cron = parse(text)
    except Invalid:
        return
    found = next_time(cron, ZoneInfo("UTC"), at("2026-01-01T00Z"))
    assert found is not None
