"""Stops rules whose actions fire each other without end. Apart from the use cases, because it counts from batch to batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from domain.kernel.clock import MINUTE_MS, is_of_earlier_clock
from domain.rules.model import RuleFiring

MAX_FIRINGS_PER_MINUTE = 10
"""A rule that fires more often than this within a minute is in a loop."""
SWEEP_THRESHOLD = 1_024
"""Expired entries are removed each time this many more rules have fired than at the last sweep."""


def _counts_for(firing: RuleFiring, at_ms: int) -> bool:
    """Whether a firing at `at_ms` is within the minute before this one, by the same clock."""
    return at_ms > firing.at_ms - MINUTE_MS and not is_of_earlier_clock(at_ms, firing.at_ms)


@dataclass(slots=True)
class RuleLoopGuard:
    """Counts firings per rule over a rolling minute. Memory is bounded by the firings of the last minute.

    `find_looping` changes nothing, because a transaction may be retried; `record_firings` counts committed firings once.
    """

    _recent_firings_ms: dict[int, deque[int]] = field(default_factory=dict)
    _sweep_threshold: int = SWEEP_THRESHOLD

    def find_looping(self, firings: Sequence[RuleFiring]) -> list[RuleFiring]:
        """The firings that exceed their rule's limit, counting earlier ones in the list."""
        pending: dict[int, list[int]] = {}
        found = []
        for firing in firings:
            times = pending.setdefault(firing.rule_no, list(self._recent_firings_ms.get(firing.rule_no, ())))
            times.append(firing.at_ms)
            if sum(_counts_for(firing, at_ms) for at_ms in times) > MAX_FIRINGS_PER_MINUTE:
                found.append(firing)
        return found

    def record_firings(self, fired: Sequence[RuleFiring], looping: Sequence[RuleFiring]) -> None:
        """Count committed firings. Looping rules have been disabled and start from zero when enabled again."""
        for firing in fired:
            self._recent_firings_ms.setdefault(firing.rule_no, deque(maxlen=MAX_FIRINGS_PER_MINUTE)).append(firing.at_ms)
        for firing in looping:
            self._recent_firings_ms.pop(firing.rule_no, None)
        if len(self._recent_firings_ms) > self._sweep_threshold:
            self._sweep(max(firing.at_ms for firing in fired) - MINUTE_MS)

    def _sweep(self, until_ms: int) -> None:
        for rule_no in [no for no, times in self._recent_firings_ms.items() if times[-1] <= until_ms]:
            del self._recent_firings_ms[rule_no]
        self._sweep_threshold = 2 * len(self._recent_firings_ms) + SWEEP_THRESHOLD
