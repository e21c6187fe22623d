"""Who is alive in a cluster, by this instance's own monotonic clock: the other members, this instance itself, and who reaches the
log. A wrong judgement costs time only. An instance that is taken for dead loses its partitions, and the fence rejects what it
still tries to store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.partitions.model import ClusterMember, InboundLogReachability, LeaseLostError
from domain.partitions.ports import PeerLeaseAndCredentialQuery, PeerLeaseAndCredentialReply, PeerLeasePoller

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
    """Which members are alive: those whose beats this instance has seen grow within the lease.

    A hung member is judged by that alone. One that is gone is found sooner: nobody answers when it is called. One that is cut
    off from the database says so itself when it is called. The silence of others counts only while this instance itself sees the
    table: after a time without the database nobody has beaten. When another one has beaten meanwhile, only this instance was
    late, and the silence of the others counts."""

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


POLL_AFTER_MS = 1_300
"""So long after its last beat an instance asks the others: early enough for two rounds of answers before its lease ends."""
AWAY_MS = 1_000
"""An instance without a beat for so long does not reach the database."""
BEAT_SPREAD_MS = 700
"""When the database stops, the last beats of two instances lie up to a beat's interval apart."""
CHANGES_MARGIN_MS = 10_000
"""An instance that reaches the database reads changed credentials within much less."""


@service
class OwnLeaseValidityService:
    """The lease of this instance: until when it may accept and confirm what devices send.

    It renews its lease with each beat in the database. When it cannot, it asks the others over the cluster's bus.

    - If another one still renews, this one is cut off alone. Its lease ends, its devices connect elsewhere.
    - If every other one answers that it cannot renew either, the database is away. Nobody can take anything over, and nobody can
      revoke a device, so telemetry goes on into the log. Each round of answers is good for as long as a beat.
    - If one does not answer, nothing is known, and the lease ends: that one may reach the database and revoke devices there.

    With its answer, each instance names the devices whose credentials it has changed since the asking one last reached the
    database. These are refused until the database answers: a revocation that was committed a moment before holds everywhere.

    `renewed_ms`: the start of the last beat that was confirmed, monotonic. `members`: those that were known then, also
    silent ones. `changes` returns the devices whose credentials this instance has changed in the last ms, None if it does
    not know all of them; `unknown` those whose stored credentials it could not read after a change. `refuse` closes the
    connections of a device and lets it in no more until the database answers. `is_replaced`: whether others replace this
    instance although it renews, because it does not reach the log."""

    instance: str
    clock: Clock
    calls: PeerLeasePoller
    renewed_ms: Callable[[], int]
    members: Callable[[], frozenset[str]]
    changes: Callable[[int], Sequence[str] | None]
    unknown: Callable[[], Collection[str]]
    refuse: Callable[[str], Awaitable[None]]
    is_replaced: Callable[[], bool] = lambda: False
    _permitted_until_ms: int = field(default=0, init=False)
    """Until then the others' answers hold, monotonic."""
    _answered: set[str] = field(default_factory=set, init=False)
    _answered_since_ms: int = field(default=0, init=False)

    @property
    def is_valid(self) -> bool:
        """Whether something may be confirmed to a device."""
        return self.remaining_s() > 0

    @property
    def is_database_away(self) -> bool:
        """Whether the lease holds by the others' answers alone."""
        return self.is_valid and self._own_until_ms() <= self.clock.monotonic_ms()

    @property
    def must_poll(self) -> bool:
        return self._renewed_ms_ago() >= POLL_AFTER_MS

    def require(self) -> None:
        """Raises LeaseLostError."""
        if not self.is_valid:
            raise LeaseLostError(
                "This instance does not reach the database or the log; its devices connect elsewhere and send again."
            )

    def remaining_s(self) -> float:
        if self.is_replaced():
            return 0.0
        return (max(self._own_until_ms(), self._permitted_until_ms) - self.clock.monotonic_ms()) / 1000

    def answer(self, question: PeerLeaseAndCredentialQuery) -> PeerLeaseAndCredentialReply:
        changed = self.changes(question.period_ms)
        return PeerLeaseAndCredentialReply(
            self._renewed_ms_ago(), None if changed is None else sorted({*changed, *self.unknown()})
        )

    async def poll(self) -> None:
        """Prolong the lease if no instance renews; refuse the devices whose credentials have changed."""
        polled_ms = self.clock.monotonic_ms()
        found = await self.calls.poll_leases(self.question(), self._expected())
        changed = self.find_changed(polled_ms, found)
        if changed is not None:
            for device_id in changed:
                await self.refuse(device_id)
            self.prolong(polled_ms)

    def on_joined(self, instance: str) -> None:
        """Another instance says that it joins: from now on it is expected to answer."""
        self._expected()
        self._answered.add(instance)

    def question(self) -> PeerLeaseAndCredentialQuery:
        return PeerLeaseAndCredentialQuery(self._renewed_ms_ago() + CHANGES_MARGIN_MS)

    def find_changed(self, polled_ms: int, answers: Mapping[str, PeerLeaseAndCredentialReply]) -> Sequence[str] | None:
        """The devices to refuse before the lease is prolonged; None if the answers to what was asked then do not prolong it."""
        self._answered |= answers.keys()
        away_ms = min(AWAY_MS, polled_ms - self.renewed_ms() - BEAT_SPREAD_MS)
        changed = set(self.unknown())
        for answer in [answer for name, answer in answers.items() if name != self.instance]:
            if answer.changed is None or answer.renewed_ms_ago < away_ms:
                return None
            changed |= set(answer.changed)
        return sorted(changed) if self._expected() <= answers.keys() else None

    def prolong(self, polled_ms: int) -> None:
        """All others are without the database too, as they said after `polled_ms`."""
        self._permitted_until_ms = polled_ms + OWN_LEASE_MS

    def _expected(self) -> frozenset[str]:
        """This instance, the members at the last beat, and those that have answered since: they have joined."""
        if self.renewed_ms() != self._answered_since_ms:
            self._answered_since_ms, self._answered = self.renewed_ms(), set()
        return self.members() | self._answered | {self.instance}

    def _own_until_ms(self) -> int:
        return self.renewed_ms() + OWN_LEASE_MS

    def _renewed_ms_ago(self) -> int:
        return self.clock.monotonic_ms() - self.renewed_ms()


