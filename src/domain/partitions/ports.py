"""Ports of a cluster: the tables of partitions and members, and the question which instances are gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from domain.partitions.cluster_member import ClusterMember, InboundLogReachability
from domain.partitions.ownership_and_log_position import Partition, PartitionLogAdvance

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


class HasPartitions(Protocol):
    @property
    def partitions(self) -> PartitionOwnershipRepository: ...

    @property
    def members(self) -> ClusterMemberRepository: ...


class DisconnectedInstanceProbe(Protocol):
    async def find_gone(self, instances: Collection[str]) -> frozenset[str]:
        """Those of the instances that certainly have no connection to the cluster now, and those that say that they have no
        lease. One that only does not answer is not among them."""
