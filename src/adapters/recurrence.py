"""RFC 5545 recurrence with python-dateutil, on the wall clock of an IANA zone.

dateutil works on local times without a zone; this module converts them to instants. Two laws cover the changes of the clocks: a
local time skipped by a change to summer time falls on the first instant after the gap, and a repeated local time counts only
once, at its first instant.

A third law bounds the cost of a rule: dateutil searches to the year 9999 for a date that never comes, so only parts are accepted
whose next match is near once the first occurrence matches. A rule is rejected if RFC 5545 forbids it, if it repeats every second,
or if a search for its next occurrence could run for centuries. A table lists the parts allowed with each FREQ.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from typing import Literal
from zoneinfo import ZoneInfo

from dateutil.rrule import DAILY, HOURLY, MINUTELY, MONTHLY, WEEKLY, YEARLY, rrule, weekday

from domain.kernel.errors import FieldError

MAX_RULE_LENGTH = 500
MAX_COUNT = 2_000
"""Each evaluation counts from the first occurrence; five years of days take milliseconds."""
MAX_INTERVAL = 1_000
MIN_INTERVAL = timedelta(minutes=1)
MAX_SAMPLED_OCCURRENCES = 300
SAMPLED_SPAN = timedelta(days=800)
"""The occurrences checked for their spacing. Every pattern within a day, week or year repeats within this span."""
_CACHE_SIZE = 4096

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
class ParsedRRule:
    """`until`: the last time; local, or with the zone UTC. `by_day`: (nth or 0, weekday with Monday = 0). `by_parts`: the other
    BY parts by name."""

    freq: str
    interval: int
    count: int | None
    until: datetime | None
    week_start: int
    by_day: tuple[tuple[int, int], ...]
    by_parts: dict[str, tuple[int, ...]]

    def to_dateutil(self, first: datetime, zone: ZoneInfo) -> rrule:
        """The dateutil rule, in local times without a zone. Raises RecurrenceError if it ends before it starts."""
        until = self.until
        if until is not None and until.tzinfo is not None:
            until = until.astimezone(zone).replace(tzinfo=None)
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


def _parse_until(text: str) -> datetime:
    """A date without a time means the end of that day."""
    match = _UNTIL_PATTERN.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        day = datetime.strptime(match[1], "%Y%m%d")  # noqa: DTZ007 - a local time without a zone is what is meant
        if match[2] is None:
            return datetime.combine(day, time(23, 59, 59))
        clock = datetime.strptime(match[2], "%H%M%S").time()  # noqa: DTZ007
        return datetime.combine(day, clock, UTC if match[3] else None)
    except ValueError:
        raise RecurrenceError("rrule", "UNTIL must be a date such as 20271231, or a time such as 20271231T200000Z.") from None


class DateutilRecurrence:
    """The `RecurrenceCalculator` port of the schedules part. Caches the compiled rules of recent slots."""

    def is_known_timezone(self, timezone: str) -> bool:
        return _load_timezone(timezone) is not None

    def find_error(self, rrule: str, timezone: str, first_ts: int, paired_ts: int) -> FieldError | None:
        return _find_error(rrule, timezone, first_ts, paired_ts)

    def next_occurrence(
        self, rrule: str, timezone: str, first_ts: int, after_ts: int, *, paired_ts: int | None = None
    ) -> int | None:
        compiled = _compile(rrule, timezone, first_ts)
        start_ts = first_ts if paired_ts is None else paired_ts
        if start_ts > after_ts:
            return start_ts
        start = compiled.to_local(start_ts)
        shift = start - compiled.first_local
        for occurrence in compiled.occurrences_after(compiled.to_local(after_ts) - shift):
            local = occurrence + shift
            at_ts = start_ts if local == start else compiled.to_timestamp(local)
            if at_ts > after_ts:
                return at_ts
        return None


class CompiledRecurrence:
    """The compiled rule of one slot; compiling is the expensive part of dateutil."""

    def __init__(self, rule: ParsedRRule, zone: ZoneInfo, first_ts: int) -> None:
        self.rule = rule
        self.zone = zone
        self.first_local = self.to_local(first_ts)
        self.occurrences = rule.to_dateutil(self.first_local, zone)

    def to_local(self, ts: int) -> datetime:
        return datetime.fromtimestamp(ts, self.zone).replace(tzinfo=None, fold=0)

    def to_timestamp(self, local: datetime) -> int:
        """Unix seconds of a local time: the first of two for a repeated time, the end of the gap for a skipped one."""
        early = _to_timestamp(local, self.zone, fold=0)
        if self.to_local(early) == local:
            return early
        low, high = _to_timestamp(local, self.zone, fold=1), early  # in a gap (PEP 495) these lie on either side of the change
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.to_local(middle) < local else (low, middle)
        return high

    def occurrences_after(self, local: datetime) -> Iterator[datetime]:
        return iter(self._restarted_near(local).xafter(local))

    def _restarted_near(self, local: datetime) -> rrule:
        """The same rule with a later start, so that an old slot does not step through all its past occurrences.

        Exact for steps of fixed length and whole intervals, and only without COUNT."""
        step = FIXED_STEPS.get(self.rule.freq)
        if step is None or self.rule.count is not None or local <= self.first_local:
            return self.occurrences
        whole = step * self.rule.interval
        return self.occurrences.replace(dtstart=self.first_local + (local - self.first_local) // whole * whole)


def _to_timestamp(local: datetime, zone: ZoneInfo, *, fold: int) -> int:
    return int(local.replace(tzinfo=zone, fold=fold).astimezone(UTC).timestamp())


@lru_cache(maxsize=_CACHE_SIZE)
def _compile(text: str, timezone: str, first_ts: int) -> CompiledRecurrence:
    zone = _load_timezone(timezone)
    if zone is None:
        raise RecurrenceError("timezone", f"{timezone!r} is not an IANA time zone such as Europe/Berlin or UTC.")
    return CompiledRecurrence(parse_rule(text), zone, first_ts)


def _load_timezone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, not a relative path, a directory
        return None


@lru_cache(maxsize=_CACHE_SIZE)
def _find_error(rrule: str, timezone: str, first_ts: int, paired_ts: int) -> FieldError | None:
    """Cached: the devices of a fleet often have the same slot."""
    try:
        compiled = _compile(rrule, timezone, first_ts)
        _check_first_occurrence(compiled)
        _check_spacing(compiled, abs(compiled.to_local(paired_ts) - compiled.first_local))
    except RecurrenceError as fault:
        return FieldError(fault.field, str(fault))
    return None


def _check_first_occurrence(compiled: CompiledRecurrence) -> None:
    first = next(iter(compiled.occurrences), None) if compiled.rule.matches(compiled.first_local) else None
    if first != compiled.first_local:
        text = compiled.first_local.strftime("%A %Y-%m-%d %H:%M")
        raise RecurrenceError("onTs", f"must be the first occurrence, but the rrule does not match {text} ({compiled.zone.key}).")


def _check_spacing(compiled: CompiledRecurrence, length: timedelta) -> None:
    end = compiled.first_local + SAMPLED_SPAN
    for current, following in pairwise(islice(takewhile(lambda date: date < end, compiled.occurrences), MAX_SAMPLED_OCCURRENCES)):
        if following - current < MIN_INTERVAL:
            raise RecurrenceError("rrule", "repeats more often than once a minute; use a longer FREQ or INTERVAL.")
        if following - current <= length:
            message = "repeats before the slot ends; move offTs closer to onTs, or repeat less often."
            raise RecurrenceError("rrule", message)
