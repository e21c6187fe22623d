"""Stores what the devices of an instance of a cluster send beside telemetry: connections, relay states, results, revisions.

They go to the database, and are confirmed after the commit that stores them. While the database is away they wait here, in their
order, and telemetry does not wait for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from app.workers.inbound_log_appender import InboundLogAppender
from app.workers.ingest import IngestWorker
from app.workers.splitting_batch_writer import SplittingBatchWriter
from domain.devices.link import InboundBatch, InboundEvent, InboundMessage
from domain.ingest.pipeline import BatchFactory, EvaluatedBatch
from domain.kernel.dataclasses import service
from domain.partitions.model import LeaseLostError
from domain.partitions.ports import ConnectedDevices

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
