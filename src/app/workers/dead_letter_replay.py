"""Replays the dead letters that the operator has marked: one at a time, and deletes each when it is stored.

A replayed message is a late upload. Its readings get their own time, or that of their first arrival, and drive no rules: the
device's rules are taken out of the engine meanwhile. Of other messages, readings and command results are applied; relay state,
presence and schedule revision are not, because the device has reported newer ones since. An interrupted replay is repeated, which
skips the readings that are stored already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from app.workers.due import DueLoop, WakeEvent
from app.workers.ingest import SplittingBatchWriter
from domain.devices.link import InboundEvent, InboundMessage
from domain.devices.messages import CommandResultReport, DeviceReport, StockFirmwareTelemetryReport
from domain.ingest.dead_letters import TELEMETRY_KIND, IngestDeadLetterService, reason_of
from domain.ingest.device_messages import DecodedBatch, DecodedMessage
from domain.ingest.pipeline import BatchFactory, IngestPipeline
from domain.ingest.ports import IngestDeadLetter
from domain.kernel.dataclasses import service
from domain.rules.ports import RawTelemetryBatch, TelemetryEngine

POLL_INTERVAL_S = 5.0
"""Marks are set by another process, so the worker looks for them."""
LETTERS_PER_READ = 100


@dataclass(frozen=True, slots=True)
class DeadLetterInboundBatch:
    """A dead letter in the form of an inbound batch; no device waits for an answer to it."""

    telemetry: RawTelemetryBatch
    events: Sequence[InboundEvent]

    def ack(self) -> None: ...

    def ack_telemetry(self) -> None: ...

    def ack_events(self) -> None: ...

    def nack(self) -> None: ...


@service
class IngestDeadLetterReplayWorker(DueLoop):
    name = "dead_letters"

    dead_letters: IngestDeadLetterService
    pipeline: IngestPipeline
    engine: TelemetryEngine
    make_batch: BatchFactory
    engine_commit_lock: asyncio.Lock
    rule_timer_wake: WakeEvent
    owns_device: Callable[[int], bool] = lambda _: True
    """Whether this instance holds the rules of the device; the letters of others are theirs."""

    wake_event: WakeEvent = field(default_factory=WakeEvent, init=False)

    def __post_init__(self) -> None:
        self._batch_store = SplittingBatchWriter(pipeline=self.pipeline)

    async def run_once(self) -> float:
        while letters := await self._list_own():
            for letter in letters:
                await self._replay(letter)
        return POLL_INTERVAL_S

    async def _list_own(self) -> Sequence[IngestDeadLetter]:
        marked = await self.dead_letters.list_for_replay(LETTERS_PER_READ)
        return [letter for letter in marked if self.owns_device(letter.device_no)]

    async def _replay(self, letter: IngestDeadLetter) -> None:
        batch = self._to_batch(letter)
        decoded = _without_current_state(await self.pipeline.decode(batch))
        async with self.engine_commit_lock:
            rules = await self.dead_letters.find_rules(letter.device_no)
            if rules is None:
                await self.dead_letters.complete_replay(letter)  # the device was deleted
                return
            self.engine.set_rules(letter.device_no, [])
            try:
                evaluated = await self.pipeline.evaluate(batch, decoded, self._batch_store.assign_names)
            finally:
                self.engine.set_rules(letter.device_no, rules)
            _, refused = await self._batch_store.store(evaluated)
        self.rule_timer_wake.set()
        if refused := [*evaluated.unnamed, *refused]:
            await self.dead_letters.fail_replay(letter, reason_of(refused[0].error))
        else:
            await self.dead_letters.complete_replay(letter)

    def _to_batch(self, letter: IngestDeadLetter) -> DeadLetterInboundBatch:
        if letter.kind == TELEMETRY_KIND:
            return DeadLetterInboundBatch(self.make_batch([(letter.device_no, letter.arrived_ms, letter.payload)]), ())
        message = InboundMessage(
            letter.device_no, letter.device_id or "", letter.kind, letter.payload, qos=1, retain=False, at_ms=letter.arrived_ms
        )
        return DeadLetterInboundBatch(self.make_batch([]), (message,))


def _without_current_state(decoded: DecodedBatch) -> DecodedBatch:
    """Keep what stays true when it arrives late: readings and command results."""
    return replace(
        decoded, messages=[DecodedMessage(message.event, _late_reports(message.reports)) for message in decoded.messages]
    )


def _late_reports(reports: Sequence[DeviceReport]) -> tuple[DeviceReport, ...]:
    return tuple(
        replace(report, relay=None) if isinstance(report, CommandResultReport) else report
        for report in reports
        if isinstance(report, CommandResultReport | StockFirmwareTelemetryReport)
    )
