"""RFC 5545 recurrence with python-dateutil, on the wall clock of an IANA zone.

dateutil works on local times without a zone; this module converts them to instants. Two laws cover the changes of the clocks: a
local time skipped by a change to summer time falls on the first instant after the gap, and a repeated local time counts only
once, at its first instant. A third law bounds the cost of a rule: dateutil searches to the year 9999 for a date that never comes,
so only parts are accepted whose next match is near once the first occurrence matches.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from dateutil.rrule import rrule

from adapters.rrule_parser import FIXED_STEPS, ParsedRRule, RecurrenceError, parse_rule
from domain.kernel.errors import FieldError

MIN_INTERVAL = timedelta(minutes=1)
MAX_SAMPLED_OCCURRENCES = 300
SAMPLED_SPAN = timedelta(days=800)
"""The occurrences checked for their spacing. Every pattern within a day, week or year repeats within this span."""
_CACHE_SIZE = 4096


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
