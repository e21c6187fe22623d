"""Takes partitions over and gives them up: claim, restore the engine, serve, store a checkpoint, release.

The law: the engine holds the state of a partition exactly while this instance owns it, and that state is what the database has
stored up to the owned position. Claims and releases hold the engine commit lock, so no batch is between engine and database
meanwhile. What fails half way is dropped and claimed again with a new epoch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from domain.ingest.engine_restore import RestorePartitionTx, restore_partition
from domain.kernel.clock import Clock
from domain.kernel.errors import ValidationFailed
from domain.kernel.unit_of_work import EngineCommitLock, Transaction, UnitOfWork
from domain.partitions.cluster_overview import PartitionMoveHistory
from domain.partitions.device_hash import partition_of
from domain.partitions.inbound_log_reachability import InboundLogReachabilityMonitor, without_log
from domain.partitions.instance_liveness import OWN_LEASE_MS, InstanceLiveness
from domain.partitions.model import NOBODY, Partition
from domain.partitions.owned_partitions import PartitionOwnership
from domain.partitions.ports import MISSING, HasPartitions, InboundLog, InstanceConnectionProbe
from domain.rules.telemetry_engine_port import TelemetryEngine
from domain.telemetry.ports import HasReadings

CHECKPOINT_BATCH = 2_000


class PartitionOwnershipTx(Transaction, HasPartitions, RestorePartitionTx, HasReadings, Protocol): ...


class PartitionOwnershipService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[PartitionOwnershipTx],
        membership_uow: UnitOfWork[PartitionOwnershipTx],
        clock: Clock,
        engine: TelemetryEngine,
        engine_commit_lock: EngineCommitLock,
        log: InboundLog,
        ownership: PartitionOwnership,
        calls: InstanceConnectionProbe,
        log_reach: InboundLogReachabilityMonitor,
        on_restored: Callable[[], None],
        on_takeover: Callable[[], None],
        before_release: Callable[[], Awaitable[None]],
    ) -> None:
        """`membership_uow` is the same storage, and does not wait for the other work of this instance: a beat that comes late
        costs the partitions. Its commits need not survive a crash of the server, as long as those after a lost one are lost too.
        `on_restored` is called when the engine has been given the devices of a partition, before it gets their messages.
        `on_takeover` is called before that for partitions that their last owner has not released.
        `before_release` sends what the partition's readings have to tell before another instance stores the next ones."""
        self._uow = uow
        self._membership_uow = membership_uow
        self._clock = clock
        self._engine = engine
        self._engine_commit_lock = engine_commit_lock
        self._log = log
        self._ownership = ownership
        self._calls = calls
        self._log_reach = log_reach
        self._on_restored = on_restored
        self._on_takeover = on_takeover
        self._before_release = before_release
        self._liveness = InstanceLiveness()
        self._restoring: int | None = None
        self.last_beat_ms = clock.monotonic_ms() - OWN_LEASE_MS
        """The start of the last beat that the database has confirmed, monotonic."""
        self._rows: Sequence[Partition] = ()
        self.live: frozenset[str] = frozenset()
        """The members that are alive and may own partitions, this instance included once it has joined."""
        self._beating: frozenset[str] = frozenset()
        self.members: frozenset[str] = frozenset()
        """All that have not left, as the last beat found them. One that is silent may reach the database again."""
        self.moves = PartitionMoveHistory()
        self.foreign_logs: dict[int, str] = {}
        """Partitions whose positions belong to another log than the one that exists, with what to do."""
        self._stored_before: Mapping[int, int] = {}
        """Positions at the last call of `trim_logs`."""
        self.claimed = self.released = self.lost = self.ended_sessions = 0

    def owns_device(self, device_no: int) -> bool:
        """Whether the engine may hold the rules of the device."""
        partition = partition_of(device_no, self._ownership.count)
        return partition in self._ownership or partition == self._restoring

    async def prepare(self) -> None:
        """Create the partitions of a new cluster. Raises ValidationFailed if the cluster has another number of them."""
        async with self._uow.write(caller=None) as tx:
            count = await tx.partitions.create_missing(self._ownership.count)
        if count != self._ownership.count:
            raise ValidationFailed.for_field(
                "LATCHBOARD_CLUSTER_PARTITIONS",
                f"is {self._ownership.count}, but this cluster was created with {count} partitions. Set it to {count}.",
            )

    async def beat(self) -> None:
        """Tell the others that this instance lives, and read who else does, and who owns what."""
        started_ms = self._clock.monotonic_ms()
        async with self._membership_uow.write(caller=None) as tx:
            await tx.members.beat(self._ownership.instance, self._log_reach.measure())
            await tx.members.remove(self._liveness.forgotten(started_ms))
            members, self._rows = await tx.members.list_all(), await tx.partitions.list_all()
        self.last_beat_ms = started_ms
        self.members = frozenset(each.instance for each in members)
        self.moves.observe(self._rows, self._clock.now_ms())
        live = self._liveness.observe(members, started_ms, self._ownership.instance)
        suspects = self._liveness.suspects(started_ms) - {self._ownership.instance}
        self._beating = live - await self._calls.find_gone(suspects) if suspects else live
        self.live = self._beating - without_log(members, self._beating)

    def next_judgement_s(self) -> float:
        """How long until a silent member has to be judged, or this one if the log does not answer."""
        lost_in_ms = self._log_reach.lost_in_ms()
        others_ms = self._liveness.next_change_ms(self._clock.monotonic_ms())
        return (min(others_ms, lost_in_ms) if lost_in_ms > 0 else others_ms) / 1000

    @property
    def is_replaced(self) -> bool:
        """Whether others replace this instance although it beats, because it does not reach the log and they do."""
        return self._ownership.instance in self._beating - self.live

    async def run_round(self) -> None:
        """Do a step towards the assignment, by what the last beat has read."""
        await self._end_sessions_of_the_dead()
        plan = self._ownership.plan(self._rows, self.live)
        if plan.lost:
            async with self._engine_commit_lock:
                self.drop(plan.lost)
        for partition, epoch in plan.release:
            await self._release(partition, epoch)
        if plan.claim:
            await self._claim(plan.claim)

    async def _end_sessions_of_the_dead(self) -> None:
        """First of all: whatever the open transactions of a dead owner have locked, others wait for it."""
        dead = {row.owner for row in self._rows} - self._beating - {NOBODY}
        if dead and self._ownership.instance in self.live:
            async with self._membership_uow.write(caller=None) as tx:
                self.ended_sessions += await tx.members.end_sessions(dead)

    async def leave(self) -> None:
        """Give everything up in one transaction, after the workers have stopped and the last checkpoint is stored."""
        await self._before_release()
        async with self._uow.write(caller=None) as tx:
            for partition in self._ownership.partitions:
                await tx.partitions.release(partition, self._ownership.epoch(partition))
            await tx.members.remove([self._ownership.instance])

    async def trim_logs(self) -> None:
        """Delete the entries that were stored before the last call. Raises Unavailable."""
        stored = {partition: self._ownership.position(partition) for partition in self._ownership.partitions}
        for partition, position in self._stored_before.items():
            if position and partition in stored:
                await self._log.trim(partition, position)
        self._stored_before = stored

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the state of these partitions; they are not released. Call it while no batch is between engine and database."""
        for partition in partitions:
            self.lost += partition in self._ownership
            self._ownership.drop(partition)
            self._engine.drop_partition(partition, self._ownership.count)

    async def _release(self, partition: int, epoch: int) -> None:
        async with self._engine_commit_lock:
            if partition in self._ownership:
                while found := self._engine.checkpoint_partition(partition, self._ownership.count, CHECKPOINT_BATCH):
                    async with self._uow.write(caller=None) as tx:
                        await tx.readings.upsert_checkpoints(found)
                self._ownership.drop(partition)
                self._engine.drop_partition(partition, self._ownership.count)
        await self._before_release()
        async with self._uow.write(caller=None) as tx:
            self.released += await tx.partitions.release(partition, epoch)

    async def _claim(self, rows: Sequence[Partition]) -> None:
        log_ids = await self._log.log_ids([row.partition for row in rows])
        self.foreign_logs = {row.partition: _foreign_log_message(row) for row in rows if _is_of_another_log(row, log_ids)}
        wanted = [row for row in rows if row.partition in log_ids and row.partition not in self.foreign_logs]
        async with self._membership_uow.write(caller=None) as tx:
            claims = [await tx.partitions.claim(row, self._ownership.instance, log_ids[row.partition]) for row in wanted]
        if any(claimed and row.owner not in (NOBODY, claimed.owner) for row, claimed in zip(wanted, claims, strict=True)):
            self._on_takeover()
        for claimed in claims:
            if claimed is not None:
                await self._restore(claimed)

    async def _restore(self, row: Partition) -> None:
        async with self._engine_commit_lock:
            self._restoring = row.partition
            try:
                await restore_partition(self._engine, self._uow, row.partition, self._ownership.count, self._clock.now_ms())
                self._on_restored()
                self._ownership.add(row)
                self.claimed += 1
            except BaseException:
                self._engine.drop_partition(row.partition, self._ownership.count)
                raise
            finally:
                self._restoring = None


def _is_of_another_log(row: Partition, log_ids: Mapping[int, str]) -> bool:
    found = log_ids.get(row.partition, row.log_id)
    return found == MISSING or row.log_id not in ("", found)


def _foreign_log_message(row: Partition) -> str:
    return (
        f"Partition {row.partition} was read up to entry {row.position} of a log that does not exist any more, so telemetry of "
        "its devices is not stored. docs/how-to/cluster.md says how to continue."
    )
