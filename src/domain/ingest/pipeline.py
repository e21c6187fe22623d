"""What one batch from the device link goes through: decode, evaluate, store, follow up.

The law: `evaluate` moves the engine forward, so it runs exactly once per batch, and the caller holds the engine commit lock until
`store` has committed. Metric names that are new to the fleet get their numbers from the database on the way. `store` writes
everything in one transaction and may be retried with the same batch; when the database refuses it, the caller stores the parts
from `EvaluatedBatch.split` and sets aside the messages of the refused ones. The pipeline awaits ports only; waiting and retrying
are the caller's.

Runs a telemetry batch through the engine, and gives new metric names their numbers before it takes the messages with them.

The law: only the database assigns a number, so that several instances that store readings at the same time never use one number
for two names. The transaction is a short one of its own. A crash right after it leaves a number without readings, which is
harmless: the name gets the same number when a device sends it again.

The clock that the engine measures by: the service's wall clock, and every step of it.

Rules and their states use wall time, so that a restart continues from what the database contains. Between restarts they must not
follow a step of the clock: before the engine is used, `follow_steps` moves all its times along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from domain.devices.link import InboundBatch, InboundMessage, OutboundDeviceMessagePort
from domain.devices.lookup import ids_for_log
from domain.devices.messages import StockFirmwareTelemetryReport
from domain.ingest.dead_letters import TELEMETRY_KIND, reason_of
from domain.ingest.device_messages import DecodedBatch, DecodedMessage, DeviceMessageHandler, FollowUps, MessageDrop
from domain.ingest.ports import IngestDeadLetter, IngestTx
from domain.ingest.results import NOTHING, EngineResultWriter, IngestResult
from domain.kernel.clock import Clock, ClockStepDetector
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import UnitOfWork
from domain.partitions.model import PartitionLogAdvance
from domain.rules.ports import BatchResult, ClockOffset, RawTelemetryBatch, TelemetryEngine

AssignNames = Callable[[Sequence[str]], Awaitable[Mapping[str, Exception]]]
"""Tells the engine the numbers of these names. Returns the names that the database refuses, each with its error."""


async def assign_metric_numbers(engine: TelemetryEngine, uow: UnitOfWork[IngestTx], names: Sequence[str]) -> None:
    """Raises Unavailable when the database does not answer."""
    async with uow.write(caller=None) as tx:
        numbered = await tx.readings.assign_metric_numbers(names)
    engine.add_metric_names(numbered)


class TelemetryEngineBatchRunner:
    """Runs a batch through the engine in as many calls as new metric names require."""

    def __init__(self, engine: TelemetryEngine, assign_names: AssignNames) -> None:
        self._engine = engine
        self._assign_names = assign_names
        self._refused: dict[str, Exception] = {}
        self.results: list[BatchResult] = []
        self.skipped: list[tuple[IngestResult, Exception]] = []
        """What names the device of a message that the engine cannot take, because the database refuses one of its names."""

    async def run(self, batch: RawTelemetryBatch, now_ms: int) -> None:
        start = 0
        while start < len(batch):
            result = self._engine.ingest(batch, now_ms, start)
            self.results.append(result)
            start = result.consumed
            unknown = result.unknown_metric_names
            unassigned = [name for name in unknown if name not in self._refused]
            if unassigned:
                self._refused |= await self._assign_names(unassigned)
            elif unknown:
                named = replace(NOTHING, new_metrics=[(batch.messages()[start][0], 0, unknown[0], None)])
                self.skipped.append((named, self._refused[unknown[0]]))
                start += 1


class EngineClock:
    def __init__(self, *, engine: TelemetryEngine, clock: Clock, on_step: Callable[[int], None]) -> None:
        """`on_step` is told of each step, in milliseconds."""
        self._engine = engine
        self._clock = clock
        self._steps = ClockStepDetector(clock)
        self._on_step = on_step
        self.step_count = 0

    def start(self) -> None:
        """Call when the engine has been restored: it has the clock as it is now."""
        self._steps = ClockStepDetector(self._clock)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def follow_steps(self) -> IngestResult | None:
        """Call under the engine commit lock before the engine takes messages or evaluates timers. Store the result, if any: the
        states of rules whose times have moved."""
        step_ms = self._steps.take_ms()
        if step_ms == 0:
            return None
        self.step_count += 1
        self._on_step(step_ms)
        return IngestResult.of(self._engine.shift_clock(step_ms, self._clock.now_ms()))


BatchFactory = Callable[[list[tuple[int, int, bytes]]], RawTelemetryBatch]
ReadyDevicesCallback = Callable[[Sequence[tuple[int, int, int]]], None]
DeviceTimesCallback = Callable[[Sequence[tuple[int, int]]], None]
"""Takes (device number, Unix ms) pairs."""


@dataclass(frozen=True, slots=True)
class EvaluatedBatch:
    """What the engine made of the telemetry, and the other messages: everything that has to be stored."""

    results: Sequence[IngestResult]
    messages: Sequence[DecodedMessage]
    faults: Sequence[MessageDrop] = ()
    """(device number, code, count, reason) of what devices sent that cannot be used."""
    last_seen: Sequence[tuple[int, int]] = ()
    """(device number, Unix ms) of every device that sent telemetry."""
    clocks_ahead: Sequence[ClockOffset] = ()
    telemetry_message_count: int = 0
    reading_count: int = 0
    unnamed: Sequence[RefusedBatchPart] = ()
    """Messages that the engine did not take, because the database refuses a metric name."""
    progress: Sequence[PartitionLogAdvance] = ()
    """What this is of the logs of partitions; the positions advance in the transaction that stores it."""

    @property
    def is_empty(self) -> bool:
        return (
            not self.messages
            and not self.progress
            and all(result.is_empty and not result.watched_readings for result in self.results)
        )

    @property
    def device_nos(self) -> set[int]:
        return {message.event.device_no for message in self.messages}.union(*(result.device_nos for result in self.results))

    @property
    def only_sender(self) -> int | None:
        """The number of the device that sent everything in the batch; None if several did."""
        if len(self.last_seen) > 1:
            return None
        senders = {device_no for device_no, _ in self.last_seen}.union(message.event.device_no for message in self.messages)
        return senders.pop() if len(senders) == 1 else None

    @classmethod
    def join(cls, parts: Sequence[EvaluatedBatch]) -> EvaluatedBatch:
        """The results and messages of the parts, to store them together."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [each for part in parts for each in part.results],
            [each for part in parts for each in part.messages],
            progress=parts[-1].progress,
        )

    def split(self) -> Iterator[EvaluatedBatch]:
        """The parts of each engine result, then one part per message, in their order. Every part proves that its partitions are
        owned; only the last one advances their positions."""
        proof = [each.without_advance() for each in self.progress]
        for result in self.results:
            for part in result.split():
                yield EvaluatedBatch([part], [], progress=proof)
        for message in self.messages:
            yield EvaluatedBatch([], [message], progress=proof)
        if self.progress:
            yield EvaluatedBatch([], [], progress=self.progress)


