"""Takes batches from the device link, runs them through the ingest pipeline, and acknowledges them after the commit.

The law: a QoS-1 message is confirmed to its device only after the commit that holds it. While the database does not answer, the
worker waits, the link's bounded queue fills, and devices wait for their PUBACK; memory does not grow. One message that cannot be
stored must not hold up the fleet: when the database refuses a batch, its parts are stored, and the messages behind the refused
parts are set aside as dead letters before the batch is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from time import monotonic
from typing import TypeVar

import structlog

from app.runtime.metrics import UnusableMessageCounter
from app.workers.due import WakeEvent
from domain.devices.health import ClockSkewService, LastSeenBuffer
from domain.devices.link import InboundBatch, InboundDeviceMessagePort, InboundMessage
from domain.ingest.dead_letters import IngestDeadLetterService
from domain.ingest.device_messages import FollowUps, MessageDrop
from domain.ingest.pipeline import EvaluatedBatch, IngestPipeline, RefusedBatchPart, refused_messages
from domain.kernel.backoff import RETRY_BACKOFF
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.partitions.model import LeaseLostError, LogAdvanceAlreadyCommittedError, PartitionLostError

BATCH_SIZE = 2_048
"""Messages per transaction: large enough to share a commit's fsync, small enough that a command waits 30 ms at most."""
MAX_BATCH_SIZE = 8_192
"""Used while more messages arrive than a batch takes. A transaction writes one page per device, however few rows that device has:
with 1,000 devices this size carries nearly twice as much, and waiting messages wait half as long."""
MIN_BATCH_INTERVAL_S = 0.005
"""Shortest time between the starts of two batches, unless the first was full. A transaction costs about a millisecond of CPU even
when it is small, so messages that arrive in the meantime share the next one. A single message is stored at once. While one device
sends alone there is no pause: it waits for its acknowledgement, and nothing would share the batch."""

Result = TypeVar("Result")

log = structlog.get_logger("ingest")


@service
class BaseInboundBatchWorker:
    """Processes one batch of a link after the other."""

    link: InboundDeviceMessagePort
    _batch_started: float | None = field(default=None, init=False)
    _only_sender: int | None = field(default=None, init=False)
    """The device that sent everything in the last batch, if it was a single one."""

    @property
    def batch_age_s(self) -> float:
        """Seconds since the worker received the batch that it is storing; 0 when it has none."""
        return 0.0 if self._batch_started is None else monotonic() - self._batch_started

    async def run(self) -> None:
        limit = BATCH_SIZE
        while True:
            batch = await self.link.receive(limit)
            full = len(batch.telemetry) + len(batch.events) >= limit
            limit = min(2 * limit, MAX_BATCH_SIZE) if full else BATCH_SIZE
            self._batch_started = started = monotonic()
            sender_before, self._only_sender = self._only_sender, None
            try:
                await self._process_batch(batch)
            except BaseException:
                batch.nack()
                raise
            finally:
                self._batch_started = None
            pause_s = started + MIN_BATCH_INTERVAL_S - monotonic()
            sends_alone = self._only_sender is not None and self._only_sender == sender_before
            if pause_s > 0 and not full and not sends_alone:
                await asyncio.sleep(pause_s)

    async def _process_batch(self, batch: InboundBatch) -> None:
        raise NotImplementedError


