"""Partitions divide the devices among the instances of a cluster: each partition has one owner at a time.

The owner of a partition runs the rules of its devices and stores their telemetry. What the owner has done is a position in the
partition's log. Owner, epoch and position are one row in the database. Each change of owner increments the epoch, and a commit
names the epoch and the position that it continues: this comparison is the fence. No lock, lease or clock decides what is stored.

A device belongs to a partition by Fibonacci hashing, which spreads neighbouring device numbers and any step between them.
Python, Rust and SQL compute the same number. A device number is below 2^31, so 64-bit integers suffice everywhere. A partition is
a range of hashes, so a database finds its devices with an index on the hash, whatever the number of partitions is.

An instance should own a partition by rendezvous hashing, with a bound on the load of each instance. Every instance computes the
same assignment from the same members, without talking to the others. When the members change, few partitions move: those of an
instance that left, and about one share for an instance that joined.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

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


class InboundLogReachability(IntEnum):
    """Whether an instance reaches the cluster's log."""

    LOST = 0
    RECENT = 1
    """It does, but there was a gap a moment ago."""
    STEADY = 2


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A running instance. `beats` grows while it lives; no clock is compared with another machine's."""

    instance: str
    beats: int
    log_reach: InboundLogReachability = InboundLogReachability.STEADY


HASH_FACTOR = 2_654_435_769
"""2^32 divided by the golden ratio."""
HASH_BITS = 32
_MASK = 0xFFFF_FFFF


def hash_of(device_no: int) -> int:
    return device_no * HASH_FACTOR & _MASK


def partition_of(device_no: int, count: int) -> int:
    """The partition, 0 to `count` - 1, of a device."""
    return hash_of(device_no) * count >> HASH_BITS


def hash_range(partition: int, count: int) -> tuple[int, int]:
    """The lowest and the highest hash of the devices in a partition."""
    return -(-(partition << HASH_BITS) // count), -(-((partition + 1) << HASH_BITS) // count) - 1


@lru_cache(maxsize=64)
def assign(count: int, instances: frozenset[str]) -> Sequence[str]:
    """The instance of each partition. None owns more than its share, rounded up. Empty without instances."""
    if not instances:
        return ()
    free = dict.fromkeys(instances, -(-count // len(instances)))
    owners = []
    for partition in range(count):
        owner = max((each for each in instances if free[each]), key=lambda instance: _score(instance, partition))
        free[owner] -= 1
        owners.append(owner)
    return tuple(owners)


@lru_cache(maxsize=50_000)
def _score(instance: str, partition: int) -> bytes:
    return hashlib.blake2b(f"{partition}/{instance}".encode(), digest_size=8).digest()
