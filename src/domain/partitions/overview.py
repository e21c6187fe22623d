"""What an operator sees of a cluster: its instances, who owns which partition, what is not stored yet, and the latest moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.partitions.model import NOBODY, ClusterMember, Partition
from domain.partitions.ports import InboundLog, PartitionsTx

MAX_MOVES_KEPT = 100


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """`previous` is NOBODY for the first owner."""

    partition: int
    previous: str
    owner: str
    at_ms: int


class PartitionMoveHistory:
    """The latest changes of owners that this instance has seen."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}
        self._moves: deque[PartitionMove] = deque(maxlen=MAX_MOVES_KEPT)

    def observe(self, rows: Sequence[Partition], now_ms: int) -> None:
        """A partition without an owner is on its way; what this instance sees first is no move."""
        for row in rows:
            previous = self._owners.get(row.partition)
            if previous is None:
                self._owners[row.partition] = row.owner
            elif row.owner not in (NOBODY, previous):
                self._owners[row.partition] = row.owner
                self._moves.append(PartitionMove(row.partition, previous, row.owner, now_ms))

    def newest_first(self) -> Sequence[PartitionMove]:
        return list(reversed(self._moves))


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    instance: str
    """The one that answers."""
    live: frozenset[str]
    members: Sequence[ClusterMember]
    partitions: Sequence[Partition]
    last_entries: Mapping[int, int]
    """Partition → last position in its log, of those logs that answer."""
    problems: Mapping[int, str]
    """Partitions that stand still, as far as this instance knows, with the reason."""
    moves: Sequence[PartitionMove]

    def waiting(self, row: Partition) -> int | None:
        """Entries that are not stored yet; None if the log does not answer."""
        last = self.last_entries.get(row.partition)
        return None if last is None else max(0, last - row.position)


class ClusterStateView(Protocol):
    """What an instance knows of the cluster by its beats."""

    live: frozenset[str]
    moves: PartitionMoveHistory


@service
class ClusterOverviewService:
    uow: UnitOfWork[PartitionsTx]
    instance: str
    state: ClusterStateView
    log: InboundLog
    problems: Callable[[], Mapping[int, str]]

    async def describe(self, caller: SessionCaller) -> ClusterOverview:
        """Raises PermissionDenied `ROLE_REQUIRED` below Admin."""
        require_role(caller, Role.ADMIN)
        async with self.uow.read() as tx:
            members, rows = await tx.members.list_all(), await tx.partitions.list_all()
        last_entries = await self._last_entries()  # after the positions, so that none is behind its own
        return ClusterOverview(
            self.instance, self.state.live, members, rows, last_entries, self.problems(), self.state.moves.newest_first()
        )

    async def _last_entries(self) -> Mapping[int, int]:
        try:
            return await self.log.last_positions()
        except Unavailable:
            return {}
