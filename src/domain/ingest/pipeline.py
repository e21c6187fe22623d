"""What one batch from the device link goes through: decode, evaluate, store, follow up.

The law: `evaluate` moves the engine forward, so it runs exactly once per batch, and the caller holds the engine commit lock until
`store` has committed. `store` writes everything in one transaction and may be retried with the same batch; when it keeps failing,
the caller stores the parts from `EvaluatedBatch.split`. The pipeline awaits ports only; waiting and retrying are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from domain.devices.link import DeviceLink, InboundBatch
from domain.ingest.device_messages import DecodedBatch, DecodedMessage, DeviceMessageService, DeviceMessagesTx, FollowUps
from domain.ingest.telemetry import IngestResult, IngestService, IngestTx
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.engine_port import TelemetryBatch, TelemetryEngine

BatchFactory = Callable[[list[tuple[int, int, bytes]]], TelemetryBatch]
ReadyDevicesCallback = Callable[[Sequence[tuple[int, int, int]]], None]
DeviceTimesCallback = Callable[[Sequence[tuple[int, int]]], None]
"""Takes (device number, Unix ms) pairs."""


class PipelineTx(DeviceMessagesTx, IngestTx, Protocol): ...


@dataclass(frozen=True, slots=True)
class EvaluatedBatch:
    """What the engine made of the telemetry, and the other messages: everything that has to be stored."""

    results: Sequence[IngestResult]
    messages: Sequence[DecodedMessage]
    faults: Sequence[tuple[int, str, int, str]] = ()
    """(device number, code, count, reason) of what devices sent that cannot be used."""
    last_seen: Sequence[tuple[int, int]] = ()
    """(device number, Unix ms) of every device that sent telemetry."""
    telemetry_message_count: int = 0
    reading_count: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.messages and all(result.is_empty and not result.watched_readings for result in self.results)

    @property
    def item_count(self) -> int:
        """Telemetry rows and other messages."""
        return sum(len(result.rows) for result in self.results) + len(self.messages)

    def split(self) -> Iterator[EvaluatedBatch]:
        """One part per engine result, then one per message, in their order."""
        for result in self.results:
            yield EvaluatedBatch([result], [])
        for message in self.messages:
            yield EvaluatedBatch([], [message])


class IngestPipeline:
    def __init__(
        self,
        *,
        uow: UnitOfWork[PipelineTx],
        link: DeviceLink,
        engine: TelemetryEngine,
        make_batch: BatchFactory,
        device_messages: DeviceMessageService,
        ingest: IngestService,
        on_devices_ready: ReadyDevicesCallback,
        on_devices_subscribed: DeviceTimesCallback,
    ) -> None:
        self._uow = uow
        self._link = link
        self._engine = engine
        self._make_batch = make_batch
        self._device_messages = device_messages
        self._ingest = ingest
        self._on_devices_ready = on_devices_ready
        self._on_devices_subscribed = on_devices_subscribed

    async def decode(self, batch: InboundBatch) -> DecodedBatch:
        """Decode everything but native telemetry. Raises Unavailable."""
        return await self._device_messages.decode(batch.events)

    def evaluate(self, batch: InboundBatch, decoded: DecodedBatch) -> EvaluatedBatch:
        """Run native telemetry, then the telemetry of stock firmware, through the engine."""
        batches: list[TelemetryBatch] = [batch.telemetry]  # type: ignore[list-item]  # one native class behind both Protocols
        if decoded.telemetry:
            batches.append(self._make_batch(decoded.telemetry))
        evaluated = [self._engine.ingest(telemetry) for telemetry in batches if len(telemetry)]
        faults = [(device_no, code, 1, reason) for device_no, code, reason in decoded.faults]
        faults += [(*fault, "") for result in evaluated for fault in result.faults]
        return EvaluatedBatch(
            results=[IngestResult.of(result) for result in evaluated],
            messages=decoded.messages,
            faults=faults,
            last_seen=list(chain.from_iterable(result.last_seen for result in evaluated)),
            telemetry_message_count=sum(result.message_count for result in evaluated),
            reading_count=sum(result.reading_count for result in evaluated),
        )

    async def store(self, batch: EvaluatedBatch) -> FollowUps:
        """Write the batch in one transaction. Raises Unavailable when the database does not answer."""
        follow_ups = FollowUps()
        if batch.is_empty:
            return follow_ups
        async with self._uow.write(caller=None) as tx:
            for result in batch.results:
                await self._ingest.store(tx, result)
            follow_ups.extend(await self._device_messages.apply(tx, batch.messages))
        return follow_ups

    async def follow_up(self, follow_ups: FollowUps) -> None:
        """After the commit: start the commands of devices that are ready, and answer devices."""
        if follow_ups.ready_devices:
            self._on_devices_ready(follow_ups.ready_devices)
        if follow_ups.subscribed_devices:
            self._on_devices_subscribed(follow_ups.subscribed_devices)
        for device_id, message in follow_ups.messages:
            await self._link.send(device_id, message)
