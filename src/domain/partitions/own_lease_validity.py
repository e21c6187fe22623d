"""The lease of an instance: until when it may accept and confirm what devices send.

An instance renews its lease with each beat in the database. When it cannot, it asks the others over the cluster's bus.

- If another one still renews, this one is cut off alone. Its lease ends, its devices connect elsewhere.
- If every other one answers that it cannot renew either, the database is away. Nobody can take anything over, and nobody can
  revoke a device, so telemetry goes on into the log. Each round of answers is good for as long as a beat.
- If one does not answer, nothing is known, and the lease ends: that one may reach the database and revoke devices there.

With its answer, each instance names the devices whose credentials it has changed since the asking one last reached the database.
These are refused until the database answers: a revocation that was committed a moment before holds everywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field

from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.partitions.cluster_failure_detector import OWN_LEASE_MS
from domain.partitions.ownership_and_log_position import LeaseLostError
from domain.partitions.peer_lease_poller_port import PeerLeaseAndCredentialQuery, PeerLeaseAndCredentialReply, PeerLeasePoller

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
    """`renewed_ms`: the start of the last beat that was confirmed, monotonic. `members`: those that were known then, also
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
