"""Ports of a cluster: the tables of partitions and members, the replicated log of what devices send, and the questions to other
instances: which are gone, and which have a lease while the database is away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.kernel.errors import DomainError, Unavailable
from domain.kernel.unit_of_work import Transaction
from domain.partitions.model import ClusterMember, InboundLogReachability, Partition, PartitionLogAdvance

ConnectedDevices = Sequence[tuple[str, int]]
"""(device id, when it connected in Unix ms)."""


class PartitionOwnershipRepository(Protocol):
    async def create_missing(self, count: int) -> int:
        """Create the rows of a new cluster. Returns how many partitions the cluster has; an existing cluster keeps its number."""

    async def list_all(self) -> Sequence[Partition]:
        """By number."""

    async def claim(self, row: Partition, instance: str, log_id: str) -> Partition | None:
        """Take the partition as it was read; None if it has changed since. `log_id` is stored if the row has none."""

    async def release(self, partition: int, epoch: int) -> bool:
        """Give the partition up. False if it has another owner already."""

    async def advance(self, progress: PartitionLogAdvance) -> None:
        """Compare and set the position; the row stays locked until the transaction ends. Call it first in the transaction.

        Raises PartitionLostError, LogAdvanceAlreadyCommittedError; the transaction must then roll back."""

    async def require_owned(self, epochs: Collection[tuple[int, int]]) -> None:
        """Prove that no (partition, epoch) has changed, and keep it so until the transaction ends. Raises PartitionLostError."""


class ClusterMemberRepository(Protocol):
    async def beat(self, instance: str, log_reach: InboundLogReachability) -> None:
        """Increment the beats of the instance, and say how it reaches the log; the first call makes it a member."""

    async def list_all(self) -> Sequence[ClusterMember]: ...

    async def remove(self, instances: Collection[str]) -> None: ...

    async def end_sessions(self, instances: Collection[str]) -> int:
        """End the database sessions of these members; returns how many there were. A member that is cut off without a word
        leaves open transactions, and whoever takes its work over needs what they have locked."""


class DisconnectedInstanceProbe(Protocol):
    async def find_gone(self, instances: Collection[str]) -> frozenset[str]:
        """Those of the instances that certainly have no connection to the cluster now, and those that say that they have no
        lease. One that only does not answer is not among them."""


MISSING = "missing"


class InboundLogDamagedError(DomainError):
    """The log does not contain what it has confirmed: entries are missing, or it is another log. Only an operator can decide."""

    code = "LOG_DAMAGED"


class AppendUnconfirmedError(Unavailable):
    """The log did not confirm an entry in time. It may be stored nevertheless."""

    code = "APPEND_UNCONFIRMED"


@dataclass(frozen=True, slots=True)
class InboundLogEntry:
    """`position` counts the entries of one partition from 1, without gaps."""

    position: int
    body: bytes


class InboundLog(Protocol):
    """A replicated log for each partition. What `append` has confirmed survives the loss of any single node."""

    async def open(self) -> None:
        """Connect and create what is missing. Raises Unavailable."""

    async def close(self) -> None: ...

    async def log_ids(self, partitions: Collection[int]) -> Mapping[int, str]:
        """Partition → what identifies its log, of those logs that answer. A log that was deleted and made again has another id;
        one that does not exist has the id MISSING."""

    async def last_positions(self) -> Mapping[int, int]:
        """Partition → position of its last entry, of those logs that answer. Raises Unavailable."""

    async def append(self, partition: int, body: bytes, entry_id: str) -> int:
        """Store the entry on a majority of the nodes and return its position. Repeating a call with the same `entry_id`
        within two minutes stores nothing. Raises AppendUnconfirmedError."""

    async def read(self, partition: int, after: int, limit: int, wait_s: float) -> Sequence[InboundLogEntry]:
        """At most `limit` entries that follow `after`, in order; empty if there is none within `wait_s`. The newest ones may come
        with the next call only: a node that is behind the others may answer.

        Raises InboundLogDamagedError if the entry after `after` is missing although later ones exist, or if the log ends before
        `after`; Unavailable when the log does not answer."""

    async def trim(self, partition: int, up_to: int) -> None:
        """Delete the entries up to and including this position. Raises Unavailable."""


@dataclass(frozen=True, slots=True)
class PeerLeaseAndCredentialQuery:
    """Whether the others renew, and which credentials they have changed in the last `period_ms`."""

    period_ms: int


@dataclass(frozen=True, slots=True)
class PeerLeaseAndCredentialReply:
    renewed_ms_ago: int
    """Since the start of the last beat that the database has confirmed."""
    changed: Sequence[str] | None
    """Devices; None: more than the instance keeps."""


class PeerLeasePoller(Protocol):
    async def poll_leases(
        self, question: PeerLeaseAndCredentialQuery, expected: Collection[str]
    ) -> Mapping[str, PeerLeaseAndCredentialReply]:
        """Instance → answer, of all instances that answer within a moment, this one included: its own answer proves that the bus
        carries messages. `expected` are those that should."""


class PartitionsTx(Transaction, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def partitions(self) -> PartitionOwnershipRepository: ...

    @property
    def members(self) -> ClusterMemberRepository: ...