@service
class IngestWorker(BaseInboundBatchWorker):
    name = "ingest"

    pipeline: IngestPipeline
    engine_commit_lock: asyncio.Lock
    last_seen: LastSeenBuffer
    fault_log: UnusableMessageCounter
    clock_offsets: ClockSkewService
    dead_letters: IngestDeadLetterService
    ensure_interest_current: Callable[[], Awaitable[None]]
    """Awaited before each evaluation: it tells the engine of the subscriptions that exist when the batch was received. Raises
    Unavailable."""

    rule_timer_wake: WakeEvent
    batches: int = field(default=0, init=False)
    messages: int = field(default=0, init=False)
    readings: int = field(default=0, init=False)
    events: int = field(default=0, init=False)
    lost: int = field(default=0, init=False)
    """Connects, disconnects and subscriptions that could not be stored; they have no bytes to set aside."""

    _last_arrivals: Sequence[tuple[int, int]] = field(default=(), init=False)
    """(device number, Unix ms) of the last batch with telemetry."""

    def __post_init__(self) -> None:
        self._batch_store = SplittingBatchWriter(pipeline=self.pipeline)

    @property
    def retries(self) -> int:
        return self._batch_store.retries

    def evaluated_until_ms(self, now_ms: int) -> int:
        """Up to when everything that arrived is evaluated. Call it while holding the engine commit lock."""
        if self._batch_started is None and not self.link.has_waiting():
            return now_ms
        return min(now_ms, max((at_ms for _, at_ms in self._last_arrivals), default=0))

    async def _process_batch(self, batch: InboundBatch) -> None:
        decoded = await self._batch_store.retry_while_unavailable(lambda: self.pipeline.decode(batch))
        async with self.engine_commit_lock:
            await self._batch_store.retry_while_unavailable(self.ensure_interest_current)
            evaluated = await self.pipeline.evaluate(batch, decoded, self._batch_store.assign_names)
            self._record(evaluated)
            follow_ups, refused = await self._batch_store.store(evaluated)
        refused = [*evaluated.unnamed, *refused]
        if refused:
            await self._set_aside(batch, evaluated, refused)
        batch.ack()
        self.batches += 1
        self.events += len(evaluated.messages)
        self._count_faults(follow_ups.drops)
        self.rule_timer_wake.set()
        await self.pipeline.follow_up(follow_ups)

    def _record(self, evaluated: EvaluatedBatch) -> None:
        self._only_sender = evaluated.only_sender
        self._count_faults(evaluated.faults)
        self.clock_offsets.on_offsets(evaluated.clocks_ahead, ahead=True)
        self.last_seen.update(evaluated.last_seen)
        self._last_arrivals = evaluated.last_seen or self._last_arrivals
        self.messages += evaluated.telemetry_message_count
        self.readings += evaluated.reading_count

    def _count_faults(self, faults: Iterable[MessageDrop]) -> None:
        for fault in faults:
            self.fault_log.count(*fault)

    async def _set_aside(self, batch: InboundBatch, evaluated: EvaluatedBatch, refused: Sequence[RefusedBatchPart]) -> None:
        """Set aside the messages of the refused parts. Raises what the database raises; then the batch is not acknowledged."""
        letters = refused_messages(batch, evaluated, refused)
        self.lost += sum(not isinstance(message.event, InboundMessage) for each in refused for message in each.part.messages)
        for each in refused:
            devices = await self.pipeline.device_ids(each.part.device_nos)
            log.error("the database refuses a part of a batch", devices=devices, exc_info=each.error)
        if letters:
            await self._batch_store.retry_while_unavailable(lambda: self.dead_letters.set_aside(letters))
            log.error("set aside messages that cannot be stored; see `latchboard deadletters list`", messages=len(letters))


@service
class SplittingBatchWriter:
    """Stores evaluated batches, retries while the database does not answer, and finds the parts that the database refuses. A
    refused batch is halved until the refused parts are found, so one refused part among thousands costs some 25 transactions."""

    pipeline: IngestPipeline
    require_permission: Callable[[], None] = lambda: None
    """Called before each attempt; what it raises ends the attempts. It may raise LeaseLostError."""

    retries: int = field(default=0, init=False)

    async def store(self, evaluated: EvaluatedBatch) -> tuple[FollowUps, Sequence[RefusedBatchPart]]:
        """Store the batch in one transaction, or the parts that the database accepts when it refuses the whole. Raises
        PartitionLostError, LeaseLostError."""
        try:
            return await self._store_once(evaluated), ()
        except (PartitionLostError, LeaseLostError):
            raise
        except Exception as error:
            parts = list(evaluated.split())
            log.warning("the database refuses a batch; storing its parts", parts=len(parts), error=repr(error))
        follow_ups, refused = FollowUps(), list[RefusedBatchPart]()
        await self._store_parts(parts, follow_ups, refused)
        return follow_ups, refused

    async def assign_names(self, names: Sequence[str]) -> Mapping[str, Exception]:
        """Get numbers for new metric names. Returns those that the database refuses, each with its error."""
        try:
            await self.retry_while_unavailable(lambda: self.pipeline.assign_names(names))
            return {}
        except Exception as error:
            if len(names) == 1:
                return {names[0]: error}
        middle = len(names) // 2
        return {**await self.assign_names(names[:middle]), **await self.assign_names(names[middle:])}

    async def _store_once(self, evaluated: EvaluatedBatch) -> FollowUps:
        try:
            return await self.retry_while_unavailable(lambda: self.pipeline.store(evaluated))
        except LogAdvanceAlreadyCommittedError:
            return FollowUps()  # the answer to the commit was lost, and this was its repetition

    async def _store_parts(self, parts: Sequence[EvaluatedBatch], follow_ups: FollowUps, refused: list[RefusedBatchPart]) -> None:
        joined = EvaluatedBatch.join(parts)
        try:
            follow_ups.extend(await self._store_once(joined))
            return
        except (PartitionLostError, LeaseLostError):
            raise
        except Exception as error:
            if len(parts) == 1:
                refused.append(RefusedBatchPart(joined, error))
                return
        middle = len(parts) // 2
        await self._store_parts(parts[:middle], follow_ups, refused)
        await self._store_parts(parts[middle:], follow_ups, refused)

    async def retry_while_unavailable(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Retry until the database answers. The messages of the devices stay unacknowledged meanwhile."""
        attempt = 0
        while True:
            self.require_permission()
            try:
                return await work()
            except Unavailable as error:
                attempt += 1
                pause_s = RETRY_BACKOFF.pause_s(attempt)
                self.retries += 1
                log.warning("the database does not answer; telemetry waits", error=str(error), attempt=attempt, pause_s=pause_s)
                await asyncio.sleep(pause_s)
