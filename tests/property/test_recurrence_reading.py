"""Rules against a second reading of RFC 5545, section 3.3.10, that knows nothing of python-dateutil: day by day, as the table
there says which part limits and which expands."""

from __future__ import annotations

from calendar import isleap, monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, islice

import hypothesis.strategies as st
from hypothesis import assume, example, given, settings

from adapters.recurrence import DateutilRecurrence

RECURRENCE = DateutilRecurrence()
DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
HORIZON = timedelta(days=3 * 366)
Parts = dict[str, str]


def numbers(parts: Parts, name: str) -> list[int]:
    return [int(piece) for piece in parts[name].split(",")] if name in parts else []


def nth_days(parts: Parts) -> list[tuple[int, int]]:
    return [(int(piece[:-2] or 0), DAYS.index(piece[-2:])) for piece in parts["BYDAY"].split(",")] if "BYDAY" in parts else []


def period(parts: Parts, day: date) -> int:
    """Which of the rule's days, weeks, months or years a day lies in, counted from the beginning of time."""
    match parts["FREQ"]:
        case "DAILY":
            return day.toordinal()
        case "WEEKLY":
            start = DAYS.index(parts.get("WKST", "MO"))
            return (day.toordinal() - 1 - start) // 7  # the first of January of the year 1 was a Monday
        case "MONTHLY":
            return day.year * 12 + day.month
        case _:
            return day.year


def is_on(parts: Parts, day: date, first: date) -> bool:
    length = monthrange(day.year, day.month)[1]
    months, month_days, days = numbers(parts, "BYMONTH"), numbers(parts, "BYMONTHDAY"), nth_days(parts)
    if months and day.month not in months:
        return False
    if month_days and not {day.day, day.day - length - 1} & set(month_days):
        return False
    if days and not any(weekday == day.weekday() and nth in places(parts, day) for nth, weekday in days):
        return False
    if month_days or days or parts["FREQ"] == "DAILY":
        return True
    if parts["FREQ"] == "WEEKLY":
        return day.weekday() == first.weekday()
    return day.day == first.day and (parts["FREQ"] == "MONTHLY" or bool(months) or day.month == first.month)


