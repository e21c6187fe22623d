"""The partitions that an instance of a cluster owns: they follow the beats of the members, their logs are read, and the database
stores what the logs contain and advances their positions with it.

A partition whose log is damaged stops, loudly: skipping entries would lose what devices were told is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import cast

import structlog

from app.workers.due import DueLoop
from app.workers.ingest import IngestWorker
from domain.devices.link import InboundBatch, InboundEvent
from domain.ingest.device_messages import DecodedBatch
from domain.ingest.partitions import PartitionOwnershipService
from domain.ingest.pipeline import AssignNames, EvaluatedBatch, IngestPipeline
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.partitions.liveness import BEAT_MS
from domain.partitions.model import PartitionLogAdvance, PartitionLostError, partition_of
from domain.partitions.ownership import OwnedPartitions
from domain.partitions.ports import InboundLog, InboundLogDamagedError, InboundLogEntry
from domain.rules.ports import RawTelemetryBatch

TRIM_INTERVAL_S = 600.0
"""Entries stay in the log for so long after they are stored: a database that fails over to an older state reads them again."""
READ_ENTRIES = 32
READ_WAIT_S = 5.0
END_WAIT_S = 0.2
"""For the read that shows that a log has ended, after entries that may have waited: the timers of rules wait for it."""
QUIET_S = 0.1
"""While entries are read as they come, the log has ended when none has come for so long."""
STALLED_S = 0.5
"""When it takes so long to hand entries over, others wait behind them."""
RETRY_PAUSE_S = 0.5
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Bounds a transaction; a single entry may be larger."""

log = structlog.get_logger("partitions")


@service
class PartitionOwnershipWorker(DueLoop):
    """Claims, restores and releases partitions of this instance, as the beats of the members show it."""

    name = "partition_ownership"

    partitions: PartitionOwnershipService
    inbound: OwnedPartitionLogReader
    announce: Callable[[], Awaitable[None]]
    """Tells the other instances that partitions were released."""

    adopt_devices: Callable[[frozenset[str]], Awaitable[object]]
    """Gets the live members when they have changed."""

    on_round: Callable[[], None]
    _adopted_for: frozenset[str] = field(default_factory=frozenset, init=False)
    _trimmed_at: float = field(default_factory=monotonic, init=False)

    async def run_once(self) -> float:
        released = self.partitions.released
        try:
            await self.partitions.run_round()
        finally:
            self.inbound.follow_ownership()
            self.on_round()
        if self.partitions.released != released:
            await self.announce()
        if self.partitions.live != self._adopted_for:
            live = self.partitions.live
            structlog.get_logger("cluster").info("the members of the cluster are", instances=sorted(live))
            await self.adopt_devices(live)
            self._adopted_for = live
        if monotonic() - self._trimmed_at > TRIM_INTERVAL_S:
            self._trimmed_at = monotonic()
            await self.partitions.trim_logs()
        return 10 * BEAT_MS / 1000


@dataclass(frozen=True, slots=True)
class PartitionInboundBatch:
    """Entries of one or more partitions, in the form of an inbound batch."""

    inbound: OwnedPartitionLogReader
    entries: Mapping[int, Sequence[InboundLogEntry]]
    telemetry: RawTelemetryBatch
    progress: Sequence[PartitionLogAdvance]
    events: Sequence[InboundEvent] = ()

    def still_owned(self) -> PartitionInboundBatch:
        """Without the partitions that this instance has given up since it read them: the engine has no state of them. Call it
        while holding the engine commit lock, before the engine takes the batch."""
        return self.inbound.still_owned(self)

    def ack(self) -> None:
        self.inbound.on_stored(self.progress)

    def nack(self) -> None:
        self.inbound.on_rejected(self.progress)

    def ack_telemetry(self) -> None:
        self.ack()

    def ack_events(self) -> None: ...


@dataclass(slots=True)
class _PartitionReaderTask:
    epoch: int
    entries: asyncio.Queue[Sequence[InboundLogEntry]]
    read_position: int
    task: asyncio.Task[None] | None = None
    is_at_end: bool = False
    """A read has found nothing, and what came since was read as it came."""
    quiet_since: float = 0.0
    """When the last entries were handed over, monotonic."""
    last_arrivals: Sequence[tuple[int, int]] = ()
    """(device number, Unix ms) of the last batch that was evaluated; other partitions are in it too."""


