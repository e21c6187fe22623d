"""The front of an instance of a cluster: takes what devices send, appends telemetry to the logs of its partitions, and stores the
rest in the database.

The law: telemetry is confirmed to its device when a majority of the log's nodes has it on disk, whether or not the database
answers. An instance without a lease confirms nothing: others may have taken its devices over.

Connections, relay states, results and revisions go to the database, and are confirmed after the commit that stores them. While
the database is away they wait here, in their order, and telemetry does not wait for them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

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
from domain.ingest.pipeline import BatchFactory, EvaluatedBatch
from domain.kernel.dataclasses import service
from domain.partitions.liveness import OwnLeaseValidityService
from domain.partitions.model import LeaseLostError
from domain.partitions.ports import ConnectedDevices, InboundLog
from domain.rules.ports import RawTelemetryBatch

MAX_EVENTS = 20_000
"""Then the front waits, and with it telemetry, as it does without a cluster."""

log = structlog.get_logger("front")


@service
class TelemetryAppendWorker(BaseInboundBatchWorker):
    """Takes every batch of this instance's devices; it appends the telemetry and queues the rest."""

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


@service
class InboundLogAppender:
    """Appends telemetry to the logs of its partitions: the entries of one partition one after the other."""

    inbound_log: InboundLog
    partition_count: int
    instance: str
    _entry_numbers: Iterator[int] = field(default_factory=partial(count, 1), init=False)
    _locks: defaultdict[int, asyncio.Lock] = field(default_factory=partial(defaultdict, asyncio.Lock), init=False)

    async def append(self, telemetry: RawTelemetryBatch) -> None:
        """Raises AppendUnconfirmedError."""
        if len(telemetry):
            blocks = telemetry.blocks(self.partition_count)  # type: ignore[attr-defined]  # the native class
            await asyncio.gather(*[self._append(*each) for each in blocks])

    async def _append(self, partition: int, body: bytes) -> None:
        async with self._locks[partition]:
            await self.inbound_log.append(partition, body, f"{self.instance}.{next(self._entry_numbers)}")


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


@service
class NonTelemetryEventQueue:
    """Implements `InboundDeviceMessagePort`. Bounded by the number of events."""

    limit: int = MAX_EVENTS
    _waiting: deque[NonTelemetryInboundBatch] = field(default_factory=deque, init=False)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition, init=False)

    @property
    def pending(self) -> int:
        """How many events wait."""
        return sum(len(each.events) for each in self._waiting)

    async def put(self, batch: InboundBatch) -> None:
        """Waits while the queue is full."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.pending < self.limit)
            self._waiting.append(NonTelemetryInboundBatch(batch, batch.events))
            self._changed.notify_all()

    async def receive(self, limit: int) -> NonTelemetryInboundBatch:
        """The oldest batch, whatever its size."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._waiting))
            self._changed.notify_all()
            return self._waiting.popleft()

    def has_waiting(self) -> bool:
        return bool(self._waiting)

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
    """Stores what the devices of this instance send beside telemetry."""

    name = "front_events"

    link: NonTelemetryEventQueue
    appender: InboundLogAppender
    make_batch: BatchFactory
    require_lease: Callable[[], None]
    """Raises LeaseLostError."""

    def __post_init__(self) -> None:
        self._batch_store = SplittingBatchWriter(pipeline=self.pipeline, require_permission=self.require_lease)

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
        evaluated = EvaluatedBatch(results=(), messages=decoded.messages, faults=decoded.faults)
        self._record(evaluated)
        follow_ups, refused = await self._batch_store.store(evaluated)
        if refused:
            await self._set_aside(batch, evaluated, refused)
        batch.ack()
        self.batches += 1
        self.events += len(evaluated.messages)
        self._count_faults(follow_ups.drops)
        await self.pipeline.follow_up(follow_ups)
