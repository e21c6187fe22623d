"""The ingest worker of an instance of a cluster towards its devices: telemetry goes to the log, other messages to the database.

The law: telemetry is confirmed to its device when a majority of the log's nodes has it on disk; other messages after the commit
that stores them, as without a cluster. An instance without a lease confirms nothing: others may have taken its devices over.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from app.workers.ingest import IngestWorker
from domain.devices.link import DeviceConnected, DeviceDisconnected, InboundBatch, OutboundLink
from domain.ingest.device_messages import DecodedBatch
from domain.ingest.pipeline import BatchFactory, EvaluatedBatch
from domain.kernel.errors import Unavailable
from domain.partitions.ports import ConnectedDevices, InboundLog


class LeaseLostError(Unavailable):
    code = "LEASE_LOST"


class FrontWorker(IngestWorker):
    name = "front"

    def __init__(
        self,
        *,
        instance: str,
        outbound: OutboundLink,
        inbound_log: InboundLog,
        partition_count: int,
        make_batch: BatchFactory,
        has_lease: Callable[[], bool],
        on_connected: Callable[[ConnectedDevices], Awaitable[None]],
        **ingest: Any,
    ) -> None:
        """`ingest`: the arguments of `IngestWorker`. `on_connected` tells the other instances of new connections."""
        super().__init__(**ingest)
        self._instance = instance
        self._outbound = outbound
        self._log = inbound_log
        self._partition_count = partition_count
        self._make_batch = make_batch
        self._has_lease = has_lease
        self._on_connected = on_connected
        self._entry_numbers = count(1)
        self._connected: dict[str, int] = {}
        """Device id → when it connected here, Unix ms."""

    def close_older(self, connected: ConnectedDevices) -> None:
        """Close the connections of devices that have connected to another instance since."""
        for device_id, at_ms in connected:
            if self._connected.get(device_id, at_ms + 1) <= at_ms:
                self._outbound.disconnect(device_id)

    async def _process_batch(self, batch: InboundBatch) -> None:
        decoded = await self._batch_store.retry_while_unavailable(lambda: self._pipeline.decode(batch))
        await self._announce_connected(batch)
        if not self._has_lease():
            raise LeaseLostError("This instance has not reached the database for seconds; its devices connect elsewhere.")
        await self._append(batch, decoded)
        await self._store_events(batch, decoded)

    async def _announce_connected(self, batch: InboundBatch) -> None:
        connected = {}
        for event in batch.events:
            if isinstance(event, DeviceConnected):
                connected[event.device_id] = self._connected[event.device_id] = event.at_ms
            elif isinstance(event, DeviceDisconnected):
                self._connected.pop(event.device_id, None)
        if connected:
            await self._on_connected(list(connected.items()))

    async def _append(self, batch: InboundBatch, decoded: DecodedBatch) -> None:
        """Append all telemetry; entries of one partition one after the other. Raises AppendUnconfirmed."""
        bodies: dict[int, list[bytes]] = defaultdict(list)
        stock = self._make_batch(decoded.telemetry)
        for telemetry in (batch.telemetry, stock):
            if len(telemetry):
                for partition, body in telemetry.blocks(self._partition_count):  # type: ignore[attr-defined]
                    bodies[partition].append(body)
        if bodies:
            await asyncio.gather(*[self._append_all(partition, each) for partition, each in bodies.items()])
        batch.ack_telemetry()

    async def _append_all(self, partition: int, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await self._log.append(partition, body, f"{self._instance}.{next(self._entry_numbers)}")

    async def _store_events(self, batch: InboundBatch, decoded: DecodedBatch) -> None:
        faults = [(device_no, code, 1, reason) for device_no, code, reason in decoded.faults]
        evaluated = EvaluatedBatch(results=(), messages=decoded.messages, faults=faults)
        self._record(evaluated)
        follow_ups, refused = await self._batch_store.store(evaluated)
        if refused:
            await self._set_aside(batch, evaluated, refused)
        batch.ack()
        self.batches += 1
        self.events += len(evaluated.messages)
        await self._pipeline.follow_up(follow_ups)
