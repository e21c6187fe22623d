"""Partitions, members and the connections of devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from domain.devices.ports import NO_FRONT
from domain.partitions.model import ClusterMember, InboundLogReachability, Partition, PartitionLogAdvance, PartitionLostError
from support.memory_storage.tables import Database, Table

PARTITIONS: Table[int, Partition] = Table("partitions")
MEMBERS: Table[str, ClusterMember] = Table("members")
ENDED_SESSIONS: Table[str, bool] = Table("ended_sessions")
"""By instance; nothing holds a lock here."""
DEVICE_SESSIONS: Table[int, tuple[str, int]] = Table("device_sessions")
"""Device number → (instance, when it connected in Unix ms)."""


class MemoryPartitionOwnershipRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_missing(self, count: int) -> int:
        rows = self._database.writable_rows(PARTITIONS)
        if not rows:
            rows |= {number: Partition(number) for number in range(count)}
        return len(rows)

    async def list_all(self) -> Sequence[Partition]:
        return list(self._database.rows(PARTITIONS).values())

    async def claim(self, row: Partition, instance: str, log_id: str) -> Partition | None:
        claimed = self._database.rows(PARTITIONS)[row.partition].claimed_by(instance, row.epoch)
        return None if claimed is None else self._put(replace(claimed, log_id=row.log_id or log_id))

    async def release(self, partition: int, epoch: int) -> bool:
        released = self._database.rows(PARTITIONS)[partition].released_at(epoch)
        return released is not None and bool(self._put(released))

    async def advance(self, progress: PartitionLogAdvance) -> None:
        self._put(self._database.rows(PARTITIONS)[progress.partition].advanced(progress))

    async def require_owned(self, epochs: Collection[tuple[int, int]]) -> None:
        found = {(row.partition, row.epoch) for row in await self.list_all()}
        if set(epochs) - found:
            raise PartitionLostError("This instance does not own some of these partitions any more.")

    def _put(self, row: Partition) -> Partition:
        self._database.writable_rows(PARTITIONS)[row.partition] = row
        return row


class MemoryClusterMemberRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def beat(self, instance: str, log_reach: InboundLogReachability) -> None:
        rows = self._database.writable_rows(MEMBERS)
        beats = rows[instance].beats if instance in rows else 0
        rows[instance] = ClusterMember(instance, beats + 1, log_reach)

    async def list_all(self) -> Sequence[ClusterMember]:
        return [member for _, member in sorted(self._database.rows(MEMBERS).items())]

    async def remove(self, instances: Collection[str]) -> None:
        for instance in instances:
            self._database.writable_rows(MEMBERS).pop(instance, None)

    async def end_sessions(self, instances: Collection[str]) -> int:
        rows = self._database.writable_rows(ENDED_SESSIONS)
        rows.update(dict.fromkeys(instances, True))
        return len(instances)


class MemoryDeviceConnectionRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def attach(self, connected: Mapping[int, int], front: str) -> Collection[int]:
        rows = self._database.writable_rows(DEVICE_SESSIONS)
        moved = {device_no for device_no in connected if rows.get(device_no, (front, 0))[0] != front}
        rows.update({device_no: (front, at_ms) for device_no, at_ms in connected.items()})
        return moved

    async def detach(self, device_nos: Collection[int], front: str) -> None:
        rows = self._database.writable_rows(DEVICE_SESSIONS)
        for device_no in device_nos:
            if device_no in rows and rows[device_no][0] in (front, NO_FRONT):
                del rows[device_no]

    async def fronts(self, device_nos: Collection[int]) -> Mapping[int, str]:
        rows = self._database.rows(DEVICE_SESSIONS)
        return {device_no: front for device_no, (front, _) in rows.items() if device_no in device_nos}

    async def connected_since(self, device_nos: Collection[int], live: Collection[str]) -> Mapping[int, int]:
        rows = self._database.rows(DEVICE_SESSIONS)
        return {device_no: at_ms for device_no, (front, at_ms) in rows.items() if device_no in device_nos and front in live}

    async def abandon(self, live: Collection[str]) -> Sequence[int]:
        rows = self._database.writable_rows(DEVICE_SESSIONS)
        found = sorted(device_no for device_no, (of, _) in rows.items() if of not in live)
        rows.update({device_no: (NO_FRONT, rows[device_no][1]) for device_no in found})
        return found