@service
class OwnedPartitionLogReader:
    """Reads the log of each owned partition and hands what is new to the ingest worker, like a device link does: it implements
    `InboundDeviceMessagePort`."""

    log: InboundLog
    ownership: OwnedPartitions
    read_blocks: Callable[[Sequence[bytes]], RawTelemetryBatch]
    """Raises ValueError."""

    drop: Callable[[Collection[int]], None]
    """Forgets the state of partitions whose batch was not stored."""

    _ending: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _readers: dict[int, _PartitionReaderTask] = field(default_factory=dict, init=False)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    damaged: dict[int, str] = field(default_factory=dict, init=False)
    """Partitions that stand still, with the reason."""
    _waiting: set[int] = field(default_factory=set, init=False)
    """Partitions whose log does not answer."""
    _failed_reads: int = field(default=0, init=False)
    """Since the first of them waits."""

    def follow_ownership(self) -> None:
        """Start readers for gained partitions and end those of lost ones. Call it after each round."""
        owned = {partition: self.ownership.epoch(partition) for partition in self.ownership.partitions}
        for partition, reader in list(self._readers.items()):
            if owned.get(partition) != reader.epoch:
                self._end_reader(reader.task)
                self._waiting.discard(partition)
                del self._readers[partition]
        for partition in owned.keys() - self._readers.keys():
            reader = _PartitionReaderTask(owned[partition], asyncio.Queue(1), self.ownership.position(partition))
            reader.task = asyncio.create_task(self._read(partition, reader), name=f"partition-{partition}")
            self._readers[partition] = reader
        self.damaged = {partition: reason for partition, reason in self.damaged.items() if partition in owned}

    async def stop(self) -> None:
        for reader in self._readers.values():
            self._end_reader(reader.task)
        self._readers.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end_reader(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()

    def has_waiting(self) -> bool:
        return any(not self._is_stored_to_end(partition) for partition in self._running())

    def evaluated_until_ms(self, now_ms: int) -> int:
        """Up to when everything is evaluated that the logs of all owned partitions contain. 0: not known yet."""
        behind = [partition for partition in self._running() if not self._is_stored_to_end(partition)]
        return min([now_ms, *map(self._last_arrival_ms, behind)])

    def on_evaluated(self, progress: Sequence[PartitionLogAdvance], arrivals: Sequence[tuple[int, int]]) -> None:
        """`arrivals`: (device number, Unix ms) of the batch that advances these partitions."""
        for each in progress:
            if each.partition in self._readers:
                self._readers[each.partition].last_arrivals = arrivals

    def _running(self) -> Sequence[int]:
        """The owned partitions whose logs are read, also those that do not answer now."""
        return [partition for partition in self.ownership.partitions if partition not in self.damaged]

    def _is_stored_to_end(self, partition: int) -> bool:
        reader = self._readers.get(partition)
        if reader is None or not reader.is_at_end or monotonic() - reader.quiet_since < QUIET_S:
            return False
        return self.ownership.position(partition) >= reader.read_position

    def _last_arrival_ms(self, partition: int) -> int:
        reader = self._readers.get(partition)
        arrivals = () if reader is None else reader.last_arrivals
        count = self.ownership.count
        return max((at_ms for device_no, at_ms in arrivals if partition_of(device_no, count) == partition), default=0)

    async def receive(self, limit: int) -> PartitionInboundBatch:
        """`limit` is not used: bytes and entries bound a batch."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if taken := self._take_entries():
                batch = self._merge_entries(taken)
                if batch is not None:
                    return batch

    def _take_entries(self) -> dict[int, Sequence[InboundLogEntry]]:
        taken: dict[int, Sequence[InboundLogEntry]] = {}
        size = 0
        for partition, reader in self._readers.items():
            if reader.entries.empty():
                continue
            if size >= MAX_BATCH_BYTES:
                self._arrived.set()
                break
            entries = reader.entries.get_nowait()
            if partition in self.ownership and self.ownership.position(partition) == entries[0].position - 1:
                taken[partition] = entries
                size += sum(len(entry.body) for entry in entries)
        return taken

    def _merge_entries(self, taken: Mapping[int, Sequence[InboundLogEntry]]) -> PartitionInboundBatch | None:
        try:
            telemetry = self.read_blocks([entry.body for entries in taken.values() for entry in entries])
        except ValueError:
            readable = {partition: entries for partition, entries in taken.items() if self._is_readable(partition, entries)}
            return self._merge_entries(readable) if readable else None
        progress = [self.ownership.progress_to(partition, taken[partition][-1].position) for partition in sorted(taken)]
        return PartitionInboundBatch(self, taken, telemetry, progress)

    def _is_readable(self, partition: int, entries: Sequence[InboundLogEntry]) -> bool:
        try:
            self.read_blocks([entry.body for entry in entries])
        except ValueError as error:
            self._stop_damaged(partition, f"An entry after {entries[0].position - 1} cannot be read: {error}")
            return False
        return True

    def still_owned(self, batch: PartitionInboundBatch) -> PartitionInboundBatch:
        current = [each for each in batch.progress if self.ownership.is_current(each)]
        if len(current) == len(batch.progress):
            return batch
        entries = {each.partition: batch.entries[each.partition] for each in current}
        telemetry = self.read_blocks([entry.body for each in entries.values() for entry in each])
        return PartitionInboundBatch(self, entries, telemetry, current)

    def on_stored(self, progress: Sequence[PartitionLogAdvance]) -> None:
        for each in progress:
            self.ownership.on_committed(each)

    def on_rejected(self, progress: Sequence[PartitionLogAdvance]) -> None:
        """The engine has moved on and the database has not: forget what the engine holds of these partitions."""
        self.drop([each.partition for each in progress if self.ownership.is_current(each)])

    async def _read(self, partition: int, reader: _PartitionReaderTask) -> None:
        while True:
            wait_s = READ_WAIT_S if reader.is_at_end else END_WAIT_S
            try:
                entries = await self.log.read(partition, reader.read_position, READ_ENTRIES, wait_s)
            except InboundLogDamagedError as error:
                self._stop_damaged(partition, error.message)
                return
            except Unavailable as error:
                reader.is_at_end = False
                self._on_unanswered(partition, error)
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            self._on_answered(partition)
            if not entries:
                reader.is_at_end = True
                continue
            began = monotonic()
            reader.read_position = entries[-1].position
            await reader.entries.put(entries)
            self._arrived.set()
            reader.quiet_since = monotonic()
            if len(entries) == READ_ENTRIES or reader.quiet_since - began > STALLED_S:
                reader.is_at_end = False

    def _on_unanswered(self, partition: int, error: Unavailable) -> None:
        """Once for each time without the log: with all its nodes gone, all partitions fail again and again."""
        if not self._waiting:
            self._failed_reads = 0
            log.warning("partitions wait for the cluster's log", partition=partition, error=error.message)
        self._waiting.add(partition)
        self._failed_reads += 1

    def _on_answered(self, partition: int) -> None:
        if partition in self._waiting:
            self._waiting.discard(partition)
            if not self._waiting:
                log.info("the cluster's log answers again", failed_reads=self._failed_reads)

    def _stop_damaged(self, partition: int, reason: str) -> None:
        self.damaged[partition] = reason
        log.critical("a partition stands still: its log is damaged", partition=partition, reason=reason)


class FencedIngestPipeline(IngestPipeline):
    """Its batches prove their ownership, and advance their positions, in the transaction that stores them."""

    async def evaluate(self, batch: InboundBatch, decoded: DecodedBatch, assign_names: AssignNames) -> EvaluatedBatch:
        owned = cast("PartitionInboundBatch", batch).still_owned()
        evaluated = await super().evaluate(owned, decoded, assign_names)
        return replace(evaluated, progress=owned.progress)


class FencedIngestWorker(IngestWorker):
    """Stores what the logs of the owned partitions contain."""

    name = "partition_ingest"

    link: OwnedPartitionLogReader

    def evaluated_until_ms(self, now_ms: int) -> int:
        return self.link.evaluated_until_ms(now_ms)

    def _record(self, evaluated: EvaluatedBatch) -> None:
        super()._record(evaluated)
        self.link.on_evaluated(evaluated.progress, evaluated.last_seen)

    async def _process_batch(self, batch: InboundBatch) -> None:
        try:
            await super()._process_batch(batch)
        except PartitionLostError as error:
            log.info("another instance owns a partition now; what it has not stored is stored there", error=error.message)
            batch.nack()
