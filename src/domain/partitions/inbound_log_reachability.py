"""Whether each member reaches the cluster's log, and who may own partitions therefore.

A member that beats in the database but does not reach the log would keep its partitions and store nothing. So each beat says
how its member reaches the log. While some member reaches it steadily, those that do not are replaced. While none does, the log
is away: nobody could do better, and nothing moves. Nor does anything in the seconds after, when some are connected again before
others.
"""

from __future__ import annotations

from collections.abc import Iterable

from domain.kernel.clock import Clock
from domain.partitions.cluster_member import ClusterMember, InboundLogReachability

LOST_MS = 2_000
"""Without an answer for so long, a member does not reach the log."""
GAP_MS, STEADY_MS = 1_500, 5_000
"""It reaches the log steadily if there was no gap of that length in that time."""


class InboundLogReachabilityMonitor:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answered_ms = self._steady_since_ms = clock.monotonic_ms()

    def on_answer(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._answered_ms > GAP_MS:
            self._steady_since_ms = now_ms
        self._answered_ms = now_ms

    def measure(self) -> InboundLogReachability:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._answered_ms >= LOST_MS:
            return InboundLogReachability.LOST
        is_steady = now_ms - self._answered_ms <= GAP_MS and now_ms - self._steady_since_ms >= STEADY_MS
        return InboundLogReachability.STEADY if is_steady else InboundLogReachability.RECENT

    def lost_in_ms(self) -> int:
        """How long until it is lost without an answer; 0 or less when it is."""
        return self._answered_ms + LOST_MS - self._clock.monotonic_ms()


def without_log(members: Iterable[ClusterMember], live: frozenset[str]) -> frozenset[str]:
    """The live members that others replace because they do not reach the log."""
    reach = {each.instance: each.log_reach for each in members if each.instance in live}
    if InboundLogReachability.STEADY not in reach.values():
        return frozenset()
    return frozenset(instance for instance, found in reach.items() if found is InboundLogReachability.LOST)
