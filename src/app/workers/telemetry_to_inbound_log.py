"""Takes what devices send to an instance of a cluster, and appends their telemetry to the log; `front_events` stores the rest.

The law: telemetry is confirmed to its device when a majority of the log's nodes has it on disk, whether or not the database
answers. An instance without a lease confirms nothing: others may have taken its devices over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field

import structlog

from app.workers.cluster_non_telemetry_ingest import NonTelemetryEventQueue
from app.workers.inbound_log_appender import InboundLogAppender
from app.workers.ingest import BaseInboundBatchWorker
from domain.devices.link import InboundBatch, InboundDeviceConnected, InboundDeviceDisconnected, OutboundDeviceMessagePort
from domain.kernel.dataclasses import service
from domain.partitions.liveness import OwnLeaseValidityService
from domain.partitions.ports import ConnectedDevices

log = structlog.get_logger("front")


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
