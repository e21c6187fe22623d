"""Repetition on the wall clock of a dozen zones, across their changes to and from summer time, against a search by the minute."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from adapters.recurrence import DateutilRecurrence

ZONES = [
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Lisbon",
    "America/New_York",
    "America/Santiago",
    "America/St_Johns",
    "Africa/Cairo",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Pacific/Chatham",
    "Pacific/Apia",
]
RECURRENCE = DateutilRecurrence()
CHANGES_2026 = {  # local times that lie in a gap or come twice
    "Europe/Berlin": ["2026-03-29T02:30", "2026-10-25T02:30"],
    "America/New_York": ["2026-03-08T02:30", "2026-11-01T01:30"],
    "Australia/Lord_Howe": ["2026-10-04T02:15", "2026-04-05T01:45"],
    "Africa/Cairo": ["2026-04-24T00:30", "2026-10-29T23:30"],
}


def local(ts: int, zone: str) -> datetime:
    return datetime.fromtimestamp(ts, ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def instant(wanted: datetime, zone: str) -> int:
    """The first instant at which the wall clock shows this minute or has jumped over it, found by looking."""
    ts = int(wanted.replace(tzinfo=UTC).timestamp()) - 15 * 3600
    for step in (900, 60):
        while local(ts, zone) < wanted:
            ts += step
        ts -= step
    return ts + 60


minutes = st.datetimes(datetime(2019, 1, 1), datetime(2030, 1, 1)).map(lambda at: at.replace(second=0, microsecond=0))


@given(zone=st.sampled_from(ZONES), first=minutes, length=st.integers(1, 20 * 60), days=st.integers(0, 400))
@example(zone="Europe/Berlin", first=datetime(2026, 3, 28, 2, 30), length=45, days=0)
@example(zone="Africa/Cairo", first=datetime(2026, 4, 23, 0, 15), length=30, days=0)
@settings(max_examples=300, deadline=None)
def test_a_daily_slot_keeps_its_wall_clock_times(zone: str, first: datetime, length: int, days: int) -> None:
    on_ts = instant(first, zone)
    first = local(on_ts, zone)
    off_ts = on_ts + length * 60
    first_off = local(off_ts, zone)
    if not first < first_off < first + timedelta(days=1):
        return
    assert RECURRENCE.find_error("FREQ=DAILY", zone, on_ts, off_ts) is None
    for day in range(days + 1, days + 4):
        on_at, off_at = (instant(at + timedelta(days=day), zone) for at in (first, first_off))
        assert RECURRENCE.next_occurrence("FREQ=DAILY", zone, on_ts, on_at - 1) == on_at
        assert RECURRENCE.next_occurrence("FREQ=DAILY", zone, on_ts, off_at - 1, paired_ts=off_ts) == off_at


@pytest.mark.parametrize(("zone", "text"), [(zone, text) for zone, texts in CHANGES_2026.items() for text in texts])
def test_around_a_change_each_day_has_one_occurrence(zone: str, text: str) -> None:
    at = datetime.fromisoformat(text)
    on_ts = instant(at - timedelta(days=3), zone)
    found, ts = [], on_ts - 1
    while (later := RECURRENCE.next_occurrence("FREQ=DAILY;COUNT=7", zone, on_ts, ts)) is not None:
        found.append(later)
        ts = later
    assert found == [instant(at + timedelta(days=day), zone) for day in range(-3, 4)]
    assert len(set(found)) == 7


def test_a_time_in_the_gap_falls_on_the_first_minute_after_it() -> None:
    zone = "Europe/Berlin"
    on_ts = instant(datetime(2026, 3, 28, 2, 30), zone)
    assert local(RECURRENCE.next_occurrence("FREQ=DAILY", zone, on_ts, on_ts) or 0, zone) == datetime(2026, 3, 29, 3, 0)


@pytest.mark.parametrize(
    ("rule", "first", "following"),
    [
        ("FREQ=YEARLY", datetime(2028, 2, 29, 8), datetime(2032, 2, 29, 8)),
        ("FREQ=MONTHLY", datetime(2026, 1, 31, 8), datetime(2026, 3, 31, 8)),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", datetime(2026, 1, 31, 8), datetime(2026, 2, 28, 8)),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", datetime(2026, 1, 30, 8), datetime(2026, 2, 27, 8)),
        ("FREQ=MONTHLY;BYDAY=2TU", datetime(2026, 1, 13, 8), datetime(2026, 2, 10, 8)),
        ("FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", datetime(2026, 11, 26, 8), datetime(2027, 11, 25, 8)),
        ("FREQ=WEEKLY;BYDAY=MO,FR;INTERVAL=2", datetime(2026, 1, 5, 8), datetime(2026, 1, 9, 8)),
        ("FREQ=WEEKLY;BYDAY=MO;INTERVAL=2", datetime(2026, 1, 5, 8), datetime(2026, 1, 19, 8)),
        ("RRULE:FREQ=DAILY;BYHOUR=8,20", datetime(2026, 1, 5, 8), datetime(2026, 1, 5, 20)),
        ("FREQ=HOURLY;INTERVAL=5", datetime(2026, 1, 5, 22), datetime(2026, 1, 6, 3)),
    ],
)
def test_rules_mean_what_the_standard_says(rule: str, first: datetime, following: datetime) -> None:
    on_ts = instant(first, "Europe/Berlin")
    assert RECURRENCE.find_error(rule, "Europe/Berlin", on_ts, on_ts + 600) is None
    assert local(RECURRENCE.next_occurrence(rule, "Europe/Berlin", on_ts, on_ts) or 0, "Europe/Berlin") == following


@pytest.mark.parametrize("until", ["20260107", "20260107T070000Z", "20260107T080000"])
def test_until_includes_the_time_it_names(until: str) -> None:
    on_ts = instant(datetime(2026, 1, 5, 8), "Europe/Berlin")
    rule = f"FREQ=DAILY;UNTIL={until}"
    assert RECURRENCE.find_error(rule, "Europe/Berlin", on_ts, on_ts + 600) is None
    assert RECURRENCE.next_occurrence(rule, "Europe/Berlin", on_ts, on_ts + 86_400) == on_ts + 2 * 86_400
    assert RECURRENCE.next_occurrence(rule, "Europe/Berlin", on_ts, on_ts + 2 * 86_400) is None


@given(
    step=st.sampled_from(["MINUTELY", "HOURLY", "DAILY", "WEEKLY"]),
    interval=st.integers(1, 100),
    zone=st.sampled_from(ZONES),
    first=minutes,
    hours=st.integers(0, 24 * 900),
)
@settings(max_examples=150, deadline=None)
def test_a_rule_begun_long_ago_gives_what_counting_from_the_beginning_gives(
    step: str, interval: int, zone: str, first: datetime, hours: int
) -> None:
    on_ts = instant(first, zone)
    at_ts = on_ts + hours * 3600
    rule = f"FREQ={step};INTERVAL={interval}"
    found = RECURRENCE.next_occurrence(rule, zone, on_ts, at_ts)
    unit = {"MINUTELY": timedelta(minutes=1), "HOURLY": timedelta(hours=1), "DAILY": timedelta(1), "WEEKLY": timedelta(7)}
    whole = unit[step] * interval
    began = local(on_ts, zone)
    near = began + max(0, (local(at_ts, zone) - began) // whole - 1) * whole
    candidates = (near + place * whole for place in range(3 + timedelta(hours=30) // whole))
    assert found == next(ts for at in candidates if (ts := instant(at, zone)) > at_ts)


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=SECONDLY",
        "FREQ=MINUTELY",
        "FREQ=HOURLY;BYMINUTE=0,5",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MONTHLY;BYDAY=1MO;BYMONTHDAY=20",
        "FREQ=MONTHLY;BYSETPOS=40;BYDAY=MO",
        "FREQ=DAILY;COUNT=2;UNTIL=20300101",
        "FREQ=DAILY;COUNT=100000",
        "FREQ=DAILY;COUNT=0",
        "FREQ=DAILY;INTERVAL=0",
        "FREQ=DAILY;UNTIL=20200101",
        "FREQ=DAILY;UNTIL=tomorrow",
        "FREQ=DAILY;FREQ=WEEKLY",
        "FREQ=DAILY;BYEASTER=0",
        "FREQ=DAILY;BYSECOND=0,30",
        "FREQ=WEEKLY;BYDAY=XX",
        "FREQ=WEEKLY;BYDAY=1MO",
        "FREQ=YEARLY;BYMONTH=12;BYDAY=20MO",
        "DTSTART:20260101T000000\nRRULE:FREQ=DAILY",
        "FREQ=DAILY;BYHOUR=24",
        "every day",
        "",
        "FREQ=" + "DAILY" * 200,
        "FREQ=DAILY;INTERVAL=²",
    ],
)
def test_absurd_rules_are_refused(rule: str) -> None:
    on_ts = instant(datetime(2026, 1, 5, 8), "Europe/Berlin")
    assert RECURRENCE.find_error(rule, "Europe/Berlin", on_ts, on_ts + 600) is not None


PARTS = [
    *("FREQ=YEARLY", "FREQ=MONTHLY", "FREQ=WEEKLY", "FREQ=DAILY", "FREQ=HOURLY", "INTERVAL=7", "COUNT=9", "WKST=SU"),
    *("BYDAY=MO,2TU,-1SU", "BYDAY=SA,SU", "BYMONTH=2", "BYMONTHDAY=29", "BYMONTHDAY=-31", "BYSETPOS=5", "BYHOUR=3,4"),
    *("BYMINUTE=0,59", "UNTIL=20991231"),
]


@given(rule=st.lists(st.sampled_from(PARTS), max_size=5, unique=True).map(";".join), first=minutes)
@settings(max_examples=300, deadline=None)
def test_no_rule_costs_seconds(rule: str, first: datetime) -> None:
    on_ts, before_s = instant(first, "Europe/Berlin"), time.thread_time()
    if RECURRENCE.find_error(rule, "Europe/Berlin", on_ts, on_ts + 60) is None:
        RECURRENCE.next_occurrence(rule, "Europe/Berlin", on_ts, on_ts + 1000 * 86_400)
    assert time.thread_time() - before_s < 2, "of the processor; how long other work takes on this machine does not count"


@pytest.mark.parametrize("name", ["", "Mars/Base", "../etc/passwd", "/etc/localtime", "Europe", "\x00"])
def test_what_is_no_zone_is_not_known(name: str) -> None:
    assert not RECURRENCE.is_known_timezone(name)
