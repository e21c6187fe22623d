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

from app.loops.doorbell import Doorbell
from app.loops.faults import FaultLog
from app.loops.seen import Seen
from domain.devices.link import DeviceLink, UplinkBatch
from domain.kernel.clock import Clock
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import TelemetryBatch, TelemetryEngine
from domain.telemetry.ingest import IngestService, Verdict
from domain.telemetry.ports import TelemetryTx
from domain.telemetry.uplink import Answers, Item, Sorted, UplinkService

BATCH = 2_048
"""Messages a transaction: large enough that a commit's fsync is shared, small enough that a command waits some 30 ms at most."""
LARGEST_BATCH = 8_192
"""While more comes than a batch takes. A transaction writes a page for each device in it, however few its rows are: with 1,000
devices this carries nearly twice as much, and who waits anyway waits half as long."""
GATHER_S = 0.005
"""At the least from one batch to the next, unless more has come than a batch takes. A transaction costs about a millisecond of
processor time however little is in it, and what comes while the next one waits shares it. A message that comes alone waits for
nobody."""
PAUSES_S = (0.05, 0.2, 1.0, 2.0, 5.0)

MakeBatch = Callable[[list[tuple[int, int, bytes]]], TelemetryBatch]
Ready = Callable[[Sequence[tuple[int, int]]], None]

Result = TypeVar("Result")

log = structlog.get_logger("uplink")


class UplinkLoop:
    name = "uplink"

    def __init__(
        self,
        *,
        link: DeviceLink,
        engine: TelemetryEngine,
        make_batch: MakeBatch,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        uplink: UplinkService,
        ingest: IngestService,
        turnstile: asyncio.Lock,
        seen: Seen,
        faults: FaultLog,
        ready: Ready,
        subscribed: Ready,
        timers: Doorbell,
    ) -> None:
        self._link = link
        self._engine = engine
        self._make_batch = make_batch
        self._uow = uow
        self._clock = clock
        self._uplink = uplink
        self._ingest = ingest
        self._turnstile = turnstile
        self._seen = seen
        self._faults = faults
        self._ready = ready
        self._subscribed = subscribed
        self._timers = timers
        self.batches = 0
        self.messages = 0
        self.readings = 0
        self.events = 0
        self.retries = 0
        self.lost = 0

    async def run(self) -> None:
        limit = BATCH
        while True:
            batch = await self._link.take(limit)
            full = len(batch.telemetry) + len(batch.events) >= limit
            limit = min(2 * limit, LARGEST_BATCH) if full else BATCH
            began = monotonic()
            try:
                await self._absorb(batch)
            except BaseException:
                batch.nack()
                raise
            rest_s = began + GATHER_S - monotonic()
            if rest_s > 0 and not full:
                await asyncio.sleep(rest_s)

    async def _absorb(self, batch: UplinkBatch) -> None:
        done = await self._insist(lambda: self._uplink.sort(batch.events))
        async with self._turnstile:
            verdicts = self._judge(batch, done)
            answers = await self._store(verdicts, done.items)
        batch.ack()
        self.batches += 1
        self.events += len(done.items)
        self._timers.ring()
        await self._carry_out(answers)

    def _judge(self, batch: UplinkBatch, done: Sorted) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for device_no, code, why in done.faults:
            self._faults.count(device_no, code, 1, why)
        batches: list[TelemetryBatch] = [batch.telemetry]  # type: ignore[list-item]  # one native class behind both Protocols
        if done.telemetry:
            batches.append(self._make_batch(done.telemetry))
        for telemetry in batches:
            if not len(telemetry):
                continue
            ingested = self._engine.ingest(telemetry)
            self._seen.update(ingested.seen)
            for device_no, code, count in ingested.faults:
                self._faults.count(device_no, code, count)
            self.messages += ingested.messages
            self.readings += ingested.readings
            verdicts.append(Verdict.of(ingested))
        return verdicts

    async def _store(self, verdicts: Sequence[Verdict], items: Sequence[Item]) -> Answers:
        """One transaction for all; when it fails for good, one for each part."""
        try:
            return await self._insist(lambda: self._transact(verdicts, items))
        except Exception:
            log.exception("batch failed; trying its parts one by one", verdicts=len(verdicts), events=len(items))
        answers = Answers()
        for verdict in verdicts:
            await self._or_lose([verdict], [], answers)
        for item in items:
            await self._or_lose([], [item], answers)
        return answers

    async def _or_lose(self, verdicts: Sequence[Verdict], items: Sequence[Item], answers: Answers) -> None:
        try:
            answers.extend(await self._insist(lambda: self._transact(verdicts, items)))
        except Exception:
            self.lost += sum(len(verdict.rows) for verdict in verdicts) + len(items)
            log.critical("gave up on a part of a batch", rows=[len(v.rows) for v in verdicts], items=items, exc_info=True)

    async def _transact(self, verdicts: Sequence[Verdict], items: Sequence[Item]) -> Answers:
        answers = Answers()
        if not items and all(verdict.is_empty and not verdict.watched for verdict in verdicts):
            return answers
        async with self._uow.write() as tx:
            for verdict in verdicts:
                await self._ingest.store(tx, verdict)
            answers.extend(await self._uplink.apply(tx, items))
        return answers

    async def _insist(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Again and again while the database is away: the devices' messages are not acknowledged meanwhile."""
        attempt = 0
        while True:
            try:
                return await work()
            except Unavailable as error:
                pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
                attempt += 1
                self.retries += 1
                log.warning("the database does not answer; telemetry waits", error=str(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)

    async def _carry_out(self, answers: Answers) -> None:
        if answers.ready:
            self._ready(answers.ready)
        if answers.subscribed:
            self._subscribed(answers.subscribed)
        for device_id, message in answers.sends:
            await self._link.send(
                device_id, message.topic, message.payload, retain=message.retain, expiry_s=message.expiry_s, qos=message.qos
            )
