"""Takes partitions over and gives them up: claim, restore the engine, serve, store a checkpoint, release.

The law: the engine holds the state of a partition exactly while this instance owns it, and that state is what the database has
stored up to the owned position. Claims and releases hold the engine commit lock, so no batch is between engine and database
meanwhile. What fails half way is dropped and claimed again with a new epoch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field

from domain.devices.absence import AbsenceTracker
from domain.ingest.ports import IngestTx
from domain.ingest.restore import restore_partition
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import ValidationFailed
from domain.kernel.unit_of_work import EngineCommitLock, UnitOfWork
from domain.partitions.liveness import OWN_LEASE_MS, ClusterFailureDetector, InboundLogReachabilityMonitor, without_log
from domain.partitions.model import NOBODY, Partition, partition_of
from domain.partitions.overview import PartitionMoveHistory
from domain.partitions.ownership import OwnedPartitions
from domain.partitions.ports import MISSING, DisconnectedInstanceProbe, InboundLog
from domain.rules.ports import TelemetryEngine

CHECKPOINT_BATCH = 2_000
TAKEOVER_MS = 15 * SECOND_MS
"""Longer than it takes until a dead owner is replaced."""


@service
class PartitionOwnershipService:
    uow: UnitOfWork[IngestTx]
    membership_uow: UnitOfWork[IngestTx]
    """The same storage, which does not wait for the other work of this instance: a beat that comes late costs the partitions. Its
    commits need not survive a crash of the server, as long as those after a lost one are lost too."""
    clock: Clock
    engine: TelemetryEngine
    engine_commit_lock: EngineCommitLock
    absence: AbsenceTracker
    log: InboundLog
    ownership: OwnedPartitions
    calls: DisconnectedInstanceProbe
    log_reach: InboundLogReachabilityMonitor
    on_restored: Callable[[], None]
    """Called when the engine has been given the devices of a partition, before it gets their messages."""
    on_takeover: Callable[[], None]
    """Called before that for partitions that their last owner has not released."""
    before_release: Callable[[], Awaitable[None]]
    """Sends what the partition's readings have to tell before another instance stores the next ones."""

    last_beat_ms: int = field(init=False)
    """The start of the last beat that the database has confirmed, monotonic."""
    live: frozenset[str] = field(default=frozenset(), init=False)
    """The members that are alive and may own partitions, this instance included once it has joined."""
    members: frozenset[str] = field(default=frozenset(), init=False)
    """All that have not left, as the last beat found them. One that is silent may reach the database again."""
    moves: PartitionMoveHistory = field(default_factory=PartitionMoveHistory, init=False)
    foreign_logs: dict[int, str] = field(default_factory=dict, init=False)
    """Partitions whose positions belong to another log than the one that exists, with what to do."""
    claimed: int = field(default=0, init=False)
    released: int = field(default=0, init=False)
    lost: int = field(default=0, init=False)
    ended_sessions: int = field(default=0, init=False)
    _liveness: ClusterFailureDetector = field(default_factory=ClusterFailureDetector, init=False)
    _restoring: int | None = field(default=None, init=False)
    _rows: Sequence[Partition] = field(default=(), init=False)
    _beating: frozenset[str] = field(default=frozenset(), init=False)
    _stored_before: Mapping[int, int] = field(default_factory=dict, init=False)
    """Positions at the last call of `trim_logs`."""

    def __post_init__(self) -> None:
        self.last_beat_ms = self.clock.monotonic_ms() - OWN_LEASE_MS

    def owns_device(self, device_no: int) -> bool:
        """Whether the engine may hold the rules of the device."""
        partition = partition_of(device_no, self.ownership.count)
        return partition in self.ownership or partition == self._restoring

    async def prepare(self) -> None:
        """Create the partitions of a new cluster. Raises ValidationFailed if the cluster has another number of them."""
        async with self.uow.write(caller=None) as tx:
            count = await tx.partitions.create_missing(self.ownership.count)
        if count != self.ownership.count:
            raise ValidationFailed.for_field(
                "LATCHBOARD_CLUSTER_PARTITIONS",
                f"is {self.ownership.count}, but this cluster was created with {count} partitions. Set it to {count}.",
            )

    async def beat(self) -> None:
        """Tell the others that this instance lives, and read who else does, and who owns what."""
        started_ms = self.clock.monotonic_ms()
        async with self.membership_uow.write(caller=None) as tx:
            await tx.members.beat(self.ownership.instance, self.log_reach.measure())
            await tx.members.remove(self._liveness.forgotten(started_ms))
            if (heard_ms := self.absence.heard_ms()) is not None:
                await tx.steady_time.advance(self.clock.steady_ms(), self.clock.now_ms(), heard_ms)
            members, self._rows = await tx.members.list_all(), await tx.partitions.list_all()
        self.last_beat_ms = started_ms
        self.members = frozenset(each.instance for each in members)
        self.moves.observe(self._rows, self.clock.now_ms())
        live = self._liveness.observe(members, started_ms, self.ownership.instance)
        suspects = self._liveness.suspects(started_ms) - {self.ownership.instance}
        self._beating = live - await self.calls.find_gone(suspects) if suspects else live
        self.live = self._beating - without_log(members, self._beating)

    def next_judgement_s(self) -> float:
        """How long until a silent member has to be judged, or this one if the log does not answer."""
        lost_in_ms = self.log_reach.lost_in_ms()
        others_ms = self._liveness.next_change_ms(self.clock.monotonic_ms())
        return (min(others_ms, lost_in_ms) if lost_in_ms > 0 else others_ms) / 1000

    @property
    def is_replaced(self) -> bool:
        """Whether others replace this instance although it beats, because it does not reach the log and they do."""
        return self.ownership.instance in self._beating - self.live

    async def run_round(self) -> None:
        """Do a step towards the assignment, by what the last beat has read."""
        await self._end_sessions_of_the_dead()
        plan = self.ownership.plan(self._rows, self.live)
        if plan.lost:
            async with self.engine_commit_lock:
                self.drop(plan.lost)
        for partition, epoch in plan.release:
            await self._release(partition, epoch)
        if plan.claim:
            await self._claim(plan.claim)

    async def _end_sessions_of_the_dead(self) -> None:
        """First of all: whatever the open transactions of a dead owner have locked, others wait for it."""
        dead = {row.owner for row in self._rows} - self._beating - {NOBODY}
        if dead and self.ownership.instance in self.live:
            async with self.membership_uow.write(caller=None) as tx:
                self.ended_sessions += await tx.members.end_sessions(dead)

    async def leave(self) -> None:
        """Give everything up in one transaction, after the workers have stopped and the last checkpoint is stored."""
        await self.before_release()
        async with self.uow.write(caller=None) as tx:
            for partition in self.ownership.partitions:
                await tx.partitions.release(partition, self.ownership.epoch(partition))
            await tx.members.remove([self.ownership.instance])

    async def trim_logs(self) -> None:
        """Delete the entries that were stored before the last call. Raises Unavailable."""
        stored = {partition: self.ownership.position(partition) for partition in self.ownership.partitions}
        for partition, position in self._stored_before.items():
            if position and partition in stored:
                await self.log.trim(partition, position)
        self._stored_before = stored

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the state of these partitions; they are not released. Call it while no batch is between engine and database."""
        for partition in partitions:
            self.lost += partition in self.ownership
            self.ownership.drop(partition)
            self.engine.drop_partition(partition, self.ownership.count)

    async def _release(self, partition: int, epoch: int) -> None:
        async with self.engine_commit_lock:
            if partition in self.ownership:
                while found := self.engine.checkpoint_partition(partition, self.ownership.count, CHECKPOINT_BATCH):
                    async with self.uow.write(caller=None) as tx:
                        await tx.readings.upsert_checkpoints(found)
                self.ownership.drop(partition)
                self.engine.drop_partition(partition, self.ownership.count)
        await self.before_release()
        async with self.uow.write(caller=None) as tx:
            self.released += await tx.partitions.release(partition, epoch)

    async def _claim(self, rows: Sequence[Partition]) -> None:
        log_ids = await self.log.log_ids([row.partition for row in rows])
        self.foreign_logs = {row.partition: _foreign_log_message(row) for row in rows if _is_of_another_log(row, log_ids)}
        wanted = [row for row in rows if row.partition in log_ids and row.partition not in self.foreign_logs]
        async with self.membership_uow.write(caller=None) as tx:
            claims = [await tx.partitions.claim(row, self.ownership.instance, log_ids[row.partition]) for row in wanted]
        if any(claimed and row.owner not in (NOBODY, claimed.owner) for row, claimed in zip(wanted, claims, strict=True)):
            self.on_takeover()
        for row, claimed in zip(wanted, claims, strict=True):
            if claimed is not None:
                await self._restore(claimed, self._unheard_since_ms(row))

    async def _restore(self, row: Partition, unheard_ms: int | None) -> None:
        async with self.engine_commit_lock:
            self._restoring = row.partition
            try:
                restored = await restore_partition(
                    self.engine, self.uow, row.partition, self.ownership.count, self.clock.now_ms()
                )
                if unheard_ms is not None:
                    await self._deafen(row, unheard_ms, restored.devices_with_rules)
                self.on_restored()
                self.ownership.add(row)
                self.claimed += 1
            except BaseException:
                self.engine.drop_partition(row.partition, self.ownership.count)
                raise
            finally:
                self._restoring = None

    async def _deafen(self, row: Partition, since_ms: int, devices: Collection[int]) -> None:
        """Devices that are connected to a live instance were heard all the time, and what they said waits in the log. After an
        absence of the whole cluster there are none."""
        connected: Mapping[int, int] = {}
        if not self.absence.is_open:
            async with self.uow.read() as tx:
                connected = await tx.device_sessions.connected_since(devices, self.live)
        partition = (row.partition, self.ownership.count)
        moved = self.engine.deafen(since_ms, self.clock.now_ms(), partition, connected).rule_transitions
        self.absence.begin_for_rules()
        if moved:
            async with self.uow.write(caller=None) as tx:
                await tx.partitions.require_owned([(row.partition, row.epoch)])
                await tx.rules.save_states(moved)

    def _unheard_since_ms(self, before: Partition) -> int | None:
        """Since when its devices may have had nobody to speak to: since its owner died, or since the whole cluster was away."""
        absence = self.absence.current if self.absence.is_open else None
        if before.owner in (NOBODY, self.ownership.instance):
            return None if absence is None else absence.since_ms
        died_ms = self.clock.now_ms() - TAKEOVER_MS
        return died_ms if absence is None else min(died_ms, absence.since_ms)


def _is_of_another_log(row: Partition, log_ids: Mapping[int, str]) -> bool:
    found = log_ids.get(row.partition, row.log_id)
    return found == MISSING or row.log_id not in ("", found)


def _foreign_log_message(row: Partition) -> str:
    return (
        f"Partition {row.partition} was read up to entry {row.position} of a log that does not exist any more, so telemetry of "
        "its devices is not stored. docs/how-to/cluster.md says how to continue."
    )
