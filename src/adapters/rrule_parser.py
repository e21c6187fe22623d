"""Parses an RRULE (RFC 5545) into a value, and matches a local time against its BY parts.

A rule is rejected if RFC 5545 forbids it, if it repeats every second, or if a search for its next occurrence could run for
centuries. A table lists the parts allowed with each FREQ.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

from dateutil.rrule import DAILY, HOURLY, MINUTELY, MONTHLY, WEEKLY, YEARLY, rrule, weekday

MAX_RULE_LENGTH = 500
MAX_COUNT = 2_000
"""Each evaluation counts from the first occurrence; five years of days take milliseconds."""
MAX_INTERVAL = 1_000

_FrequencyCode = Literal[0, 1, 2, 3, 4, 5, 6]
FREQUENCIES: dict[str, _FrequencyCode] = {
    "MINUTELY": MINUTELY,
    "HOURLY": HOURLY,
    "DAILY": DAILY,
    "WEEKLY": WEEKLY,
    "MONTHLY": MONTHLY,
    "YEARLY": YEARLY,
}
FIXED_STEPS = {
    "MINUTELY": timedelta(minutes=1),
    "HOURLY": timedelta(hours=1),
    "DAILY": timedelta(days=1),
    "WEEKLY": timedelta(weeks=1),
}
_COMMON_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYHOUR", "BYMINUTE"})
ALLOWED_PARTS: dict[str, frozenset[str]] = {
    "MINUTELY": _COMMON_PARTS,
    "HOURLY": _COMMON_PARTS,
    "DAILY": _COMMON_PARTS | {"BYMONTH", "BYMONTHDAY"},
    "WEEKLY": _COMMON_PARTS | {"BYMONTH"},
    "MONTHLY": _COMMON_PARTS | {"BYMONTH", "BYMONTHDAY", "BYSETPOS"},
    "YEARLY": _COMMON_PARTS | {"BYMONTH", "BYMONTHDAY", "BYSETPOS"},
}
_PART_RANGES = {
    "BYMONTH": (range(1, 13),),
    "BYMONTHDAY": (range(1, 32), range(-31, 0)),
    "BYHOUR": (range(24),),
    "BYMINUTE": (range(60),),
    "BYSETPOS": (range(1, 367), range(-366, 0)),
}
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_BYDAY_PATTERN = re.compile(r"([+-]?[1-9]\d?)?(MO|TU|WE|TH|FR|SA|SU)")
_UNTIL_PATTERN = re.compile(r"(\d{8})(?:T(\d{6})(Z?))?")


class RecurrenceError(ValueError):
    """An invalid field of the slot; the message says what is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class ParsedRRuleUntil:
    """The last local or UTC time; a date without a time means the end of that day."""

    last: datetime
    is_utc: bool


