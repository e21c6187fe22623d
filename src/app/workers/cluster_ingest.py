"""Takes what devices send to an instance of a cluster, and appends their telemetry to the log; `front_events` stores the rest.

The law: telemetry is confirmed to its device when a majority of the log's nodes has it on disk, whether or not the database
answers. An instance without a lease confirms nothing: others may have taken its devices over.

Appends telemetry to the logs of its partitions.

Stores what the devices of an instance of a cluster send beside telemetry: connections, relay states, results, revisions.

They go to the database, and are confirmed after the commit that stores them. While the database is away they wait here, in their
order, and telemetry does not wait for them.

Reads the log of each owned partition and hands what is new to the ingest worker, like a device link does.

A partition whose log is damaged stops, loudly: skipping entries would lose what devices were told is stored.

The ingest worker of an owner: stores what the log of its partitions contains, and advances their positions with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

import structlog

from app.workers.ingest import BaseInboundBatchWorker, IngestWorker, SplittingBatchWriter
from domain.devices.link import (
    InboundBatch,
    InboundDeviceConnected,
    InboundDeviceDisconnected,
    InboundEvent,
    InboundMessage,
    OutboundDeviceMessagePort,
)
from domain.ingest.device_messages import DecodedBatch
from domain.ingest.pipeline import AssignNames, BatchFactory, EvaluatedBatch, IngestPipeline
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.partitions.liveness import OwnLeaseValidityService
from domain.partitions.model import LeaseLostError, PartitionLogAdvance, PartitionLostError
from domain.partitions.ownership import OwnedPartitions
from domain.partitions.ports import ConnectedDevices, InboundLog, InboundLogDamagedError, InboundLogEntry
from domain.rules.ports import RawTelemetryBatch


class InboundLogAppender:
    """The entries of one partition are appended one after the other."""

    def __init__(self, inbound_log: InboundLog, partition_count: int, instance: str) -> None:
        self._log = inbound_log
        self._partition_count = partition_count
        self._instance = instance
        self._entry_numbers = count(1)
        self._locks = [asyncio.Lock() for _ in range(partition_count)]

    async def append(self, telemetry: RawTelemetryBatch) -> None:
        """Raises AppendUnconfirmedError."""
        if len(telemetry):
            blocks = telemetry.blocks(self._partition_count)  # type: ignore[attr-defined]  # the native class
            await asyncio.gather(*[self._append(*each) for each in blocks])

    async def _append(self, partition: int, body: bytes) -> None:
        async with self._locks[partition]:
            await self._log.append(partition, body, f"{self._instance}.{next(self._entry_numbers)}")


MAX_EVENTS = 20_000
"""Then the front waits, and with it telemetry, as it does without a cluster."""

log = structlog.get_logger("front")


@dataclass(slots=True)
class NonTelemetryInboundBatch:
    """The events of an inbound batch whose telemetry is confirmed already."""

    batch: InboundBatch
    events: Sequence[InboundEvent]
    telemetry: Sequence[Any] = ()

    def ack(self) -> None:
        self.batch.ack()

    def ack_telemetry(self) -> None: ...

    def ack_events(self) -> None:
        self.batch.ack_events()

    def nack(self) -> None:
        self.batch.nack()


class NonTelemetryEventQueue:
    """Implements `InboundDeviceMessagePort`. Bounded by the number of events."""

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        self._limit = limit
        self._waiting: deque[NonTelemetryInboundBatch] = deque()
        self._changed = asyncio.Condition()

    @property
    def pending(self) -> int:
        """How many events wait."""
        return sum(len(each.events) for each in self._waiting)

    async def put(self, batch: InboundBatch) -> None:
        """Waits while the queue is full."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.pending < self._limit)
            self._waiting.append(NonTelemetryInboundBatch(batch, batch.events))
            self._changed.notify_all()

    async def receive(self, limit: int) -> NonTelemetryInboundBatch:
        """The oldest batch, whatever its size."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._waiting))
            self._changed.notify_all()
            return self._waiting.popleft()

    async def reject_all(self) -> None:
        """Reject what waits: the devices send it to another instance."""
        async with self._changed:
            while self._waiting:
                self._waiting.popleft().nack()
            self._changed.notify_all()

    def drop_moved(self, moved: ConnectedDevices) -> None:
        """Devices have connected to another instance, (device id, when): what they had sent here without a PUBACK they send
        again there, and it must not be stored after what they send later."""
        since = dict(moved)
        for each in self._waiting:
            each.events = [
                event
                for event in each.events
                if not isinstance(event, InboundMessage) or event.at_ms > since.get(event.device_id, -1)
            ]


@service
class ClusterDeviceEventWorker(IngestWorker):
    name = "front_events"

    link: NonTelemetryEventQueue
    appender: InboundLogAppender
    make_batch: BatchFactory
    require_lease: Callable[[], None]
    """Raises LeaseLostError."""

    def __post_init__(self) -> None:
        self._batch_store = SplittingBatchWriter(self.pipeline, self.require_lease)

    async def _process_batch(self, batch: InboundBatch) -> None:
        try:
            await self._store_events(batch)
        except LeaseLostError as error:
            log.info("events are not stored; their devices send them to another instance", error=error.message)
            batch.nack()
            await self.link.reject_all()

    async def _store_events(self, batch: InboundBatch) -> None:
        decoded = await self._batch_store.retry_while_unavailable(lambda: self.pipeline.decode(batch))
        await self.appender.append(self.make_batch(decoded.telemetry))
        faults = [(device_no, code, 1, reason) for device_no, code, reason in decoded.faults]
        evaluated = EvaluatedBatch(results=(), messages=decoded.messages, faults=faults)
        self._record(evaluated)
        follow_ups, refused = await self._batch_store.store(evaluated)
        if refused:
            await self._set_aside(batch, evaluated, refused)
        batch.ack()
        self.batches += 1
        self.events += len(evaluated.messages)
        await self.pipeline.follow_up(follow_ups)


@service
class TelemetryToInboundLogWorker(BaseInboundBatchWorker):
    name = "front"

    outbound: OutboundDeviceMessagePort
    appender: InboundLogAppender
    events: NonTelemetryEventQueue
    """Gets what the log does not take."""

    lease: OwnLeaseValidityService
    on_connected: Callable[[ConnectedDevices], Awaitable[None]]
    """Tells the other instances of new connections."""

    _connected: dict[str, int] = field(default_factory=dict, init=False)
    """Device id → when it connected here, Unix ms."""

    def close_older(self, connected: ConnectedDevices) -> None:
        """Close the connections of devices that have connected to another instance since."""
        for device_id, at_ms in connected:
            if self._connected.get(device_id, at_ms + 1) <= at_ms:
                self.outbound.disconnect(device_id)
        self.events.drop_moved(connected)

    async def _process_batch(self, batch: InboundBatch) -> None:
        await self._announce_connected(batch)
        if not self.lease.is_valid:
            log.info("nothing is confirmed without a lease; the devices send again to another instance")
            batch.nack()
            return
        await self.appender.append(batch.telemetry)  # type: ignore[arg-type]  # one native class behind both Protocols
        batch.ack_telemetry()
        if batch.events:
            await self.events.put(batch)

    async def _announce_connected(self, batch: InboundBatch) -> None:
        connected = {}
        for event in batch.events:
            if isinstance(event, InboundDeviceConnected):
                connected[event.device_id] = self._connected[event.device_id] = event.at_ms
            elif isinstance(event, InboundDeviceDisconnected):
                self._connected.pop(event.device_id, None)
        if connected:
            await self.on_connected(list(connected.items()))


READ_ENTRIES = 32
READ_WAIT_S = 5.0
RETRY_PAUSE_S = 0.5
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Bounds a transaction; a single entry may be larger."""