LOST_MS = 2_000
"""Without an answer for so long, a member does not reach the log."""
GAP_MS, STEADY_MS = 1_500, 5_000
"""It reaches the log steadily if there was no gap of that length in that time."""


class InboundLogReachabilityMonitor:
    """Whether this instance reaches the cluster's log; each of its beats says so to the others.

    A member that beats in the database but does not reach the log would keep its partitions and store nothing. While some member
    reaches the log steadily, those that do not are replaced (`without_log`). While none does, the log is away: nobody could do
    better, and nothing moves. Nor does anything in the seconds after, when some are connected again before others."""

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

    def problem(self) -> str | None:
        """What to say while the log does not answer."""
        if self.lost_in_ms() > 0:
            return None
        silent_s = (self._clock.monotonic_ms() - self._answered_ms) / 1000
        return f"The cluster's log has not answered for {silent_s:.0f} s: nothing that devices report is confirmed. Check NATS."

    def lost_in_ms(self) -> int:
        """How long until it is lost without an answer; 0 or less when it is."""
        return self._answered_ms + LOST_MS - self._clock.monotonic_ms()


def without_log(members: Iterable[ClusterMember], live: frozenset[str]) -> frozenset[str]:
    """The live members that others replace because they do not reach the log."""
    reach = {each.instance: each.log_reach for each in members if each.instance in live}
    if InboundLogReachability.STEADY not in reach.values():
        return frozenset()
    return frozenset(instance for instance, found in reach.items() if found is InboundLogReachability.LOST)