@dataclass(frozen=True, slots=True)
class RefusedBatchPart:
    part: EvaluatedBatch
    error: Exception


def refused_messages(
    batch: InboundBatch, evaluated: EvaluatedBatch, refused: Sequence[RefusedBatchPart]
) -> list[IngestDeadLetter]:
    """The messages, as they arrived, that refused parts were made of. A refused engine result does not tell which message of the
    device caused it: then all telemetry of the device in this batch is returned."""
    by_device: dict[int, str] = {}
    by_message: dict[int, str] = {}
    for each in refused:
        reason = reason_of(each.error)
        for result in each.part.results:
            by_device |= {device_no: reason for device_no in result.device_nos if device_no not in by_device}
        by_message |= {id(message): reason for message in each.part.messages}
    letters = []
    if by_device and len(batch.telemetry):
        telemetry: RawTelemetryBatch = batch.telemetry  # type: ignore[assignment]  # one native class behind both Protocols
        letters = [
            IngestDeadLetter(0, device_no, None, TELEMETRY_KIND, payload, at_ms, by_device[device_no])
            for device_no, at_ms, payload in telemetry.messages()
            if device_no in by_device
        ]
    for message in evaluated.messages:
        event, has_telemetry = message.event, any(isinstance(report, StockFirmwareTelemetryReport) for report in message.reports)
        why = by_message.get(id(message)) or (by_device.get(event.device_no) if has_telemetry else None)
        if why is not None and isinstance(event, InboundMessage):
            letters.append(IngestDeadLetter(0, event.device_no, None, event.topic, event.payload, event.at_ms, why))
    return letters