def places(parts: Parts, day: date) -> set[int]:
    """The numbers a BYDAY may name this day by: none, from the front, from the back; within its month or its year."""
    if parts["FREQ"] in ("DAILY", "WEEKLY"):
        return {0}
    at, length = day.timetuple().tm_yday, 366 if isleap(day.year) else 365
    if parts["FREQ"] == "MONTHLY" or "BYMONTH" in parts:
        at, length = day.day, monthrange(day.year, day.month)[1]
    return {0, (at - 1) // 7 + 1, -((length - at) // 7 + 1)}


def reading(parts: Parts, first: datetime) -> Iterator[datetime]:
    interval, begin = int(parts.get("INTERVAL", "1")), period(parts, first.date())
    hours, minutes = numbers(parts, "BYHOUR") or [first.hour], numbers(parts, "BYMINUTE") or [first.minute]
    earliest = first.date().replace(month=1, day=1)
    end = (earliest + HORIZON + timedelta(days=366)).replace(month=12, day=31)  # BYSETPOS counts within whole years
    days = [earliest + timedelta(days=number) for number in range((end - earliest).days + 1)]
    chosen = [day for day in days if (period(parts, day) - begin) % interval == 0 and is_on(parts, day, first.date())]
    for _, group in groupby(chosen, key=lambda day: period(parts, day)):
        times = [
            datetime(day.year, day.month, day.day, hour, minute)
            for day in group
            for hour in sorted(set(hours))
            for minute in sorted(set(minutes))
        ]
        wanted = numbers(parts, "BYSETPOS")
        if wanted:
            picked = {place - 1 if place > 0 else len(times) + place for place in wanted}
            times = [times[place] for place in sorted(picked) if 0 <= place < len(times)]
        yield from (at for at in times if at >= first)


def lists(values: st.SearchStrategy[int], most: int = 3) -> st.SearchStrategy[str]:
    return st.lists(values, min_size=1, max_size=most, unique=True).map(lambda found: ",".join(map(str, found)))


def days(freq: str) -> st.SearchStrategy[str]:
    nth = {"MONTHLY": st.sampled_from(["", "1", "2", "-1", "-2", "5"]), "YEARLY": st.sampled_from(["", "1", "-1", "20"])}
    one = st.tuples(nth.get(freq, st.just("")), st.sampled_from(DAYS)).map("".join)
    return st.lists(one, min_size=1, max_size=3, unique=True).map(",".join)


@st.composite
def rules(draw: st.DrawFn) -> Parts:
    freq = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    choices: dict[str, st.SearchStrategy[str]] = {
        "INTERVAL": st.integers(1, 4).map(str),
        "BYDAY": days(freq),
        "BYHOUR": lists(st.integers(0, 23)),
        "BYMINUTE": lists(st.integers(0, 59), 2),
        "BYMONTH": lists(st.integers(1, 12), 5),
        "WKST": st.sampled_from(DAYS),
    }
    if freq != "WEEKLY":
        choices["BYMONTHDAY"] = lists(st.sampled_from([*range(1, 32), -1, -2, -31]), 5)
    if freq in ("MONTHLY", "YEARLY"):
        choices["BYSETPOS"] = lists(st.sampled_from([1, 2, 3, -1, -2]), 2)
    names = draw(st.sets(st.sampled_from(sorted(choices)), max_size=4))
    return {"FREQ": freq} | {name: draw(choices[name]) for name in sorted(names)}


moments = st.datetimes(datetime(2020, 1, 1), datetime(2028, 12, 31)).map(lambda at: at.replace(second=0, microsecond=0))


@given(parts=rules(), start=moments)
@example(parts={"FREQ": "WEEKLY", "INTERVAL": "2", "BYDAY": "TU,SU", "WKST": "SU"}, start=datetime(1997, 8, 5, 9))
@example(parts={"FREQ": "WEEKLY", "INTERVAL": "2", "BYDAY": "TU,SU", "WKST": "MO"}, start=datetime(1997, 8, 5, 9))
@example(parts={"FREQ": "MONTHLY", "BYDAY": "MO,TU,WE,TH,FR", "BYSETPOS": "-2"}, start=datetime(1997, 9, 29, 9))
@example(parts={"FREQ": "YEARLY", "BYMONTH": "3", "BYDAY": "TH"}, start=datetime(1997, 3, 13, 9))
@example(parts={"FREQ": "MONTHLY", "BYDAY": "MO,1TH"}, start=datetime(2026, 1, 1, 9))
@example(parts={"FREQ": "YEARLY", "BYDAY": "20MO"}, start=datetime(1997, 5, 19, 9))
@example(parts={"FREQ": "YEARLY", "BYMONTH": "12", "BYDAY": "20MO,1TU"}, start=datetime(2026, 12, 1, 9))
@example(parts={"FREQ": "YEARLY", "BYDAY": "MO", "BYSETPOS": "-1"}, start=datetime(2020, 1, 1))
@settings(max_examples=150, deadline=None)
def test_a_rule_falls_where_a_second_reading_of_the_standard_has_it(parts: Parts, start: datetime) -> None:
    first = next(reading(parts, start), None)
    assume(first is not None)
    assert first is not None
    rule = ";".join(f"{name}={value}" for name, value in parts.items())
    on_ts = int(first.replace(tzinfo=UTC).timestamp())
    wanted = [int(at.replace(tzinfo=UTC).timestamp()) for at in islice(reading(parts, first), 8)]
    if RECURRENCE.find_error(rule, "UTC", on_ts, on_ts + 1) is not None:
        rare = parts["FREQ"] == "DAILY" and "INTERVAL" in parts and ("BYMONTH" in parts or "BYMONTHDAY" in parts)
        assert rare or "BYSETPOS" in parts, rule
        return
    found, ts = [], on_ts - 1
    while len(found) < len(wanted) and (later := RECURRENCE.next_occurrence(rule, "UTC", on_ts, ts)) is not None:
        found.append(later)
        ts = later
    assert found == wanted, rule
