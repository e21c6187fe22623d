"""RFC 5545 recurrence with python-dateutil, on the wall clock of an IANA zone.

dateutil works on local times without a zone; this module turns them into instants. Two laws come from the standard's gaps: a
local time left out by a change to summer time falls on the first instant after the gap, and one that comes twice counts the
first time only. The third is our own: no rule may cost more than it is worth. dateutil searches to the year 9999 for a date that
never comes, so only such parts are taken whose next match is near once the first occurrence is known to match.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from dateutil.rrule import rrule

from adapters.recurrence_rule import STEPS, Faulty, Rule, parsed
from domain.kernel.errors import FieldFault

SHORTEST_GAP = timedelta(minutes=1)
SAMPLE = 300
SAMPLED = timedelta(days=800)
"""How many occurrences, and over how long, are looked at for how close they come: every pattern within a day, week or year has
shown itself by then."""
_REMEMBERED = 4096


class DateutilRecurrence:
    """The `Recurrence` port of the schedules part. Keeps compiled rules of the slots it saw last."""

    def knows(self, timezone: str) -> bool:
        return _zone(timezone) is not None

    def problem(self, rrule: str, timezone: str, first_ts: int, paired_ts: int) -> FieldFault | None:
        try:
            found = _compiled(rrule, timezone, first_ts)
            self._check_first(found)
            self._check_distance(found, abs(found.local(paired_ts) - found.first))
        except Faulty as fault:
            return FieldFault(fault.field, str(fault))
        return None

    def after(
        self, rrule: str, timezone: str, first_ts: int, after_ts: int, *, paired_ts: int | None = None
    ) -> int | None:
        found = _compiled(rrule, timezone, first_ts)
        start_ts = first_ts if paired_ts is None else paired_ts
        if start_ts > after_ts:
            return start_ts
        start = found.local(start_ts)
        shift = start - found.first
        for occurrence in found.later_than(found.local(after_ts) - shift):
            local = occurrence + shift
            at_ts = start_ts if local == start else found.instant(local)
            if at_ts > after_ts:
                return at_ts
        return None

    @staticmethod
    def _check_first(found: Compiled) -> None:
        first = next(iter(found.dates), None) if found.rule.fits(found.first) else None
        if first != found.first:
            text = found.first.strftime("%A %Y-%m-%d %H:%M")
            raise Faulty("onTs", f"is the first occurrence, but the rrule does not fall on {text} ({found.zone.key}).")

    @staticmethod
    def _check_distance(found: Compiled, length: timedelta) -> None:
        end = found.first + SAMPLED
        for one, other in pairwise(islice(takewhile(lambda date: date < end, found.dates), SAMPLE)):
            if other - one < SHORTEST_GAP:
                raise Faulty("rrule", "comes more often than once a minute; take a longer FREQ or INTERVAL.")
            if other - one <= length:
                message = "comes again before the slot is over; let offTs lie closer to onTs, or repeat less often."
                raise Faulty("rrule", message)


class Compiled:
    """One slot's rule, with all of dateutil's cost of setting up paid."""

    def __init__(self, rule: Rule, zone: ZoneInfo, first_ts: int) -> None:
        self.rule = rule
        self.zone = zone
        self.first = self.local(first_ts)
        self.dates = rule.dates(self.first, zone)

    def local(self, ts: int) -> datetime:
        return datetime.fromtimestamp(ts, self.zone).replace(tzinfo=None, fold=0)

    def instant(self, local: datetime) -> int:
        """Unix seconds of a local time; where there are two, the first; where there is none, the end of the gap."""
        early = _ts(local, self.zone, fold=0)
        if self.local(early) == local:
            return early
        low, high = _ts(local, self.zone, fold=1), early  # in a gap (PEP 495) these lie on either side of the change
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.local(middle) < local else (low, middle)
        return high

    def later_than(self, local: datetime) -> Iterator[datetime]:
        return iter(self._near(local).xafter(local))

    def _near(self, local: datetime) -> rrule:
        """The same rule begun later, so that a slot of last year does not cost a year of steps each time.

        Exact for steps of fixed length and whole intervals, and only where nothing is counted from the beginning."""
        step = STEPS.get(self.rule.freq)
        if step is None or self.rule.count is not None or local <= self.first:
            return self.dates
        whole = step * self.rule.interval
        return self.dates.replace(dtstart=self.first + (local - self.first) // whole * whole)


def _ts(local: datetime, zone: ZoneInfo, *, fold: int) -> int:
    return int(local.replace(tzinfo=zone, fold=fold).astimezone(UTC).timestamp())


@lru_cache(maxsize=_REMEMBERED)
def _compiled(text: str, timezone: str, first_ts: int) -> Compiled:
    zone = _zone(timezone)
    if zone is None:
        raise Faulty("timezone", f"{timezone!r} is not an IANA time zone such as Europe/Berlin or UTC.")
    return Compiled(parsed(text), zone, first_ts)


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, not a relative path, a directory
        return None
