"""Partitions divide the devices among the instances of a cluster: each partition has one owner at a time.

The owner of a partition runs the rules of its devices and stores their telemetry. What the owner has done is a position in the
partition's log. Owner, epoch and position are one row in the database. Each change of owner increments the epoch, and a commit
names the epoch and the position that it continues: this comparison is the fence. No lock, lease or clock decides what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.kernel.errors import DomainError

NOBODY = ""
"""The `owner` of a partition that has none."""
MAX_PARTITIONS = 256


class PartitionLostError(DomainError):
    """Another instance owns the partition now. Nothing was stored; what this instance holds of the partition is out of date."""

    code = "PARTITION_LOST"


class LeaseLostError(DomainError):
    """Other instances may have taken this one's devices over. Nothing was stored or confirmed; devices send again elsewhere."""

    code = "LEASE_LOST"


class LogAdvanceAlreadyCommittedError(DomainError):
    """A commit whose answer was lost had been stored. The transaction that repeats it must store nothing."""

    code = "ALREADY_COMMITTED"


@dataclass(frozen=True, slots=True)
class Partition:
    """The row of a partition. `log_id` identifies the log that `position` counts in; empty until the first owner."""

    partition: int
    epoch: int = 0
    position: int = 0
    owner: str = NOBODY
    log_id: str = ""

    def claimed_by(self, instance: str, epoch: int) -> Partition | None:
        """The row after `instance`, which has read it at `epoch`, takes the partition; None if it has changed since."""
        return replace(self, owner=instance, epoch=epoch + 1) if self.epoch == epoch else None

    def released_at(self, epoch: int) -> Partition | None:
        """The row after its owner gives it up; None if it has another owner already."""
        return replace(self, owner=NOBODY, epoch=epoch + 1) if self.epoch == epoch else None

    def advanced(self, progress: PartitionLogAdvance) -> Partition:
        """Raises PartitionLostError, LogAdvanceAlreadyCommittedError."""
        if (self.epoch, self.position) == (progress.epoch, progress.before):
            return replace(self, position=progress.after)
        if (self.epoch, self.position) == (progress.epoch, progress.after):
            raise LogAdvanceAlreadyCommittedError(f"Position {self.position} of partition {self.partition} is stored already.")
        raise PartitionLostError(
            f"Partition {self.partition} is at epoch {self.epoch}, position {self.position}; this instance expected epoch "
            f"{progress.epoch}, position {progress.before}. Nothing was stored."
        )


@dataclass(frozen=True, slots=True)
class PartitionLogAdvance:
    """What a transaction has done of a partition's log: the entries after `before`, up to and including `after`. With both equal
    it only proves, until it ends, that the partition is still owned."""

    partition: int
    epoch: int
    before: int
    after: int

    def without_advance(self) -> PartitionLogAdvance:
        return replace(self, after=self.before)
