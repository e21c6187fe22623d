"""Which members are alive: those whose beats this instance has seen grow within the lease, by its own monotonic clock.

A hung member is judged by that alone. One that is gone is found sooner: nobody answers when it is called. One that is cut off
from the database says so itself when it is called.

The silence of others counts only while this instance itself sees the table: after a time without the database nobody has beaten.
When another one has beaten meanwhile, only this instance was late, and the silence of the others counts.

A wrong judgement costs time only. An instance that is taken for dead loses its partitions, and the fence rejects what it still
tries to store.
"""

from __future__ import annotations

from collections.abc import Iterable

from domain.partitions.cluster_member import ClusterMember

BEAT_MS = 500
"""Between two beats of a member."""
LEASE_MS = 2_500
OWN_LEASE_MS = 2_000
"""An instance without a beat for so long acts as if the others had taken it for dead, before they do."""
SUSPECT_MS = 750
"""A member without a beat for so long is called: one whose process is gone, or that has no lease, is replaced at once."""
FORGET_MS = 60_000
"""A member that is dead for so long is removed from the list of members."""


MAX_GAP_MS = 1_500
"""Between two observations. After a longer time without the database those that were alive get a new lease."""


class ClusterFailureDetector:
    def __init__(self) -> None:
        self._observed_ms = 0
        self._seen: dict[str, tuple[int, int]] = {}
        """Instance → (beats, when they were first seen, monotonic ms)."""

    def observe(self, members: Iterable[ClusterMember], now_ms: int, own: str = "") -> frozenset[str]:
        """The live members. `now_ms` is monotonic, `own` is this instance. A member that is new to it counts as alive for one
        lease."""
        members = list(members)
        before_ms, self._observed_ms = self._observed_ms, now_ms
        gap_ms, was_late = now_ms - before_ms, self._was_late(members, now_ms - before_ms, own)
        seen = {}
        for member in members:
            beats, at_ms = self._seen.get(member.instance, (-1, now_ms))
            is_new_lease = gap_ms > MAX_GAP_MS and before_ms - at_ms < LEASE_MS and not was_late
            seen[member.instance] = (beats, at_ms) if beats == member.beats and not is_new_lease else (member.beats, now_ms)
        self._seen = seen
        return frozenset(instance for instance, (_, at_ms) in seen.items() if now_ms - at_ms < LEASE_MS)

    def _was_late(self, members: Iterable[ClusterMember], gap_ms: int, own: str) -> bool:
        """Whether another member has beaten in most of the gap: then the database was there, and only this instance was late."""
        others = [each for each in members if each.instance in self._seen and each.instance != own]
        beats = max((each.beats - self._seen[each.instance][0] for each in others), default=0)
        return 2 * beats * BEAT_MS >= gap_ms

    def suspects(self, now_ms: int) -> frozenset[str]:
        """The live members that have been silent for a moment."""
        return frozenset(each for each, (_, at_ms) in self._seen.items() if SUSPECT_MS <= now_ms - at_ms < LEASE_MS)

    def next_change_ms(self, now_ms: int) -> int:
        """How long until a member that stays silent becomes a suspect, or is dead; at most a lease."""
        due = [at_ms + after_ms - now_ms for _, at_ms in self._seen.values() for after_ms in (SUSPECT_MS, LEASE_MS)]
        return min([each for each in due if each > 0], default=LEASE_MS)

    def forgotten(self, now_ms: int) -> list[str]:
        """Members that have been dead for long."""
        return [instance for instance, (_, at_ms) in self._seen.items() if now_ms - at_ms >= FORGET_MS]