@dataclass(frozen=True, slots=True)
class ParsedRRule:
    """`days`: (nth or 0, weekday with Monday = 0). `numbers`: the other BY parts by name."""

    freq: str
    interval: int
    count: int | None
    until: ParsedRRuleUntil | None
    week_start: int
    by_day: tuple[tuple[int, int], ...]
    by_parts: dict[str, tuple[int, ...]]

    def to_dateutil(self, first: datetime, zone: ZoneInfo) -> rrule:
        """The dateutil rule, in local times without a zone. Raises RecurrenceError if it ends before it starts."""
        until = None if self.until is None else _local_until(self.until, zone)
        if until is not None and until < first:
            raise RecurrenceError("rrule", "UNTIL is before onTs, so the rule never occurs.")
        days = tuple(self._dateutil_weekdays())
        try:
            return rrule(
                FREQUENCIES[self.freq],
                dtstart=first,
                interval=self.interval,
                wkst=self.week_start,
                count=self.count,
                until=until,
                byweekday=days or None,
                bysetpos=self.by_parts.get("BYSETPOS"),
                bymonth=self.by_parts.get("BYMONTH"),
                bymonthday=self.by_parts.get("BYMONTHDAY"),
                byhour=self.by_parts.get("BYHOUR"),
                byminute=self.by_parts.get("BYMINUTE"),
            )
        except ValueError as error:
            raise RecurrenceError("rrule", f"never occurs: {error}.") from None

    def _dateutil_weekdays(self) -> Iterator[weekday]:
        """dateutil combines numbered and plain weekdays with AND; so when both occur, a plain day is listed with every number."""
        mixed = len({nth == 0 for nth, _ in self.by_day}) == 2
        most = 5 if self.freq == "MONTHLY" or "BYMONTH" in self.by_parts else 53
        for nth, day in self.by_day:
            if mixed and not nth:
                yield from (weekday(day, number) for number in range(1, most + 1))
            else:
                yield weekday(day, nth) if nth else weekday(day)

    def matches(self, local: datetime) -> bool:
        """Whether a local time matches every BY part. Without this check dateutil could search for centuries."""
        of_month = monthrange(local.year, local.month)[1]
        present = {
            "BYMONTH": (local.month,),
            "BYMONTHDAY": (local.day, local.day - of_month - 1),
            "BYHOUR": (local.hour,),
            "BYMINUTE": (local.minute,),
        }
        for name, values in present.items():
            wanted = self.by_parts.get(name)
            if wanted is not None and not set(wanted) & set(values):
                return False
        return self._matches_day(local) and self._matches_setpos(local)

    def _matches_day(self, local: datetime) -> bool:
        if not self.by_day:
            return True
        if self.freq == "MONTHLY" or "BYMONTH" in self.by_parts:
            day, length = local.day, monthrange(local.year, local.month)[1]
        else:
            day, length = local.timetuple().tm_yday, 366 if isleap(local.year) else 365
        nths = {0, (day - 1) // 7 + 1, -((length - day) // 7 + 1)}
        return any(weekday == local.weekday() and nth in nths for nth, weekday in self.by_day)

    def _matches_setpos(self, local: datetime) -> bool:
        """Whether BYSETPOS selects it within the set of its month or year."""
        wanted = self.by_parts.get("BYSETPOS")
        if wanted is None:
            return True
        begin = local.replace(day=1) if self.freq == "MONTHLY" else local.replace(day=1, month=1)
        if "BYHOUR" in self.by_parts or "BYMINUTE" in self.by_parts:
            begin = begin.replace(hour=0, minute=0)
        numbers = {name: values for name, values in self.by_parts.items() if name != "BYSETPOS"}
        if not self.by_day and "BYMONTHDAY" not in numbers:
            numbers |= {"BYMONTHDAY": (local.day,)} | ({"BYMONTH": (local.month,)} if self.freq == "YEARLY" else {})
        plain = ParsedRRule(self.freq, 1, None, None, self.week_start, self.by_day, numbers)
        end = _period_end(begin, self.freq)
        places = plain.to_dateutil(begin, ZoneInfo("UTC")).between(begin, end - timedelta(seconds=1), inc=True)
        if local not in places:
            return False
        index = places.index(local)
        return bool(set(wanted) & {index + 1, index - len(places)})


def _period_end(begin: datetime, freq: str) -> datetime:
    midnight = begin.replace(hour=0, minute=0, second=0)
    if freq == "YEARLY":
        return midnight.replace(year=begin.year + 1)
    return (midnight + timedelta(days=32)).replace(day=1)


def _local_until(until: ParsedRRuleUntil, zone: ZoneInfo) -> datetime:
    if not until.is_utc:
        return until.last
    return until.last.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


@lru_cache(maxsize=1024)
def parse_rule(text: str) -> ParsedRRule:
    """Raises RecurrenceError for the field `rrule`; the message says what to write instead."""
    parts = _split_parts(text)
    freq = parts.get("FREQ", "")
    if freq not in ALLOWED_PARTS:
        raise RecurrenceError("rrule", f"FREQ must be one of {', '.join(ALLOWED_PARTS)}; a slot repeats at most once a minute.")
    for name in parts:
        if name not in ALLOWED_PARTS[freq]:
            allowed = ", ".join(sorted(ALLOWED_PARTS[freq]))
            raise RecurrenceError("rrule", f"{name} is not allowed with FREQ={freq}; allowed are {allowed}.")
    if "COUNT" in parts and "UNTIL" in parts:
        raise RecurrenceError("rrule", "takes COUNT or UNTIL, not both.")
    rule = ParsedRRule(
        freq=freq,
        interval=_parse_number(parts, "INTERVAL", 1, MAX_INTERVAL) or 1,
        count=_parse_number(parts, "COUNT", 1, MAX_COUNT),
        until=_parse_until(parts["UNTIL"]) if "UNTIL" in parts else None,
        week_start=_parse_week_start(parts.get("WKST", "MO")),
        by_day=_parse_days(parts["BYDAY"], freq, in_months="BYMONTH" in parts) if "BYDAY" in parts else (),
        by_parts={name: _parse_numbers(name, parts[name], ranges) for name, ranges in _PART_RANGES.items() if name in parts},
    )
    if rule.interval > 1 and freq == "DAILY" and rule.by_parts.keys() & {"BYMONTH", "BYMONTHDAY"}:
        raise RecurrenceError("rrule", "FREQ=DAILY takes BYMONTH and BYMONTHDAY only with INTERVAL=1.")
    return rule


def _split_parts(text: str) -> dict[str, str]:
    if len(text) > MAX_RULE_LENGTH:
        raise RecurrenceError("rrule", f"takes at most {MAX_RULE_LENGTH} characters.")
    found: dict[str, str] = {}
    for piece in text.strip().upper().removeprefix("RRULE:").rstrip(";").split(";"):
        name, equals, value = piece.partition("=")
        if not equals or not value or not name.isalpha():
            raise RecurrenceError(
                "rrule", "must be one RFC 5545 rule, such as FREQ=WEEKLY;BYDAY=MO,FR (no DTSTART, no second line)."
            )
        if name in found:
            raise RecurrenceError("rrule", f"contains {name} twice.")
        found[name] = value
    return found


def _parse_number(parts: dict[str, str], name: str, low: int, high: int) -> int | None:
    text = parts.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
        raise RecurrenceError("rrule", f"{name} must be {low} to {high}.")
    return int(text)


def _parse_numbers(name: str, text: str, ranges: tuple[range, ...]) -> tuple[int, ...]:
    values = []
    for piece in text.split(","):
        if re.fullmatch(r"[+-]?\d{1,3}", piece, re.ASCII) is None or not any(int(piece) in one for one in ranges):
            bounds = " or ".join(f"{one[0]} to {one[-1]}" for one in ranges)
            raise RecurrenceError("rrule", f"{name} takes numbers {bounds}, separated by commas.")
        values.append(int(piece))
    return tuple(dict.fromkeys(values))


def _parse_days(text: str, freq: str, *, in_months: bool) -> tuple[tuple[int, int], ...]:
    """With BYMONTH the numbers count within the month, so those above 5 never come; dateutil fails on them in December."""
    days = []
    highest = {"MONTHLY": 5, "YEARLY": 53}.get(freq, 0)
    for piece in text.split(","):
        match = _BYDAY_PATTERN.fullmatch(piece)
        if match is None or abs(int(match[1] or 0)) > highest:
            raise RecurrenceError(
                "rrule", "BYDAY takes MO to SU separated by commas; 1MO or -1FR only with FREQ=MONTHLY or YEARLY."
            )
        days.append((int(match[1] or 0), _WEEKDAYS.index(match[2])))
    if in_months:
        days = [(number, weekday) for number, weekday in days if abs(number) <= 5]
        if not days:
            raise RecurrenceError("rrule", "BYDAY with BYMONTH counts within the month: 1 to 5, or -1 to -5.")
    return tuple(dict.fromkeys(days))


def _parse_week_start(text: str) -> int:
    if text not in _WEEKDAYS:
        raise RecurrenceError("rrule", "WKST must be one of MO to SU.")
    return _WEEKDAYS.index(text)


def _parse_until(text: str) -> ParsedRRuleUntil:
    match = _UNTIL_PATTERN.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        day = datetime.strptime(match[1], "%Y%m%d")  # noqa: DTZ007 - a local time without a zone is what is meant
        if match[2] is None:
            return ParsedRRuleUntil(datetime.combine(day, time(23, 59, 59)), False)
        clock = datetime.strptime(match[2], "%H%M%S").time()  # noqa: DTZ007
        return ParsedRRuleUntil(datetime.combine(day, clock), bool(match[3]))
    except ValueError:
        raise RecurrenceError("rrule", "UNTIL must be a date such as 20271231, or a time such as 20271231T200000Z.") from None