def _engine_drops(result: BatchResult, topics: Mapping[int, str]) -> Iterator[MessageDrop]:
    """`topics`: those of devices whose telemetry is no native telemetry, which has one topic."""
    metrics = {(device_no, code): metric for device_no, code, metric in result.fault_metrics}
    for device_no, code, count in result.faults:
        yield MessageDrop(device_no, code, count, "", topics.get(device_no), metrics.get((device_no, code)))


@service
class IngestPipeline:
    uow: UnitOfWork[IngestTx]
    link: OutboundDeviceMessagePort
    engine: TelemetryEngine
    engine_clock: EngineClock
    make_batch: BatchFactory
    device_messages: DeviceMessageHandler
    ingest: EngineResultWriter
    on_devices_ready: ReadyDevicesCallback
    on_devices_subscribed: DeviceTimesCallback

    async def decode(self, batch: InboundBatch) -> DecodedBatch:
        """Decode everything but native telemetry. Raises Unavailable."""
        return await self.device_messages.decode(batch.events)

    async def device_ids(self, numbers: Collection[int]) -> list[str]:
        """For the log."""
        return await ids_for_log(self.uow, numbers)

    async def assign_names(self, names: Sequence[str]) -> None:
        """Get the engine numbers for metric names. Raises Unavailable, and what the database raises when it refuses one."""
        await assign_metric_numbers(self.engine, self.uow, names)

    async def evaluate(self, batch: InboundBatch, decoded: DecodedBatch, assign_names: AssignNames) -> EvaluatedBatch:
        """Run native telemetry, then the telemetry of stock firmware, through the engine."""
        batches: list[RawTelemetryBatch] = [batch.telemetry]  # type: ignore[list-item]  # one native class behind both Protocols
        if decoded.telemetry:
            batches.append(self.make_batch(decoded.telemetry))
        shifted = self.engine_clock.follow_steps()
        now_ms = self.engine_clock.now_ms()
        ingest = TelemetryEngineBatchRunner(self.engine, assign_names)
        for telemetry in batches:
            await ingest.run(telemetry, now_ms)
        evaluated = ingest.results
        faults = [*decoded.faults, *(drop for result in evaluated for drop in _engine_drops(result, decoded.topics))]
        return EvaluatedBatch(
            results=[*([] if shifted is None else [shifted]), *map(IngestResult.of, evaluated)],
            messages=decoded.messages,
            faults=faults,
            last_seen=list(chain.from_iterable(result.last_seen for result in evaluated)),
            clocks_ahead=list(chain.from_iterable(result.clocks_ahead for result in evaluated)),
            telemetry_message_count=sum(result.message_count for result in evaluated),
            reading_count=sum(result.reading_count for result in evaluated),
            unnamed=[RefusedBatchPart(EvaluatedBatch([part], []), error) for part, error in ingest.skipped],
        )

    async def store(self, batch: EvaluatedBatch) -> FollowUps:
        """Write the batch in one transaction. Raises Unavailable when the database does not answer; PartitionLostError or
        LogAdvanceAlreadyCommittedError, and then nothing was written."""
        follow_ups = FollowUps()
        if batch.is_empty:
            return follow_ups
        async with self.uow.write(caller=None) as tx:
            for progress in batch.progress:
                await tx.partitions.advance(progress)
            for result in batch.results:
                await self.ingest.store(tx, result)
            follow_ups.extend(await self.device_messages.apply(tx, batch.messages))
        return follow_ups

    async def follow_up(self, follow_ups: FollowUps) -> None:
        """After the commit: start the commands of devices that are ready, and answer devices."""
        if follow_ups.ready_devices:
            self.on_devices_ready(follow_ups.ready_devices)
        if follow_ups.subscribed_devices:
            self.on_devices_subscribed(follow_ups.subscribed_devices)
        for device_id, message in follow_ups.messages:
            await self.link.send(device_id, message)
