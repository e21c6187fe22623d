"""What one instance owns, and what it does about it in each round: claim, release, drop.

An instance claims what it should own and no live instance owns. It releases what another live instance should own, a few
partitions at a time, so that a new member does not stop the whole fleet. It drops at once what it finds in other hands. A row
that names this instance although it does not hold the partition (the answer to a claim was lost, or a commit was rejected) counts
as free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from domain.partitions.model import NOBODY, Partition, PartitionLogAdvance, PartitionLostError, assign, partition_of

MAX_MOVES = 4
"""Partitions that are between two live owners at a time."""


@dataclass(frozen=True, slots=True)
class PartitionOwnershipPlan:
    claim: Sequence[Partition] = ()
    release: Sequence[tuple[int, int]] = ()
    """(partition, epoch)."""
    lost: Sequence[int] = ()


@dataclass(slots=True)
class OwnedPartitions:
    """The partitions of this instance. `count` is the number of partitions in the cluster."""

    instance: str
    count: int
    _owned: dict[int, Partition] = field(default_factory=dict)
    """The rows as this instance has claimed them and committed to them since."""

    def __contains__(self, partition: int) -> bool:
        return partition in self._owned

    def __len__(self) -> int:
        return len(self._owned)

    @property
    def partitions(self) -> Sequence[int]:
        return list(self._owned)

    def plan(self, rows: Sequence[Partition], live: frozenset[str]) -> PartitionOwnershipPlan:
        """What to do, given the rows and the live members. An instance that is not among the members claims nothing. Rows that
        were read before this instance claimed or committed are older than what it knows, and say nothing."""
        rows = [row for row in rows if row.partition not in self._owned or row.epoch >= self._owned[row.partition].epoch]
        lost = [row.partition for row in rows if row.partition in self._owned and self._owned[row.partition].epoch != row.epoch]
        should_own = assign(self.count, live)
        if not should_own:
            return PartitionOwnershipPlan(lost=lost)
        free = {row.partition for row in rows if row.owner not in live or self._is_not_held(row)}
        claim = [row for row in rows if row.partition in free and should_own[row.partition] == self.instance]
        release = [
            (row.partition, row.epoch)
            for row in rows
            if row.owner == self.instance and should_own[row.partition] != self.instance and row.partition not in lost
        ]
        moving = sum(row.owner == NOBODY for row in rows)
        return PartitionOwnershipPlan(claim, release[: max(0, MAX_MOVES - moving)], lost)

    def _is_not_held(self, row: Partition) -> bool:
        return row.owner == self.instance and row.partition not in self._owned

    def add(self, row: Partition) -> None:
        """This instance has claimed the partition with this row."""
        self._owned[row.partition] = row

    def drop(self, partition: int) -> None:
        self._owned.pop(partition, None)

    def epoch(self, partition: int) -> int:
        """Raises PartitionLostError."""
        return self._find(partition).epoch

    def epochs_of(self, device_nos: Iterable[int]) -> Sequence[tuple[int, int]]:
        """(partition, epoch) of each partition of these devices. Raises PartitionLostError."""
        return [(each, self.epoch(each)) for each in sorted({partition_of(device_no, self.count) for device_no in device_nos})]

    def position(self, partition: int) -> int:
        """The last position that is stored. Raises PartitionLostError."""
        return self._find(partition).position

    def progress_to(self, partition: int, position: int) -> PartitionLogAdvance:
        """What a transaction has to prove to advance to `position`. Raises PartitionLostError."""
        owned = self._find(partition)
        return PartitionLogAdvance(partition, owned.epoch, owned.position, position)

    def is_current(self, progress: PartitionLogAdvance) -> bool:
        """Whether this instance holds the partition at the epoch and the position that `progress` continues."""
        owned = self._owned.get(progress.partition)
        return owned is not None and (owned.epoch, owned.position) == (progress.epoch, progress.before)

    def on_committed(self, progress: PartitionLogAdvance) -> None:
        owned = self._owned.get(progress.partition)
        if owned is not None and owned.epoch == progress.epoch:
            self._owned[progress.partition] = replace(owned, position=progress.after)

    def _find(self, partition: int) -> Partition:
        owned = self._owned.get(partition)
        if owned is None:
            raise PartitionLostError(f"This instance does not own partition {partition}.")
        return owned
