"""Takes batches from the device link, runs them through the ingest pipeline, and acknowledges them after the commit.

The law: a QoS-1 message is confirmed to its device only after the commit that holds it. While the database does not answer, the
worker waits, the link's bounded queue fills, and devices wait for their PUBACK; memory does not grow. One message that cannot be
stored must not hold up the fleet: when a batch fails for any other reason, its parts are stored one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

import structlog

from app.workers.fault_log import FaultLog
from app.workers.last_seen import LastSeenBuffer
from app.workers.wake_event import WakeEvent
from domain.devices.link import DeviceLink, InboundBatch
from domain.ingest.device_messages import FollowUps
from domain.ingest.pipeline import EvaluatedBatch, IngestPipeline
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.errors import Unavailable

BATCH_SIZE = 2_048
"""Messages per transaction: large enough to share a commit's fsync, small enough that a command waits 30 ms at most."""
MAX_BATCH_SIZE = 8_192
"""Used while more messages arrive than a batch takes. A transaction writes one page per device, however few rows that device has:
with 1,000 devices this size carries nearly twice as much, and waiting messages wait half as long."""
MIN_BATCH_INTERVAL_S = 0.005
"""Shortest time between the starts of two batches, unless the first was full. A transaction costs about a millisecond of CPU even
when it is small, so messages that arrive in the meantime share the next one. A single message is stored at once."""

Result = TypeVar("Result")

log = structlog.get_logger("ingest")


class IngestWorker:
    name = "ingest"

    def __init__(
        self,
        *,
        link: DeviceLink,
        pipeline: IngestPipeline,
        engine_commit_lock: asyncio.Lock,
        last_seen: LastSeenBuffer,
        fault_log: FaultLog,
        rule_timer_wake: WakeEvent,
    ) -> None:
        self._link = link
        self._pipeline = pipeline
        self._engine_commit_lock = engine_commit_lock
        self._last_seen = last_seen
        self._fault_log = fault_log
        self._rule_timer_wake = rule_timer_wake
        self.batches = 0
        self.messages = 0
        self.readings = 0
        self.events = 0
        self.retries = 0
        self.lost = 0
        self._batch_started: float | None = None

    @property
    def batch_age_s(self) -> float:
        """Seconds since the worker received the batch that it is storing; 0 when it has none."""
        return 0.0 if self._batch_started is None else monotonic() - self._batch_started

    async def run(self) -> None:
        limit = BATCH_SIZE
        while True:
            batch = await self._link.receive(limit)
            full = len(batch.telemetry) + len(batch.events) >= limit
            limit = min(2 * limit, MAX_BATCH_SIZE) if full else BATCH_SIZE
            self._batch_started = started = monotonic()
            try:
                await self._process_batch(batch)
            except BaseException:
                batch.nack()
                raise
            finally:
                self._batch_started = None
            pause_s = started + MIN_BATCH_INTERVAL_S - monotonic()
            if pause_s > 0 and not full:
                await asyncio.sleep(pause_s)

    async def _process_batch(self, batch: InboundBatch) -> None:
        decoded = await self._retry_while_unavailable(lambda: self._pipeline.decode(batch))
        async with self._engine_commit_lock:
            evaluated = self._pipeline.evaluate(batch, decoded)
            self._record(evaluated)
            follow_ups = await self._store(evaluated)
        batch.ack()
        self.batches += 1
        self.events += len(evaluated.messages)
        self._rule_timer_wake.set()
        await self._pipeline.follow_up(follow_ups)

    def _record(self, evaluated: EvaluatedBatch) -> None:
        for device_no, code, count, reason in evaluated.faults:
            self._fault_log.count(device_no, code, count, reason)
        self._last_seen.update(evaluated.last_seen)
        self.messages += evaluated.telemetry_message_count
        self.readings += evaluated.reading_count

    async def _store(self, evaluated: EvaluatedBatch) -> FollowUps:
        """Store the batch in one transaction, or its parts one by one when that fails. A part that fails too is dropped."""
        try:
            return await self._retry_while_unavailable(lambda: self._pipeline.store(evaluated))
        except Exception:
            log.exception(
                "cannot store a batch; storing its parts one by one",
                results=len(evaluated.results),
                events=len(evaluated.messages),
            )
        follow_ups = FollowUps()
        for part in evaluated.split():
            follow_ups.extend(await self._store_part(part))
        return follow_ups

    async def _store_part(self, part: EvaluatedBatch) -> FollowUps:
        try:
            return await self._retry_while_unavailable(lambda: self._pipeline.store(part))
        except Exception:
            self.lost += part.item_count
            rows = [len(result.rows) for result in part.results]
            log.critical("dropped a part of a batch that cannot be stored", rows=rows, events=part.messages, exc_info=True)
            return FollowUps()

    async def _retry_while_unavailable(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Retry until the database answers. The messages of the devices stay unacknowledged meanwhile."""
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
