"""The devices' side of the simulated cluster: leases, what the instances tell each other over the bus, and revoked devices.

The promises: an instance accepts nothing from a device that was revoked more than a lease ago; one that is cut off from the
database alone accepts nothing soon after; and while the database is away for all and nothing else fails, all accept.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from domain.devices.credential_sync import RecentCredentialChanges
from domain.kernel.ids import DeviceId
from domain.partitions.liveness import AWAY_MS, OWN_LEASE_MS, OwnLeaseValidityService
from domain.partitions.ports import PeerLeaseAndCredentialReply

if TYPE_CHECKING:
    from support.cluster_simulation import ClusterSimulation, Node

DEVICES = 40
ALONE_MS = 2 * OWN_LEASE_MS
"""From the last beat of an instance that is cut off alone until it accepts nothing: its lease, and the answers of others that
were without the database for a moment."""
Steps = Generator[int, None, None]


class Violation(AssertionError):
    """A promise of the cluster was broken."""


class SimulatedFleet:
    """The devices, what the database knows of them, and the people who revoke some."""

    def __init__(self, simulation: ClusterSimulation) -> None:
        self._simulation = simulation
        self.revoked_ms: dict[DeviceId, int] = {}
        self.is_database_away = self.must_stay_open = False
        self.accepted = self.accepted_while_away = 0
        self.kept_changes = simulation.random.choice([3, DEVICES])
        """How many an instance remembers; with few it may know that it does not know all."""

    def toggle_database(self) -> None:
        """It is away, or back, while other faults go on."""
        self.is_database_away = not self.is_database_away
        for node in self._simulation.nodes:
            node.sees_table = not self.is_database_away

    def people(self) -> Steps:
        """Somebody revokes a device at an instance that reaches the database, some even in a short moment when it is there."""
        random = self._simulation.random
        while True:
            yield random.randint(100, 2_000)
            nodes = [node for node in self._simulation.nodes if node.alive and node.sees_table and node.front.is_known]
            device_id = DeviceId(f"dev_{random.randrange(DEVICES)}")
            if nodes and device_id not in self.revoked_ms and len(self.revoked_ms) < DEVICES - 1:
                front = random.choice(nodes).front
                self.revoked_ms[device_id] = self._simulation.now_ms
                front.changes.on_refused(device_id)
                front.refused.add(device_id)


class SimulatedFront:
    def __init__(self, simulation: ClusterSimulation, node: Node) -> None:
        self._simulation = simulation
        self._node = node
        self.sees_bus = True
        self.has_joined = self.is_known = False
        """`is_known`: every instance has heard that it joins. Decision 0027 names what is not promised otherwise."""
        self.members: frozenset[str] = frozenset()
        self.refused: set[DeviceId] = set()
        self.changes = RecentCredentialChanges(self, simulation.fleet.kept_changes)
        self.renewed_ms = self.monotonic_ms() - OWN_LEASE_MS
        self._renewing_since_ms = simulation.now_ms
        calls: Any = None  # the simulation carries questions and answers itself
        self.lease = OwnLeaseValidityService(
            instance=node.name,
            clock=self,
            calls=calls,
            renewed_ms=lambda: self.renewed_ms,
            members=lambda: self.members,
            changes=self.changes.of_last,
            unknown=tuple,
            refuse=calls,
        )

    def monotonic_ms(self) -> int:
        return self._simulation.now_ms + self._node.clock_offset_ms

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def steady_ms(self) -> int:
        return self.monotonic_ms()

    def on_beat(self) -> None:
        """The event log is read with it: in the program another worker does so, within a second."""
        if not self.has_joined:
            self._announce()
        now_ms = self.monotonic_ms()
        if now_ms - self.renewed_ms >= AWAY_MS:
            self._renewing_since_ms = self._simulation.now_ms
        self.renewed_ms, self.has_joined = now_ms, True
        self.refused |= self._simulation.fleet.revoked_ms.keys()

    def _announce(self) -> None:
        """Before its first beat an instance says over the bus that it joins."""
        fronts = [node.front for node in self._simulation.nodes if node.alive]
        self.is_known = self.sees_bus and all(front.sees_bus for front in fronts)
        for front in fronts:
            if self.sees_bus and front.sees_bus:
                front.lease.on_joined(self._node.name)

    def accept(self) -> Steps:
        fleet, random = self._simulation.fleet, self._simulation.random
        while True:
            yield self._simulation.delay(self._node) + 50
            if not self.lease.is_valid:
                if fleet.must_stay_open:
                    raise Violation(f"{self._node.name} closed its doors although the database was away for all")
                continue
            self._check_not_alone()
            fleet.accepted += 1
            fleet.accepted_while_away += self.lease.is_database_away
            device_id = DeviceId(f"dev_{random.randrange(DEVICES)}")
            revoked_ms = fleet.revoked_ms.get(device_id)
            if device_id not in self.refused and revoked_ms is not None:
                ago_ms = self._simulation.now_ms - revoked_ms
                if ago_ms > OWN_LEASE_MS:
                    raise Violation(f"{self._node.name} accepted {device_id}, which was revoked {ago_ms} ms before")

    def _check_not_alone(self) -> None:
        """Others that have renewed all the time since this one could not."""
        own_ms = self._simulation.now_ms - (self.monotonic_ms() - self.renewed_ms)
        if self._simulation.now_ms - own_ms <= ALONE_MS:
            return
        for node in self._simulation.nodes:
            front = node.front
            if (
                node.alive
                and front.is_known
                and front is not self
                and front.renewing_since_ms() < self._simulation.now_ms - ALONE_MS
            ):
                raise Violation(f"{self._node.name} accepted messages although {node.name} reaches the database")

    def renewing_since_ms(self) -> int:
        """Since when the instance has beaten without a gap."""
        return self._renewing_since_ms if self.monotonic_ms() - self.renewed_ms < AWAY_MS else self._simulation.now_ms

    def poll(self) -> Steps:
        delay, random = self._simulation.delay, self._simulation.random
        while True:
            yield 100 + delay(self._node)
            if not (self.has_joined and self.lease.must_poll):
                continue
            polled_ms, question = self.monotonic_ms(), self.lease.question()
            yield random.randint(1, 50)
            answers: dict[str, PeerLeaseAndCredentialReply] = {}
            for node in self._simulation.nodes:
                is_reached = (
                    node.alive and self.sees_bus and node.front.sees_bus and node.slow_until_ms <= self._simulation.now_ms
                )
                if is_reached and node.front.has_joined:
                    answers[node.name] = node.front.lease.answer(question)
            yield random.randint(150, 250) + delay(self._node)
            changed = self.lease.find_changed(polled_ms, answers)
            if changed is not None:
                self.refused |= set(map(DeviceId, changed))
                self.lease.prolong(polled_ms)
