"""From the device link to the database: take a batch, let the engine judge it, store all of it, and only then acknowledge.

The law: a QoS-1 message is confirmed to its device after the commit that holds it, so the loop stands still when the database
does, the link's bounded queue fills, and the devices wait; memory does not grow. One message that cannot be handled must not
hold up the fleet: when a whole batch fails for another reason than the database being away, its parts are tried one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TypeVar

import structlog

from app.workers.fault_log import FaultLog
from app.workers.last_seen import LastSeenBuffer
from app.workers.wake_event import WakeEvent
from domain.devices.link import DeviceLink, InboundBatch
from domain.ingest.device_messages import DecodedBatch, DecodedMessage, DeviceMessageService, FollowUps
from domain.ingest.telemetry import IngestResult, IngestService
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.clock import Clock
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.engine_port import TelemetryBatch, TelemetryEngine
from domain.telemetry.ports import TelemetryTx

BATCH_SIZE = 2_048
"""Messages a transaction: large enough that a commit's fsync is shared, small enough that a command waits some 30 ms at most."""
MAX_BATCH_SIZE = 8_192
"""While more comes than a batch takes. A transaction writes a page for each device in it, however few its rows are: with 1,000
devices this carries nearly twice as much, and who waits anyway waits half as long."""
MIN_BATCH_INTERVAL_S = 0.005
"""At the least from one batch to the next, unless more has come than a batch takes. A transaction costs about a millisecond of
processor time however little is in it, and what comes while the next one waits shares it. A message that comes alone waits for
nobody."""

BatchFactory = Callable[[list[tuple[int, int, bytes]]], TelemetryBatch]
DeviceTimesCallback = Callable[[Sequence[tuple[int, int]]], None]

Result = TypeVar("Result")

log = structlog.get_logger("uplink")


class IngestWorker:
    name = "uplink"

    def __init__(
        self,
        *,
        link: DeviceLink,
        engine: TelemetryEngine,
        make_batch: BatchFactory,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        uplink: DeviceMessageService,
        ingest: IngestService,
        turnstile: asyncio.Lock,
        seen: LastSeenBuffer,
        faults: FaultLog,
        ready: DeviceTimesCallback,
        subscribed: DeviceTimesCallback,
        timers: WakeEvent,
    ) -> None:
        self._link = link
        self._engine = engine
        self._make_batch = make_batch
        self._uow = uow
        self._clock = clock
        self._device_messages = uplink
        self._ingest = ingest
        self._engine_commit_lock = turnstile
        self._last_seen = seen
        self._fault_log = faults
        self._on_devices_ready = ready
        self._on_devices_subscribed = subscribed
        self._rule_timer_wake = timers
        self.batches = 0
        self.messages = 0
        self.readings = 0
        self.events = 0
        self.retries = 0
        self.lost = 0

    async def run(self) -> None:
        limit = BATCH_SIZE
        while True:
            batch = await self._link.receive(limit)
            full = len(batch.telemetry) + len(batch.events) >= limit
            limit = min(2 * limit, MAX_BATCH_SIZE) if full else BATCH_SIZE
            began = monotonic()
            try:
                await self._process_batch(batch)
            except BaseException:
                batch.nack()
                raise
            rest_s = began + MIN_BATCH_INTERVAL_S - monotonic()
            if rest_s > 0 and not full:
                await asyncio.sleep(rest_s)

    async def _process_batch(self, batch: InboundBatch) -> None:
        done = await self._retry_while_unavailable(lambda: self._device_messages.decode(batch.events))
        async with self._engine_commit_lock:
            verdicts = self._evaluate(batch, done)
            answers = await self._store(verdicts, done.messages)
        batch.ack()
        self.batches += 1
        self.events += len(done.messages)
        self._rule_timer_wake.set()
        await self._run_follow_ups(answers)

    def _evaluate(self, batch: InboundBatch, done: DecodedBatch) -> list[IngestResult]:
        verdicts: list[IngestResult] = []
        for device_no, code, why in done.faults:
            self._fault_log.count(device_no, code, 1, why)
        batches: list[TelemetryBatch] = [batch.telemetry]  # type: ignore[list-item]  # one native class behind both Protocols
        if done.telemetry:
            batches.append(self._make_batch(done.telemetry))
        for telemetry in batches:
            if not len(telemetry):
                continue
            ingested = self._engine.ingest(telemetry)
            self._last_seen.update(ingested.last_seen)
            for device_no, code, count in ingested.faults:
                self._fault_log.count(device_no, code, count)
            self.messages += ingested.message_count
            self.readings += ingested.reading_count
            verdicts.append(IngestResult.of(ingested))
        return verdicts

    async def _store(self, verdicts: Sequence[IngestResult], items: Sequence[DecodedMessage]) -> FollowUps:
        """One transaction for all; when it fails for good, one for each part."""
        try:
            return await self._retry_while_unavailable(lambda: self._store_in_transaction(verdicts, items))
        except Exception:
            log.exception("batch failed; trying its parts one by one", verdicts=len(verdicts), events=len(items))
        answers = FollowUps()
        for verdict in verdicts:
            await self._store_part_or_drop([verdict], [], answers)
        for item in items:
            await self._store_part_or_drop([], [item], answers)
        return answers

    async def _store_part_or_drop(
        self, verdicts: Sequence[IngestResult], items: Sequence[DecodedMessage], answers: FollowUps
    ) -> None:
        try:
            answers.extend(await self._retry_while_unavailable(lambda: self._store_in_transaction(verdicts, items)))
        except Exception:
            self.lost += sum(len(verdict.rows) for verdict in verdicts) + len(items)
            log.critical("gave up on a part of a batch", rows=[len(v.rows) for v in verdicts], items=items, exc_info=True)

    async def _store_in_transaction(self, verdicts: Sequence[IngestResult], items: Sequence[DecodedMessage]) -> FollowUps:
        answers = FollowUps()
        if not items and all(verdict.is_empty and not verdict.watched_readings for verdict in verdicts):
            return answers
        async with self._uow.write() as tx:
            for verdict in verdicts:
                await self._ingest.store(tx, verdict)
            answers.extend(await self._device_messages.apply(tx, items))
        return answers

    async def _retry_while_unavailable(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Again and again while the database is away: the devices' messages are not acknowledged meanwhile."""
        attempt = 0
        while True:
            try:
                return await work()
            except Unavailable as error:
                attempt += 1
                pause_s = RETRY_BACKOFF.pause_s(attempt)
                self.retries += 1
                log.warning("the database does not answer; telemetry waits", error=str(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)

    async def _run_follow_ups(self, answers: FollowUps) -> None:
        if answers.ready_devices:
            self._on_devices_ready(answers.ready_devices)
        if answers.subscribed_devices:
            self._on_devices_subscribed(answers.subscribed_devices)
        for device_id, message in answers.messages:
            await self._link.send(
                device_id, message.topic, message.payload, retain=message.retain, expiry_s=message.expiry_s, qos=message.qos
            )