BlockReader = Callable[[Sequence[bytes]], RawTelemetryBatch]

partition_log = structlog.get_logger("partitions")


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
    task: asyncio.Task[None]
    entries: asyncio.Queue[Sequence[InboundLogEntry]]


@service
class OwnedPartitionLogReader:
    """Implements `InboundDeviceMessagePort`."""

    log: InboundLog
    ownership: OwnedPartitions
    read_blocks: BlockReader
    """Raises ValueError."""

    drop: Callable[[Collection[int]], None]
    """Forgets the state of partitions whose batch was not stored."""

    _ending: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _readers: dict[int, _PartitionReaderTask] = field(default_factory=dict, init=False)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    damaged: dict[int, str] = field(default_factory=dict, init=False)
    """Partitions that stand still, with the reason."""

    def follow_ownership(self) -> None:
        """Start readers for gained partitions and end those of lost ones. Call it after each round."""
        owned = {partition: self.ownership.epoch(partition) for partition in self.ownership.partitions}
        for partition, reader in list(self._readers.items()):
            if owned.get(partition) != reader.epoch:
                self._end_reader(reader.task)
                del self._readers[partition]
        for partition in owned.keys() - self._readers.keys():
            entries: asyncio.Queue[Sequence[InboundLogEntry]] = asyncio.Queue(1)
            task = asyncio.create_task(self._read(partition, entries), name=f"partition-{partition}")
            self._readers[partition] = _PartitionReaderTask(owned[partition], task, entries)
        self.damaged = {partition: reason for partition, reason in self.damaged.items() if partition in owned}

    async def stop(self) -> None:
        for reader in self._readers.values():
            self._end_reader(reader.task)
        self._readers.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end_reader(self, task: asyncio.Task[None]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

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

    async def _read(self, partition: int, ready: asyncio.Queue[Sequence[InboundLogEntry]]) -> None:
        after = self.ownership.position(partition)
        while True:
            try:
                entries = await self.log.read(partition, after, READ_ENTRIES, READ_WAIT_S)
            except InboundLogDamagedError as error:
                self._stop_damaged(partition, error.message)
                return
            except Unavailable as error:
                partition_log.warning("a partition waits for the cluster's log", partition=partition, error=error.message)
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            if entries:
                await ready.put(entries)
                self._arrived.set()
                after = entries[-1].position

    def _stop_damaged(self, partition: int, reason: str) -> None:
        self.damaged[partition] = reason
        partition_log.critical("a partition stands still: its log is damaged", partition=partition, reason=reason)


class FencedIngestPipeline(IngestPipeline):
    """Its batches prove their ownership, and advance their positions, in the transaction that stores them."""

    async def evaluate(self, batch: InboundBatch, decoded: DecodedBatch, assign_names: AssignNames) -> EvaluatedBatch:
        owned = cast("PartitionInboundBatch", batch).still_owned()
        evaluated = await super().evaluate(owned, decoded, assign_names)
        return replace(evaluated, progress=owned.progress)


class FencedIngestWorker(IngestWorker):
    name = "partition_ingest"

    async def _process_batch(self, batch: InboundBatch) -> None:
        try:
            await super()._process_batch(batch)
        except PartitionLostError as error:
            partition_log.info(
                "another instance owns a partition now; what it has not stored is stored there", error=error.message
            )
            batch.nack()
